//! `EmptyTensorList`, `TensorListReserve`, `TensorListResize`, `TensorListLength`,
//! `TensorListElementShape`, `TensorListConcatLists`: lists as such.

use tensor::ListSpec;

use super::items::Items;
use super::shapes;
use super::tensor_list::TensorList;
use crate::prelude::*;

pub(super) const EMPTY: OpDef = OpDef::pure("EmptyTensorList", RowRule::Mixed, |attrs| {
    Ok(Box::new(Make { dtype: attrs.dtype("element_dtype")?, form: MakeForm::Empty }))
});
pub(super) const RESERVE: OpDef = OpDef::pure("TensorListReserve", RowRule::Mixed, |attrs| {
    Ok(Box::new(Make { dtype: attrs.dtype("element_dtype")?, form: MakeForm::Reserved }))
});
pub(super) const RESIZE: OpDef =
    OpDef::pure("TensorListResize", RowRule::Mixed, |_| Ok(Box::new(Resize)));
pub(super) const LENGTH: OpDef =
    OpDef::pure("TensorListLength", RowRule::ListLength, |_| Ok(Box::new(Length)));
pub(super) const ELEMENT_SHAPE: OpDef =
    OpDef::pure("TensorListElementShape", RowRule::Mixed, |attrs| {
        Ok(Box::new(ElementShapeOp { out: attrs.dtype("shape_type")? }))
    });
pub(super) const CONCAT_LISTS: OpDef =
    OpDef::pure("TensorListConcatLists", RowRule::Mixed, |attrs| {
        Ok(Box::new(ConcatLists { dtype: attrs.dtype("element_dtype")? }))
    });

struct Make {
    dtype: DType,
    form: MakeForm,
}

/// The meaning of the second input.
#[derive(Clone, Copy)]
enum MakeForm {
    /// The most items.
    Empty,
    /// The number of items that are not set.
    Reserved,
}

impl Op for Make {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [_, number] = arity(inputs)?;
        number.require_rank(0)?;
        let len = match self.form {
            MakeForm::Empty => Dim::Known(0),
            MakeForm::Reserved => match sizes_of(number).as_deref() {
                Some([len]) => len.clone(),
                _ => Dim::Unknown,
            },
        };
        let list = ListSpec { dtype: self.dtype, len, items: tensor::Items::Unset };
        Ok(vec![Spec::scalar(DType::Variant).with_list(list)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let shape = shapes::read(&ctx.input(0))?;
        let number = int(&ctx.input(1))?;
        let list = TensorList { dtype: self.dtype, shape, items: Items::default(), limit: None };
        match self.form {
            MakeForm::Empty => {
                TensorList { limit: usize::try_from(number).ok(), ..list }.write(ctx, 0)
            }
            MakeForm::Reserved => {
                // The text is TensorFlow's (`list_kernels.cc`).
                let n_items = size(number, "The num_elements to reserve")?;
                list.resized(n_items)?.write(ctx, 0)
            }
        }
    }
}

struct Resize;

impl Op for Resize {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [_, _] = arity(inputs)?;
        Ok(vec![Spec::scalar(DType::Variant)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let list = TensorList::input(ctx, 0)?;
        let length = size(int(&ctx.input(1))?, "TensorListSlice size")?;
        list.try_clone()?.resized(length)?.write(ctx, 0)
    }
}

struct Length;

impl Op for Length {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [_] = arity(inputs)?;
        Ok(vec![Spec::scalar(DType::I32)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let length = TensorList::input(ctx, 0)?.items.len();
        ctx.output(0, DType::I32, &Shape::scalar())?.as_mut_slice::<i32>()[0] = length as i32;
        Ok(())
    }
}

struct ElementShapeOp {
    out: DType,
}

impl Op for ElementShapeOp {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [_] = arity(inputs)?;
        Ok(vec![Spec::unknown(self.out)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let list = TensorList::input(ctx, 0)?;
        let (shape, dims) = match &list.shape {
            None => (Shape::scalar(), vec![-1]),
            Some(dims) => {
                let dims: Vec<i64> = dims.iter().map(|dim| dim.unwrap_or(-1)).collect();
                (Shape::of(&[dims.len()]), dims)
            }
        };
        let mut output = ctx.output(0, self.out, &shape)?;
        match self.out {
            DType::I64 => output.as_mut_slice::<i64>().copy_from_slice(&dims),
            _ => {
                let pairs = output.as_mut_slice::<i32>().iter_mut().zip(dims);
                pairs.for_each(|(x, dim)| *x = dim as i32);
            }
        }
        Ok(())
    }
}

/// One list behind another.
struct ConcatLists {
    dtype: DType,
}

impl Op for ConcatLists {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [_, _] = arity(inputs)?;
        Ok(vec![Spec::scalar(DType::Variant)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let a = TensorList::input_of(ctx, 0, self.dtype)?;
        let b = TensorList::input_of(ctx, 1, self.dtype)?;
        let Some(shape) = shapes::merged(&a.shape, &b.shape) else {
            return invalid!("lists of other shapes cannot be joined");
        };
        let mut list = TensorList { shape, ..a.try_clone()? };
        for item in b.items.iter() {
            pace(32)?;
            list.items.push(item.map(|item| item.to_tensor()).transpose()?)?;
        }
        list.write(ctx, 0)
    }
}
