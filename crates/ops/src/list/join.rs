//! `TensorListConcatV2`, `TensorListConcat`, `TensorListSplit`: between lists and tensors whose
//! first dimension they share.

use tensor::ListSpec;

use super::items::Items;
use super::shapes::{self, ElementShape};
use super::stack::{Behind, indices, part};
use super::tensor_list::{TensorList, is_known, show};
use super::tensors::Tensors;
use crate::prelude::*;

pub(super) const CONCAT_V2: OpDef = OpDef::pure("TensorListConcatV2", RowRule::Mixed, |attrs| {
    let dtype = attrs.dtype("element_dtype")?;
    Ok(Box::new(Concat { dtype, shape: None }))
});
pub(super) const CONCAT: OpDef = OpDef::pure("TensorListConcat", RowRule::Mixed, |attrs| {
    let dtype = attrs.dtype("element_dtype")?;
    let shape = shapes::of_attr(attrs, "element_shape")?;
    Ok(Box::new(Concat { dtype, shape: Some(shape) }))
});
pub(super) const SPLIT: OpDef =
    OpDef::pure("TensorListSplit", RowRule::Mixed, |_| Ok(Box::new(Split)));

struct Concat {
    dtype: DType,
    /// The element shape; it is the second input if there is none.
    shape: Option<ElementShape>,
}

impl Op for Concat {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        arity_at_least(inputs, if self.shape.is_some() { 1 } else { 3 })?;
        let mut dims = match &self.shape {
            Some(shape) => dims_of_attr(shape.as_deref()),
            None => shapes::infer(&inputs[1]),
        };
        if let Some(first) = dims.as_mut().and_then(|dims| dims.first_mut()) {
            *first = Dim::Unknown;
        }
        Ok(vec![spec_of(self.dtype, dims), Spec::new(DType::I64, [Dim::Unknown])])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let list = TensorList::input_of(ctx, 0, self.dtype)?;
        let (shape, leading) = match &self.shape {
            Some(shape) => (shape.clone(), BookedVec::new()),
            None => {
                let asked = shapes::read(&ctx.input(1))?;
                let shape = shapes::merged(&asked, &list.shape).ok_or_else(|| {
                    let (asked, list) = (show(&asked), show(&list.shape));
                    Error::InvalidArgument(format!("cannot concatenate {list} as {asked}"))
                })?;
                (shape, indices(&ctx.input(2))?)
            }
        };
        if shape.as_ref().is_some_and(smallvec::SmallVec::is_empty) {
            // The text is TensorFlow's (`list_kernels.h`).
            return invalid!(
                "Concat requires elements to be at least vectors, found scalars instead."
            );
        }
        // What the first version has as a first dimension is not looked at.
        let first = shape.as_ref().filter(|_| self.shape.is_none()).and_then(|dims| dims[0]);
        let mut known = JoinedItems { first, inner: shapes::inner(&shape) };
        known.complete(list)?;
        let items = known.items(list, &leading)?;
        write(ctx, &items, self.dtype, &known.inner)
    }
}

/// The known properties of the items.
struct JoinedItems {
    /// The first dimension of those that are not set.
    first: Option<i64>,
    /// The other dimensions of all.
    inner: ElementShape,
}

impl JoinedItems {
    /// Adds what the items that are set tell. Fails if they differ but for their first dimensions.
    /// TensorFlow does not ask them if the list has a shape (`list_kernels.h`, whose texts these
    /// are).
    fn complete(&mut self, list: &TensorList) -> Result<()> {
        let mut first = None;
        let items = list.items.iter().enumerate();
        let is_open = is_known(&list.shape).is_none();
        for (at, item) in items.filter_map(|(at, item)| Some((at, item?))).filter(|_| is_open) {
            pace(32)?;
            let dims: shapes::Sizes = item.shape().to_i64().into_iter().map(Some).collect();
            let merged = shapes::merged(&self.inner, &shapes::inner(&Some(dims.clone())));
            let (Some(merged), Some(length)) = (merged, dims.first()) else {
                return invalid!(
                    "Concat saw a scalar shape or incompatible shapes at element of shape {}",
                    item.shape()
                );
            };
            if self.first.is_some() && self.first != *length {
                return invalid!(
                    "First entry of element_shape input does not match the first dim of list \
                     element at index: {at} Expected: {} Actual: {}",
                    self.first.unwrap_or_default(),
                    length.unwrap_or_default()
                );
            }
            first =
                if first.is_none_or(|first| first == *length) { Some(*length) } else { Some(None) };
            self.inner = merged;
        }
        self.first = self.first.or(first.flatten());
        if is_known(&self.inner).is_some() {
            return Ok(());
        }
        let shape = show(&self.inner);
        if list.items.len() == 0 {
            return invalid!(
                "All except the first dimension must be fully defined when concating an empty \
                 tensor list. element_shape: {shape}"
            );
        }
        invalid!(
            "Trying to concat list with only uninitialized tensors but \
             element_shape_except_first_dim is not fully defined: {shape}"
        )
    }

