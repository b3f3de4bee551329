//! The ops of tensor arrays. The flow that they hand on orders them and has no meaning of its own.

use tensor::{Handle, Items, ListSpec};

use super::super::join::cut;
use super::super::shapes;
use super::super::stack::{Behind, indices, part, write_stacked};
use super::super::tensors::Tensors;
use super::{LENGTH_MAX, TensorArray, TensorArrayState};
use crate::prelude::*;

pub(crate) const ARRAY: OpDef =
    OpDef::of_kind("TensorArrayV3", Kind::Reads, RowRule::Mixed, |attrs| {
        Ok(Box::new(Make {
            dtype: attrs.dtype("dtype")?,
            shape: shapes::of_attr(attrs, "element_shape")?,
            grows: attrs.bool_or("dynamic_size", false)?,
            clears_after_read: attrs.bool_or("clear_after_read", true)?,
            identical: attrs.bool_or("identical_element_shapes", false)?,
        }))
    });
pub(crate) const WRITE: OpDef =
    OpDef::of_kind("TensorArrayWriteV3", Kind::Writes, RowRule::Mixed, |_| {
        Ok(Box::new(Write { value: 2, outer: Some(0), how: write }))
    });
pub(crate) const SCATTER: OpDef =
    OpDef::of_kind("TensorArrayScatterV3", Kind::Writes, RowRule::Mixed, |_| {
        Ok(Box::new(Write { value: 2, outer: Some(1), how: scatter }))
    });
pub(crate) const SPLIT: OpDef =
    OpDef::of_kind("TensorArraySplitV3", Kind::Writes, RowRule::Mixed, |_| {
        Ok(Box::new(Write { value: 1, outer: None, how: split }))
    });
pub(crate) const READ: OpDef =
    OpDef::of_kind("TensorArrayReadV3", Kind::Reads, RowRule::Mixed, |attrs| {
        Ok(Box::new(TensorArrayRead { dtype: attrs.dtype("dtype")? }))
    });
pub(crate) const GATHER: OpDef =
    OpDef::of_kind("TensorArrayGatherV3", Kind::Reads, RowRule::Mixed, |attrs| {
        let shape = shapes::of_attr(attrs, "element_shape")?;
        Ok(Box::new(GatherAt { dtype: attrs.dtype("dtype")?, shape }))
    });
pub(crate) const CONCAT: OpDef =
    OpDef::of_kind("TensorArrayConcatV3", Kind::Reads, RowRule::Mixed, |attrs| {
        let shape = shapes::of_attr(attrs, "element_shape_except0")?;
        Ok(Box::new(Concat { dtype: attrs.dtype("dtype")?, shape }))
    });
pub(crate) const SIZE: OpDef =
    OpDef::of_kind("TensorArraySizeV3", Kind::Reads, RowRule::Mixed, |_| {
        Ok(Box::new(TensorArraySize))
    });
pub(crate) const CLOSE: OpDef =
    OpDef::of_kind("TensorArrayCloseV3", Kind::Writes, RowRule::Mixed, |_| Ok(Box::new(Close)));

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
        let specs = [Spec::scalar(DType::Resource), Spec::scalar(DType::F32)];
        let dims = dims_of_attr(self.shape.as_deref());
        let dims = dims.filter(|dims| dims.iter().all(|dim| dim.known().is_some()));
        // If elements may differ in shape, one tells nothing of the others.
        if dims.is_none() && !self.identical {
            return Ok(specs.into());
        }
        let len = match sizes_of(size).as_deref() {
            Some([len]) if !self.grows => len.clone(),
            _ => Dim::Unknown,
        };
        let items = dims.map_or(Items::Unset, |dims| Items::Like(dims.into_iter().collect()));
        let list = ListSpec { dtype: self.dtype, len, items };
        Ok(specs.map(|spec| spec.with_list(list.clone())).into())
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let length = size(int(&ctx.input(0))?, "Size")?;
        if length > LENGTH_MAX {
            return invalid!("a TensorArray of {length} elements is too long");
        }
        let mut items = super::Items::default();
        items.resize(length)?;
        let array = TensorArray {
            dtype: self.dtype,
            grows: self.grows,
            clears_after_read: self.clears_after_read,
            identical: self.identical,
            state: parking_lot::Mutex::new(TensorArrayState {
                shape: self.shape.clone(),
                items,
                cleared: BookedVec::new(),
                is_closed: false,
            }),
        };
        ctx.set_output(0, Tensor::from_handle(DType::Resource, Handle::new(array)))?;
        write_flow(ctx, 1)
    }
}

