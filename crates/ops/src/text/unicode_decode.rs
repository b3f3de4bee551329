//! `UnicodeDecode` and `UnicodeDecodeWithOffsets`: the characters of each string, as ragged rows.
//!
//! Follows `unicode_ops.cc` of TensorFlow.

use super::encoding::{Encoding, Errors};
use crate::prelude::*;

pub(super) const DECODE: OpDef =
    OpDef::pure("UnicodeDecode", RowRule::Pieces, |attrs| build(attrs, 2));
pub(super) const DECODE_WITH_OFFSETS: OpDef =
    OpDef::pure("UnicodeDecodeWithOffsets", RowRule::Pieces, |attrs| build(attrs, 3));

fn build(attrs: &Attrs<'_>, n_outputs: usize) -> Result<Box<dyn Op>> {
    Ok(Box::new(Decode {
        encoding: Encoding::read_input(attrs)?,
        errors: Errors::read(attrs)?,
        splits: attrs.dtype_or("Tsplits", DType::I64)?,
        n_outputs,
    }))
}

struct Decode {
    encoding: Encoding,
    errors: Errors,
    splits: DType,
    n_outputs: usize,
}

impl Op for Decode {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [input] = arity(inputs)?;
        input.require_dtype(DType::String)?;
        let mut specs = vec![
            Spec::new(self.splits, [input.n_elements().plus(&Dim::Known(1))]),
            Spec::new(DType::I32, [Dim::Unknown]),
        ];
        if self.n_outputs == 3 {
            specs.push(Spec::new(DType::I64, [Dim::Unknown]));
        }
        Ok(specs)
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let strings = ctx.input(0).strings();
        let mut splits = BookedVec::with_capacity(strings.len() + 1)?;
        splits.push(0i64)?;
        let mut characters: BookedVec<i32> = BookedVec::new();
        let mut starts: BookedVec<i64> = BookedVec::new();
        for string in strings.iter() {
            pace(16 + string.len())?;
            let mut failure = None;
            self.encoding.decode(string, |c, at| {
                let read = self.errors.apply(c, "Invalid formatting on input string");
                let taken = read.and_then(|c| match c {
                    Some(c) => {
                        characters.push(c as i32)?;
                        Ok(starts.push(at as i64)?)
                    }
                    None => Ok(()),
                });
                failure = failure.take().or(taken.err());
            });
            if let Some(error) = failure {
                return Err(error);
            }
            splits.push(characters.len() as i64)?;
        }
        let splits = match self.splits {
            DType::I32 => {
                Tensor::vector(&BookedVec::collect(splits.iter().map(|split| *split as i32))?)?
            }
            _ => Tensor::vector(&splits)?,
        };
        ctx.set_output(0, splits)?;
        ctx.set_output(1, Tensor::vector(&characters)?)?;
        if self.n_outputs == 3 {
            ctx.set_output(2, Tensor::vector(&starts)?)?;
        }
        Ok(())
    }
}
