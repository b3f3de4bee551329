//! `Items`: a list of tensors whose copies are cheap and whose changes cost little.

use std::sync::Arc;

use tensor::{Shape, Tensor};

/// How many items are copied when one of them changes.
const CHUNK: usize = 32;

/// Tensors, some of which are not set yet. Loops hand lists from iteration to iteration and change
/// one item each time: a change copies one chunk and the list of chunks, not the items.
#[derive(Debug, Clone, Default)]
pub(super) struct Items {
    chunks: Vec<Arc<Vec<Option<Tensor>>>>,
    len: usize,
    /// The shape of all items, if all are set and it is known that they have one.
    shape: Option<Shape>,
}

impl Items {
    /// The number of items.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The shape of all items, if all are set and it is known that they have one.
    pub(super) fn shape(&self) -> Option<&Shape> {
        self.shape.as_ref()
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
        Arc::make_mut(&mut self.chunks[index / CHUNK])[index % CHUNK] = item;
    }

    /// Adds an item at the end.
    pub(super) fn push(&mut self, item: Option<Tensor>) {
        self.keep_shape_if_like(item.as_ref());
        if self.len.is_multiple_of(CHUNK) {
            self.chunks.push(Arc::default());
        }
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

    /// All items in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Option<&Tensor>> {
        self.chunks.iter().flat_map(|chunk| chunk.iter().map(Option::as_ref))
    }
}

impl FromIterator<Tensor> for Items {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(items: &Items) -> Vec<i32> {
        items.iter().map(|item| item.map_or(-1, |tensor| tensor.as_slice::<i32>()[0])).collect()
    }

    #[test]
    fn copies_do_not_see_each_others_changes() {
        let number = |n: i32| Tensor::scalar(n).unwrap();
        let old: Items = (0..70).map(number).collect();
        let mut new = old.clone();
        new.set(33, Some(number(1000)));
        new.pop();
        new.resize(72);
        assert_eq!(numbers(&old), (0..70).collect::<Vec<_>>());
        assert_eq!((old.shape(), new.shape()), (Some(&Shape::scalar()), None));
        let mut expected: Vec<i32> = (0..69).collect();
        expected[33] = 1000;
        expected.extend([-1; 3]);
        assert_eq!(numbers(&new), expected);
        assert!(new.get(71).is_none() && new.get(0).is_some());
        new.resize(0);
        assert!(new.pop().is_none() && new.len() == 0);
    }
}
