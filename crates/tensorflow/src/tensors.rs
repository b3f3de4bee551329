//! Tensors in shared memory: how they are laid out, put in and taken out.
//!
//! Each begins at a multiple of 64 bytes, so that TensorFlow takes it where it lies. A string
//! tensor is where each string ends, as `u64`, and then their bytes.

use std::ptr::NonNull;
use std::sync::Arc;

use device::{ALIGNMENT, Buffer, Foreign};
use prost::bytes::Bytes;
use status::Code;
use tensor::{DType, Shape, Strings, Tensor};

use crate::area::{Area, Block};
use crate::error::{Error, Result};
use crate::wire::{self, Part};

/// Up to so many bytes, outputs travel in the message.
pub(crate) const INLINE_BYTES_MAX: usize = 2 << 10;

/// Places tensors of these dtypes, dims and bytes one after another; gives the bytes of all.
pub(crate) fn place(tensors: impl Iterator<Item = (i32, Vec<i64>, usize)>) -> (Vec<Part>, usize) {
    let mut end = 0;
    let parts = tensors
        .map(|(dtype, dims, len)| {
            let offset = usize::next_multiple_of(end, ALIGNMENT);
            end = offset + len;
            Part { dtype, dims, offset: offset as u64, len: len as u64 }
        })
        .collect();
    (parts, end)
}

/// The part of a block's memory that a tensor takes.
///
/// # Panics
/// If it does not lie inside; it was placed there by `place`.
pub(crate) fn slot<'a>(bytes: &'a mut [u8], part: &Part) -> &'a mut [u8] {
    let at = |n: u64| usize::try_from(n).expect("it was placed in memory");
    &mut bytes[at(part.offset)..at(part.offset + part.len)]
}

/// Copies tensors into shared memory. Fails if they do not fit, or have no bytes.
pub(crate) fn put(area: &Arc<Area>, tensors: &[Tensor]) -> Result<(wire::Tensors, Block)> {
    for tensor in tensors {
        if tensor.dtype() != DType::String && !tensor.dtype().is_plain() {
            let text = format!("a {} cannot be fed", tensor.dtype());
            return Err(Error::TensorFlow { code: Code::InvalidArgument, text });
        }
    }
    let sizes =
        tensors.iter().map(|t| (t.dtype().number(), t.shape().to_i64().into_vec(), n_bytes(t)));
    let (parts, len) = place(sizes);
    let mut block = area.allocate(len)?;
    for (tensor, part) in tensors.iter().zip(&parts) {
        let slot = slot(block.bytes_mut(), part);
        if tensor.dtype() == DType::String {
            put_strings(slot, tensor.strings().iter());
        } else {
            slot.copy_from_slice(tensor.view().bytes());
        }
    }
    let (offset, len) = (block.offset(), block.len());
    Ok((wire::Tensors { offset, len, parts, inline: Bytes::new() }, block))
}

/// The bytes that a tensor takes in shared memory.
fn n_bytes(tensor: &Tensor) -> usize {
    if tensor.dtype() == DType::String {
        return strings_bytes(tensor.strings().iter());
    }
    tensor.n_bytes()
}

/// The bytes that strings take in shared memory.
pub(crate) fn strings_bytes<'a>(strings: impl Iterator<Item = &'a [u8]>) -> usize {
    strings.map(|string| string.len() + size_of::<u64>()).sum()
}

/// Lays strings out.
pub(crate) fn put_strings<'a>(slot: &mut [u8], strings: impl ExactSizeIterator<Item = &'a [u8]>) {
    let (ends, mut bytes) = slot.split_at_mut(strings.len() * size_of::<u64>());
    let mut end = 0u64;
    for (string, place) in strings.zip(ends.chunks_exact_mut(size_of::<u64>())) {
        end += string.len() as u64;
        place.copy_from_slice(&end.to_le_bytes());
        let (here, rest) = bytes.split_at_mut(string.len());
        here.copy_from_slice(string);
        bytes = rest;
    }
}

/// Strings as they are laid out, checked.
pub(crate) fn get_strings(slot: &[u8], count: usize) -> Result<Vec<&[u8]>> {
    let malformed = || Error::Malformed("strings that do not fit their block".to_owned());
    let n_ends = count.checked_mul(size_of::<u64>()).ok_or_else(malformed)?;
    let (ends, bytes) = slot.split_at_checked(n_ends).ok_or_else(malformed)?;
    let mut start = 0;
    let mut strings = Vec::with_capacity(count);
    for end in ends.as_chunks::<{ size_of::<u64>() }>().0 {
        let end = usize::try_from(u64::from_le_bytes(*end)).map_err(|_| malformed())?;
        strings.push(bytes.get(start..end).ok_or_else(malformed)?);
        start = end;
    }
    Ok(strings)
}

