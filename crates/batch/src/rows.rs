//! Tensors row by row: putting the rows of tasks one after another, and taking them apart again.
//! Padding follows `batching_session.cc` and `batching_util.cc`.

use std::ops::Range;

use device::Buffer;
use smallvec::SmallVec;
use tensor::{DType, Shape, Strings, Tensor};

use crate::error::{Error, Result};

/// The most dimensions of a tensor that is padded.
const PADDED_RANK_MAX: usize = 6;

/// The properties that tasks must have in common to share a batch: dtypes, and all dimensions but
/// the first.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Class(SmallVec<[(DType, SmallVec<[usize; 4]>); 2]>);

impl Class {
    /// The class of a task's inputs. If shapes are padded, only the ranks count.
    pub fn new(inputs: &[Tensor], pads_shapes: bool) -> Self {
        let of = |tensor: &Tensor| {
            let rest = tensor.shape().dims().get(1..).unwrap_or(&[]);
            let dims = rest.iter().map(|dim| if pads_shapes { 0 } else { *dim });
            (tensor.dtype(), dims.collect())
        };
        Self(inputs.iter().map(of).collect())
    }
}

/// The number of rows of a task: the first dimension, which all its inputs share.
pub fn n_rows(inputs: &[Tensor]) -> Result<usize> {
    let first = inputs.first().ok_or(Error::NoInputs)?;
    let mut sizes = inputs.iter().map(|tensor| tensor.shape().dims().first().copied());
    if sizes.clone().any(|size| size.is_none()) {
        return Err(Error::ScalarInput);
    }
    let n_rows = first.shape()[0];
    if sizes.any(|size| size != Some(n_rows)) { Err(Error::UnequalRows) } else { Ok(n_rows) }
}

/// The rows of several tasks one after another, filled up to `n_padded` rows with the first row of
/// the last piece. Where shapes differ, which only padding allows, each piece is filled up with its
/// own first element. One piece that needs no padding is not copied.
pub fn merge(pieces: &[(&[Tensor], Range<usize>)], n_padded: usize) -> Result<Vec<Tensor>> {
    let (last, last_rows) = pieces.last().ok_or(Error::NoInputs)?;
    let n_rows: usize = pieces.iter().map(|(_, rows)| rows.len()).sum();
    assert!(n_padded >= n_rows, "a batch of {n_rows} rows is not padded to {n_padded}");
    assert!(pieces.iter().all(|(inputs, _)| inputs.len() == last.len()));
    let n_fill = if last_rows.is_empty() { 0 } else { n_padded - n_rows };
    if let ([(inputs, rows)], 0) = (pieces, n_fill) {
        return inputs.iter().map(|tensor| slice(tensor, rows.clone())).collect();
    }
    (0..last.len())
        .map(|input| {
            let parts = pieces.iter().map(|(inputs, rows)| (&inputs[input], rows.clone()));
            let fill = (&last[input], last_rows.start..last_rows.start + 1);
            let parts: Vec<_> = parts.chain(std::iter::repeat_n(fill, n_fill)).collect();
            concat(&parts)
        })
        .collect()
}

/// The outputs of each piece of a batch, given the rows of each in order. What follows the last
/// piece is padding and dropped. Shares the memory of the outputs, if one piece has all of it.
pub fn split(outputs: &[Tensor], sizes: &[usize], n_padded: usize) -> Result<Vec<Vec<Tensor>>> {
    assert!(sizes.iter().sum::<usize>() <= n_padded);
    for output in outputs {
        match output.shape().dims().first() {
            None => return Err(Error::ScalarOutput),
            Some(n_rows) if *n_rows != n_padded => return Err(Error::OutputRows),
            Some(_) => {}
        }
    }
    let mut start = 0;
    let mut answers = Vec::with_capacity(sizes.len());
    for size in sizes {
        let rows = start..start + size;
        start += size;
        let answer = outputs.iter().map(|output| copy_of(output, rows.clone()));
        answers.push(answer.collect::<Result<Vec<_>>>()?);
    }
    Ok(answers)
}

/// Some rows of a tensor. Plain rows share its memory.
pub fn slice(tensor: &Tensor, rows: Range<usize>) -> Result<Tensor> {
    if rows == (0..tensor.shape()[0]) {
        return Ok(tensor.clone());
    }
    let shape = with_rows(tensor.shape(), rows.len())?;
    let Some(buffer) = tensor.buffer() else { return concat(&[(tensor, rows)]) };
    let width = row_len(tensor.shape()) * tensor.dtype().size();
    let buffer = buffer.slice(rows.start * width..rows.end * width);
    Ok(Tensor::from_buffer(tensor.dtype(), shape, buffer)?)
}

/// Whole answers one after another, tensor by tensor.
pub(crate) fn join(answers: &[&Vec<Tensor>]) -> Result<Vec<Tensor>> {
    let n_outputs = answers.first().map_or(0, |first| first.len());
    let whole = |number: usize| {
        let parts = answers.iter().map(|answer| (&answer[number], 0..answer[number].shape()[0]));
        concat(&parts.collect::<Vec<_>>())
    };
    (0..n_outputs).map(whole).collect()
}

