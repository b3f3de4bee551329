//! `TensorListStack`, `TensorListGather`, `TensorListFromTensor` and the scatters: between lists
//! and tensors with one more dimension.

use tensor::ListSpec;

use super::item::item_dims;
use super::items::Items;
use super::shapes::{self, ElementShape};
use super::tensor_list::{TensorList, is_known, list_spec, shape_of, show};
use super::tensors::Tensors;
use crate::moves::rearranged;
use crate::prelude::*;

pub(super) const STACK: OpDef = OpDef::pure("TensorListStack", RowRule::ListStack, |attrs| {
    let n_items = match attrs.int_or("num_elements", -1)? {
        -1 => None,
        number => Some(size(number, "num_elements")?),
    };
    Ok(Box::new(Stack { dtype: attrs.dtype("element_dtype")?, n_items }))
});
pub(super) const GATHER: OpDef = OpDef::pure("TensorListGather", RowRule::Mixed, |attrs| {
    Ok(Box::new(GatherItems { dtype: attrs.dtype("element_dtype")? }))
});
pub(super) const FROM_TENSOR: OpDef =
    OpDef::pure("TensorListFromTensor", RowRule::ListFromTensor, |_| Ok(Box::new(FromTensor)));
pub(super) const SCATTER: OpDef = OpDef::pure("TensorListScatter", RowRule::Mixed, |_| {
    Ok(Box::new(Scatter { has_length: false }))
});
pub(super) const SCATTER_V2: OpDef = OpDef::pure("TensorListScatterV2", RowRule::Mixed, |_| {
    Ok(Box::new(Scatter { has_length: true }))
});
pub(super) const SCATTER_INTO: OpDef =
    OpDef::pure("TensorListScatterIntoExistingList", RowRule::Mixed, |_| Ok(Box::new(ScatterInto)));

struct Stack {
    dtype: DType,
    /// The number of items that there must be, if that is known.
    n_items: Option<usize>,
}

impl Op for Stack {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [list, shape] = arity(inputs)?;
        let mut dims = item_dims(list, shape);
        if let Some(dims) = &mut dims {
            let len = list_spec(list).map_or(Dim::Unknown, |list| list.len);
            dims.insert(0, self.n_items.map_or(len, Dim::of));
        }
        Ok(vec![spec_of(self.dtype, dims)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let list = TensorList::input_of(ctx, 0, self.dtype)?;
        let length = list.items.len();
        if let Some(expected) = self.n_items.filter(|expected| *expected != length) {
            // The texts are TensorFlow's (`list_kernels.h`).
            return invalid!(
                "Operation expected a list with {expected} elements but got a list with {length} \
                 elements."
            );
        }
        let shape = list.item_shape(&shapes::read(&ctx.input(1))?)?;
        let rows = list.items.stacked().filter(|_| length > 0);
        let inner = rows.and_then(|_| list.items.shape());
        if let Some((rows, _)) = rows.zip(inner.filter(|inner| shapes::takes(&shape, inner))) {
            return ctx.forward(0, rows.view(), rows.shape().clone());
        }
        write_stacked(ctx, list.dtype, list.items.iter(), &shape)
    }
}

struct GatherItems {
    dtype: DType,
}

impl Op for GatherItems {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [list, indices, shape] = arity(inputs)?;
        indices.require_rank_at_most(1)?;
        let mut dims = item_dims(list, shape);
        if let Some(dims) = &mut dims {
            dims.insert(0, indices.n_elements());
        }
        Ok(vec![spec_of(self.dtype, dims)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let list = TensorList::input_of(ctx, 0, self.dtype)?;
        let shape = list.item_shape(&shapes::read(&ctx.input(2))?)?;
        let indices = ctx.input(1);
        let mut places = ctx.scratch().part(indices.n_elements())?;
        for (i, place) in places.iter_mut().enumerate() {
            pace(16)?;
            let index = int_at(&indices, i)?;
            let Some(at) = usize::try_from(index).ok().filter(|at| *at < list.items.len()) else {
                // The text is TensorFlow's (`list_kernels.h`).
                let length = list.items.len();
                return invalid!(
                    "Trying to gather element {index} in a list with {length} elements."
                );
            };
            *place = at;
        }
        let picked = places.iter().map(|at| list.items.get(*at));
        write_stacked(ctx, list.dtype, picked, &shape)
    }

    fn scratch_bytes(&self, inputs: &[Spec], _: &[Spec]) -> usize {
        Scratch::bytes_for::<usize>(&inputs[1])
    }
}

/// Makes output 0 of items one behind another.
pub(super) fn write_stacked<'a>(
    ctx: &mut Ctx<'_>,
    dtype: DType,
    items: impl Iterator<Item = Option<View<'a>>> + Clone,
    shape: &ElementShape,
) -> Result<()> {
    let (mut first, mut n_items) = (None, 0);
    for item in items.clone() {
        pace(32)?;
        let shape = shape_of(item.as_ref(), shape)?;
        first.get_or_insert(shape);
        n_items += 1;
    }
    let Some(inner) = is_known(shape).or(first) else {
        // The text is TensorFlow's (`list_kernels.h`).
        let shape = show(shape);
        return invalid!(
            "Tried to stack elements of an empty list with non-fully-defined element_shape: {shape}"
        );
    };
    if let Some(other) = items.clone().flatten().find(|item| *item.shape() != inner) {
        let other = other.shape();
        return invalid!("TensorListStack expects elements of shape {inner}, got {other}");
    }
    let dims = std::iter::once(n_items).chain(inner.to_i64());
    let stacked = Shape::checked(dims)?;
    if !dtype.is_plain() {
        return stack_objects(ctx, dtype, items, (&inner, stacked));
    }
    let mut out = ctx.output(0, dtype, &stacked)?;
    let rows = out.bytes().chunks_exact_mut((inner.n_elements() * dtype.size()).max(1));
    for (item, row) in items.zip(rows) {
        pace(64)?;
        match item {
            Some(item) => row.copy_from_slice(item.bytes()),
            None => row.fill(0),
        }
    }
    Ok(())
}

/// The same for strings and handles, whose shapes were checked.
fn stack_objects<'a>(
    ctx: &mut Ctx<'_>,
    dtype: DType,
    items: impl Iterator<Item = Option<View<'a>>>,
    (inner, stacked): (&Shape, Shape),
) -> Result<()> {
    let or_zeros = |item: Option<View<'_>>| match item {
        Some(item) => item.to_tensor(),
        None => Tensor::zeros(dtype, inner.clone()),
    };
    let mut all = BookedVec::new();
    for item in items {
        all.push(or_zeros(item)?)?;
    }
    let items = all;
    if items.is_empty() {
        return ctx.set_output(0, Tensor::zeros(dtype, stacked)?);
    }
    let views = BookedVec::collect(items.iter().map(Tensor::view))?;
    rearrange(ctx, 0, &views, &stacked, &Behind)
}

