//! The ops of tensor arrays. The flow that they hand on orders them and has no meaning of its own.

use tensor::Handle;

use super::super::join::cut;
use super::super::shapes;
use super::super::stack::{Behind, part, write_stacked};
use super::{LENGTH_MAX, Slot, State, TensorArray};
use crate::prelude::*;

pub(crate) const ARRAY: OpDef = OpDef::of_kind("TensorArrayV3", Kind::Reads, |attrs| {
    Ok(Box::new(Make {
        dtype: attrs.dtype("dtype")?,
        shape: shapes::of_attr(attrs, "element_shape")?,
        grows: attrs.bool_or("dynamic_size", false)?,
        clears_after_read: attrs.bool_or("clear_after_read", true)?,
        identical: attrs.bool_or("identical_element_shapes", false)?,
    }))
});
pub(crate) const WRITE: OpDef =
    OpDef::of_kind("TensorArrayWriteV3", Kind::Writes, |_| Ok(Box::new(Write { how: write })));
pub(crate) const SCATTER: OpDef =
    OpDef::of_kind("TensorArrayScatterV3", Kind::Writes, |_| Ok(Box::new(Write { how: scatter })));
pub(crate) const SPLIT: OpDef =
    OpDef::of_kind("TensorArraySplitV3", Kind::Writes, |_| Ok(Box::new(Write { how: split })));
pub(crate) const READ: OpDef = OpDef::of_kind("TensorArrayReadV3", Kind::Reads, |attrs| {
    Ok(Box::new(Read { dtype: attrs.dtype("dtype")? }))
});
pub(crate) const GATHER: OpDef = OpDef::of_kind("TensorArrayGatherV3", Kind::Reads, |attrs| {
    let shape = shapes::of_attr(attrs, "element_shape")?;
    Ok(Box::new(GatherAt { dtype: attrs.dtype("dtype")?, shape }))
});
pub(crate) const CONCAT: OpDef = OpDef::of_kind("TensorArrayConcatV3", Kind::Reads, |attrs| {
    let shape = shapes::of_attr(attrs, "element_shape_except0")?;
    Ok(Box::new(Concat { dtype: attrs.dtype("dtype")?, shape }))
});
pub(crate) const SIZE: OpDef =
    OpDef::of_kind("TensorArraySizeV3", Kind::Reads, |_| Ok(Box::new(Size)));
pub(crate) const CLOSE: OpDef =
    OpDef::of_kind("TensorArrayCloseV3", Kind::Writes, |_| Ok(Box::new(Close)));

fn array<'a>(ctx: &Ctx<'a>) -> Result<&'a TensorArray> {
    let view = ctx.input(0);
    if view.dtype() != DType::Resource {
        return invalid!("expected a tensor array but got {}", view.dtype());
    }
    match view.handles() {
        [handle] => handle.get().map_or_else(|| invalid!("the resource is no tensor array"), Ok),
        _ => invalid!("expected a scalar resource but got shape {}", view.shape()),
    }
}

fn write_flow(ctx: &mut Ctx<'_>, output: usize) -> Result<()> {
    ctx.output(output, DType::F32, &Shape::scalar())?.as_mut_slice::<f32>()[0] = 0.0;
    Ok(())
}

struct Make {
    dtype: DType,
    shape: shapes::ElementShape,
    grows: bool,
    clears_after_read: bool,
    identical: bool,
}

