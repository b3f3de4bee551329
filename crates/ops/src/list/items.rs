//! `Items`: the tensors of a list.
//!
//! Loops read one item of a list in each iteration and set one of another. Items of one shape are
//! therefore rows of one tensor where that can be: a list made of a tensor, and one that is changed
//! in place. Else each is a tensor of its own.

mod loose;

use tensor::{DType, Shape, Tensor, View};

use crate::error::{Error, Result};
use loose::Loose;

/// The most bytes that are taken for all items when the first is set.
const STACKED_MAX_BYTES: usize = 1 << 28;

/// Tensors, some of which are not set yet. Copies share what they hold.
#[derive(Debug, Clone)]
pub(super) struct Items(Form);

#[derive(Debug, Clone)]
enum Form {
    /// So many, of which none is set.
    Unset(usize),
    Loose(Loose),
    Stacked(Stacked),
}

/// Items that are rows of one tensor.
#[derive(Debug, Clone)]
struct Stacked {
    /// Their rows: one dimension more than they have.
    rows: Tensor,
    shape: Shape,
    /// Which of them are set; none is named if all are.
    set: Vec<bool>,
    n_unset: usize,
}

impl Items {
    /// The rows of a plain tensor. Shares its memory.
    ///
    /// # Panics
    /// If it is a scalar or not plain.
    pub(super) fn rows(rows: Tensor) -> Self {
        assert!(rows.dtype().is_plain());
        let shape = Shape::of(&rows.shape()[1..]);
        Self(Form::Stacked(Stacked { rows, shape, set: Vec::new(), n_unset: 0 }))
    }

    /// The number of items.
    pub(super) fn len(&self) -> usize {
        match &self.0 {
            Form::Unset(len) => *len,
            Form::Loose(loose) => loose.len(),
            Form::Stacked(stacked) => stacked.len(),
        }
    }

    /// The shape of all items, if all are set and it is known that they have one.
    pub(super) fn shape(&self) -> Option<&Shape> {
        match &self.0 {
            Form::Unset(_) => None,
            Form::Loose(loose) => loose.shape(),
            Form::Stacked(stacked) => (stacked.n_unset == 0).then_some(&stacked.shape),
        }
    }

    /// The item at `index`, if it is set.
    ///
    /// # Panics
    /// If there is none.
    pub(super) fn get(&self, index: usize) -> Option<View<'_>> {
        match &self.0 {
            Form::Unset(len) => {
                assert!(index < *len);
                None
            }
            Form::Loose(loose) => loose.get(index).map(Tensor::view),
            Form::Stacked(stacked) => stacked.get(index),
        }
    }

    /// All items in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Option<View<'_>>> + Clone {
        (0..self.len()).map(|index| self.get(index))
    }

    /// Whether none is set.
    pub(super) fn is_unset(&self) -> bool {
        match &self.0 {
            Form::Unset(_) => true,
            Form::Loose(loose) => loose.is_unset(),
            Form::Stacked(stacked) => stacked.n_unset == stacked.len(),
        }
    }

    /// All items as the rows of one tensor, if they are that already.
    pub(super) fn stacked(&self) -> Option<&Tensor> {
        match &self.0 {
            Form::Stacked(stacked) if stacked.n_unset == 0 => Some(&stacked.rows),
            Form::Stacked(_) | Form::Loose(_) | Form::Unset(_) => None,
        }
    }

    /// Replaces the item at `index`. Fails without memory.
    ///
    /// # Panics
    /// If there is none.
    pub(super) fn set(&mut self, index: usize, item: Tensor) -> Result<()> {
        self.loose()?.set(index, Some(item));
        Ok(())
    }

    /// Replaces the item at `index` of a list that nobody else has: in place if it can be. Fails
    /// without memory.
    ///
    /// # Panics
    /// If there is none.
    pub(super) fn set_in_place(&mut self, index: usize, item: &View<'_>) -> Result<()> {
        if !matches!(self.0, Form::Stacked(_))
            && self.is_unset()
            && let Some(stacked) = Stacked::unset(self.len(), item.dtype(), item.shape())?
        {
            self.0 = Form::Stacked(stacked);
        }
        if let Form::Stacked(stacked) = &mut self.0
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
    pub(super) fn forget(&mut self, index: usize) {
        if let Form::Loose(loose) = &mut self.0 {
            loose.set(index, None);
        }
    }

    /// Adds an item at the end. Fails without memory.
    pub(super) fn push(&mut self, item: Option<Tensor>) -> Result<()> {
        self.loose()?.push(item);
        Ok(())
    }

    /// Takes the last item away; `None` if there is none, else what it was set to. Fails without
    /// memory.
    pub(super) fn pop(&mut self) -> Result<Option<Option<Tensor>>> {
        Ok(self.loose()?.pop())
    }

    /// Makes it `len` long: drops items at the end, or adds such that are not set. Fails without
    /// memory.
    pub(super) fn resize(&mut self, len: usize) -> Result<()> {
        if let Form::Unset(now) = &mut self.0 {
            *now = len;
        } else if self.len() != len {
            self.loose()?.resize(len);
        }
        Ok(())
    }

    /// The items as tensors of their own.
    fn loose(&mut self) -> Result<&mut Loose> {
        match &self.0 {
            Form::Unset(len) => self.0 = Form::Loose(Loose::unset(*len)),
            Form::Stacked(stacked) => self.0 = Form::Loose(stacked.loose()?),
            Form::Loose(_) => {}
        }
        match &mut self.0 {
            Form::Loose(loose) => Ok(loose),
            _ => Err(Error::Internal("items are still stacked".to_owned())),
        }
    }
}

impl Default for Items {
    fn default() -> Self {
        Self(Form::Unset(0))
    }
}

impl FromIterator<Tensor> for Items {
    fn from_iter<I: IntoIterator<Item = Tensor>>(tensors: I) -> Self {
        Self(Form::Loose(tensors.into_iter().collect()))
    }
}

impl Stacked {
    /// Room for `len` items; `None` if they should not be stacked.
    fn unset(len: usize, dtype: DType, shape: &Shape) -> Result<Option<Self>> {
        let n_bytes = shape.n_elements().checked_mul(len).map(|n| n.saturating_mul(dtype.size()));
        let fits = n_bytes.is_some_and(|bytes| bytes <= STACKED_MAX_BYTES);
        if !dtype.is_plain() || !fits {
            return Ok(None);
        }
        let dims = std::iter::once(len as i64).chain(shape.to_i64());
        let rows = Tensor::zeros(dtype, Shape::checked(dims)?)?;
        Ok(Some(Self { rows, shape: shape.clone(), set: vec![false; len], n_unset: len }))
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
            loose.push(self.get(index).map(|item| item.to_tensor()).transpose()?);
        }
        loose.note_shape(&self.shape);
        Ok(loose)
    }
}

#[cfg(test)]
mod tests;
