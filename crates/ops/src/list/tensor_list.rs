//! `TensorList`: what the handle of a `TensorList` op points to.

use smallvec::SmallVec;
use tensor::{Handle, ListSpec};

use super::items::Items;
use super::shapes::{ElementShape, merged};
use crate::prelude::*;

/// The longest list: one could be asked for that fills the memory with items that are not set.
const LENGTH_MAX: usize = 1 << 24;

/// Tensors of one dtype, and what is known of their shapes. It changes only while nobody else has
/// it: else ops make a new one.
#[derive(Debug)]
pub(super) struct TensorList {
    pub(super) dtype: DType,
    pub(super) shape: ElementShape,
    pub(super) items: Items,
    /// The most items, if that is limited.
    pub(super) limit: Option<usize>,
}

/// The dtype and shape of every tensor of the list that a handle stands for, if it is a list and
/// all its tensors are set and known to have one shape.
pub fn item_shape(list: &Tensor) -> Option<(DType, &Shape)> {
    let list = TensorList::of(list)?;
    Some((list.dtype, list.items.shape()?))
}

/// Returns the known properties of the list that a spec's handle stands for.
pub(crate) fn list_spec(spec: &Spec) -> Option<ListSpec> {
    if let Some(list) = spec.list() {
        return Some(list.clone());
    }
    let list = TensorList::of(spec.as_constant()?)?;
    let items = match list.items.shape() {
        _ if list.items.is_unset() => tensor::Items::Unset,
        Some(shape) => tensor::Items::Like(shape.iter().map(|size| Dim::of(*size)).collect()),
        None => tensor::Items::Unknown,
    };
    Some(ListSpec { dtype: list.dtype, len: Dim::of(list.items.len()), items })
}

impl TensorList {
    /// The list that a handle stands for.
    fn of(tensor: &Tensor) -> Option<&Self> {
        match tensor.view().dtype() {
            DType::Variant if tensor.n_elements() == 1 => {}
            _ => return None,
        }
        tensor.view().handles().first()?.get()
    }

    /// Changes the list that input 0 points to, and makes it output 0: in place if nobody else has
    /// it.
    pub(super) fn change(
        ctx: &mut Ctx<'_>,
        dtype: DType,
        edit: impl FnOnce(&mut Self, &Ctx<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut tensor = match ctx.take_in_place() {
            Some(tensor) => tensor,
            None => ctx.input(0).to_tensor()?,
        };
        let list = Self::view(&tensor.view())?;
        list.check(dtype)?;
        if let Some([handle]) = tensor.handles_mut()
            && let Some(own) = handle.get_mut::<Self>()
        {
            edit(own, ctx)?;
            return ctx.set_output(0, tensor);
        }
        let mut copy = Self::view(&tensor.view())?.try_clone()?;
        edit(&mut copy, ctx)?;
        copy.write(ctx, 0)
    }

    /// A copy, which shares the tensors. Fails without memory.
    pub(super) fn try_clone(&self) -> Result<Self> {
        let (shape, items) = (self.shape.clone(), self.items.try_clone()?);
        Ok(Self { dtype: self.dtype, shape, items, limit: self.limit })
    }

    /// The list that input number `index` of a kernel points to.
    pub(super) fn input<'a>(ctx: &Ctx<'a>, index: usize) -> Result<&'a Self> {
        Self::view(&ctx.input(index))
    }

    fn view<'a>(view: &View<'a>) -> Result<&'a Self> {
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
        list.check(dtype)?;
        Ok(list)
    }

    /// Fails if items are not of `dtype`.
    fn check(&self, dtype: DType) -> Result<()> {
        if self.dtype != dtype {
            // The text is TensorFlow's (`list_kernels.h`).
            return invalid!(
                "Invalid data types; op elements {dtype} but list elements {}",
                self.dtype
            );
        }
        Ok(())
    }

    /// Makes it output number `index`.
    pub(super) fn write(self, ctx: &mut Ctx<'_>, index: usize) -> Result<()> {
        ctx.set_output(index, Tensor::from_handle(DType::Variant, Handle::new(self)))
    }

    /// The same list longer or shorter.
    pub(super) fn resized(mut self, length: usize) -> Result<Self> {
        self.resize(length)?;
        Ok(self)
    }

    /// Makes it longer or shorter.
    pub(super) fn resize(&mut self, length: usize) -> Result<()> {
        if length > LENGTH_MAX {
            return invalid!("a list of {length} elements is too long");
        }
        self.items.resize(length)
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
        // Where all have one shape, the first tells it.
        let n_seen = if self.items.shape().is_some() { 1 } else { usize::MAX };
        for item in self.items.iter().flatten().take(n_seen) {
            let known = Some(item.shape().to_i64().into_iter().map(Some).collect());
            let Some(merged) = merged(&shape, &known) else {
                let (shape, item) = (show(&shape), item.shape());
                return invalid!("a list of shape {shape} has an item of shape {item}");
            };
            shape = merged;
        }
        Ok(shape)
    }

    /// Returns whether an item of this shape may stand in the list.
    pub(super) fn takes(&self, shape: &Shape) -> bool {
        super::shapes::takes(&self.shape, shape)
    }
}

/// The shape of the item that `item` is: one that is not set is zero, if its shape is known.
pub(super) fn shape_of(item: Option<&View<'_>>, shape: &ElementShape) -> Result<Shape> {
    match (item, is_known(shape)) {
        (Some(item), _) if super::shapes::takes(shape, item.shape()) => Ok(item.shape().clone()),
        (Some(item), _) => {
            let (shape, item) = (show(shape), item.shape());
            invalid!("Incompatible shapes: expected element shape {shape}, got {item}")
        }
        (None, Some(shape)) => Ok(shape),
        // The text is TensorFlow's (`list_kernels.h`).
        (None, None) => invalid!(
            "Trying to read an uninitialized element but element_shape is not fully defined: {}",
            show(shape)
        ),
    }
}

/// Makes output number `index` of an item that is not set: zeros.
pub(super) fn write_unset(
    ctx: &mut Ctx<'_>,
    index: usize,
    dtype: DType,
    shape: &ElementShape,
) -> Result<()> {
    let shape = shape_of(None, shape)?;
    if dtype.is_plain() {
        ctx.output(index, dtype, &shape)?.bytes().fill(0);
        return Ok(());
    }
    ctx.set_output(index, Tensor::zeros(dtype, shape)?)
}

/// The shape, if every dimension is known.
pub(super) fn is_known(shape: &ElementShape) -> Option<Shape> {
    let dims: Option<SmallVec<[i64; 5]>> = shape.as_ref()?.iter().copied().collect();
    Shape::checked(dims?).ok()
}

/// As TensorFlow prints partial shapes.
pub(super) fn show(shape: &ElementShape) -> String {
    let Some(dims) = shape else { return "<unknown>".to_owned() };
    let dims: Vec<String> =
        dims.iter().map(|dim| dim.map_or_else(|| "?".to_owned(), |dim| dim.to_string())).collect();
    format!("[{}]", dims.join(","))
}
