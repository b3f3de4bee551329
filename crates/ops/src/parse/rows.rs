//! Parsing of `SequenceExample`s: features of the context, and lists of features.
//!
//! Follows `example_proto_fast_parsing.cc` of TensorFlow, its messages included.

use super::feature::{Entry, read_feature, read_list, read_sequence_example};
use super::found::{Found, Mark, check_size};
use super::values::{Count, check_dtype};
use crate::prelude::*;

/// The output that is wanted of one feature, or of one list of features.
pub(super) struct Wanted<'a> {
    pub(super) key: &'a [u8],
    pub(super) dtype: DType,
    pub(super) kind: Kind<'a>,
}

/// The way in which rows become tensors, and the action if there are none.
#[derive(Clone, Copy)]
pub(super) enum Kind<'a> {
    /// Rows of any length.
    Open,
    /// A feature of the context: just as many values, or the default, if it is not empty.
    Dense { shape: &'a Shape, default: View<'a> },
    /// A list of features, each of as many values; it may be missing.
    DenseList { shape: &'a Shape, may_miss: bool },
}

/// Finds the features of the context and the lists of all examples. `wanted` has first the
/// context's features, then the lists.
pub(super) fn find_sequences<'a>(
    [context, lists]: [&mut Found<'_>; 2],
    wanted: impl Fn(usize) -> Wanted<'a>,
    examples: impl Iterator<Item = (&'a [u8], &'a [u8])>,
) -> Result<()> {
    let n_context = context.n_features();
    let (wanted_context, wanted_lists) = (&wanted, |i: usize| wanted(n_context + i));
    check_all(context, wanted_context)?;
    check_all(lists, wanted_lists)?;
    for (row, (example, name)) in examples.enumerate() {
        pace(64 + example.len())?;
        check_size(example)?;
        let read = read_sequence_example(
            example,
            &mut |entry| mark(context, wanted_context, (row, example), entry),
            &mut |entry| mark(lists, wanted_lists, (row, example), entry),
        );
        if read.is_none() {
            let name = String::from_utf8_lossy(name);
            return invalid!("Invalid protocol message input, example id: {name}");
        }
        for i in 0..n_context {
            let wanted = wanted_context(i);
            let feature = context.mark(i, row).part(example);
            let (list, count) = count_feature(&wanted, feature, name)?;
            let mark = list.map_or(*context.mark(i, row), |list| Mark::of(example, list));
            *context.mark(i, row) = mark.with(count);
            context.add_row(i, count);
        }
        for i in 0..lists.n_features() {
            let list = lists.mark(i, row).part(example);
            let n_rows = count_rows(&wanted_lists(i), list, name, |count| lists.add_row(i, count))?;
            lists.mark(i, row).n = n_rows as u32;
            lists.end_example(i, n_rows);
        }
    }
    Ok(())
}

/// Fails if a dtype is none of features, or if two have one key.
fn check_all<'a>(found: &Found<'_>, wanted: impl Fn(usize) -> Wanted<'a>) -> Result<()> {
    (0..found.n_features()).try_for_each(|i| check_dtype(wanted(i).dtype))?;
    match found.twin(|i| wanted(i).key) {
        None => Ok(()),
        Some(i) => {
            let key = String::from_utf8_lossy(wanted(i).key);
            invalid!("Feature {key} cannot be both dense and sparse")
        }
    }
}

/// Marks an entry of example number `row`; the last of several with one key counts.
fn mark<'a>(
    found: &mut Found<'_>,
    wanted: impl Fn(usize) -> Wanted<'a>,
    (row, example): (usize, &[u8]),
    (key, feature): Entry<'_>,
) -> Option<()> {
    if let Some(i) = found.get(key, |i| wanted(i).key) {
        *found.mark(i, row) = Mark::of(example, feature);
    }
    Some(())
}

/// The list of a feature of the context, if it is there, and how much it holds.
fn count_feature<'f>(
    wanted: &Wanted<'_>,
    feature: Option<&'f [u8]>,
    name: &[u8],
) -> Result<(Option<&'f [u8]>, Count)> {
    let (key, dtype) = (RowsText(wanted.key), wanted.dtype);
    let (list, count) = match (feature, wanted.kind) {
        (Some(feature), _) => match count_list(wanted, feature) {
            Some((list, count)) => (Some(list), count),
            None => {
                return invalid!(
                    "Name: {}, Context feature: {key}.  Data types don't match. Expected type: \
                     {dtype}",
                    RowsText(name)
                );
            }
        },
        (None, Kind::Dense { default, .. }) if default.n_elements() == 0 => {
            return invalid!(
                "Feature: {key} (data type: {dtype}) is required but could not be found."
            );
        }
        (None, Kind::Dense { default, .. }) => (None, Count::of_tensor(default)),
        (None, _) => (None, Count::default()),
    };
    if let Kind::Dense { shape, .. } = wanted.kind
        && count.n_values != shape.n_elements()
    {
        return invalid!(
            "Inconsistent max number of elements for feature {key}: expected {}, but found {}",
            shape.n_elements(),
            count.n_values
        );
    }
    Ok((list, count))
}

/// Calls `each` with how much each row of a list holds, and counts the rows.
fn count_rows(
    wanted: &Wanted<'_>,
    list: Option<&[u8]>,
    name: &[u8],
    mut each: impl FnMut(Count),
) -> Result<usize> {
    let (name, key, dtype) = (RowsText(name), RowsText(wanted.key), wanted.dtype);
    if let (None, Kind::DenseList { may_miss: false, .. }) = (list, wanted.kind) {
        return invalid!(
            "Name: {name}, Feature list '{key}' is required but could not be found.  Did you \
             mean to include it in feature_list_dense_missing_assumed_empty or \
             feature_list_dense_defaults?"
        );
    }
    let mut n_rows = 0;
    for feature in read_list(list.unwrap_or_default()) {
        let Some(feature) = feature else {
            return invalid!("Error in sequence feature {key} in example {name}");
        };
        let Some((_, count)) = count_list(wanted, feature) else {
            return invalid!(
                "Name: {name}, Feature list: {key}, Index: {n_rows}.  Data types don't match. \
                 Expected type: {dtype}"
            );
        };
        if let Kind::DenseList { shape, .. } = wanted.kind
            && count.n_values != shape.n_elements()
        {
            return invalid!(
                "Name: {name}, Key: {key}, Index: {n_rows}.  Number of values != expected.  \
                 values size: {} but output shape: {shape}",
                count.n_values
            );
        }
        each(count);
        n_rows += 1;
    }
    Ok(n_rows)
}

/// The list of a feature, and how much it holds; `None` if it is of another kind or malformed.
fn count_list<'f>(wanted: &Wanted<'_>, feature: &'f [u8]) -> Option<(&'f [u8], Count)> {
    match read_feature(feature).ok()? {
        Some((dtype, list)) if dtype == wanted.dtype => Some((list, Count::of_list(dtype, list)?)),
        Some(_) => None,
        None => Some((&[], Count::default())),
    }
}

/// Bytes as text of messages.
struct RowsText<'t>(&'t [u8]);

impl std::fmt::Display for RowsText<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&String::from_utf8_lossy(self.0))
    }
}
