//! Picking elements of a vector of any dtype.

use crate::prelude::*;

/// A vector of `values[i]` for each `Some(i)`, and of the scalar `default` for each `None`.
pub(super) fn gather_or_default(
    values: View<'_>,
    default: View<'_>,
    sources: &[Option<usize>],
) -> Result<Tensor> {
    let shape = Shape::of(&[sources.len()]);
    if values.dtype() == DType::String {
        let (strings, default) = (values.strings(), default.strings().get(0));
        let picked = sources.iter().map(|source| source.map_or(default, |i| strings.get(i)));
        return Ok(Tensor::from_strings(shape, picked.collect())?);
    }
    let mut tensor = Tensor::zeros(values.dtype(), shape)?;
    let mut view = tensor.view_mut().expect("a new plain tensor has one owner");
    for_width!(values.dtype(), T => {
        let (elements, default) = (values.as_wide::<T>(), default.as_wide::<T>()[0]);
        for (out, source) in view.as_wide_mut::<T>().iter_mut().zip(sources) {
            *out = source.map_or(default, |i| elements[i]);
        }
    });
    Ok(tensor)
}

/// A vector of `values[i]` for each `i`.
pub(super) fn gather(values: View<'_>, sources: &[usize]) -> Result<Tensor> {
    let shape = Shape::of(&[sources.len()]);
    if values.dtype() == DType::String {
        let strings = values.strings();
        let picked = sources.iter().map(|i| strings.get(*i));
        return Ok(Tensor::from_strings(shape, picked.collect())?);
    }
    let mut tensor = Tensor::zeros(values.dtype(), shape)?;
    let mut view = tensor.view_mut().expect("a new plain tensor has one owner");
    for_width!(values.dtype(), T => {
        let elements = values.as_wide::<T>();
        for (out, i) in view.as_wide_mut::<T>().iter_mut().zip(sources) {
            *out = elements[*i];
        }
    });
    Ok(tensor)
}

/// A vector of elements of several vectors, counted through all of them.
pub(super) fn gather_concatenated(parts: &[View<'_>], sources: &[usize]) -> Result<Tensor> {
    let dtype = parts[0].dtype();
    let shape = Shape::of(&[sources.len()]);
    if dtype == DType::String {
        let all: Vec<&[u8]> = parts.iter().flat_map(|part| part.strings().iter()).collect();
        let picked = sources.iter().map(|i| all[*i]);
        return Ok(Tensor::from_strings(shape, picked.collect())?);
    }
    let mut tensor = Tensor::zeros(dtype, shape)?;
    let mut view = tensor.view_mut().expect("a new plain tensor has one owner");
    for_width!(dtype, T => {
        let all: Vec<T> = parts.iter().flat_map(View::as_wide::<T>).copied().collect();
        for (out, i) in view.as_wide_mut::<T>().iter_mut().zip(sources) {
            *out = all[*i];
        }
    });
    Ok(tensor)
}
