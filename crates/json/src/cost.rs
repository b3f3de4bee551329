//! The memory that reading a text will take, told from its bytes before anything is read.

/// The most bytes that a feature and its place in a map take, and a node of the map.
const FEATURE_BYTES: usize = 256;
const NODE_BYTES: usize = 1024;

/// The most bytes of an element, and a vector that grows holds three times as much at worst.
const ELEMENT_BYTES: usize = 3 * size_of::<u64>();

/// The size of a list and where it begins, in a vector that grows.
const LIST_BYTES: usize = 3 * size_of::<(usize, u32)>();

/// A string of a feature where it stands, in a vector that grows.
const STRING_BYTES: usize = 4 * size_of::<bytes::Bytes>();

/// Each byte of a text may become so many where it is read into a tree of values.
pub const TREE: usize = 64;

/// The handling of strings: taken as values, or refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strings {
    /// Strings are values.
    Taken,
    /// Strings are refused where they stand.
    Refused,
}

/// The bytes that the inputs of a `Predict` take while they are read, at most.
pub fn of_tensors(text: &[u8], strings: Strings) -> usize {
    let n_elements = count(text, b',').saturating_add(1);
    let lists = count(text, b'[') * LIST_BYTES;
    // Strings grow as elements do, and pass through two buffers if they are base64.
    let texts = if strings == Strings::Taken { text.len().saturating_mul(5) } else { 0 };
    (n_elements * ELEMENT_BYTES).saturating_add(lists).saturating_add(texts)
}

/// The bytes that examples take while they are read, at most.
pub fn of_examples(text: &[u8]) -> usize {
    let n_values = count(text, b',').saturating_add(1);
    let lists = count(text, b'[') * LIST_BYTES;
    let objects = count(text, b'{') * NODE_BYTES;
    let features = count(text, b':') * FEATURE_BYTES;
    let values = n_values * STRING_BYTES.max(ELEMENT_BYTES);
    [lists, objects, features, values, 2 * text.len()].into_iter().fold(0, usize::saturating_add)
}

fn count(text: &[u8], wanted: u8) -> usize {
    text.iter().filter(|byte| **byte == wanted).count()
}
