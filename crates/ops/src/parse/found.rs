//! `Found`: where the wanted features of a batch of examples are, and how much they hold.
//!
//! Examples are read twice: first to find and to count, then to write outputs of the right size.
//! What is known between is in scratch memory.

use bytemuck::{Pod, Zeroable};

use super::values::Count;
use crate::prelude::*;

/// The place of the values of a feature, or of the rows of a list, in one example.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Mark {
    start: u32,
    len: u32,
    /// The number of values, or of a list, the number of rows.
    pub(super) n: u32,
}

/// The sums over all examples for one feature.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Totals {
    pub(super) n_values: usize,
    /// The bytes of strings.
    pub(super) n_bytes: usize,
    pub(super) n_rows: usize,
    /// The most rows of an example.
    pub(super) n_rows_max: usize,
    /// The most values of a row.
    pub(super) width_max: usize,
}

/// The marks of each feature in each example.
pub(super) struct Found<'a> {
    n_examples: usize,
    /// The numbers of the features in the order of their keys.
    order: Part<'a, usize>,
    /// Feature by feature, an example each.
    marks: Part<'a, Mark>,
    totals: Part<'a, Totals>,
}

impl Mark {
    const MISSING: Self = Self { start: u32::MAX, len: 0, n: 0 };

    /// A part of an example, which is not too long.
    pub(super) fn of(example: &[u8], part: &[u8]) -> Self {
        if part.is_empty() {
            return Self::zeroed();
        }
        let start = part.as_ptr().addr() - example.as_ptr().addr();
        Self { start: start as u32, len: part.len() as u32, n: 0 }
    }

    /// The part that it stands for; `None` if the example does not have the feature.
    pub(super) fn part<'e>(&self, example: &'e [u8]) -> Option<&'e [u8]> {
        example.get(self.start as usize..)?.get(..self.len as usize)
    }

    /// The same with so many values.
    pub(super) fn with(self, count: Count) -> Self {
        Self { n: count.n_values as u32, ..self }
    }

    /// Returns whether the mark begins behind another one.
    pub(super) fn is_behind(&self, other: &Self) -> bool {
        self.start > other.start
    }
}

impl Totals {
    /// Adds a row.
    pub(super) fn add_row(&mut self, count: Count) {
        self.n_values += count.n_values;
        self.n_bytes += count.n_bytes;
        self.n_rows += 1;
        self.width_max = self.width_max.max(count.n_values);
    }
}

impl<'a> Found<'a> {
    /// The bytes of scratch memory for so many features of the examples of this spec.
    pub(super) fn scratch_bytes(n_features: usize, serialized: &Spec) -> usize {
        let n_examples = serialized.shape().map_or(0, |shape| shape.n_elements());
        let marks = Scratch::bytes_of::<Mark>(n_features.saturating_mul(n_examples));
        let parts =
            Scratch::bytes_of::<usize>(n_features) + Scratch::bytes_of::<Totals>(n_features);
        marks.saturating_add(parts)
    }

    /// Nothing yet of so many features and examples.
    pub(super) fn new<'k>(
        scratch: &mut Scratch<'a>,
        (n_features, n_examples): (usize, usize),
        key: impl Fn(usize) -> &'k [u8],
    ) -> Result<Self> {
        let mut found = Self {
            n_examples,
            order: scratch.part(n_features)?,
            totals: scratch.part(n_features)?,
            marks: scratch.part(n_features.saturating_mul(n_examples))?,
        };
        found.order.iter_mut().enumerate().for_each(|(i, feature)| *feature = i);
        found.order.sort_unstable_by(|a, b| key(*a).cmp(key(*b)));
        found.marks.fill(Mark::MISSING);
        found.totals.fill(Totals::zeroed());
        Ok(found)
    }

    pub(super) fn n_features(&self) -> usize {
        self.order.len()
    }

    /// A feature whose key another one has too.
    pub(super) fn twin<'k>(&self, key: impl Fn(usize) -> &'k [u8]) -> Option<usize> {
        let mut pairs = self.order.windows(2);
        pairs.find(|pair| key(pair[0]) == key(pair[1])).map(|pair| pair[0])
    }

    /// The feature of a key.
    pub(super) fn get<'k>(&self, wanted: &[u8], key: impl Fn(usize) -> &'k [u8]) -> Option<usize> {
        let at = self.order.binary_search_by(|feature| key(*feature).cmp(wanted));
        at.ok().map(|at| self.order[at])
    }

    /// The marks of a feature, and its totals.
    pub(super) fn column(&self, feature: usize) -> (&[Mark], Totals) {
        let marks = &self.marks[feature * self.n_examples..][..self.n_examples];
        (marks, self.totals[feature])
    }

    /// Returns the mark of a feature in an example.
    pub(super) fn mark(&mut self, feature: usize, example: usize) -> &mut Mark {
        &mut self.marks[feature * self.n_examples + example]
    }

    /// Adds a row of a feature.
    pub(super) fn add_row(&mut self, feature: usize, count: Count) {
        self.totals[feature].add_row(count);
    }

    /// Ends the rows of an example, of which there are `n_rows`.
    pub(super) fn end_example(&mut self, feature: usize, n_rows: usize) {
        let totals = &mut self.totals[feature];
        totals.n_rows_max = totals.n_rows_max.max(n_rows);
    }
}

/// Fails for an example that is longer than marks reach.
pub(super) fn check_size(example: &[u8]) -> Result<()> {
    if u32::try_from(example.len()).is_ok_and(|len| len < u32::MAX) {
        return Ok(());
    }
    let text = format!("an example of {} bytes is too long", example.len());
    Err(Error::ResourceExhausted(text))
}
