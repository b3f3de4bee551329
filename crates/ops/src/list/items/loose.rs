//! `Loose`: items that are tensors of their own.

use std::sync::Arc;

use device::{Booked, BookedVec};
use tensor::{Shape, Tensor};

use crate::error::Result;

/// The number of items that are copied when one of them changes.
const CHUNK: usize = 32;

/// The bytes that are booked for a chunk: of its places, and of what stands behind a tensor on the
/// heap beside its elements.
const CHUNK_BYTES: usize = CHUNK * (size_of::<Option<Tensor>>() + 160);

/// Tensors, some of which are not set yet. A change of a copy copies one chunk and the list of
/// chunks, not the items.
#[derive(Debug, Default)]
pub(super) struct Loose {
    chunks: BookedVec<Arc<LooseChunk>>,
    len: usize,
    n_set: usize,
    /// The shape of all items, if all are set and it is known that they have one.
    shape: Option<Shape>,
}

/// Some items, and who pays for them.
#[derive(Debug)]
struct LooseChunk {
    items: Vec<Option<Tensor>>,
    /// Kept for its drop.
    _booked: Booked,
}

impl LooseChunk {
    fn new(items: Vec<Option<Tensor>>) -> Result<Arc<Self>> {
        Ok(Arc::new(Self { items, _booked: Booked::new(CHUNK_BYTES)? }))
    }

    /// The items to be changed: copies, if others have the chunk too.
    fn items_mut(chunk: &mut Arc<Self>) -> Result<&mut Vec<Option<Tensor>>> {
        if Arc::get_mut(chunk).is_none() {
            *chunk = Self::new(chunk.items.clone())?;
        }
        Ok(&mut Arc::get_mut(chunk).expect("nobody else has it").items)
    }
}

impl Loose {
    /// So many, of which none is set.
    pub(super) fn unset(len: usize) -> Result<Self> {
        let mut loose = Self::default();
        loose.resize(len)?;
        Ok(loose)
    }

    /// All of these.
    pub(super) fn collect(tensors: impl IntoIterator<Item = Tensor>) -> Result<Self> {
        let mut tensors = tensors.into_iter();
        let mut items = Self::default();
        if let Some(first) = tensors.next() {
            items.shape = Some(first.shape().clone());
            items.push(Some(first))?;
        }
        tensors.try_for_each(|tensor| items.push(Some(tensor)))?;
        Ok(items)
    }

    /// A copy, which shares the chunks.
    pub(super) fn try_clone(&self) -> Result<Self> {
        let (chunks, shape) = (self.chunks.try_clone()?, self.shape.clone());
        Ok(Self { chunks, len: self.len, n_set: self.n_set, shape })
    }

    /// The number of items.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns whether no item is set.
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

    /// The item at `index`, if it is set.
    ///
    /// # Panics
    /// If there is none.
    pub(super) fn get(&self, index: usize) -> Option<&Tensor> {
        assert!(index < self.len);
        self.chunks[index / CHUNK].items[index % CHUNK].as_ref()
    }

    /// Replaces the item at `index`.
    ///
    /// # Panics
    /// If there is none.
    pub(super) fn set(&mut self, index: usize, item: Option<Tensor>) -> Result<()> {
        assert!(index < self.len);
        let slot = &mut LooseChunk::items_mut(&mut self.chunks[index / CHUNK])?[index % CHUNK];
        if self.shape.as_ref() != item.as_ref().map(Tensor::shape) {
            self.shape = None;
        }
        self.n_set += usize::from(item.is_some());
        self.n_set -= usize::from(slot.is_some());
        *slot = item;
        Ok(())
    }

    /// Adds an item at the end.
    pub(super) fn push(&mut self, item: Option<Tensor>) -> Result<()> {
        if self.len.is_multiple_of(CHUNK) {
            self.chunks.push(LooseChunk::new(Vec::new())?)?;
        }
        let last = self.chunks.last_mut().expect("there is a chunk with room");
        let items = LooseChunk::items_mut(last)?;
        if self.shape.as_ref() != item.as_ref().map(Tensor::shape) {
            self.shape = None;
        }
        self.n_set += usize::from(item.is_some());
        items.push(item);
        self.len += 1;
        Ok(())
    }

    /// Takes the last item away; `None` if there is none, else what it was set to.
    pub(super) fn pop(&mut self) -> Result<Option<Option<Tensor>>> {
        let Some(last) = self.chunks.last_mut() else { return Ok(None) };
        let items = LooseChunk::items_mut(last)?;
        let Some(item) = items.pop() else { return Ok(None) };
        if items.is_empty() {
            self.chunks.pop();
        }
        self.n_set -= usize::from(item.is_some());
        self.len -= 1;
        Ok(Some(item))
    }

    /// Makes it `len` long: drops items at the end, or adds such that are not set.
    pub(super) fn resize(&mut self, len: usize) -> Result<()> {
        while self.len > len {
            self.pop()?;
        }
        while self.len < len {
            self.push(None)?;
        }
        Ok(())
    }
}
