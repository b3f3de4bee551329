//! Rows of tensors of any dtype.

use super::coo::checked_shape;
use crate::prelude::*;

/// The rows of each range, one after another.
pub(super) fn gather_rows(values: View<'_>, ranges: &[(usize, usize)]) -> Result<Tensor> {
    let n_rows: usize = ranges.iter().map(|(start, end)| end - start).sum();
    let inner = &values.shape()[1..];
    let width: usize = inner.iter().product();
    let dims = std::iter::once(n_rows as i64).chain(inner.iter().map(|dim| *dim as i64));
    let shape = checked_shape(values.dtype(), dims)?;
    match values.dtype() {
        DType::String => {
            let strings = values.strings();
            let picked = ranges.iter().flat_map(|(start, end)| start * width..end * width);
            Ok(Tensor::from_strings(shape, Strings::copied(picked.map(|i| strings.get(i)))?)?)
        }
        DType::Resource | DType::Variant => {
            let handles = values.handles();
            let picked =
                ranges.iter().flat_map(|(start, end)| &handles[start * width..end * width]);
            Ok(Tensor::from_handles(values.dtype(), shape, picked.cloned())?)
        }
        dtype => {
            let row = width * dtype.size();
            let bytes = values.bytes();
            stacked(dtype, shape, ranges.iter().map(|(start, end)| &bytes[start * row..end * row]))
        }
    }
}

/// All rows of several tensors of one dtype and inner shape.
pub(super) fn concat_rows(parts: &[View<'_>]) -> Result<Tensor> {
    let first = parts[0];
    let inner = &first.shape()[1..];
    if parts.iter().any(|part| part.dtype() != first.dtype() || &part.shape()[1..] != inner) {
        return invalid!("tensors of different dtypes or inner shapes cannot be stacked");
    }
    let n_rows: usize = parts.iter().map(|part| part.shape()[0]).sum();
    let dims = std::iter::once(n_rows as i64).chain(inner.iter().map(|dim| *dim as i64));
    let shape = checked_shape(first.dtype(), dims)?;
    match first.dtype() {
        DType::String => {
            let strings = parts.iter().flat_map(|part| part.strings().iter());
            Ok(Tensor::from_strings(shape, Strings::copied(strings)?)?)
        }
        DType::Resource | DType::Variant => {
            let handles = parts.iter().flat_map(View::handles).cloned();
            Ok(Tensor::from_handles(first.dtype(), shape, handles)?)
        }
        dtype => stacked(dtype, shape, parts.iter().map(View::bytes)),
    }
}

/// A plain tensor of some bytes, one part behind another.
fn stacked<'a>(
    dtype: DType,
    shape: Shape,
    parts: impl Iterator<Item = &'a [u8]>,
) -> Result<Tensor> {
    let mut tensor = Tensor::zeros(dtype, shape)?;
    let mut view = tensor.view_mut().expect("a new plain tensor has one owner");
    let mut rest = view.bytes();
    for part in parts {
        let (to, behind) = rest.split_at_mut(part.len());
        to.copy_from_slice(part);
        rest = behind;
    }
    Ok(tensor)
}