/// Returns the known properties of the array behind a handle and its flow, if all its elements have
/// one shape. They go with the flow, which orders reads behind writes.
fn array_spec(handle: &Spec, flow: &Spec, dtype: DType) -> Option<ListSpec> {
    let list = flow.list().or_else(|| handle.list());
    list.filter(|list| list.dtype == dtype).cloned()
}

/// The flow behind a write of elements of these dimensions. A write of another shape than those
/// before fails, so what is known of this one holds for all.
fn flow_behind(handle: &Spec, flow: &Spec, dtype: DType, dims: Option<&[Dim]>) -> Spec {
    let flow_spec = Spec::scalar(DType::F32);
    let Some(mut list) = array_spec(handle, flow, dtype) else { return flow_spec };
    list.items = dims.map_or(Items::Unknown, |dims| Items::Like(dims.iter().cloned().collect()));
    flow_spec.with_list(list)
}

/// An op that fills an array and hands the flow on.
struct Write {
    /// The input that has the values.
    value: usize,
    /// The number of the values' dimensions that elements do not have; `None` if elements are parts
    /// of the values that may differ in length.
    outer: Option<usize>,
    how: fn(&TensorArray, &Ctx<'_>) -> Result<()>,
}

impl Op for Write {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [handle, _, _, flow] = arity(inputs)?;
        let value = &inputs[self.value];
        let dims = value.dims().zip(self.outer).and_then(|(dims, outer)| dims.get(outer..));
        Ok(vec![flow_behind(handle, flow, value.dtype, dims)])
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
    let (indices, value) = (ctx.input(1), ctx.input(2));
    let n_indices = indices.n_elements();
    let n_rows = value.shape().first().copied();
    if n_rows != Some(n_indices) {
        let got = value.shape();
        return invalid!("Expected {n_indices} elements in the first dimension but value is {got}");
    }
    let row = Shape::of(&value.shape()[1..]);
    let in_order = is_in_order(&indices)?;
    if in_order && array.put_rows(&mut *array.open()?, &value, &row)? {
        return Ok(());
    }
    for i in 0..n_indices {
        pace(32)?;
        let index = int_at(&indices, i)?;
        match value.dtype().is_plain() {
            true => {
                let len = row.n_elements() * value.dtype().size();
                let bytes = &value.bytes()[i * len..][..len];
                array.write(index, &View::plain(value.dtype(), &row, bytes))?;
            }
            false => array.write(index, &part(&value, i * row.n_elements(), &row)?.view())?,
        }
    }
    Ok(())
}

/// Returns whether indices are 0, 1, 2 and so on.
fn is_in_order(indices: &View<'_>) -> Result<bool> {
    for i in 0..indices.n_elements() {
        pace(32)?;
        if int_at(indices, i)? != i as i64 {
            return Ok(false);
        }
    }
    Ok(true)
}

/// `(handle, value, lengths, flow)`
fn split(array: &TensorArray, ctx: &Ctx<'_>) -> Result<()> {
    let (value, lengths) = (ctx.input(1), indices(&ctx.input(2))?);
    if value.shape().rank() == 0 {
        return invalid!("Expected value to be at least a vector, but received shape: []");
    }
    let n_items = array.open()?.items.len();
    let fits = if array.grows { lengths.len() >= n_items } else { lengths.len() == n_items };
    if !fits {
        let n_lengths = lengths.len();
        return invalid!(
            "TensorArray's size is not equal to the size of lengths ({n_items} vs. {n_lengths}), \
             and the TensorArray is not marked as dynamically resizeable"
        );
    }
    for (i, part) in cut(&value, &lengths)?.iter().enumerate() {
        array.write(i as i64, &part.view())?;
    }
    Ok(())
}

struct TensorArrayRead {
    dtype: DType,
}

impl Op for TensorArrayRead {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [handle, index, flow] = arity(inputs)?;
        index.require_rank(0)?;
        let dims = match array_spec(handle, flow, self.dtype) {
            Some(ListSpec { items: Items::Like(dims), .. }) => Some(dims.iter().cloned().collect()),
            _ => None,
        };
        Ok(vec![spec_of(self.dtype, dims)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (array, index) = (array(ctx)?, int(&ctx.input(1))?);
        let state = &mut *array.open()?;
        let at = array.take(state, index, self.dtype)?;
        match state.items.get(at) {
            Some(item) => ctx.forward(0, item, item.shape().clone())?,
            None => {
                let shape = super::is_known(&state.shape).unwrap_or_default();
                ctx.set_output(0, Tensor::zeros(self.dtype, shape)?)?;
            }
        }
        array.release(state, at)?;
        Ok(())
    }
}

struct GatherAt {
    dtype: DType,
    shape: shapes::ElementShape,
}

impl Op for GatherAt {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [handle, indices, flow] = arity(inputs)?;
        indices.require_rank(1)?;
        let mut dims = dims_of_attr(self.shape.as_deref());
        if let Some(ListSpec { items: Items::Like(items), .. }) =
            array_spec(handle, flow, self.dtype)
        {
            // Such as do not agree are refused when they are there.
            dims = merge_dims(Some(&items), dims.as_deref()).ok().flatten();
        }
        if let Some(dims) = &mut dims {
            dims.insert(0, indices.dims().map_or(Dim::Unknown, |dims| dims[0].clone()));
        }
        Ok(vec![spec_of(self.dtype, dims)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (array, indices) = (array(ctx)?, ctx.input(1));
        let state = &mut *array.open()?;
        let Some(shape) = shapes::merged(&state.shape, &self.shape) else {
            return invalid!("TensorArray was passed an element_shape that does not fit");
        };
        let mut places = ctx.scratch().part(indices.n_elements())?;
        for (i, place) in places.iter_mut().enumerate() {
            pace(32)?;
            *place = array.take(state, int_at(&indices, i)?, self.dtype)?;
        }
        let rows = state.items.stacked().filter(|rows| rows.shape()[0] == indices.n_elements());
        let rows = rows.filter(|rows| shapes::takes(&shape, &Shape::of(&rows.shape()[1..])));
        match rows {
            Some(rows) if rows.shape()[0] > 0 && is_in_order(&indices)? => {
                ctx.forward(0, rows.view(), rows.shape().clone())?;
            }
            _ => {
                let items = places.iter().map(|at| state.items.get(*at));
                write_stacked(ctx, self.dtype, items, &shape)?;
            }
        }
        places.iter().try_for_each(|at| array.release(state, *at))
    }

    fn scratch_bytes(&self, inputs: &[Spec], _: &[Spec]) -> usize {
        Scratch::bytes_for::<usize>(&inputs[1])
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
            let all = 0..state.items.len();
            let mut items = Tensors::default();
            for i in all {
                items.push(array.read(state, i, self.dtype)?)?;
            }
            items
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
        let lengths = BookedVec::collect(items.iter().map(|item| item.shape()[0] as i64))?;
        let shape = Shape::checked([lengths.iter().sum()].into_iter().chain(rest.to_i64()))?;
        if items.is_empty() {
            ctx.set_output(0, Tensor::zeros(self.dtype, shape)?)?;
        } else {
            let views = BookedVec::collect(items.iter().map(Tensor::view))?;
            rearrange(ctx, 0, &views, &shape, &Behind)?;
        }
        ctx.set_output(1, Tensor::vector(&lengths)?)
    }
}

struct TensorArraySize;

impl Op for TensorArraySize {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [handle, _] = arity(inputs)?;
        let len = handle.list().map(|list| vec![list.len.clone()]);
        Ok(vec![with_sizes(Spec::scalar(DType::I32), len)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let n_items = array(ctx)?.open()?.items.len();
        ctx.output(0, DType::I32, &Shape::scalar())?.as_mut_slice::<i32>()[0] = n_items as i32;
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
        state.items = super::Items::default();
        state.is_closed = true;
        Ok(())
    }
}