/// All inputs, one behind another.
pub(super) struct Behind;

impl Move for Behind {
    fn apply<T: bytemuck::Pod + Send + Sync>(
        &self,
        inputs: &[&[T]],
        output: &mut [T],
    ) -> Result<()> {
        let mut rest = output;
        for input in inputs {
            let (run, after) = rest.split_at_mut(input.len());
            run.copy_from_slice(input);
            rest = after;
        }
        Ok(())
    }
}

/// The rows of a tensor as items.
struct FromTensor;

impl Op for FromTensor {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [tensor, _] = arity(inputs)?;
        tensor.require_rank_at_least(1)?;
        let list = Spec::scalar(DType::Variant);
        let Some([len, dims @ ..]) = tensor.dims() else { return Ok(vec![list]) };
        let items = tensor::Items::Like(dims.iter().cloned().collect());
        let (dtype, len) = (tensor.dtype, len.clone());
        Ok(vec![list.with_list(ListSpec { dtype, len, items })])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let tensor = ctx.input(0);
        let shape = shapes::read(&ctx.input(1))?;
        let items = match tensor.dtype().is_plain() {
            true => {
                check_rows(&tensor, &shape)?;
                Items::rows(tensor.to_tensor()?)
            }
            false => Items::collect(rows(&tensor, &shape)?.iter().cloned())?,
        };
        TensorList { dtype: tensor.dtype(), shape, items, limit: None }.write(ctx, 0)
    }
}

/// The rows of a tensor, if they are such as `shape` allows.
fn rows(tensor: &View<'_>, shape: &ElementShape) -> Result<Tensors> {
    let (n_rows, inner) = check_rows(tensor, shape)?;
    let mut rows = Tensors::default();
    for row in 0..n_rows {
        pace(64)?;
        rows.push(part(tensor, row * inner.n_elements(), &inner)?)?;
    }
    Ok(rows)
}

