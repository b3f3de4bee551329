//! `Substr`: a part of each string, by position and length.
//!
//! Follows `substr_op.cc` of TensorFlow.

use super::encoding::{Unit, is_continuation};
use crate::prelude::*;

pub(super) const DEF: OpDef =
    OpDef::pure("Substr", RowRule::Elementwise, |attrs| Ok(Box::new(Substr(Unit::read(attrs)?))));

struct Substr(Unit);

impl Op for Substr {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [input, position, length] = arity(inputs)?;
        input.require_dtype(DType::String)?;
        if position.rank().zip(length.rank()).is_some_and(|(a, b)| a != b) {
            return invalid!(
                "pos and len should have the same shape, got: {position} vs. {length}"
            );
        }
        let dims = broadcast(input, position)?;
        Ok(vec![Spec { dims, ..Spec::unknown(DType::String) }])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (input, position, length) = (ctx.input(0), ctx.input(1), ctx.input(2));
        if position.shape() != length.shape() {
            return invalid!(
                "pos and len should have the same shape, got: {} vs. {}",
                position.shape(),
                length.shape()
            );
        }
        let (Some(positions), Some(lengths)) = (booked_i64(&position)?, booked_i64(&length)?)
        else {
            return invalid!("pos and len must be int32 or int64, not {}", position.dtype());
        };
        let shape = broadcast_shapes(input.shape(), position.shape())?;
        let strings = input.strings();
        let from_input = broadcast_indices(input.shape(), &shape);
        let from_position = broadcast_indices(position.shape(), &shape);
        let mut out = Strings::with_capacity(shape.n_elements(), 0)?;
        for (i, (from, at)) in from_input.zip(from_position).enumerate() {
            pace(32)?;
            let string = strings.get(from);
            let part = match self.0 {
                Unit::Byte => bytes(string, positions[at], lengths[at]),
                Unit::Utf8Character => characters(string, positions[at], lengths[at]),
            };
            let Some(part) = part else {
                let (text, pos) = (String::from_utf8_lossy(string), positions[at]);
                return invalid!("pos {pos} out of range for string b'{text}' at index {i}");
            };
            out.push(part)?;
        }
        ctx.set_output(0, Tensor::from_strings(shape, out)?)
    }
}

/// For each element of `to`, the element of `from` that is broadcast to it.
pub(super) fn broadcast_indices<'s>(
    from: &'s Shape,
    to: &'s Shape,
) -> impl Iterator<Item = usize> + 's {
    let strides = from.strides();
    let skipped = to.rank() - from.rank();
    let to_strides = to.strides();
    (0..to.n_elements()).map(move |i| {
        (0..from.rank())
            .filter(|axis| from[*axis] != 1)
            .map(|axis| i / to_strides[axis + skipped] % from[axis] * strides[axis])
            .sum()
    })
}

/// `length` bytes from `position`, which counts from the end if it is negative; `None` if it is
/// outside. The length is cut to what is there; a negative one means all of it.
fn bytes(string: &[u8], position: i64, length: i64) -> Option<&[u8]> {
    let len = string.len() as i64;
    if position < -len || position > len {
        return None;
    }
    let start = if position < 0 { position + len } else { position };
    let end = if length < 0 { len } else { start + length.min(len - start) };
    Some(&string[start as usize..end as usize])
}

fn characters(string: &[u8], position: i64, length: i64) -> Option<&[u8]> {
    let start = if position < 0 {
        backward(string, position.unsigned_abs())?
    } else {
        let (start, n_stepped) = forward(string, position.unsigned_abs());
        if n_stepped < position.unsigned_abs() {
            return None;
        }
        start
    };
    let (len, _) = forward(&string[start..], u64::try_from(length).unwrap_or(0));
    Some(&string[start..start + len])
}

/// The place up to `count` characters ahead, and how many of them there were.
fn forward(string: &[u8], count: u64) -> (usize, u64) {
    let mut at = 0;
    let mut n_stepped = 0;
    while n_stepped < count && at < string.len() {
        at += 1;
        while at < string.len() && is_continuation(string[at]) {
            at += 1;
        }
        n_stepped += 1;
    }
    (at, n_stepped)
}

/// The place `count` characters before the end.
fn backward(string: &[u8], count: u64) -> Option<usize> {
    let starts = string.iter().enumerate().rev().filter(|(_, byte)| !is_continuation(**byte));
    let nth = usize::try_from(count).ok()?.checked_sub(1)?;
    starts.map(|(at, _)| at).nth(nth)
}
