//! Parsing of `SequenceExample`s: features of the context, and lists of features.
//!
//! Follows `example_proto_fast_parsing.cc` of TensorFlow, its messages included.

use rustc_hash::FxHashMap;

use super::feature::{Entry, into, read_feature, read_sequence_example};
use super::values::Values;
use super::wire::{Wire, delimited};
use crate::prelude::*;

/// What is wanted of one feature, or of one list of features.
pub(super) struct Wanted<'a> {
    pub(super) key: &'a [u8],
    pub(super) dtype: DType,
    pub(super) kind: Kind<'a>,
}

/// How rows become tensors, and what is done if there are none.
#[derive(Clone, Copy)]
pub(super) enum Kind<'a> {
    /// Rows of any length.
    Open,
    /// A feature of the context: just as many values, or the default, if it is not empty.
    Dense { shape: &'a Shape, default: View<'a> },
    /// A list of features, each of as many values; it may be missing.
    DenseList { shape: &'a Shape, may_miss: bool },
}

/// The values of all examples: rows, and how many rows each example has. A feature of the context
/// is one row.
pub(super) struct Rows {
    pub(super) values: Values,
    /// Where the values of each row end.
    pub(super) ends: Vec<usize>,
    /// Where the rows of each example end.
    pub(super) example_ends: Vec<usize>,
}

/// Parses examples: the context's features, then the lists.
pub(super) fn parse_sequences<'a>(
    context: &[Wanted<'_>],
    lists: &[Wanted<'_>],
    examples: impl Iterator<Item = (&'a [u8], &'a [u8])>,
) -> Result<(Vec<Rows>, Vec<Rows>)> {
    let mut context_rows = context.iter().map(Rows::new).collect::<Result<Vec<_>>>()?;
    let mut list_rows = lists.iter().map(Rows::new).collect::<Result<Vec<_>>>()?;
    let (context_keys, list_keys) = (index(context)?, index(lists)?);
    let (mut entries, mut list_entries): (Vec<Entry<'a>>, Vec<Entry<'a>>) = Default::default();
    for (example, name) in examples {
        let name = String::from_utf8_lossy(name);
        entries.clear();
        list_entries.clear();
        if read_sequence_example(example, &mut into(&mut entries), &mut into(&mut list_entries))
            .is_none()
        {
            return invalid!("Invalid protocol message input, example id: {name}");
        }
        let features = pick(&entries, &context_keys, context.len());
        for ((wanted, rows), feature) in context.iter().zip(&mut context_rows).zip(features) {
            rows.take_feature(wanted, feature, &name)?;
        }
        let features = pick(&list_entries, &list_keys, lists.len());
        for ((wanted, rows), list) in lists.iter().zip(&mut list_rows).zip(features) {
            rows.take_list(wanted, list, &name)?;
        }
    }
    Ok((context_rows, list_rows))
}

fn index<'w>(wanted: &[Wanted<'w>]) -> Result<FxHashMap<&'w [u8], usize>> {
    let mut by_key = FxHashMap::default();
    for (i, wanted) in wanted.iter().enumerate() {
        if by_key.insert(wanted.key, i).is_some() {
            let key = String::from_utf8_lossy(wanted.key);
            return invalid!("Feature {key} cannot be both dense and sparse");
        }
    }
    Ok(by_key)
}

/// The feature of each key; the last of several counts.
fn pick<'a>(
    entries: &[Entry<'a>],
    by_key: &FxHashMap<&[u8], usize>,
    n_keys: usize,
) -> Vec<Option<&'a [u8]>> {
    let mut features = vec![None; n_keys];
    for (key, feature) in entries {
        if let Some(&i) = by_key.get(key) {
            features[i] = Some(*feature);
        }
    }
    features
}

impl Rows {
    fn new(wanted: &Wanted<'_>) -> Result<Self> {
        let values = Values::new(wanted.dtype)?;
        Ok(Self { values, ends: Vec::new(), example_ends: Vec::new() })
    }

    fn take_feature(
        &mut self,
        wanted: &Wanted<'_>,
        feature: Option<&[u8]>,
        name: &str,
    ) -> Result<()> {
        let (key, dtype) = (String::from_utf8_lossy(wanted.key), wanted.dtype);
        let before = self.values.len();
        match (feature, wanted.kind) {
            (Some(feature), _) => {
                if self.append(wanted, feature).is_none() {
                    return invalid!(
                        "Name: {name}, Context feature: {key}.  Data types don't match. \
                         Expected type: {dtype}"
                    );
                }
            }
            (None, Kind::Dense { default, .. }) => {
                if default.n_elements() == 0 {
                    return invalid!(
                        "Feature: {key} (data type: {dtype}) is required but could not be found."
                    );
                }
                self.values.append_tensor(default);
            }
            (None, _) => {}
        }
        let count = self.values.len() - before;
        if let Kind::Dense { shape, .. } = wanted.kind
            && count != shape.n_elements()
        {
            return invalid!(
                "Inconsistent max number of elements for feature {key}: expected {}, but found \
                 {count}",
                shape.n_elements()
            );
        }
        self.end_row();
        self.end_example();
        Ok(())
    }

    fn take_list(&mut self, wanted: &Wanted<'_>, list: Option<&[u8]>, name: &str) -> Result<()> {
        let (key, dtype) = (String::from_utf8_lossy(wanted.key), wanted.dtype);
        if let (None, Kind::DenseList { may_miss: false, .. }) = (list, wanted.kind) {
            return invalid!(
                "Name: {name}, Feature list '{key}' is required but could not be found.  Did you \
                 mean to include it in feature_list_dense_missing_assumed_empty or \
                 feature_list_dense_defaults?"
            );
        }
        let mut wire = Wire::new(list.unwrap_or_default());
        let mut row = 0;
        while !wire.is_empty() {
            let tag = wire.varint();
            let Some(feature) = wire.delimited().filter(|_| tag == Some(delimited(1))) else {
                return invalid!("Error in sequence feature {key} in example {name}");
            };
            let before = self.values.len();
            if self.append(wanted, feature).is_none() {
                return invalid!(
                    "Name: {name}, Feature list: {key}, Index: {row}.  Data types don't match. \
                     Expected type: {dtype}"
                );
            }
            let count = self.values.len() - before;
            if let Kind::DenseList { shape, .. } = wanted.kind
                && count != shape.n_elements()
            {
                return invalid!(
                    "Name: {name}, Key: {key}, Index: {row}.  Number of values != expected.  \
                     values size: {count} but output shape: {shape}"
                );
            }
            self.end_row();
            row += 1;
        }
        self.end_example();
        Ok(())
    }

    /// Appends the values of a feature; `None` if they are of another kind or malformed.
    fn append(&mut self, wanted: &Wanted<'_>, feature: &[u8]) -> Option<()> {
        match read_feature(feature).ok()? {
            Some((dtype, list)) if dtype == wanted.dtype => self.values.append_list(list),
            Some(_) => None,
            None => Some(()),
        }
    }

    fn end_row(&mut self) {
        self.ends.push(self.values.len());
    }

    fn end_example(&mut self) {
        self.example_ends.push(self.ends.len());
    }
}
