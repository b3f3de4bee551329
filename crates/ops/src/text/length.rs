//! `StringLength`: the bytes or characters of each string.

use super::encoding::Unit;
use crate::prelude::*;

pub(super) const DEF: OpDef = OpDef::pure("StringLength", RowRule::Elementwise, |attrs| {
    Ok(Box::new(Length(Unit::read(attrs)?)))
});

struct Length(Unit);

impl Op for Length {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [input] = arity(inputs)?;
        input.require_dtype(DType::String)?;
        Ok(vec![input.with_dtype(DType::I32)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let input = ctx.input(0);
        let mut output = ctx.output(0, DType::I32, input.shape())?;
        for (out, string) in output.as_mut_slice::<i32>().iter_mut().zip(input.strings().iter()) {
            pace(4 + string.len())?;
            let length = match self.0 {
                Unit::Byte => string.len(),
                Unit::Utf8Character => super::encoding::n_characters(string),
            };
            *out = length as i32;
        }
        Ok(())
    }
}
