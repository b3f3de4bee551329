//! `TensorListGetItem`, `TensorListSetItem`, `TensorListPushBack`, `TensorListPopBack`.

use tensor::{Items, ListSpec};

use super::shapes;
use super::tensor_list::{TensorList, list_spec, show, write_unset};
use crate::prelude::*;

pub(super) const GET: OpDef = OpDef::pure("TensorListGetItem", RowRule::ListGet, |attrs| {
    Ok(Box::new(Get { dtype: attrs.dtype("element_dtype")? }))
});
pub(super) const SET: OpDef = OpDef::pure("TensorListSetItem", RowRule::ListPut, |attrs| {
    let dtype = attrs.dtype("element_dtype")?;
    let grows = attrs.bool_or("resize_if_index_out_of_bounds", false)?;
    Ok(Box::new(Set { dtype, grows }))
});
pub(super) const PUSH_BACK: OpDef = OpDef::pure("TensorListPushBack", RowRule::ListPut, |attrs| {
    Ok(Box::new(PushBack { dtype: attrs.dtype("element_dtype")? }))
});
pub(super) const POP_BACK: OpDef = OpDef::pure("TensorListPopBack", RowRule::Mixed, |attrs| {
    Ok(Box::new(PopBack { dtype: attrs.dtype("element_dtype")? }))
});

pub(super) const PUSH_BACK_BATCH: OpDef =
    OpDef::pure("TensorListPushBackBatch", RowRule::Mixed, |attrs| {
        Ok(Box::new(PushBackBatch { dtype: attrs.dtype("element_dtype")? }))
    });

struct Get {
    dtype: DType,
}

impl Op for Get {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [list, index, shape] = arity(inputs)?;
        // TensorFlow takes one element of any rank here.
        if index.shape().is_some_and(|shape| shape.n_elements() != 1) {
            return invalid!("expected a scalar but got {index}");
        }
        Ok(vec![spec_of(self.dtype, read_dims(list, shape))])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let list = TensorList::input_of(ctx, 0, self.dtype)?;
        let index = int(&ctx.input(1))?;
        let asked = shapes::read(&ctx.input(2))?;
        let Some(at) = usize::try_from(index).ok().filter(|at| *at < list.items.len()) else {
            // The text is TensorFlow's (`list_kernels.h`).
            let length = list.items.len();
            return invalid!("Trying to access element {index} in a list with {length} elements.");
        };
        match list.items.get(at) {
            Some(item) => ctx.forward(0, item, item.shape().clone()),
            None => write_unset(ctx, 0, self.dtype, &list.item_shape(&asked)?),
        }
    }
}

/// The dimensions of an item of a list, if it is asked for with this element shape.
pub(super) fn item_dims(list: &Spec, shape: &Spec) -> Option<Dims> {
    let asked = shapes::infer(shape);
    let Some(ListSpec { items: Items::Like(dims), .. }) = list_spec(list) else { return asked };
    // Such as do not agree are refused when they are there.
    merge_dims(Some(&dims), asked.as_deref()).ok().flatten()
}

/// The dimensions of an item that is read alone. One that is set is what it is: what is asked for
/// tells only of those that are not.
fn read_dims(list: &Spec, shape: &Spec) -> Option<Dims> {
    let asked = item_dims(list, shape);
    match list_spec(list)?.items {
        Items::Unset => asked,
        Items::Like(dims) => asked.map(|_| dims.iter().cloned().collect()),
        Items::Unknown => None,
    }
}

struct Set {
    dtype: DType,
    grows: bool,
}

impl Op for Set {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [list, index, item] = arity(inputs)?;
        index.require_rank(0)?;
        let made = Spec::scalar(DType::Variant);
        let Some(mut list) = list_spec(list) else { return Ok(vec![made]) };
        let like = |dims: &[Dim]| Items::Like(dims.iter().cloned().collect());
        list.items = match (list.items, item.dims().map(like)) {
            (Items::Unset, Some(item)) => item,
            (Items::Like(items), Some(item)) if Items::Like(items.clone()) == item => item,
            _ => Items::Unknown,
        };
        if self.grows {
            list.len = Dim::Unknown;
        }
        Ok(vec![made.with_list(list)])
    }

    fn in_place(&self) -> Option<usize> {
        Some(0)
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        TensorList::change(ctx, self.dtype, |list, ctx| self.set(list, ctx))
    }
}

