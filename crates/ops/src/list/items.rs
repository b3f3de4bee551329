//! `Items`: the tensors of a list.
//!
//! Loops read one item of a list in each iteration and set one of another. Items of one shape are
//! therefore rows of one tensor where that can be: a list made of a tensor, and one that is changed
//! in place. Else each is a tensor of its own.

mod loose;

use device::BookedVec;
use tensor::{DType, Shape, Tensor, View};

use crate::error::{Error, Result};
use loose::Loose;

/// The most bytes that are taken for all items when the first is set.
const STACKED_MAX_BYTES: usize = 1 << 28;

/// Tensors, some of which are not set yet. Copies share what they hold.
#[derive(Debug)]
pub(super) struct Items(ItemsForm);

#[derive(Debug)]
enum ItemsForm {
    /// So many, of which none is set.
    Unset(usize),
    Loose(Loose),
    Stacked(ItemsStacked),
}

/// Items that are rows of one tensor.
#[derive(Debug)]
struct ItemsStacked {
    /// Their rows: one dimension more than they have.
    rows: Tensor,
    shape: Shape,
    /// The marks of the items that are set; none is named if all are.
    set: Marks,
    n_unset: usize,
}

/// A mark for each item. Few of them are not in the books: what loops take is predicted to the
/// byte, and their marks are not.
#[derive(Debug)]
enum Marks {
    Few(Vec<bool>),
    Many(BookedVec<bool>),
}

/// No more than so many marks are few.
const FEW_MARKS: usize = 4096;

impl Marks {
    fn unset(len: usize) -> Result<Self> {
        if len <= FEW_MARKS {
            return Ok(Self::Few(vec![false; len]));
        }
        Ok(Self::Many(BookedVec::filled(false, len)?))
    }

    fn try_clone(&self) -> Result<Self> {
        Ok(match self {
            Self::Few(marks) => Self::Few(marks.clone()),
            Self::Many(marks) => Self::Many(marks.try_clone()?),
        })
    }
}

impl std::ops::Index<usize> for Marks {
    type Output = bool;

    fn index(&self, at: usize) -> &bool {
        match self {
            Self::Few(marks) => &marks[at],
            Self::Many(marks) => &marks[at],
        }
    }
}

impl std::ops::IndexMut<usize> for Marks {
    fn index_mut(&mut self, at: usize) -> &mut bool {
        match self {
            Self::Few(marks) => &mut marks[at],
            Self::Many(marks) => &mut marks[at],
        }
    }
}

impl Items {
    /// The rows of a plain tensor. Shares its memory.
    ///
    /// # Panics
    /// If it is a scalar or not plain.
    pub(super) fn rows(rows: Tensor) -> Self {
        assert!(rows.dtype().is_plain());
        let shape = Shape::of(&rows.shape()[1..]);
        Self(ItemsForm::Stacked(ItemsStacked {
            rows,
            shape,
            set: Marks::Few(Vec::new()),
            n_unset: 0,
        }))
    }

    /// All of these. Fails without memory.
    pub(super) fn collect(tensors: impl IntoIterator<Item = Tensor>) -> Result<Self> {
        Ok(Self(ItemsForm::Loose(Loose::collect(tensors)?)))
    }

    /// A copy, which shares the tensors. Fails without memory.
    pub(super) fn try_clone(&self) -> Result<Self> {
        Ok(Self(match &self.0 {
            ItemsForm::Unset(len) => ItemsForm::Unset(*len),
            ItemsForm::Loose(loose) => ItemsForm::Loose(loose.try_clone()?),
            ItemsForm::Stacked(ItemsStacked { rows, shape, set, n_unset }) => {
                ItemsForm::Stacked(ItemsStacked {
                    rows: rows.clone(),
                    shape: shape.clone(),
                    set: set.try_clone()?,
                    n_unset: *n_unset,
                })
            }
        }))
    }

    /// The number of items.
    pub(super) fn len(&self) -> usize {
        match &self.0 {
            ItemsForm::Unset(len) => *len,
            ItemsForm::Loose(loose) => loose.len(),
            ItemsForm::Stacked(stacked) => stacked.len(),
        }
    }

    /// The shape of all items, if all are set and it is known that they have one.
    pub(super) fn shape(&self) -> Option<&Shape> {
        match &self.0 {
            ItemsForm::Unset(_) => None,
            ItemsForm::Loose(loose) => loose.shape(),
            ItemsForm::Stacked(stacked) => (stacked.n_unset == 0).then_some(&stacked.shape),
        }
    }

