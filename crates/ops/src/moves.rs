//! Moving elements of any dtype: kernels that never look at them.

use device::BookedVec;
use smallvec::SmallVec;
use tensor::{DType, Shape, Strings, Tensor, View};

use crate::ctx::Ctx;
use crate::dispatch::for_width;
use crate::error::{Error, Result, invalid};

/// A rearrangement of elements. One kernel does for all dtypes: plain ones are moved by their
/// width, and of strings and handles the numbers are moved, then the elements fetched.
pub(crate) trait Move {
    /// Fills `output` with elements of `inputs`; zero stands for no element.
    fn apply<T: bytemuck::Pod + Send + Sync>(
        &self,
        inputs: &[&[T]],
        output: &mut [T],
    ) -> Result<()>;
}

/// Makes output number `index` by moving elements of `inputs`, which must have one dtype.
pub(crate) fn rearrange(
    ctx: &mut Ctx<'_>,
    index: usize,
    inputs: &[View<'_>],
    shape: &Shape,
    how: &impl Move,
) -> Result<()> {
    let Some(first) = inputs.first() else {
        return Err(Error::Internal("nothing to move".to_owned()));
    };
    let dtype = first.dtype();
    if let Some(other) = inputs.iter().find(|view| view.dtype() != dtype) {
        return invalid!("expected {dtype} for every input but got {}", other.dtype());
    }
    if !dtype.is_plain() {
        return ctx.set_output(index, move_objects(dtype, inputs, shape, how)?);
    }
    let mut output = ctx.output(index, dtype, shape)?;
    for_width!(dtype, T => {
        let slices: SmallVec<[&[T]; 8]> = inputs.iter().map(View::as_wide).collect();
        how.apply(&slices, output.as_wide_mut())
    })
}

/// Like `rearrange`, to a tensor of its own.
pub(crate) fn rearranged(inputs: &[View<'_>], shape: &Shape, how: &impl Move) -> Result<Tensor> {
    let dtype = inputs[0].dtype();
    if inputs.iter().any(|view| view.dtype() != dtype) {
        return invalid!("expected {dtype} for every input");
    }
    if !dtype.is_plain() {
        return move_objects(dtype, inputs, shape, how);
    }
    let mut tensor = Tensor::zeros(dtype, shape.clone())?;
    let mut output = tensor.view_mut().expect("a new plain tensor has one owner");
    for_width!(dtype, T => {
        let slices: SmallVec<[&[T]; 8]> = inputs.iter().map(View::as_wide).collect();
        how.apply(&slices, output.as_wide_mut())?;
    });
    Ok(tensor)
}

/// Moves the numbers of strings or handles, counted from 1 through all inputs.
fn move_objects(
    dtype: DType,
    inputs: &[View<'_>],
    shape: &Shape,
    how: &impl Move,
) -> Result<Tensor> {
    let mut ends = Vec::with_capacity(inputs.len());
    let mut numbers: Vec<BookedVec<u64>> = Vec::with_capacity(inputs.len());
    let mut end = 0u64;
    for view in inputs {
        let start = end;
        end += view.n_elements() as u64;
        numbers.push(BookedVec::collect(start + 1..=end)?);
        ends.push(end);
    }
    let slices: Vec<&[u64]> = numbers.iter().map(|numbers| &numbers[..]).collect();
    let mut moved = BookedVec::filled(0u64, shape.n_elements())?;
    how.apply(&slices, &mut moved)?;
    let place = |number: u64| {
        let input = ends.partition_point(|end| *end < number);
        (input, (number - 1) as usize - input.checked_sub(1).map_or(0, |i| ends[i] as usize))
    };
    if dtype == DType::String {
        let strings = moved.iter().map(|number| match number {
            0 => &b""[..],
            number => {
                let (input, at) = place(*number);
                inputs[input].strings().get(at)
            }
        });
        return Ok(Tensor::from_strings(shape.clone(), Strings::copied(strings)?)?);
    }
    if moved.contains(&0) {
        return invalid!("a {dtype} tensor has no zero to fill with");
    }
    let handles = moved.iter().map(|number| {
        let (input, at) = place(*number);
        inputs[input].handles()[at].clone()
    });
    Ok(Tensor::from_handles(dtype, shape.clone(), handles)?)
}
