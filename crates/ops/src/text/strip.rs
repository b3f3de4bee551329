//! `StringStrip`: strings without the white space around them.

use crate::prelude::*;

pub(super) const DEF: OpDef =
    OpDef::pure("StringStrip", RowRule::Elementwise, |_| Ok(Box::new(Strip)));

struct Strip;

impl Op for Strip {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [input] = arity(inputs)?;
        input.require_dtype(DType::String)?;
        Ok(vec![input.with_dtype(DType::String)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let input = ctx.input(0);
        let strings = Strings::copied(paced(input.strings().iter(), 32).map(strip))?;
        pace(32)?;
        ctx.set_output(0, Tensor::from_strings(input.shape().clone(), strings)?)
    }
}

fn strip(string: &[u8]) -> &[u8] {
    let is_text = |byte: &u8| !super::split::is_space(*byte);
    let Some(start) = string.iter().position(is_text) else { return &[] };
    let end = string.iter().rposition(is_text).map_or(start, |last| last + 1);
    &string[start..end]
}
