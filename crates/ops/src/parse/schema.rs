//! The features that are parsed out of examples, and their roles.

use super::feature::{read_example, read_feature};
use super::found::{Found, Mark, check_size};
use super::values::{Count, check_dtype};
use crate::prelude::*;

/// The output that is wanted of one feature.
pub(super) struct Field<'a> {
    pub(super) key: &'a [u8],
    pub(super) dtype: DType,
    pub(super) role: Role<'a>,
}

/// The way in which the values of a feature become tensors.
#[derive(Clone, Copy)]
pub(super) enum Role<'a> {
    /// Any number of values an example: sparse or ragged.
    Open,
    /// Just `n_values` values an example, or the default, if it is not empty.
    Fixed { n_values: usize, shape: &'a str, default: View<'a> },
    /// A multiple of `stride` values an example.
    Strided { stride: usize, shape: &'a str },
}

/// The place of an example, for messages: which are TensorFlow's.
#[derive(Clone, Copy)]
pub(super) enum Place<'a> {
    /// In a batch, with its name.
    Batch { name: Option<&'a [u8]>, index: usize },
    /// Alone.
    Alone,
}

/// One of several examples that are parsed.
#[derive(Clone, Copy)]
struct ParsedExample<'a> {
    row: usize,
    bytes: &'a [u8],
    place: Place<'a>,
}

/// Finds the features of all examples, as `example_proto_fast_parsing.cc` of TensorFlow does.
pub(super) fn find_all<'a>(
    found: &mut Found<'_>,
    key: impl Fn(usize) -> &'a [u8],
    field: impl Fn(usize) -> Field<'a>,
    examples: impl Iterator<Item = (&'a [u8], Place<'a>)>,
) -> Result<()> {
    (0..found.n_features()).try_for_each(|i| check_dtype(field(i).dtype))?;
    if found.twin(&key).is_some() {
        let text = "Could not avoid collision. This should not happen.";
        return Err(Error::Internal(text.to_owned()));
    }
    for (row, (example, place)) in examples.enumerate() {
        pace(64 + example.len())?;
        check_size(example)?;
        let one = ParsedExample { row, bytes: example, place };
        find(found, &key, &field, one)?;
        count(found, &field, one)?;
        for i in 0..found.n_features() {
            if found.mark(i, row).part(example).is_none() {
                let count = miss(&field(i), place)?;
                *found.mark(i, row) = found.mark(i, row).with(count);
                found.add_row(i, count);
            }
        }
    }
    Ok(())
}

/// Marks the features of an example. The last of several with one key counts.
fn find<'a>(
    found: &mut Found<'_>,
    key: impl Fn(usize) -> &'a [u8],
    field: impl Fn(usize) -> Field<'a>,
    one: ParsedExample<'_>,
) -> Result<()> {
    let ParsedExample { row, bytes: example, place } = one;
    let mut refused = Ok(());
    let read = read_example(example, &mut |(name, feature)| {
        let Some(i) = found.get(name, &key) else { return Some(()) };
        // A feature without a kind is no value in a batch, and not even there if alone or dense.
        let may_be_empty = || matches!((field(i).role, place), (Role::Open, Place::Batch { .. }));
        match read_feature(feature) {
            Ok(kind) if kind.is_some() || may_be_empty() => {
                *found.mark(i, row) = Mark::of(example, feature);
            }
            Ok(_) => {}
            Err(error) => refused = Err(error),
        }
        Some(())
    });
    if read.is_none() {
        let example = String::from_utf8_lossy(example);
        return invalid!("Could not parse example input, value: '{example}'");
    }
    refused
}

/// Counts the values of the features that were found in an example, and marks their lists
/// instead. Of several that are wrong the last one is refused, for TensorFlow begins there.
fn count<'a>(
    found: &mut Found<'_>,
    field: impl Fn(usize) -> Field<'a>,
    one: ParsedExample<'_>,
) -> Result<()> {
    let ParsedExample { row, bytes: example, place } = one;
    let mut refused: Option<(Mark, Error)> = None;
    for i in 0..found.n_features() {
        let mark = *found.mark(i, row);
        let Some(feature) = mark.part(example) else { continue };
        match count_feature(&field(i), feature, place) {
            Ok((list, count)) => {
                *found.mark(i, row) = Mark::of(example, list).with(count);
                found.add_row(i, count);
            }
            Err(error) if refused.as_ref().is_none_or(|(other, _)| mark.is_behind(other)) => {
                refused = Some((mark, error));
            }
            Err(_) => {}
        }
    }
    refused.map_or(Ok(()), |(_, error)| Err(error))
}

/// The list of a feature, and how much it holds. Fails if it is not as the field must be.
fn count_feature<'f>(
    field: &Field<'_>,
    feature: &'f [u8],
    place: Place<'_>,
) -> Result<(&'f [u8], Count)> {
    let Some((dtype, list)) = read_feature(feature)? else {
        return Ok((&[], Count::default()));
    };
    if dtype != field.dtype {
        return Err(place.wrong_dtype(field, dtype));
    }
    let count = Count::of_list(dtype, list);
    check(field, count, place)?;
    Ok((list, count.unwrap_or_default()))
}

/// Fails if a list could not be parsed or has the wrong number of values.
fn check(field: &Field<'_>, count: Option<Count>, place: Place<'_>) -> Result<()> {
    let Some(Count { n_values: count, .. }) = count else {
        return Err(place.malformed(field));
    };
    match field.role {
        // TensorFlow runs out of room for strings before it has counted them.
        Role::Fixed { n_values, .. } if count > n_values && field.dtype == DType::String => {
            Err(place.malformed(field))
        }
        Role::Fixed { n_values, shape, .. } if count != n_values => {
            Err(place.wrong_count(field, count, shape))
        }
        Role::Strided { stride, shape } if !count.is_multiple_of(stride) => {
            Err(place.wrong_multiple(field, count, (stride, shape)))
        }
        _ => Ok(()),
    }
}