    /// The item at `index`, if it is set.
    ///
    /// # Panics
    /// If there is none.
    pub(super) fn get(&self, index: usize) -> Option<View<'_>> {
        match &self.0 {
            ItemsForm::Unset(len) => {
                assert!(index < *len);
                None
            }
            ItemsForm::Loose(loose) => loose.get(index).map(Tensor::view),
            ItemsForm::Stacked(stacked) => stacked.get(index),
        }
    }

    /// All items in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Option<View<'_>>> + Clone {
        (0..self.len()).map(|index| self.get(index))
    }

    /// Returns whether no item is set.
    pub(super) fn is_unset(&self) -> bool {
        match &self.0 {
            ItemsForm::Unset(_) => true,
            ItemsForm::Loose(loose) => loose.is_unset(),
            ItemsForm::Stacked(stacked) => stacked.n_unset == stacked.len(),
        }
    }

    /// All items as the rows of one tensor, if they are that already.
    pub(super) fn stacked(&self) -> Option<&Tensor> {
        match &self.0 {
            ItemsForm::Stacked(stacked) if stacked.n_unset == 0 => Some(&stacked.rows),
            ItemsForm::Stacked(_) | ItemsForm::Loose(_) | ItemsForm::Unset(_) => None,
        }
    }

    /// Replaces the item at `index`. Fails without memory.
    ///
    /// # Panics
    /// If there is none.
    pub(super) fn set(&mut self, index: usize, item: Tensor) -> Result<()> {
        self.loose()?.set(index, Some(item))
    }

    /// Replaces the item at `index` of a list that nobody else has: in place if it can be. Fails
    /// without memory.
    ///
    /// # Panics
    /// If there is none.
    pub(super) fn set_in_place(&mut self, index: usize, item: &View<'_>) -> Result<()> {
        if !matches!(self.0, ItemsForm::Stacked(_))
            && self.is_unset()
            && let Some(stacked) = ItemsStacked::unset(self.len(), item.dtype(), item.shape())?
        {
            self.0 = ItemsForm::Stacked(stacked);
        }
        if let ItemsForm::Stacked(stacked) = &mut self.0
            && stacked.set(index, item)
        {
            return Ok(());
        }
        self.set(index, item.to_tensor()?)
    }

    /// Gives up the memory of the item at `index` if it has some of its own: it is not set then.
    ///
    /// # Panics
    /// If there is none.
    pub(super) fn forget(&mut self, index: usize) -> Result<()> {
        match &mut self.0 {
            ItemsForm::Loose(loose) => loose.set(index, None),
            ItemsForm::Stacked(_) | ItemsForm::Unset(_) => Ok(()),
        }
    }

    /// Adds an item at the end. Fails without memory.
    pub(super) fn push(&mut self, item: Option<Tensor>) -> Result<()> {
        self.loose()?.push(item)
    }

    /// Takes the last item away; `None` if there is none, else what it was set to. Fails without
    /// memory.
    pub(super) fn pop(&mut self) -> Result<Option<Option<Tensor>>> {
        self.loose()?.pop()
    }

    /// Makes it `len` long: drops items at the end, or adds such that are not set. Fails without
    /// memory.
    pub(super) fn resize(&mut self, len: usize) -> Result<()> {
        if let ItemsForm::Unset(now) = &mut self.0 {
            *now = len;
        } else if self.len() != len {
            self.loose()?.resize(len)?;
        }
        Ok(())
    }

    /// The items as tensors of their own.
    fn loose(&mut self) -> Result<&mut Loose> {
        match &self.0 {
            ItemsForm::Unset(len) => self.0 = ItemsForm::Loose(Loose::unset(*len)?),
            ItemsForm::Stacked(stacked) => self.0 = ItemsForm::Loose(stacked.loose()?),
            ItemsForm::Loose(_) => {}
        }
        match &mut self.0 {
            ItemsForm::Loose(loose) => Ok(loose),
            _ => Err(Error::Internal("items are still stacked".to_owned())),
        }
    }
}

impl Default for Items {
    fn default() -> Self {
        Self(ItemsForm::Unset(0))
    }
}

impl ItemsStacked {
    /// Room for `len` items; `None` if they should not be stacked.
    fn unset(len: usize, dtype: DType, shape: &Shape) -> Result<Option<Self>> {
        let n_bytes = shape.n_elements().checked_mul(len).map(|n| n.saturating_mul(dtype.size()));
        let fits = n_bytes.is_some_and(|bytes| bytes <= STACKED_MAX_BYTES);
        if !dtype.is_plain() || !fits {
            return Ok(None);
        }
        let dims = std::iter::once(len as i64).chain(shape.to_i64());
        let rows = Tensor::zeros(dtype, Shape::checked(dims)?)?;
        Ok(Some(Self { rows, shape: shape.clone(), set: Marks::unset(len)?, n_unset: len }))
    }

    fn len(&self) -> usize {
        self.rows.shape()[0]
    }

    fn row(&self, index: usize) -> std::ops::Range<usize> {
        let width = self.shape.n_elements() * self.rows.dtype().size();
        index * width..(index + 1) * width
    }

    fn get(&self, index: usize) -> Option<View<'_>> {
        assert!(index < self.len());
        let bytes = &self.rows.view().bytes()[self.row(index)];
        let is_set = self.n_unset == 0 || self.set[index];
        is_set.then(|| View::plain(self.rows.dtype(), &self.shape, bytes))
    }

    /// Writes an item to its row; says whether that was possible.
    fn set(&mut self, index: usize, item: &View<'_>) -> bool {
        assert!(index < self.len());
        if item.dtype() != self.rows.dtype() || *item.shape() != self.shape {
            return false;
        }
        let row = self.row(index);
        let Some(mut rows) = self.rows.view_mut() else { return false };
        rows.bytes()[row].copy_from_slice(item.bytes());
        if self.n_unset > 0 && !std::mem::replace(&mut self.set[index], true) {
            self.n_unset -= 1;
        }
        true
    }

    fn loose(&self) -> Result<Loose> {
        let mut loose = Loose::default();
        for index in 0..self.len() {
            loose.push(self.get(index).map(|item| item.to_tensor()).transpose()?)?;
        }
        loose.note_shape(&self.shape);
        Ok(loose)
    }
}

#[cfg(test)]
mod tests;
