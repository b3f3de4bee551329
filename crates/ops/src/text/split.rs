//! `StringSplit` and `StringSplitV2`: the parts of each string as a sparse matrix.
//!
//! Follows `string_split_op.cc` of TensorFlow.

use crate::prelude::*;

pub(super) const ANY_OF: OpDef = OpDef::pure("StringSplit", RowRule::Pieces, |attrs| {
    let skip_empty = attrs.bool_or("skip_empty", true)?;
    Ok(Box::new(Split(SplitRule::AnyByteOf { skip_empty })))
});
pub(super) const SEQUENCE: OpDef = OpDef::pure("StringSplitV2", RowRule::Pieces, |attrs| {
    let limit = usize::try_from(attrs.int_or("maxsplit", -1)?).ok();
    Ok(Box::new(Split(SplitRule::Sequence { limit })))
});

struct Split(SplitRule);

enum SplitRule {
    /// Each byte of the delimiter separates; an empty delimiter separates all bytes.
    AnyByteOf { skip_empty: bool },
    /// The whole delimiter separates, up to `limit` times; an empty one means white space.
    Sequence { limit: Option<usize> },
}

impl Op for Split {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [input, delimiter] = arity(inputs)?;
        inputs.iter().try_for_each(|input| input.require_dtype(DType::String))?;
        input.require_rank(1)?;
        delimiter.require_rank(0)?;
        Ok(vec![
            Spec::new(DType::I64, [Dim::Unknown, Dim::Known(2)]),
            Spec::new(DType::String, [Dim::Unknown]),
            Spec::new(DType::I64, [Dim::Known(2)]),
        ])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (input, delimiter) = (ctx.input(0), ctx.input(1));
        if input.shape().rank() != 1 || delimiter.shape().rank() != 0 {
            return invalid!(
                "input must be a vector and the delimiter a scalar, but they are {} and {}",
                input.shape(),
                delimiter.shape()
            );
        }
        let strings = input.strings();
        let mut parts = SplitParts {
            values: Strings::with_capacity(strings.len() * 8, strings.n_bytes())?,
            ..SplitParts::default()
        };
        for (row, string) in strings.iter().enumerate() {
            pace(16 + string.len())?;
            parts.start_row(row);
            self.0.split(string, delimiter.strings().get(0), &mut |part| parts.push(part))?;
        }
        parts.write(ctx, strings.len())
    }
}

impl SplitRule {
    fn split(&self, text: &[u8], delimiter: &[u8], push: &mut Push<'_>) -> Result<()> {
        match self {
            Self::AnyByteOf { skip_empty } => any_byte_of(text, delimiter, *skip_empty, push),
            Self::Sequence { limit: Some(0) } => push(text),
            Self::Sequence { limit } if delimiter.is_empty() => white_space(text, *limit, push),
            Self::Sequence { limit } => sequence(text, delimiter, *limit, push),
        }
    }
}

/// Takes a part.
type Push<'p> = dyn FnMut(&[u8]) -> Result<()> + 'p;

fn any_byte_of(text: &[u8], delimiter: &[u8], skip_empty: bool, push: &mut Push<'_>) -> Result<()> {
    if delimiter.is_empty() {
        return text.chunks(1).try_for_each(push);
    }
    if text.is_empty() {
        return Ok(()); // No part at all, not even an empty one.
    }
    let mut parts = text.split(|byte| delimiter.contains(byte));
    parts.try_for_each(|part| if skip_empty && part.is_empty() { Ok(()) } else { push(part) })
}

/// Splits at runs of white space; after `limit` parts the rest follows whole, even if empty.
fn white_space(text: &[u8], limit: Option<usize>, push: &mut Push<'_>) -> Result<()> {
    let mut rest = skip_space(text);
    let mut n_parts = 0;
    while !rest.is_empty() {
        let end = rest.iter().position(|byte| is_space(*byte)).unwrap_or(rest.len());
        let (part, after) = rest.split_at(end);
        push(part)?;
        rest = skip_space(after);
        n_parts += 1;
        if limit == Some(n_parts) {
            return push(rest);
        }
    }
    Ok(())
}

fn sequence(
    text: &[u8],
    delimiter: &[u8],
    limit: Option<usize>,
    push: &mut Push<'_>,
) -> Result<()> {
    let mut start = 0;
    let ends = memchr::memmem::find_iter(text, delimiter).take(limit.unwrap_or(usize::MAX));
    for end in ends {
        pace(16)?;
        push(&text[start..end])?;
        start = end + delimiter.len();
    }
    push(&text[start..])
}

fn skip_space(text: &[u8]) -> &[u8] {
    let start = text.iter().position(|byte| !is_space(*byte)).unwrap_or(text.len());
    &text[start..]
}

/// C's `isspace`, which counts the vertical tab, unlike Rust.
pub(super) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// The parts of all rows so far.
#[derive(Default)]
struct SplitParts {
    indices: BookedVec<i64>,
    values: Strings,
    row: i64,
    column: i64,
    width: i64,
}

impl SplitParts {
    fn start_row(&mut self, row: usize) {
        self.row = row as i64;
        self.column = 0;
    }

    fn push(&mut self, part: &[u8]) -> Result<()> {
        self.indices.extend([self.row, self.column])?;
        self.values.push(part)?;
        self.column += 1;
        self.width = self.width.max(self.column);
        Ok(())
    }

    fn write(self, ctx: &mut Ctx<'_>, n_rows: usize) -> Result<()> {
        let n_parts = self.values.len();
        ctx.set_output(0, Tensor::from_slice(Shape::of(&[n_parts, 2]), &self.indices)?)?;
        ctx.set_output(1, Tensor::from_strings(Shape::of(&[n_parts]), self.values)?)?;
        ctx.set_output(2, Tensor::vector(&[n_rows as i64, self.width])?)
    }
}
