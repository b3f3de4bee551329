//! `Inputs`: what a request may give, as its caller knows it.

use smallvec::SmallVec;
use tensor::Spec;

/// An input that a request may name.
#[derive(Debug, Clone, Copy)]
pub struct Input<'s> {
    /// The input's name.
    pub name: &'s str,
    /// The name of its tensor, for messages.
    pub tensor: &'s str,
    /// The input's dtype, and its shape as far as that is known.
    pub spec: &'s Spec,
}

/// The inputs of a signature, in the order of their names.
#[derive(Debug, Clone)]
pub struct Inputs<'s>(SmallVec<[Input<'s>; 8]>);

impl<'s> Inputs<'s> {
    /// Some inputs, which come in the order of their names. Takes no memory for eight or fewer.
    ///
    /// # Panics
    /// If they come in another order, or a name comes twice.
    pub fn new(inputs: impl IntoIterator<Item = Input<'s>>) -> Self {
        let inputs: SmallVec<[Input<'s>; 8]> = inputs.into_iter().collect();
        assert!(inputs.is_sorted_by(|a, b| a.name < b.name), "inputs are sorted by name");
        Self(inputs)
    }

    /// Returns how many inputs there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Input<'s>> {
        self.0.iter().copied()
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &'s str> {
        self.iter().map(|input| input.name)
    }

    /// The first by name, if there is one.
    pub(crate) fn first(&self) -> Option<Input<'s>> {
        self.0.first().copied()
    }

    /// The input of this name.
    pub(crate) fn get(&self, name: &str) -> Option<Input<'s>> {
        let at = self.0.binary_search_by(|input| input.name.cmp(name)).ok()?;
        Some(self.0[at])
    }
}
