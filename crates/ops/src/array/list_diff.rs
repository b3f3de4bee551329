//! `ListDiff`: the elements of one vector that are not in another, and where they stood.

use crate::prelude::*;

pub(super) const LIST_DIFF: OpDef = OpDef::pure("ListDiff", |attrs| {
    Ok(Box::new(ListDiff { index: attrs.dtype_or("out_idx", DType::I32)? }))
});

struct ListDiff {
    index: DType,
}

impl Op for ListDiff {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [x, y] = arity(inputs)?;
        x.require_rank(1)?;
        y.require_rank(1)?;
        let unknown = [Dim::Unknown];
        Ok(vec![Spec::new(x.dtype, unknown.clone()), Spec::new(self.index, unknown)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (x, y) = (ctx.input(0), ctx.input(1));
        if x.dtype() != y.dtype() || x.shape().rank() != 1 || y.shape().rank() != 1 {
            return invalid!("x and y must be vectors of one dtype");
        }
        let kept: Vec<usize> = if x.dtype() == DType::String {
            let (x, y) = (x.strings(), y.strings());
            let known: std::collections::HashSet<&[u8]> = y.iter().collect();
            (0..x.len()).filter(|at| !known.contains(x.get(*at))).collect()
        } else {
            let (x, y) = (bits(&x)?, bits(&y)?);
            let known: std::collections::HashSet<u64> = y.into_iter().flatten().collect();
            let is_in = |bits: &Option<u64>| bits.is_some_and(|bits| known.contains(&bits));
            (0..x.len()).filter(|at| !is_in(&x[*at])).collect()
        };
        rearrange(ctx, 0, &[x], &Shape::of(&[kept.len()]), &Picked { places: &kept })?;
        let indices = ctx.output(1, self.index, &Shape::of(&[kept.len()]))?;
        super::write_sizes(indices, &kept)
    }
}

/// Numbers that are equal just if the elements are; none for what equals nothing.
fn bits(view: &View<'_>) -> Result<Vec<Option<u64>>> {
    let float = |x: f64| (!x.is_nan()).then(|| (x + 0.0).to_bits());
    Ok(match view.dtype() {
        DType::F32 => view.as_slice::<f32>().iter().map(|x| float(f64::from(*x))).collect(),
        DType::F64 => view.as_slice::<f64>().iter().map(|x| float(*x)).collect(),
        DType::F16 => view.as_slice::<half::f16>().iter().map(|x| float(f64::from(*x))).collect(),
        DType::BF16 => view.as_slice::<half::bf16>().iter().map(|x| float(f64::from(*x))).collect(),
        dtype => match dtype.size() {
            1 => view.as_wide::<u8>().iter().map(|x| Some(u64::from(*x))).collect(),
            2 => view.as_wide::<u16>().iter().map(|x| Some(u64::from(*x))).collect(),
            4 => view.as_wide::<u32>().iter().map(|x| Some(u64::from(*x))).collect(),
            8 => view.as_wide::<u64>().iter().map(|x| Some(*x)).collect(),
            _ => return crate::error::unimplemented!("dtype {dtype} is not supported here"),
        },
    })
}

struct Picked<'a> {
    places: &'a [usize],
}

impl Move for Picked<'_> {
    fn apply<T: bytemuck::Pod + Send + Sync>(
        &self,
        inputs: &[&[T]],
        output: &mut [T],
    ) -> Result<()> {
        self.places.iter().zip(output).for_each(|(at, x)| *x = inputs[0][*at]);
        Ok(())
    }
}