    /// The items; those that are not set are zeros of the leading dimensions they are given, or
    /// else of the first dimension of the others.
    fn items(&self, list: &TensorList, leading: &[i64]) -> Result<Tensors> {
        let fill = |at: usize| {
            let length = leading.get(at).copied().or(self.first).filter(|length| *length >= 0);
            let dims = self.inner.iter().flatten().copied();
            match (length, is_known(&Some(std::iter::once(length).chain(dims).collect()))) {
                (Some(_), Some(shape)) => Ok(Tensor::zeros(list.dtype, shape)?),
                _ => invalid!(
                    "List contains uninitialized tensor at index {at} but its leading dimension is \
                     not known"
                ),
            }
        };
        let fits = |item: &View<'_>| {
            let rest = item.shape().get(1..);
            rest.is_some_and(|rest| shapes::takes(&self.inner, &Shape::of(rest)))
        };
        let item = |(at, item): (usize, Option<View<'_>>)| match item {
            Some(item) if fits(&item) => Ok(item.to_tensor()?),
            // TensorFlow answers what its memory holds.
            Some(item) => {
                let (shape, inner) = (item.shape(), show(&self.inner));
                invalid!("cannot concatenate an item of shape {shape} as rows of shape {inner}")
            }
            None => fill(at),
        };
        let mut items = Tensors::default();
        for each in list.items.iter().enumerate() {
            items.push(item(each)?)?;
        }
        Ok(items)
    }
}

fn write(ctx: &mut Ctx<'_>, items: &[Tensor], dtype: DType, inner: &ElementShape) -> Result<()> {
    let length = |item: &Tensor| item.shape().first().map_or(0, |dim| *dim as i64);
    let lengths = BookedVec::collect(items.iter().map(length))?;
    let rest: shapes::Sizes = inner.iter().flatten().copied().collect();
    let rest = rest.into_iter().flatten();
    let total = lengths.iter().sum::<i64>();
    let shape = Shape::checked(std::iter::once(total).chain(rest))?;
    if items.is_empty() {
        ctx.set_output(0, Tensor::zeros(dtype, shape)?)?;
    } else {
        let views = BookedVec::collect(items.iter().map(Tensor::view))?;
        rearrange(ctx, 0, &views, &shape, &Behind)?;
    }
    ctx.set_output(1, Tensor::vector(&lengths)?)
}

/// A tensor cut along its first dimension.
struct Split;

impl Op for Split {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [tensor, _, lengths] = arity(inputs)?;
        tensor.require_rank_at_least(1)?;
        lengths.require_rank(1)?;
        let list = Spec::scalar(DType::Variant);
        let Some([_, inner @ ..]) = tensor.dims() else { return Ok(vec![list]) };
        // Items are as long as they are cut, whatever shape the list or who reads them is told.
        let length =
            known_ints(lengths).filter(|all| all.windows(2).all(|pair| pair[0] == pair[1]));
        let length = length.and_then(|all| all.first().copied()).map_or(Dim::Unknown, Dim::Known);
        let items = tensor::Items::Like([length].iter().chain(inner).cloned().collect());
        let len = lengths.dims().map_or(Dim::Unknown, |dims| dims[0].clone());
        Ok(vec![list.with_list(ListSpec { dtype: tensor.dtype, len, items })])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (tensor, lengths) = (ctx.input(0), indices(&ctx.input(2))?);
        let shape = shapes::read(&ctx.input(1))?;
        if shape.as_ref().is_some_and(smallvec::SmallVec::is_empty) {
            // The text is TensorFlow's (`list_kernels.h`).
            return invalid!(
                "TensorListSplit requires element_shape to be at least of rank 1, but saw: []"
            );
        }
        let inner = shapes::inner(&shape);
        if tensor.shape().rank() == 0 || !shapes::takes(&inner, &Shape::of(&tensor.shape()[1..])) {
            // The texts are TensorFlow's (`list_kernels.h`).
            let (asked, got) = (show(&shape), tensor.shape());
            return invalid!("tensor shape {got} is not compatible with element_shape {asked}");
        }
        let items = Items::collect(cut(&tensor, &lengths)?.iter().cloned())?;
        TensorList { dtype: tensor.dtype(), shape, items, limit: None }.write(ctx, 0)
    }
}

/// Cuts a tensor into parts of these lengths, which must make up its whole.
pub(super) fn cut(tensor: &View<'_>, lengths: &[i64]) -> Result<Tensors> {
    let n_rows = tensor.shape()[0];
    let n_inner: usize = tensor.shape()[1..].iter().product();
    let mut parts = Tensors::default();
    let mut row = 0usize;
    for (i, length) in lengths.iter().enumerate() {
        pace(32)?;
        let length = size(*length, &format!("length {i}"))?;
        if length > n_rows - row {
            return invalid!(
                "Attempting to slice [{row}, {row}+{length}) from tensor with length {n_rows}"
            );
        }
        let mut dims = tensor.shape().to_i64();
        dims[0] = length as i64;
        parts.push(part(tensor, row * n_inner, &Shape::checked(dims)?)?)?;
        row += length;
    }
    if row != n_rows {
        return invalid!("Unused values in tensor. Length of tensor: {n_rows} Values used: {row}");
    }
    Ok(parts)
}
