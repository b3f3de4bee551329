//! `Bucketize`: between which boundaries each element lies.

use crate::error::unsupported;
use crate::prelude::*;

pub(super) const DEF: OpDef = OpDef::pure("Bucketize", RowRule::Elementwise, |attrs| {
    let boundaries = attrs.floats("boundaries")?.to_vec();
    if boundaries.windows(2).any(|pair| pair[0] > pair[1]) {
        return invalid!("Expected sorted boundaries");
    }
    Ok(Box::new(Bucketize { boundaries }))
});

struct Bucketize {
    boundaries: Vec<f32>,
}

impl Op for Bucketize {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [x] = arity(inputs)?;
        Ok(vec![x.with_dtype(DType::I32)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let x = ctx.input(0);
        let mut out = ctx.output(0, DType::I32, x.shape())?;
        let out: &mut [i32] = out.as_mut_slice();
        // C++ compares a boundary and an element in the wider of their types; that of an integer
        // and a float is the float.
        match x.dtype() {
            DType::F32 => self.place(x.as_slice::<f32>(), out, |x, bound| x < bound),
            DType::F64 => self.place(x.as_slice::<f64>(), out, |x, bound| x < f64::from(bound)),
            DType::I32 => self.place(x.as_slice::<i32>(), out, |x, bound| (x as f32) < bound),
            DType::I64 => self.place(x.as_slice::<i64>(), out, |x, bound| (x as f32) < bound),
            other => return unsupported!("dtype {other} is not supported here"),
        }
        Ok(())
    }
}

impl Bucketize {
    /// Writes for each element the first boundary that it is below of.
    fn place<T: Copy>(&self, x: &[T], out: &mut [i32], below: impl Fn(T, f32) -> bool) {
        for (x, out) in x.iter().zip(out) {
            if is_stopped(16) {
                return;
            }
            *out = self.boundaries.partition_point(|bound| !below(*x, *bound)) as i32;
        }
    }
}
