//! `Loose`: items that are tensors of their own.

use std::sync::Arc;

use tensor::{Shape, Tensor};

/// How many items are copied when one of them changes.
const CHUNK: usize = 32;

/// Tensors, some of which are not set yet. A change of a copy copies one chunk and the list of
/// chunks, not the items.
#[derive(Debug, Clone, Default)]
pub(super) struct Loose {
    chunks: Vec<Arc<Vec<Option<Tensor>>>>,
    len: usize,
    n_set: usize,
    /// The shape of all items, if all are set and it is known that they have one.
    shape: Option<Shape>,
}

impl Loose {
    /// So many, of which none is set.
    pub(super) fn unset(len: usize) -> Self {
        let mut loose = Self::default();
        loose.resize(len);
        loose
    }

    /// The number of items.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Whether none is set.
    pub(super) fn is_unset(&self) -> bool {
        self.n_set == 0
    }

    /// The shape of all items, if all are set and it is known that they have one.
    pub(super) fn shape(&self) -> Option<&Shape> {
        self.shape.as_ref()
    }

    /// Takes note that those that are set have this shape.
    pub(super) fn note_shape(&mut self, shape: &Shape) {
        self.shape = (self.len > 0 && self.n_set == self.len).then(|| shape.clone());
    }

    /// Forgets the shape of all items unless `item` has it too.
    fn keep_shape_if_like(&mut self, item: Option<&Tensor>) {
        if self.shape.as_ref() != item.map(Tensor::shape) {
            self.shape = None;
        }
    }

    /// The item at `index`, if it is set.
    ///
    /// # Panics
    /// If there is none.
    pub(super) fn get(&self, index: usize) -> Option<&Tensor> {
        assert!(index < self.len);
        self.chunks[index / CHUNK][index % CHUNK].as_ref()
    }

    /// Replaces the item at `index`.
    ///
    /// # Panics
    /// If there is none.
    pub(super) fn set(&mut self, index: usize, item: Option<Tensor>) {
        assert!(index < self.len);
        self.keep_shape_if_like(item.as_ref());
        let slot = &mut Arc::make_mut(&mut self.chunks[index / CHUNK])[index % CHUNK];
        self.n_set += usize::from(item.is_some());
        self.n_set -= usize::from(slot.is_some());
        *slot = item;
    }

    /// Adds an item at the end.
    pub(super) fn push(&mut self, item: Option<Tensor>) {
        self.keep_shape_if_like(item.as_ref());
        if self.len.is_multiple_of(CHUNK) {
            self.chunks.push(Arc::default());
        }
        self.n_set += usize::from(item.is_some());
        let last = self.chunks.last_mut().expect("there is a chunk with room");
        Arc::make_mut(last).push(item);
        self.len += 1;
    }

    /// Takes the last item away; `None` if there is none, else what it was set to.
    pub(super) fn pop(&mut self) -> Option<Option<Tensor>> {
        let last = self.chunks.last_mut()?;
        let item = Arc::make_mut(last).pop()?;
        if last.is_empty() {
            self.chunks.pop();
        }
        self.n_set -= usize::from(item.is_some());
        self.len -= 1;
        Some(item)
    }

    /// Makes it `len` long: drops items at the end, or adds such that are not set.
    pub(super) fn resize(&mut self, len: usize) {
        while self.len > len {
            self.pop();
        }
        while self.len < len {
            self.push(None);
        }
    }
}

impl FromIterator<Tensor> for Loose {
    fn from_iter<I: IntoIterator<Item = Tensor>>(tensors: I) -> Self {
        let mut tensors = tensors.into_iter();
        let mut items = Self::default();
        if let Some(first) = tensors.next() {
            items.shape = Some(first.shape().clone());
            items.push(Some(first));
        }
        tensors.for_each(|tensor| items.push(Some(tensor)));
        items
    }
}
