//! `UnicodeEncode` and `UnicodeTranscode`: characters as strings, and strings in another encoding.
//!
//! Follows `unicode_ops.cc` of TensorFlow.

use super::encoding::{Encoding, Errors};
use crate::prelude::*;

pub(super) const ENCODE: OpDef = OpDef::pure("UnicodeEncode", RowRule::Mixed, |attrs| {
    Ok(Box::new(Encode { encoding: Encoding::read_output(attrs)?, errors: Errors::read(attrs)? }))
});
pub(super) const TRANSCODE: OpDef = OpDef::pure("UnicodeTranscode", RowRule::Mixed, |attrs| {
    Ok(Box::new(Transcode {
        from: Encoding::read_input(attrs)?,
        to: Encoding::read_output(attrs)?,
        errors: Errors::read(attrs)?,
    }))
});

struct Encode {
    encoding: Encoding,
    errors: Errors,
}

impl Op for Encode {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [characters, splits] = arity(inputs)?;
        characters.require_dtype(DType::I32)?;
        characters.require_rank(1)?;
        splits.require_rank(1)?;
        let n_rows = splits.dims().map_or(Dim::Unknown, |dims| dims[0].minus(&Dim::Known(1)));
        Ok(vec![Spec::new(DType::String, [n_rows])])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let characters: &[i32] = ctx.input(0).as_slice();
        let splits = booked_i64(&ctx.input(1))?;
        let Some(splits) = splits.filter(|splits| !splits.is_empty()) else {
            return invalid!("Input_splits should contain elements, but has none");
        };
        if splits[0] != 0 {
            return invalid!("First value in input_splits must be zero, got {}", splits[0]);
        }
        let mut out = Strings::with_capacity(splits.len() - 1, characters.len())?;
        for row in splits.windows(2) {
            pace(32)?;
            let range = usize::try_from(row[0]).ok().zip(usize::try_from(row[1]).ok());
            let Some(row) = range.and_then(|(start, end)| characters.get(start..end)) else {
                return invalid!(
                    "Values in input_splits must be equal or in ascending order, and not above {}",
                    characters.len()
                );
            };
            for code in row {
                let c = u32::try_from(*code).ok().and_then(char::from_u32);
                let what = "Code point is out of range for Unicode, or a noncharacter.";
                if let Some(c) = self.errors.apply(c, what)? {
                    out.extend_last(self.encoding.encode(c, &mut [0; 4]))?;
                }
            }
            out.end()?;
        }
        if splits.last() != Some(&(characters.len() as i64)) {
            return invalid!("the last value in input_splits must be the number of characters");
        }
        ctx.set_output(0, Tensor::from_strings(Shape::of(&[out.len()]), out)?)
    }
}

struct Transcode {
    from: Encoding,
    to: Encoding,
    errors: Errors,
}

impl Op for Transcode {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [input] = arity(inputs)?;
        input.require_dtype(DType::String)?;
        Ok(vec![input.with_dtype(DType::String)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let input = ctx.input(0);
        let mut out = Strings::with_capacity(input.n_elements(), input.strings().n_bytes())?;
        for string in input.strings().iter() {
            pace(16 + string.len())?;
            let mut failure = None;
            self.from.decode(string, |c, _| {
                let read = self.errors.apply(c, "Invalid formatting on input string");
                let written = read.and_then(|c| match c {
                    Some(c) => Ok(out.extend_last(self.to.encode(c, &mut [0; 4]))?),
                    None => Ok(()),
                });
                failure = failure.take().or(written.err());
            });
            if let Some(error) = failure {
                return Err(error);
            }
            out.end()?;
        }
        ctx.set_output(0, Tensor::from_strings(input.shape().clone(), out)?)
    }
}
