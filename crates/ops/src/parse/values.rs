//! `Values`: the elements of a feature of many examples, one after another.

use super::wire::{Wire, delimited, fixed32, varint};
use crate::prelude::*;

/// Elements of one of the three kinds that a feature may have.
#[derive(Debug)]
pub(super) enum Values {
    Floats(Vec<f32>),
    Ints(Vec<i64>),
    Strings(Strings),
}

impl Values {
    /// No values of a dtype. Fails for a dtype that features cannot have.
    pub(super) fn new(dtype: DType) -> Result<Self> {
        match dtype {
            DType::F32 => Ok(Self::Floats(Vec::new())),
            DType::I64 => Ok(Self::Ints(Vec::new())),
            DType::String => Ok(Self::Strings(Strings::default())),
            // TensorFlow's text (`example_proto_fast_parsing.cc`).
            other => invalid!("Invalid config dtype: {other}"),
        }
    }

    pub(super) fn dtype(&self) -> DType {
        match self {
            Self::Floats(_) => DType::F32,
            Self::Ints(_) => DType::I64,
            Self::Strings(_) => DType::String,
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Floats(values) => values.len(),
            Self::Ints(values) => values.len(),
            Self::Strings(values) => values.len(),
        }
    }

    /// Appends the elements of a serialized list of this kind. `None` if it is malformed.
    pub(super) fn append_list(&mut self, list: &[u8]) -> Option<()> {
        match self {
            Self::Floats(values) => append_floats(values, list),
            Self::Ints(values) => append_ints(values, list),
            Self::Strings(values) => append_strings(values, list),
        }
    }

    /// Appends all elements of a tensor of this kind.
    pub(super) fn append_tensor(&mut self, tensor: View<'_>) {
        match self {
            Self::Floats(values) => values.extend_from_slice(tensor.as_slice()),
            Self::Ints(values) => values.extend_from_slice(tensor.as_slice()),
            Self::Strings(values) => tensor.strings().iter().for_each(|s| values.push(s)),
        }
    }

    /// Makes the elements an output.
    pub(super) fn write(self, ctx: &mut Ctx<'_>, output: usize, shape: Shape) -> Result<()> {
        match self {
            Self::Floats(values) => write_plain(ctx, output, &shape, &values),
            Self::Ints(values) => write_plain(ctx, output, &shape, &values),
            Self::Strings(values) => ctx.set_output(output, Tensor::from_strings(shape, values)?),
        }
    }

    /// The rows that end at `ends`, each filled up with `padding` to `width` elements.
    pub(super) fn padded(&self, ends: &[usize], width: usize, padding: View<'_>) -> Self {
        match self {
            Self::Floats(values) => Self::Floats(pad(values, ends, width, padding.as_slice()[0])),
            Self::Ints(values) => Self::Ints(pad(values, ends, width, padding.as_slice()[0])),
            Self::Strings(values) => {
                let mut out = Strings::with_capacity(ends.len() * width, values.n_bytes());
                let padding = padding.strings().get(0);
                for_rows(ends, |start, end| {
                    (start..end).for_each(|i| out.push(values.get(i)));
                    (end - start..width).for_each(|_| out.push(padding));
                });
                Self::Strings(out)
            }
        }
    }
}

/// Calls `each` with the start and end of each row.
pub(super) fn for_rows(ends: &[usize], mut each: impl FnMut(usize, usize)) {
    let mut start = 0;
    for end in ends {
        each(start, *end);
        start = *end;
    }
}

fn pad<T: Copy>(values: &[T], ends: &[usize], width: usize, padding: T) -> Vec<T> {
    let mut out = Vec::with_capacity(ends.len() * width);
    for_rows(ends, |start, end| {
        out.extend_from_slice(&values[start..end]);
        out.resize(out.len() + width - (end - start), padding);
    });
    out
}

fn write_plain<T: Element>(
    ctx: &mut Ctx<'_>,
    output: usize,
    shape: &Shape,
    values: &[T],
) -> Result<()> {
    let mut view = ctx.output(output, T::DTYPE, shape)?;
    view.as_mut_slice::<T>().copy_from_slice(values);
    Ok(())
}

/// A list of floats, packed or not, or in part each.
pub(super) fn append_floats(values: &mut impl Extend<f32>, list: &[u8]) -> Option<()> {
    let mut wire = Wire::new(list);
    while !wire.is_empty() {
        match wire.varint()? {
            tag if tag == delimited(1) => {
                let (chunks, rest) = wire.delimited()?.as_chunks::<4>();
                if !rest.is_empty() {
                    return None;
                }
                values.extend(chunks.iter().map(|bytes| f32::from_le_bytes(*bytes)));
            }
            tag if tag == fixed32(1) => values.extend([f32::from_le_bytes(wire.fixed32()?)]),
            _ => return None,
        }
    }
    Some(())
}

/// A list of integers, packed or not, or in part each.
pub(super) fn append_ints(values: &mut impl Extend<i64>, list: &[u8]) -> Option<()> {
    let mut wire = Wire::new(list);
    while !wire.is_empty() {
        match wire.varint()? {
            tag if tag == delimited(1) => {
                let mut packed = Wire::new(wire.delimited()?);
                while !packed.is_empty() {
                    values.extend([packed.varint()?.cast_signed()]);
                }
            }
            tag if tag == varint(1) => values.extend([wire.varint()?.cast_signed()]),
            _ => return None,
        }
    }
    Some(())
}

fn append_strings(values: &mut Strings, list: &[u8]) -> Option<()> {
    let mut wire = Wire::new(list);
    while !wire.is_empty() {
        if wire.varint()? != delimited(1) {
            return None;
        }
        values.push(wire.delimited()?);
    }
    Some(())
}
