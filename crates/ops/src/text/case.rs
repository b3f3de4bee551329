//! `StringLower` and `StringUpper`: ASCII letters, or all letters of UTF-8 text.
//!
//! Follows `string_lower_op.cc` and `string_upper_op.cc` of TensorFlow.

use crate::prelude::*;

pub(super) const LOWER: OpDef = OpDef::pure("StringLower", RowRule::Elementwise, |attrs| {
    build(attrs, <[u8]>::make_ascii_lowercase, str::to_lowercase)
});
pub(super) const UPPER: OpDef = OpDef::pure("StringUpper", RowRule::Elementwise, |attrs| {
    build(attrs, <[u8]>::make_ascii_uppercase, str::to_uppercase)
});

fn build(
    attrs: &Attrs<'_>,
    ascii: fn(&mut [u8]),
    unicode: fn(&str) -> String,
) -> Result<Box<dyn Op>> {
    let utf8 = match attrs.str_or("encoding", "")? {
        "" => false,
        "utf-8" => true,
        other => return invalid!("only utf-8 or '' (no encoding) is supported, received {other}"),
    };
    Ok(Box::new(TextCase { utf8, ascii, unicode }))
}

struct TextCase {
    utf8: bool,
    ascii: fn(&mut [u8]),
    unicode: fn(&str) -> String,
}

impl Op for TextCase {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [input] = arity(inputs)?;
        input.require_dtype(DType::String)?;
        Ok(vec![input.with_dtype(DType::String)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let input = ctx.input(0);
        let strings = input.strings();
        let mut out = Strings::with_capacity(strings.len(), strings.n_bytes())?;
        let mut buffer = BookedVec::new();
        for string in strings.iter() {
            pace(8 + string.len())?;
            if self.utf8 && !string.is_ascii() {
                // A replaced byte is three, and so may be the other case of a letter of two.
                let _booked = Booked::new(string.len().saturating_mul(2 * 3))?;
                out.push((self.unicode)(&String::from_utf8_lossy(string)).as_bytes())?;
                continue;
            }
            buffer.clear();
            buffer.extend_from_slice(string)?;
            (self.ascii)(&mut buffer);
            out.push(&buffer)?;
        }
        ctx.set_output(0, Tensor::from_strings(input.shape().clone(), out)?)
    }
}
