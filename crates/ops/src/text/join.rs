//! `StringJoin`: strings of several tensors joined element by element.

use crate::prelude::*;

pub(super) const DEF: OpDef = OpDef::pure("StringJoin", RowRule::Elementwise, |attrs| {
    let separator =
        if attrs.has("separator") { attrs.bytes("separator")?.to_vec() } else { Vec::new() };
    Ok(Box::new(Join { separator }))
});

struct Join {
    separator: Vec<u8>,
}

impl Op for Join {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        inputs.iter().try_for_each(|input| input.require_dtype(DType::String))?;
        let mut joined = Spec::scalar(DType::String);
        for input in inputs {
            match (input.rank(), joined.rank()) {
                (None, _) => return Ok(vec![Spec::unknown(DType::String)]),
                (Some(0), _) => {}
                (Some(_), Some(0)) => joined = input.with_dtype(DType::String),
                (Some(_), _) => joined = merge(&joined, input)?,
            }
        }
        Ok(vec![joined])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let inputs = ctx.inputs();
        let mut shape = Shape::scalar();
        for input in inputs.iter().filter(|input| input.shape().rank() > 0) {
            if shape.rank() > 0 && shape != *input.shape() {
                return invalid!("Input shapes do not match: {shape} vs. {}", input.shape());
            }
            shape = input.shape().clone();
        }
        let mut strings = Strings::with_capacity(shape.n_elements(), 0)?;
        for i in 0..shape.n_elements() {
            pace(32)?;
            for (n, input) in inputs.iter().enumerate() {
                if n > 0 {
                    strings.extend_last(&self.separator)?;
                }
                let at = if input.shape().rank() == 0 { 0 } else { i };
                strings.extend_last(input.strings().get(at))?;
            }
            strings.end()?;
        }
        ctx.set_output(0, Tensor::from_strings(shape, strings)?)
    }
}

/// Returns the spec of two specs of one shape together. Fails if they cannot have one shape.
fn merge(a: &Spec, b: &Spec) -> Result<Spec> {
    let (Some(a_dims), Some(b_dims)) = (a.dims(), b.dims()) else { return Ok(a.clone()) };
    if a_dims.len() != b_dims.len() || a_dims.iter().zip(b_dims).any(|(a, b)| a.differs(b)) {
        return invalid!("Input shapes do not match: {a} vs. {b}");
    }
    let known = |(a, b): (&Dim, &Dim)| if b.known().is_some() { b.clone() } else { a.clone() };
    Ok(Spec::new(DType::String, a_dims.iter().zip(b_dims).map(known)))
}