/// The number of rows and their shape, if they are such as `shape` allows.
fn check_rows(tensor: &View<'_>, shape: &ElementShape) -> Result<(usize, Shape)> {
    let Some((n_rows, inner)) = tensor.shape().split_first() else {
        // The texts are TensorFlow's (`list_kernels.cc`).
        return invalid!("Tensor must be at least a vector, but saw shape: {}", tensor.shape());
    };
    let inner = Shape::of(inner);
    if !shapes::takes(shape, &inner) {
        let (shape, got) = (show(shape), tensor.shape());
        return invalid!("Specified a list with shape {shape} from a tensor with shape {got}");
    }
    Ok((*n_rows, inner))
}

/// A run of elements from `start` on, as a tensor of `shape`.
pub(super) fn part(tensor: &View<'_>, start: usize, shape: &Shape) -> Result<Tensor> {
    if tensor.dtype().is_plain() {
        let size = tensor.dtype().size();
        let bytes = &tensor.bytes()[start * size..][..shape.n_elements() * size];
        return Ok(Tensor::from_bytes(tensor.dtype(), shape.clone(), bytes)?);
    }
    rearranged(&[*tensor], shape, &From { start })
}

struct From {
    start: usize,
}

impl Move for From {
    fn apply<T: bytemuck::Pod + Send + Sync>(
        &self,
        inputs: &[&[T]],
        output: &mut [T],
    ) -> Result<()> {
        output.copy_from_slice(&inputs[0][self.start..][..output.len()]);
        Ok(())
    }
}

/// The rows of a tensor as items at given places of a new list.
struct Scatter {
    has_length: bool,
}

impl Op for Scatter {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        arity_at_least(inputs, 3 + usize::from(self.has_length))?;
        inputs[0].require_rank_at_least(1)?;
        inputs[1].require_rank(1)?;
        Ok(vec![Spec::scalar(DType::Variant)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (tensor, indices) = (ctx.input(0), indices(&ctx.input(1))?);
        let shape = shapes::read(&ctx.input(2))?;
        let least = indices.iter().max().map_or(0, |max| max.saturating_add(1).max(0) as usize);
        let asked = if self.has_length { int(&ctx.input(3))? } else { -1 };
        let length = match usize::try_from(asked) {
            Ok(length) if least > length => {
                // The text is TensorFlow's (`list_kernels.h`).
                return invalid!(
                    "TensorListScatter: Trying to scatter at index {} in list with size {length}",
                    least - 1
                );
            }
            Ok(length) => length,
            Err(_) if asked == -1 => least,
            Err(_) => {
                return invalid!("TensorListScatter expects num_elements >= -1, found: {asked}");
            }
        };
        let rows = rows(&tensor, &shape)?;
        let list =
            TensorList { dtype: tensor.dtype(), shape, items: Items::default(), limit: None };
        put(list.resized(length)?, &indices, &rows)?.write(ctx, 0)
    }
}

struct ScatterInto;

impl Op for ScatterInto {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [_, tensor, indices] = arity(inputs)?;
        tensor.require_rank_at_least(1)?;
        indices.require_rank(1)?;
        Ok(vec![Spec::scalar(DType::Variant)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (tensor, indices) = (ctx.input(1), indices(&ctx.input(2))?);
        let list = TensorList::input_of(ctx, 0, tensor.dtype())?;
        let rows = rows(&tensor, &list.shape)?;
        let least = indices.iter().max().map_or(0, |max| max.saturating_add(1).max(0) as usize);
        let list = list.try_clone()?.resized(list.items.len().max(least))?;
        put(list, &indices, &rows)?.write(ctx, 0)
    }
}

/// Indices or lengths, however many. Fails unless they are integers.
pub(super) fn indices(view: &View<'_>) -> Result<BookedVec<i64>> {
    match booked_i64(view)? {
        Some(indices) => Ok(indices),
        None => invalid!("expected int32 or int64 but got {}", view.dtype()),
    }
}

/// Sets the items at `indices` to rows, one each.
fn put(mut list: TensorList, indices: &[i64], rows: &Tensors) -> Result<TensorList> {
    if indices.len() != rows.len() {
        // The texts are TensorFlow's (`list_kernels.cc`).
        return invalid!(
            "Invalid number of rows in input tensor. Expected: {} Actual: {}",
            indices.len(),
            rows.len()
        );
    }
    for (index, row) in indices.iter().zip(rows.iter()) {
        let Some(at) = usize::try_from(*index).ok().filter(|at| *at < list.items.len()) else {
            return invalid!("Indices in TensorListScatter must all be non-negative.");
        };
        list.items.set(at, row.clone())?;
    }
    Ok(list)
}