impl Op for Make {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [size] = arity(inputs)?;
        size.require_rank(0)?;
        Ok(vec![Spec::scalar(DType::Resource), Spec::scalar(DType::F32)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let length = size(int(&ctx.input(0))?, "Size")?;
        if length > LENGTH_MAX {
            return invalid!("a TensorArray of {length} elements is too long");
        }
        let slots = vec![Slot::Empty; length];
        let array = TensorArray {
            dtype: self.dtype,
            grows: self.grows,
            clears_after_read: self.clears_after_read,
            identical: self.identical,
            state: parking_lot::Mutex::new(State {
                shape: self.shape.clone(),
                slots,
                is_closed: false,
            }),
        };
        ctx.set_output(0, Tensor::from_handle(DType::Resource, Handle::new(array)))?;
        write_flow(ctx, 1)
    }
}

/// An op that fills an array and hands the flow on.
struct Write {
    how: fn(&TensorArray, &Ctx<'_>) -> Result<()>,
}

impl Op for Write {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [_, _, _, _] = arity(inputs)?;
        Ok(vec![Spec::scalar(DType::F32)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        (self.how)(array(ctx)?, ctx)?;
        write_flow(ctx, 0)
    }
}

/// `(handle, index, value, flow)`
fn write(array: &TensorArray, ctx: &Ctx<'_>) -> Result<()> {
    array.write(int(&ctx.input(1))?, &ctx.input(2))
}

/// `(handle, indices, value, flow)`
fn scatter(array: &TensorArray, ctx: &Ctx<'_>) -> Result<()> {
    let (indices, value) = (ints(&ctx.input(1))?, ctx.input(2));
    let n_rows = value.shape().first().copied();
    if n_rows != Some(indices.len()) {
        let (expected, got) = (indices.len(), value.shape());
        return invalid!("Expected {expected} elements in the first dimension but value is {got}");
    }
    let row = Shape::of(&value.shape()[1..]);
    for (i, index) in indices.iter().enumerate() {
        array.write(*index, &part(&value, i * row.n_elements(), &row)?.view())?;
    }
    Ok(())
}

/// `(handle, value, lengths, flow)`
fn split(array: &TensorArray, ctx: &Ctx<'_>) -> Result<()> {
    let (value, lengths) = (ctx.input(1), ints(&ctx.input(2))?);
    if value.shape().rank() == 0 {
        return invalid!("Expected value to be at least a vector, but received shape: []");
    }
    let n_slots = array.open()?.slots.len();
    if !array.grows && lengths.len() != n_slots {
        let n_lengths = lengths.len();
        return invalid!(
            "TensorArray's size is not equal to the size of lengths ({n_slots} vs. {n_lengths}), \
             and the TensorArray is not marked as dynamically resizeable"
        );
    }
    for (i, part) in cut(&value, &lengths)?.iter().enumerate() {
        array.write(i as i64, &part.view())?;
    }
    Ok(())
}

struct Read {
    dtype: DType,
}

impl Op for Read {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [_, index, _] = arity(inputs)?;
        index.require_rank(0)?;
        Ok(vec![Spec::unknown(self.dtype)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let value = array(ctx)?.read(int(&ctx.input(1))?, self.dtype)?;
        ctx.set_output(0, value)
    }
}

struct GatherAt {
    dtype: DType,
    shape: shapes::ElementShape,
}

impl Op for GatherAt {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [_, indices, _] = arity(inputs)?;
        indices.require_rank(1)?;
        let mut dims = dims_of_attr(self.shape.as_deref());
        if let Some(dims) = &mut dims {
            dims.insert(0, indices.dims().map_or(Dim::Unknown, |dims| dims[0].clone()));
        }
        Ok(vec![spec_of(self.dtype, dims)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let array = array(ctx)?;
        let indices = ints(&ctx.input(1))?;
        let (shape, items) = {
            let state = &mut *array.open()?;
            let Some(shape) = shapes::merged(&state.shape, &self.shape) else {
                return invalid!("TensorArray was passed an element_shape that does not fit");
            };
            let take = |index: &i64| array.take(state, *index, self.dtype);
            (shape, indices.iter().map(take).collect::<Result<Vec<Tensor>>>()?)
        };
        write_stacked(ctx, self.dtype, items.iter().map(|item| Some(item.view())), &shape)
    }
}

struct Concat {
    dtype: DType,
    shape: shapes::ElementShape,
}

impl Op for Concat {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [_, _] = arity(inputs)?;
        let mut dims = dims_of_attr(self.shape.as_deref());
        if let Some(dims) = &mut dims {
            dims.insert(0, Dim::Unknown);
        }
        Ok(vec![spec_of(self.dtype, dims), Spec::new(DType::I64, [Dim::Unknown])])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let array = array(ctx)?;
        let items = {
            let state = &mut *array.open()?;
            let all = 0..state.slots.len() as i64;
            all.map(|i| array.take(state, i, self.dtype)).collect::<Result<Vec<Tensor>>>()?
        };
        let rest = match (items.first(), super::is_known(&self.shape)) {
            (Some(first), _) if first.shape().rank() > 0 => Shape::of(&first.shape()[1..]),
            (None, Some(shape)) => shape,
            (None, None) => {
                return invalid!(
                    "TensorArray has size zero, but element_shape_except0 is not fully defined"
                );
            }
            _ => {
                return invalid!(
                    "Concat saw a scalar shape at index 0 but requires at least vectors."
                );
            }
        };
        if let Some(at) = items.iter().position(|item| item.shape().get(1..) != Some(&rest[..])) {
            return invalid!("Concat saw shapes that do not match at index {at}");
        }
        let lengths: Vec<i64> = items.iter().map(|item| item.shape()[0] as i64).collect();
        let shape = Shape::checked([lengths.iter().sum()].into_iter().chain(rest.to_i64()))?;
        if items.is_empty() {
            ctx.set_output(0, Tensor::zeros(self.dtype, shape)?)?;
        } else {
            let views: Vec<View<'_>> = items.iter().map(Tensor::view).collect();
            rearrange(ctx, 0, &views, &shape, &Behind)?;
        }
        ctx.set_output(1, Tensor::vector(&lengths)?)
    }
}

struct Size;

impl Op for Size {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [_, _] = arity(inputs)?;
        Ok(vec![Spec::scalar(DType::I32)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let n_slots = array(ctx)?.open()?.slots.len();
        ctx.output(0, DType::I32, &Shape::scalar())?.as_mut_slice::<i32>()[0] = n_slots as i32;
        Ok(())
    }
}

struct Close;

impl Op for Close {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [_] = arity(inputs)?;
        Ok(Vec::new())
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let state = &mut *array(ctx)?.state.lock();
        state.slots.clear();
        state.is_closed = true;
        Ok(())
    }
}