/// Takes tensors out. Plain ones stay where they are, in memory that `whole` holds.
pub(crate) fn take(tensors: &wire::Tensors, whole: &Buffer) -> Result<Vec<Tensor>> {
    let malformed = |_| Error::Malformed("a tensor that does not fit its block".to_owned());
    let mut taken = Vec::with_capacity(tensors.parts.len());
    for part in &tensors.parts {
        let dtype = DType::from_number(part.dtype)
            .ok_or_else(|| Error::Malformed(format!("dtype {}", part.dtype)))?;
        let shape = Shape::checked(part.dims.iter().copied())
            .map_err(|error| Error::Malformed(error.to_string()))?;
        let start = usize::try_from(part.offset).map_err(malformed)?;
        let len = usize::try_from(part.len).map_err(malformed)?;
        let end = start.saturating_add(len);
        if end > whole.len() || !start.is_multiple_of(ALIGNMENT) {
            return Err(Error::Malformed("a tensor outside its block".to_owned()));
        }
        let tensor = if dtype == DType::String {
            let strings = get_strings(&whole.bytes()[start..end], shape.n_elements())?;
            Strings::copied(strings.into_iter())
                .and_then(|strings| Tensor::from_strings(shape, strings))
        } else {
            Tensor::from_buffer(dtype, shape, whole.slice(start..end))
        };
        taken.push(tensor.map_err(|error| Error::Malformed(error.to_string()))?);
    }
    Ok(taken)
}

/// The memory of outputs that travelled in the message.
pub(crate) fn inline(bytes: &[u8]) -> Result<Buffer> {
    let full = |_| Error::Full { wanted: bytes.len(), limit: 0 };
    let mut buffer = Buffer::allocate(bytes.len()).map_err(full)?;
    buffer.bytes_mut().expect("a new buffer has one owner").copy_from_slice(bytes);
    Ok(buffer)
}

/// A block that the other side gave out; `given_back` is called when it is dropped.
pub(crate) struct Received {
    // Keeps the mapping.
    _area: Arc<Area>,
    span: NonNull<[u8]>,
    given_back: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl Received {
    /// Fails if the block does not lie inside the area.
    pub(crate) fn new(
        area: &Arc<Area>,
        tensors: &wire::Tensors,
        given_back: Box<dyn FnOnce() + Send + Sync>,
    ) -> Result<Self> {
        let span = area.span(tensors.offset, tensors.len)?;
        Ok(Self { _area: Arc::clone(area), span, given_back: Some(given_back) })
    }
}

// SAFETY: the span is plain memory of a mapping that `_area` keeps.
unsafe impl Send for Received {}
// SAFETY: as above; it is only read.
unsafe impl Sync for Received {}

// SAFETY: the span lies inside the mapping and is aligned (checked by `Area::span`), the mapping
// lives as long as the area, which this holds, and nothing in this process writes to an area whose
// spans the other side gives out.
unsafe impl Foreign for Received {
    fn start(&self) -> NonNull<u8> {
        self.span.cast()
    }

    fn len(&self) -> usize {
        self.span.len()
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        if let Some(given_back) = self.given_back.take() {
            given_back();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn area() -> Arc<Area> {
        Arc::new(Area::create(c"test", 1 << 20).unwrap())
    }

    #[test]
    fn tensors_come_out_as_they_went_in() {
        let area = area();
        let strings = Strings::collect(["", "a", "b\0c", &"long".repeat(100)]).unwrap();
        let tensors = [
            Tensor::from_slice(Shape::of(&[2, 2]), &[1f32, 2., 3., 4.]).unwrap(),
            Tensor::from_strings(Shape::of(&[2, 2]), strings).unwrap(),
            Tensor::scalar(7i64).unwrap(),
            Tensor::zeros(DType::F32, Shape::of(&[0, 3])).unwrap(),
        ];
        let (placed, block) = put(&area, &tensors).unwrap();
        let received = Received::new(&area, &placed, Box::new(|| {})).unwrap();
        let taken = take(&placed, &Buffer::from_foreign(Box::new(received))).unwrap();
        assert_eq!(taken[0].as_slice::<f32>(), [1., 2., 3., 4.]);
        assert_eq!(taken[1].strings(), tensors[1].strings());
        assert_eq!(taken[2].as_slice::<i64>(), [7]);
        assert_eq!(taken[3].shape().dims(), [0, 3]);
        drop(block);
    }

    #[test]
    fn a_block_is_given_back_with_its_last_tensor() {
        let area = area();
        let tensors = [Tensor::scalar(1f32).unwrap(), Tensor::scalar(2f32).unwrap()];
        let (placed, _block) = put(&area, &tensors).unwrap();
        let (send, receive) = std::sync::mpsc::channel();
        let given_back = Box::new(move || send.send(()).unwrap());
        let received = Received::new(&area, &placed, given_back).unwrap();
        let mut taken = take(&placed, &Buffer::from_foreign(Box::new(received))).unwrap();
        taken.pop();
        assert!(receive.try_recv().is_err());
        taken.pop();
        assert!(receive.try_recv().is_ok());
    }

    #[test]
    fn a_hostile_worker_is_refused() {
        let area = area();
        let (placed, _block) = put(&area, &[Tensor::scalar(1f32).unwrap()]).unwrap();
        let buffer = Buffer::allocate(64).unwrap();
        let check = |change: &dyn Fn(&mut Part)| {
            let mut changed = placed.clone();
            change(&mut changed.parts[0]);
            assert!(take(&changed, &buffer).is_err(), "{changed:?}");
        };
        check(&|part| part.dtype = 99);
        check(&|part| part.dtype = 20);
        check(&|part| part.dims = vec![-1]);
        check(&|part| part.dims = vec![1 << 40, 1 << 40]);
        check(&|part| part.dims = vec![2]);
        check(&|part| part.offset = 64);
        check(&|part| part.offset = 1);
        check(&|part| part.len = u64::MAX);
        check(&|part| (part.dtype, part.dims, part.len) = (7, vec![1 << 30], 64));
        let mut outside = placed.clone();
        outside.len = 1 << 21;
        assert!(Received::new(&area, &outside, Box::new(|| {})).is_err());
    }
}
