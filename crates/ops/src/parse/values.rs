//! The lists of values that features have.

use super::wire::{Wire, delimited, fixed32, varint};
use crate::prelude::*;

/// A number that a feature may have.
pub(super) trait Number: Element {
    /// Appends the numbers of a serialized list. `None` if it is malformed.
    fn append(values: &mut impl Extend<Self>, list: &[u8]) -> Option<()>;
}

/// The amount that a list holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) n_values: usize,
    /// The bytes of strings.
    pub(super) n_bytes: usize,
}

impl Count {
    /// Counts a serialized list of a dtype. `None` if it is malformed.
    pub(super) fn of_list(dtype: DType, list: &[u8]) -> Option<Self> {
        let mut count = Self::default();
        match dtype {
            DType::F32 => f32::append(&mut count, list)?,
            DType::I64 => i64::append(&mut count, list)?,
            _ => each_string(list, |string| count.add(string))?,
        }
        Some(count)
    }

    /// Counts a tensor.
    pub(super) fn of_tensor(tensor: View<'_>) -> Self {
        let mut count = Self { n_values: tensor.n_elements(), n_bytes: 0 };
        if tensor.dtype() == DType::String {
            count.n_bytes = tensor.strings().iter().map(<[u8]>::len).sum();
        }
        count
    }

    fn add(&mut self, string: &[u8]) {
        self.n_values += 1;
        self.n_bytes += string.len();
    }
}

impl<T> Extend<T> for Count {
    fn extend<I: IntoIterator<Item = T>>(&mut self, values: I) {
        self.n_values += values.into_iter().count();
    }
}

/// Fails for a dtype that features cannot have.
pub(super) fn check_dtype(dtype: DType) -> Result<()> {
    match dtype {
        DType::F32 | DType::I64 | DType::String => Ok(()),
        // TensorFlow's text (`example_proto_fast_parsing.cc`).
        other => invalid!("Invalid config dtype: {other}"),
    }
}

/// A list of floats, packed or not, or in part each.
impl Number for f32 {
    fn append(values: &mut impl Extend<Self>, list: &[u8]) -> Option<()> {
        let mut wire = Wire::new(list);
        while !wire.is_empty() {
            match wire.varint()? {
                tag if tag == delimited(1) => {
                    let (chunks, rest) = wire.delimited()?.as_chunks::<4>();
                    if !rest.is_empty() {
                        return None;
                    }
                    values.extend(chunks.iter().map(|bytes| Self::from_le_bytes(*bytes)));
                }
                tag if tag == fixed32(1) => values.extend([Self::from_le_bytes(wire.fixed32()?)]),
                _ => return None,
            }
        }
        Some(())
    }
}

/// A list of integers, packed or not, or in part each.
impl Number for i64 {
    fn append(values: &mut impl Extend<Self>, list: &[u8]) -> Option<()> {
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
}

/// Calls `each` with the strings of a serialized list. `None` if it is malformed.
pub(super) fn each_string<'l>(list: &'l [u8], mut each: impl FnMut(&'l [u8])) -> Option<()> {
    let mut wire = Wire::new(list);
    while !wire.is_empty() {
        if wire.varint()? != delimited(1) {
            return None;
        }
        each(wire.delimited()?);
    }
    Some(())
}

/// Memory that is filled from its start.
pub(super) struct Room<'o, T> {
    all: &'o mut [T],
    /// The values that came, also those that found no place.
    pub(super) n_values: usize,
}

impl<'o, T> Room<'o, T> {
    pub(super) fn new(all: &'o mut [T]) -> Self {
        Self { all, n_values: 0 }
    }

    /// Returns whether there came just as many values as the room holds.
    pub(super) fn is_full(&self) -> bool {
        self.n_values == self.all.len()
    }
}

impl<T> Extend<T> for Room<'_, T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, values: I) {
        let mut values = values.into_iter();
        let free = self.all.get_mut(self.n_values..).unwrap_or_default();
        let n_free = free.len();
        let mut n_taken = 0;
        for (place, value) in free.iter_mut().zip(&mut values) {
            *place = value;
            n_taken += 1;
        }
        self.n_values += n_taken;
        if n_taken == n_free {
            self.n_values += values.count();
        }
    }
}