/// Some rows in memory of their own: an answer must not keep the whole batch alive.
fn copy_of(tensor: &Tensor, rows: Range<usize>) -> Result<Tensor> {
    if rows == (0..tensor.shape()[0]) {
        return Ok(tensor.clone());
    }
    concat(&[(tensor, rows)])
}

/// Rows of several tensors of one dtype and rank in a new tensor.
fn concat(parts: &[(&Tensor, Range<usize>)]) -> Result<Tensor> {
    let (first, _) = parts[0];
    let dtype = first.dtype();
    let n_rows = parts.iter().map(|(_, rows)| rows.len()).sum();
    let shape = common_shape(parts, n_rows)?;
    if dtype == DType::String {
        return concat_strings(parts, shape);
    }
    if !dtype.is_plain() {
        return Err(Error::Handles(dtype));
    }
    let mut buffer =
        Buffer::allocate(shape.n_elements() * dtype.size()).map_err(tensor::Error::from)?;
    let bytes = buffer.bytes_mut().expect("a new buffer has one owner");
    let mut at = 0;
    for (tensor, rows) in parts {
        let from = tensor.view().bytes();
        if tensor.shape()[1..] == shape[1..] {
            let width = row_len(&shape) * dtype.size();
            let part = &from[rows.start * width..rows.end * width];
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        } else {
            let size = dtype.size();
            let first = from.get(..size).map_or_else(|| vec![0; size], <[u8]>::to_vec);
            for place in RowsPlaces::new(tensor.shape(), &shape, rows.clone()) {
                let element = place.map_or(&first[..], |i| &from[i * size..(i + 1) * size]);
                bytes[at..at + size].copy_from_slice(element);
                at += size;
            }
        }
    }
    debug_assert_eq!(at, bytes.len());
    Ok(Tensor::from_buffer(dtype, shape, buffer)?)
}

fn concat_strings(parts: &[(&Tensor, Range<usize>)], shape: Shape) -> Result<Tensor> {
    let mut all = Strings::with_capacity(shape.n_elements(), 0)?;
    for (tensor, rows) in parts {
        let strings = tensor.strings();
        let first = if strings.is_empty() { &b""[..] } else { strings.get(0) };
        for place in RowsPlaces::new(tensor.shape(), &shape, rows.clone()) {
            all.push(place.map_or(first, |index| strings.get(index)))?;
        }
    }
    Ok(Tensor::from_strings(shape, all)?)
}

/// The shape that holds rows of all parts: in each dimension but the first the largest.
fn common_shape(parts: &[(&Tensor, Range<usize>)], n_rows: usize) -> Result<Shape> {
    let mut dims: SmallVec<[usize; 5]> = SmallVec::from_slice(parts[0].0.shape());
    dims[0] = n_rows;
    let mut is_padded = false;
    for (tensor, _) in parts {
        assert_eq!(tensor.shape().rank(), dims.len(), "tasks of unlike ranks share no batch");
        for (dim, size) in dims.iter_mut().zip(tensor.shape().dims()).skip(1) {
            is_padded |= *dim != *size;
            *dim = (*dim).max(*size);
        }
    }
    if is_padded && dims.len() > PADDED_RANK_MAX {
        return Err(Error::PaddedRank);
    }
    checked(&dims)
}

fn with_rows(shape: &Shape, n_rows: usize) -> Result<Shape> {
    let mut dims: SmallVec<[usize; 5]> = SmallVec::from_slice(shape);
    dims[0] = n_rows;
    checked(&dims)
}

fn checked(dims: &[usize]) -> Result<Shape> {
    let dims = dims.iter().map(|dim| i64::try_from(*dim).unwrap_or(i64::MAX));
    Ok(Shape::checked(dims)?)
}

/// The elements of a row.
fn row_len(shape: &Shape) -> usize {
    shape[1..].iter().product()
}

/// For each element of some rows in a larger shape, where it comes from in a smaller one; `None`
/// for padding.
struct RowsPlaces<'a> {
    from: &'a [usize],
    index: SmallVec<[usize; 5]>,
    to: &'a [usize],
    left: usize,
}

impl<'a> RowsPlaces<'a> {
    fn new(from: &'a Shape, to: &'a Shape, rows: Range<usize>) -> Self {
        let mut index = SmallVec::from_elem(0, to.rank());
        index[0] = rows.start;
        Self { from, index, to, left: rows.len() * row_len(to) }
    }
}

impl Iterator for RowsPlaces<'_> {
    type Item = Option<usize>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let is_inside = self.index.iter().zip(self.from).all(|(i, dim)| i < dim);
        let place = self.index.iter().zip(self.from).fold(0, |at, (i, dim)| at * dim + i);
        for axis in (0..self.index.len()).rev() {
            self.index[axis] += 1;
            if axis == 0 || self.index[axis] < self.to[axis] {
                break;
            }
            self.index[axis] = 0;
        }
        Some(is_inside.then_some(place))
    }
}

#[cfg(test)]
mod tests;