/// Returns the values of a field for an example without it: its default, if there is one.
fn miss(field: &Field<'_>, place: Place<'_>) -> Result<Count> {
    match field.role {
        Role::Fixed { default, .. } if default.n_elements() == 0 => Err(place.missing(field)),
        Role::Fixed { default, .. } => Ok(Count::of_tensor(default)),
        Role::Open | Role::Strided { .. } => Ok(Count::default()),
    }
}

impl Place<'_> {
    fn wrong_dtype(self, field: &Field<'_>, got: DType) -> Error {
        let expected = field.dtype;
        self.refuse(
            field,
            &match field.role {
                Role::Open => {
                    format!("Data types don't match. Expected type: {expected}, Actual type: {got}")
                }
                _ => format!(
                    "Data types don't match. Data type: {got} but expected type: {expected}"
                ),
            },
        )
    }

    fn malformed(self, field: &Field<'_>) -> Error {
        self.refuse(
            field,
            &match self {
                Self::Batch { .. } => "Can't parse serialized Example.".to_owned(),
                Self::Alone => {
                    let list = list_name(field.dtype);
                    format!("Can't parse serialized Example: Parsing {list}_list failed.")
                }
            },
        )
    }

    fn wrong_count(self, field: &Field<'_>, count: usize, shape: &str) -> Error {
        let list = list_name(field.dtype);
        self.refuse(
            field,
            &match self {
                Self::Batch { .. } => format!(
                    "Number of {list} values != expected.  \
                 Values size: {count} but output shape: {shape}"
                ),
                Self::Alone => {
                    format!(
                        "Can't parse serialized Example: Some {list}_list slice was not parsed."
                    )
                }
            },
        )
    }

    fn wrong_multiple(
        self,
        field: &Field<'_>,
        count: usize,
        (stride, shape): (usize, &str),
    ) -> Error {
        let list = list_name(field.dtype);
        match self {
            Self::Batch { .. } => self.refuse(
                field,
                &format!(
                    "Number of {list} values is not a multiple of stride length. \
                     Saw {count} values but output shape is: {shape}"
                ),
            ),
            Self::Alone => Error::InvalidArgument(format!(
                "Error while parsing feature with key {}: number of elements should be divisible \
                 by {stride}, found {count} instead",
                String::from_utf8_lossy(field.key)
            )),
        }
    }

    fn missing(self, field: &Field<'_>) -> Error {
        let (key, dtype) = (String::from_utf8_lossy(field.key), field.dtype);
        let text = format!(
            "Feature: {key} (data type: {dtype}) is required but could not be \
             found."
        );
        Error::InvalidArgument(match self {
            Self::Batch { name, .. } => format!("Name: {}, {text}", show(name)),
            Self::Alone => text,
        })
    }

    fn refuse(self, field: &Field<'_>, what: &str) -> Error {
        let key = String::from_utf8_lossy(field.key);
        Error::InvalidArgument(match self {
            Self::Batch { name, index } => {
                format!("Name: {}, Key: {key}, Index: {index}.  {what}", show(name))
            }
            Self::Alone => format!("Key: {key}.  {what}"),
        })
    }
}

fn show(name: Option<&[u8]>) -> String {
    String::from_utf8_lossy(name.unwrap_or(b"<unknown>")).into_owned()
}

fn list_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "float",
        DType::I64 => "int64",
        _ => "bytes",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `Example { features { feature { key: "x" value { float_list { value: [1, 2] } } } } }` and
    /// the like for strings and integers.
    const EXAMPLE: &[u8] = b"\x0a\x31\x0a\x11\x0a\x01x\x12\x0c\x12\x0a\x0a\x08\0\0\x80\
        \x3f\0\0\0\x40\
        \x0a\x0e\x0a\x01i\x12\x09\x1a\x07\x0a\x05\x07\x80\x01\x96\x01\x0a\x0c\x0a\x01s\
            \x12\x07\x0a\x05\x0a\x03abc";

    /// Returns how many values there are of each feature.
    fn parse(example: &[u8]) -> Result<[usize; 3]> {
        let field = |i: usize| {
            let (key, dtype) =
                [(&b"x"[..], DType::F32), (b"i", DType::I64), (b"s", DType::String)][i];
            Field { key, dtype, role: Role::Open }
        };
        let key = |i| field(i).key;
        let mut found = Found::new(&mut Scratch::default(), (3, 1), key).unwrap();
        let place = Place::Batch { name: None, index: 0 };
        find_all(&mut found, key, field, [(example, place)].into_iter())?;
        Ok([0, 1, 2].map(|i| found.column(i).1.n_values))
    }

    #[test]
    fn the_sample_parses() {
        assert_eq!(parse(EXAMPLE).unwrap(), [2, 3, 1]);
    }

    #[test]
    fn hostile_bytes_are_refused_or_parsed_but_never_panic() {
        let mut state = 1u64;
        let mut random = |n: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize % n
        };
        let mut n_refused = 0;
        for _ in 0..20_000 {
            let mut bytes = EXAMPLE.to_vec();
            for _ in 0..=random(4) {
                let at = random(bytes.len());
                match random(4) {
                    0 => bytes[at] = random(256) as u8,
                    1 => bytes[at] = 0xff,
                    2 => bytes.truncate(at.max(1)),
                    _ => bytes.insert(at, random(256) as u8),
                }
            }
            n_refused += usize::from(parse(&bytes).is_err());
        }
        assert!(n_refused > 0);
    }
}
