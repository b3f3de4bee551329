//! `TensorList`: what the handle of a `TensorList` op points to.

use tensor::Handle;

use super::items::Items;
use super::shapes::{ElementShape, merged};
use crate::prelude::*;

/// The longest list: one could be asked for that fills the memory with items that are not set.
const LENGTH_MAX: usize = 1 << 24;

/// Tensors of one dtype, and what is known of their shapes. It never changes: ops make new ones.
#[derive(Debug, Clone)]
pub(super) struct TensorList {
    pub(super) dtype: DType,
    pub(super) shape: ElementShape,
    pub(super) items: Items,
    /// The most items, if that is limited.
    pub(super) limit: Option<usize>,
}

/// The shape of every tensor of the list that a handle stands for, if it is a list and all its
/// tensors are set and known to have one shape.
pub fn item_shape(list: &Tensor) -> Option<&Shape> {
    match list.view().dtype() {
        DType::Variant if list.n_elements() == 1 => {}
        _ => return None,
    }
    let list: &TensorList = list.view().handles().first()?.get()?;
    list.items.shape()
}

impl TensorList {
    /// The list that input number `index` of a kernel points to.
    pub(super) fn input<'a>(ctx: &Ctx<'a>, index: usize) -> Result<&'a Self> {
        let view = ctx.input(index);
        if view.dtype() != DType::Variant {
            return invalid!("expected a list but got {}", view.dtype());
        }
        match view.handles() {
            [handle] => handle.get().map_or_else(|| invalid!("the variant is no list"), Ok),
            _ => invalid!("Input list must be a scalar saw: {}", view.shape()),
        }
    }

    /// The same for items of `dtype`.
    pub(super) fn input_of<'a>(ctx: &Ctx<'a>, index: usize, dtype: DType) -> Result<&'a Self> {
        let list = Self::input(ctx, index)?;
        if list.dtype != dtype {
            // The text is TensorFlow's (`list_kernels.h`).
            return invalid!(
                "Invalid data types; op elements {dtype} but list elements {}",
                list.dtype
            );
        }
        Ok(list)
    }

    /// Makes it output number `index`.
    pub(super) fn write(self, ctx: &mut Ctx<'_>, index: usize) -> Result<()> {
        ctx.set_output(index, Tensor::from_handle(DType::Variant, Handle::new(self)))
    }

    /// The same list longer or shorter.
    pub(super) fn resized(mut self, length: usize) -> Result<Self> {
        if length > LENGTH_MAX {
            return invalid!("a list of {length} elements is too long");
        }
        self.items.resize(length);
        Ok(self)
    }

    /// The shape of items as far as the list, its items and `asked` tell. Fails if they differ.
    pub(super) fn item_shape(&self, asked: &ElementShape) -> Result<ElementShape> {
        let Some(mut shape) = merged(&self.shape, asked) else {
            let (list, asked) = (show(&self.shape), show(asked));
            return invalid!("Tried to read elements of shape {asked} from a list of shape {list}");
        };
        if is_known(&shape).is_some() {
            return Ok(shape);
        }
        for item in self.items.iter().flatten() {
            let known = Some(item.shape().to_i64().into_iter().map(Some).collect());
            let Some(merged) = merged(&shape, &known) else {
                let (shape, item) = (show(&shape), item.shape());
                return invalid!("a list of shape {shape} has an item of shape {item}");
            };
            shape = merged;
        }
        Ok(shape)
    }

    /// Whether an item of this shape may stand in the list.
    pub(super) fn takes(&self, shape: &Shape) -> bool {
        super::shapes::takes(&self.shape, shape)
    }
}

/// The item that `item` is: one that is not set is zero, if its shape is known.
pub(super) fn or_zeros(
    item: Option<&Tensor>,
    dtype: DType,
    shape: &ElementShape,
) -> Result<Tensor> {
    if let Some(item) = item {
        if !super::shapes::takes(shape, item.shape()) {
            let (shape, item) = (show(shape), item.shape());
            return invalid!("Incompatible shapes: expected element shape {shape}, got {item}");
        }
        return Ok(item.clone());
    }
    match is_known(shape) {
        Some(shape) => Ok(Tensor::zeros(dtype, shape)?),
        // The text is TensorFlow's (`list_kernels.h`).
        None => invalid!(
            "Trying to read an uninitialized element but element_shape is not fully defined: {}",
            show(shape)
        ),
    }
}

/// The shape, if every dimension is known.
pub(super) fn is_known(shape: &ElementShape) -> Option<Shape> {
    let dims: Option<Vec<i64>> = shape.as_ref()?.iter().copied().collect();
    Shape::checked(dims?).ok()
}

/// As TensorFlow prints partial shapes.
pub(super) fn show(shape: &ElementShape) -> String {
    let Some(dims) = shape else { return "<unknown>".to_owned() };
    let dims: Vec<String> =
        dims.iter().map(|dim| dim.map_or_else(|| "?".to_owned(), |dim| dim.to_string())).collect();
    format!("[{}]", dims.join(","))
}
