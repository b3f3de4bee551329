//! `TensorListConcatV2`, `TensorListConcat`, `TensorListSplit`: between lists and tensors whose
//! first dimension they share.

use super::items::Items;
use super::shapes::{self, ElementShape};
use super::stack::{Behind, part};
use super::tensor_list::{TensorList, is_known, show};
use crate::prelude::*;

pub(super) const CONCAT_V2: OpDef = OpDef::pure("TensorListConcatV2", |attrs| {
    let dtype = attrs.dtype("element_dtype")?;
    Ok(Box::new(Concat { dtype, shape: None }))
});
pub(super) const CONCAT: OpDef = OpDef::pure("TensorListConcat", |attrs| {
    let dtype = attrs.dtype("element_dtype")?;
    let shape = shapes::of_attr(attrs, "element_shape")?;
    Ok(Box::new(Concat { dtype, shape: Some(shape) }))
});
pub(super) const SPLIT: OpDef = OpDef::pure("TensorListSplit", |_| Ok(Box::new(Split)));

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
        let (asked, leading) = match &self.shape {
            Some(shape) => (shape.clone(), Ints::new()),
            None => (shapes::read(&ctx.input(1))?, ints(&ctx.input(2))?),
        };
        if asked.as_ref().is_some_and(smallvec::SmallVec::is_empty) {
            // The text is TensorFlow's (`list_kernels.h`).
            return invalid!(
                "Concat requires elements to be at least vectors, found scalars instead."
            );
        }
        // The first dimension differs from item to item.
        let mut inner = shapes::inner(&asked);
        let agreed = shapes::merged(&inner, &shapes::inner(&list.shape));
        inner = agreed.ok_or_else(|| {
            let (asked, list) = (show(&asked), show(&list.shape));
            Error::InvalidArgument(format!("cannot concatenate {list} as {asked}"))
        })?;
        let items = items(list, &asked, &mut inner, &leading)?;
        write(ctx, &items, self.dtype, &inner)
    }
}

/// The items; those that are not set are zeros of the leading dimension they are given.
fn items(
    list: &TensorList,
    asked: &ElementShape,
    inner: &mut ElementShape,
    leading: &[i64],
) -> Result<Vec<Tensor>> {
    for item in list.items.iter().flatten() {
        let rest = item.shape().get(1..).map(|dims| dims.iter().map(|d| Some(*d as i64)).collect());
        let merged = rest.and_then(|rest| shapes::merged(inner, &Some(rest)));
        let Some(merged) = merged else {
            // The text is TensorFlow's (`list_kernels.h`).
            return invalid!(
                "Concat saw a scalar shape or incompatible shapes at element of shape {}",
                item.shape()
            );
        };
        *inner = merged;
    }
    let first = asked.as_ref().and_then(|dims| dims.first().copied().flatten());
    let fill = |at: usize| {
        let length = leading.get(at).copied().or(first);
        let dims = inner
            .as_ref()
            .map(|inner| std::iter::once(length).chain(inner.iter().copied()).collect());
        match is_known(&dims) {
            Some(shape) => Ok(Tensor::zeros(list.dtype, shape)?),
            None => invalid!(
                "Trying to concat list with uninitialized elements but leading_dims are not known \
                 at element {at}"
            ),
        }
    };
    let items = list.items.iter().enumerate();
    let item = |(at, item): (usize, Option<View<'_>>)| match item {
        Some(item) => Ok(item.to_tensor()?),
        None => fill(at),
    };
    items.map(item).collect()
}

fn write(ctx: &mut Ctx<'_>, items: &[Tensor], dtype: DType, inner: &ElementShape) -> Result<()> {
    let lengths: Vec<i64> =
        items.iter().map(|item| item.shape().first().map_or(0, |dim| *dim as i64)).collect();
    let Some(rest) = is_known(inner) else {
        // The text is TensorFlow's (`list_kernels.h`).
        return invalid!(
            "All except the first dimension must be fully defined when concating an empty tensor \
             list. element_shape: {}",
            show(inner)
        );
    };
    let total = lengths.iter().sum::<i64>();
    let shape = Shape::checked(std::iter::once(total).chain(rest.to_i64()))?;
    if items.is_empty() {
        ctx.set_output(0, Tensor::zeros(dtype, shape)?)?;
    } else {
        let views: Vec<View<'_>> = items.iter().map(Tensor::view).collect();
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
        Ok(vec![Spec::scalar(DType::Variant)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (tensor, lengths) = (ctx.input(0), ints(&ctx.input(2))?);
        let shape = shapes::read(&ctx.input(1))?;
        let inner = shapes::inner(&shape);
        if tensor.shape().rank() == 0 || !shapes::takes(&inner, &Shape::of(&tensor.shape()[1..])) {
            // The texts are TensorFlow's (`list_kernels.h`).
            let (asked, got) = (show(&shape), tensor.shape());
            return invalid!("tensor shape {got} is not compatible with element_shape {asked}");
        }
        let items: Items = cut(&tensor, &lengths)?.into_iter().collect();
        TensorList { dtype: tensor.dtype(), shape, items, limit: None }.write(ctx, 0)
    }
}

/// Cuts a tensor into parts of these lengths, which must make up its whole.
pub(super) fn cut(tensor: &View<'_>, lengths: &[i64]) -> Result<Vec<Tensor>> {
    let n_rows = tensor.shape()[0];
    let n_inner: usize = tensor.shape()[1..].iter().product();
    let mut parts = Vec::with_capacity(lengths.len());
    let mut row = 0usize;
    for (i, length) in lengths.iter().enumerate() {
        let length = size(*length, &format!("length {i}"))?;
        if length > n_rows - row {
            return invalid!(
                "Attempting to slice [{row}, {row}+{length}) from tensor with length {n_rows}"
            );
        }
        let mut dims = tensor.shape().to_i64();
        dims[0] = length as i64;
        parts.push(part(tensor, row * n_inner, &Shape::checked(dims)?)?);
        row += length;
    }
    if row != n_rows {
        return invalid!("Unused values in tensor. Length of tensor: {n_rows} Values used: {row}");
    }
    Ok(parts)
}