impl Set {
    fn set(&self, list: &mut TensorList, ctx: &Ctx<'_>) -> Result<()> {
        let (index, item) = (int(&ctx.input(1))?, ctx.input(2));
        let length = list.items.len();
        let Some(at) = usize::try_from(index).ok().filter(|at| self.grows || *at < length) else {
            // The texts are TensorFlow's (`list_kernels.cc`).
            return invalid!("Trying to modify element {index} in a list with {length} elements.");
        };
        if item.dtype() != list.dtype || !list.takes(item.shape()) {
            let (item, list) = (item.shape(), show(&list.shape));
            return invalid!(
                "Tried to set a tensor with incompatible shape at a list index. Item element \
                 shape: {item} list shape: {list}"
            );
        }
        list.resize(length.max(at.saturating_add(1)))?;
        match ctx.is_in_place() {
            true => list.items.set_in_place(at, &item),
            false => list.items.set(at, item.to_tensor()?),
        }
    }
}

struct PushBack {
    dtype: DType,
}

impl Op for PushBack {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [_, _] = arity(inputs)?;
        Ok(vec![Spec::scalar(DType::Variant)])
    }

    fn in_place(&self) -> Option<usize> {
        Some(0)
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        TensorList::change(ctx, self.dtype, push_back)
    }
}

fn push_back(list: &mut TensorList, ctx: &Ctx<'_>) -> Result<()> {
    let item = ctx.input(1);
    if item.dtype() != list.dtype || !list.takes(item.shape()) {
        // The texts are TensorFlow's (`list_kernels.cc`).
        let (item, list) = (item.shape(), show(&list.shape));
        return invalid!(
            "Tried to append a tensor with incompatible shape to a list. Op element shape: \
             {item} list shape: {list}"
        );
    }
    let length = list.items.len();
    if let Some(limit) = list.limit.filter(|limit| length >= *limit) {
        return invalid!(
            "Tried to push item into a full list list size: {length} max_num_elements: {limit}"
        );
    }
    list.items.push(Some(item.to_tensor()?))
}

/// Row `i` of a tensor goes to the end of list `i`.
struct PushBackBatch {
    dtype: DType,
}

impl Op for PushBackBatch {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [lists, _] = arity(inputs)?;
        Ok(vec![lists.with_dtype(DType::Variant)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (handles, rows) = (ctx.input(0), ctx.input(1));
        if handles.dtype() != DType::Variant || rows.dtype() != self.dtype {
            return invalid!("expected lists of {} and a tensor of it", self.dtype);
        }
        // The texts are TensorFlow's (`list_kernels.h`).
        if rows.shape().first() != Some(&handles.n_elements()) || handles.shape().rank() != 1 {
            return invalid!(
                "Batch size mismatch between handles and input: {} and {}",
                handles.shape(),
                rows.shape()
            );
        }
        let item_shape = Shape::of(&rows.shape()[1..]);
        let mut longer = BookedVec::with_capacity(handles.n_elements())?;
        for (row, handle) in handles.handles().iter().enumerate() {
            let Some(list) = handle.get::<TensorList>() else {
                return invalid!("Input handle at index {row} is not a list");
            };
            let item = super::stack::part(&rows, row * item_shape.n_elements(), &item_shape)?;
            if list.dtype != self.dtype || !list.takes(item.shape()) {
                let (item, list) = (item.shape(), show(&list.shape));
                return invalid!(
                    "Tried to append a tensor with incompatible shape to a list. Op element \
                     shape: {item} list shape: {list}"
                );
            }
            let mut list = list.try_clone()?;
            list.items.push(Some(item))?;
            longer.push(tensor::Handle::new(list))?;
        }
        let shape = handles.shape().clone();
        ctx.set_output(0, Tensor::from_handles(DType::Variant, shape, longer.iter().cloned())?)
    }
}

struct PopBack {
    dtype: DType,
}

impl Op for PopBack {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [list, shape] = arity(inputs)?;
        Ok(vec![Spec::scalar(DType::Variant), spec_of(self.dtype, read_dims(list, shape))])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let list = TensorList::input_of(ctx, 0, self.dtype)?;
        let asked = shapes::read(&ctx.input(1))?;
        let mut shorter = list.try_clone()?;
        let Some(item) = shorter.items.pop()? else {
            // The text is TensorFlow's (`list_kernels.h`).
            return invalid!("Trying to pop from an empty list.");
        };
        match &item {
            Some(item) => ctx.forward(1, item.view(), item.shape().clone())?,
            None => write_unset(ctx, 1, self.dtype, &list.item_shape(&asked)?)?,
        }
        shorter.write(ctx, 0)
    }
}
