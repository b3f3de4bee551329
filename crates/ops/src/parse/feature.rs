//! The messages `Example`, `Features` and `Feature`, as slices of their bytes.

use super::wire::{Wire, delimited};
use crate::prelude::*;

/// An entry of the map of features: its key, and the serialized `Feature`.
pub(super) type Entry<'a> = (&'a [u8], &'a [u8]);

/// Takes an entry; `None` to read no further.
pub(super) type Take<'t, 'a> = &'t mut dyn FnMut(Entry<'a>) -> Option<()>;

/// Reads the features of a serialized `Example`; several examples written one after another are
/// one with all their features. `None` if it is malformed.
pub(super) fn read_example<'a>(example: &'a [u8], take: Take<'_, 'a>) -> Option<()> {
    let mut wire = Wire::new(example);
    while !wire.is_empty() {
        match wire.varint()? {
            tag if tag == delimited(1) => read_map(wire.message()?, take)?,
            tag => wire.skip(tag)?,
        }
    }
    Some(())
}

/// Reads the features of the context and the lists of a serialized `SequenceExample`. `None` if it
/// is malformed.
pub(super) fn read_sequence_example<'a>(
    example: &'a [u8],
    context: Take<'_, 'a>,
    lists: Take<'_, 'a>,
) -> Option<()> {
    let mut wire = Wire::new(example);
    while !wire.is_empty() {
        match wire.varint()? {
            tag if tag == delimited(1) => read_map(wire.message()?, context)?,
            tag if tag == delimited(2) => read_map(wire.message()?, lists)?,
            tag => wire.skip(tag)?,
        }
    }
    Some(())
}

/// Reads the entries of a map from strings to messages, which `Features` and `FeatureLists` are.
fn read_map<'a>(map: &'a [u8], take: Take<'_, 'a>) -> Option<()> {
    let mut wire = Wire::new(map);
    while !wire.is_empty() {
        if wire.varint()? != delimited(1) {
            return None;
        }
        take(read_entry(wire.message()?)?)?;
    }
    Some(())
}

/// TensorFlow wants a key and a value, in either order, and nothing else.
fn read_entry(entry: &[u8]) -> Option<Entry<'_>> {
    let mut wire = Wire::new(entry);
    let (mut key, mut value) = (&[][..], &[][..]);
    for _ in 0..2 {
        match wire.varint()? {
            tag if tag == delimited(1) => key = wire.delimited()?,
            tag if tag == delimited(2) => value = wire.delimited()?,
            _ => return None,
        }
    }
    wire.is_empty().then_some((key, value))
}

/// The features of a serialized `FeatureList`, one by one. The last is `None` if it is malformed.
pub(super) fn read_list(list: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
    let mut wire = Wire::new(list);
    std::iter::from_fn(move || {
        if wire.is_empty() {
            return None;
        }
        let tag = wire.varint();
        let feature = wire.delimited().filter(|_| tag == Some(delimited(1)));
        if feature.is_none() {
            wire = Wire::new(&[]);
        }
        Some(feature)
    })
}

/// The kind of a serialized `Feature` and its list; `None` if no kind is set.
pub(super) fn read_feature(feature: &[u8]) -> Result<Option<(DType, &[u8])>> {
    let mut wire = Wire::new(feature);
    if wire.is_empty() {
        return Ok(None);
    }
    let dtype = match wire.varint() {
        Some(tag) if tag == delimited(1) => DType::String,
        Some(tag) if tag == delimited(2) => DType::F32,
        Some(tag) if tag == delimited(3) => DType::I64,
        _ => return invalid!("Unsupported datatype."),
    };
    // What follows the first list is ignored, as TensorFlow does.
    match wire.delimited() {
        Some(list) => Ok(Some((dtype, list))),
        // A list that is cut short is reported as one that cannot be parsed.
        None => Ok(Some((dtype, &[0xff]))),
    }
}
