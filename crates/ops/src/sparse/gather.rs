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
        return Ok(Tensor::from_strings(shape, Strings::copied(picked)?)?);
    }
    let mut tensor = Tensor::zeros(values.dtype(), shape)?;
    let mut view = tensor.view_mut().expect("a new plain tensor has one owner");
    for_width!(values.dtype(), T => {
        let (elements, default) = (values.as_wide::<T>(), default.as_wide::<T>()[0]);
        for (out, source) in view.as_wide_mut::<T>().iter_mut().zip(sources) {
            pace(2)?;
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
        return Ok(Tensor::from_strings(shape, Strings::copied(picked)?)?);
    }
    let mut tensor = Tensor::zeros(values.dtype(), shape)?;
    let mut view = tensor.view_mut().expect("a new plain tensor has one owner");
    for_width!(values.dtype(), T => {
        let elements = values.as_wide::<T>();
        for (out, i) in view.as_wide_mut::<T>().iter_mut().zip(sources) {
            pace(2)?;
            *out = elements[*i];
        }
    });
    Ok(tensor)
}

/// Makes output number `index` of `values[i]` for each `i`.
pub(super) fn write_gathered(
    ctx: &mut Ctx<'_>,
    index: usize,
    values: View<'_>,
    sources: &[usize],
) -> Result<()> {
    if !values.dtype().is_plain() {
        return ctx.set_output(index, gather(values, sources)?);
    }
    let mut output = ctx.output(index, values.dtype(), &Shape::of(&[sources.len()]))?;
    for_width!(values.dtype(), T => {
        let elements = values.as_wide::<T>();
        let out = output.as_wide_mut::<T>().iter_mut();
        out.zip(sources).for_each(|(out, i)| *out = elements[*i]);
    });
    Ok(())
}
