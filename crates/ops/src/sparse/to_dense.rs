//! `SparseToDense`: values at indices, and a default everywhere else.
//!
//! Follows `sparse_to_dense_op.cc` of TensorFlow.

use super::coo::checked_shape;
use crate::prelude::*;

pub(super) const DEF: OpDef = OpDef::pure("SparseToDense", RowRule::Mixed, |attrs| {
    Ok(Box::new(ToDense { validates: attrs.bool_or("validate_indices", true)? }))
});

struct ToDense {
    /// `true` if indices must be sorted and different.
    validates: bool,
}

impl Op for ToDense {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [indices, shape, values, default] = arity(inputs)?;
        shape.require_rank(1)?;
        default.require_rank(0)?;
        default.require_dtype(values.dtype)?;
        if indices.rank().is_some_and(|rank| rank > 2) {
            return invalid!("sparse_indices should be a scalar, vector, or matrix, got {indices}");
        }
        if let Some(sizes) = shape.sizes() {
            return Ok(vec![Spec::new(values.dtype, sizes)]);
        }
        let rank = shape.dims().and_then(|dims| dims[0].size());
        Ok(vec![match rank {
            Some(rank) => Spec::new(values.dtype, vec![Dim::Unknown; rank]),
            None => Spec::unknown(values.dtype),
        }])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (indices, values, default) = (ctx.input(0), ctx.input(2), ctx.input(3));
        let dims = ints(&ctx.input(1))?;
        let (n_entries, rank) = match *indices.shape().dims() {
            [] => (1, 1),
            [n] => (n, 1),
            [n, rank] => (n, rank),
            _ => return invalid!("sparse_indices should be a scalar, vector, or matrix"),
        };
        if dims.len() != rank {
            return invalid!(
                "output_shape has incorrect number of elements: {} should be: {rank}",
                dims.len()
            );
        }
        match values.shape().dims() {
            [] => {}
            [n] if *n == n_entries => {}
            _ => {
                return invalid!(
                    "sparse_values has incorrect shape {}, should be [] or [{n_entries}]",
                    values.shape()
                );
            }
        }
        let shape = checked_shape(values.dtype(), dims)?;
        let mut places = ctx.scratch().part(n_entries)?;
        find_places(&indices, rank, &shape, (&mut places, self.validates))?;
        write(ctx, &places, (values, default), &shape)
    }

    fn scratch_bytes(&self, inputs: &[Spec], _: &[Spec]) -> usize {
        let shape = inputs[0].shape().unwrap_or_default();
        Scratch::bytes_of::<usize>(shape.first().copied().unwrap_or(1))
    }
}

/// Writes the offset of each entry. Fails for an index outside, and for one that is not behind the
/// last if `validates`.
fn find_places(
    indices: &View<'_>,
    rank: usize,
    shape: &Shape,
    (places, validates): (&mut [usize], bool),
) -> Result<()> {
    let strides = shape.strides();
    let mut last = None;
    for (i, to) in places.iter_mut().enumerate() {
        pace(8)?;
        let index = (0..rank).map(|axis| int_at(indices, i * rank + axis));
        let index = index.collect::<Result<Ints>>()?;
        let is_inside =
            index.iter().zip(shape.iter()).all(|(at, dim)| *at >= 0 && (*at as usize) < *dim);
        if !is_inside {
            return invalid!(
                "indices[{i}] = {} is out of bounds: need 0 <= index < {shape}",
                show(&index)
            );
        }
        let place = index.iter().zip(&strides).map(|(at, stride)| *at as usize * stride).sum();
        match last {
            Some(last) if validates && place < last => {
                return invalid!(
                    "indices[{i}] = {} is out of order. Many sparse ops require sorted indices.",
                    show(&index)
                );
            }
            Some(last) if validates && place == last => {
                return invalid!("indices[{i}] = {} is repeated", show(&index));
            }
            _ => (*to, last) = (place, Some(place)),
        }
    }
    Ok(())
}

pub(super) fn show(index: &[i64]) -> String {
    let numbers: Vec<String> = index.iter().map(ToString::to_string).collect();
    format!("[{}]", numbers.join(","))
}

fn write(
    ctx: &mut Ctx<'_>,
    places: &[usize],
    (values, default): (View<'_>, View<'_>),
    shape: &Shape,
) -> Result<()> {
    // One value may stand for all entries.
    let step = usize::from(values.shape().rank() > 0);
    if values.dtype() == DType::String {
        let mut sources = BookedVec::filled(None, shape.n_elements())?;
        places.iter().enumerate().for_each(|(i, place)| sources[*place] = Some(i * step));
        let (strings, default) = (values.strings(), default.strings().get(0));
        let dense = sources.iter().map(|source| source.map_or(default, |i| strings.get(i)));
        return ctx.set_output(0, Tensor::from_strings(shape.clone(), Strings::copied(dense)?)?);
    }
    let mut output = ctx.output(0, values.dtype(), shape)?;
    for_width!(values.dtype(), T => {
        let (values, default) = (values.as_wide::<T>(), default.as_wide::<T>()[0]);
        let dense = output.as_wide_mut::<T>();
        dense.fill(default);
        places.iter().enumerate().for_each(|(i, place)| dense[*place] = values[i * step]);
    });
    Ok(())
}
