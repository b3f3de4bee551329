//! `Schema`: which features are parsed out of examples, and how.

use rustc_hash::FxHashMap;

use super::feature::{Entry, into, read_example, read_feature};
use super::values::Values;
use crate::prelude::*;

/// What is wanted of one feature.
pub(super) struct Field<'a> {
    pub(super) key: &'a [u8],
    pub(super) dtype: DType,
    pub(super) role: Role<'a>,
}

/// How the values of a feature become tensors.
#[derive(Clone, Copy)]
pub(super) enum Role<'a> {
    /// Any number of values an example: sparse or ragged.
    Open,
    /// Just `n_values` values an example, or the default, if it is not empty.
    Fixed { n_values: usize, shape: &'a str, default: View<'a> },
    /// A multiple of `stride` values an example.
    Strided { stride: usize, shape: &'a str },
}

/// What was parsed for a field: all values, and where those of each example end.
pub(super) struct Column {
    pub(super) values: Values,
    pub(super) ends: Vec<usize>,
}

/// Where an example stands, for messages: which are TensorFlow's.
#[derive(Clone, Copy)]
pub(super) enum Place<'a> {
    /// In a batch, with its name.
    Batch { name: Option<&'a [u8]>, index: usize },
    /// Alone.
    Alone,
}

/// Parses examples, as `example_proto_fast_parsing.cc` of TensorFlow does.
pub(super) fn parse_batch<'a>(
    fields: &[Field<'_>],
    examples: impl Iterator<Item = (&'a [u8], Place<'a>)>,
) -> Result<Vec<Column>> {
    let mut columns: Vec<Column> = Vec::with_capacity(fields.len());
    let mut by_key: FxHashMap<&[u8], usize> = FxHashMap::default();
    for (i, field) in fields.iter().enumerate() {
        columns.push(Column { values: Values::new(field.dtype)?, ends: Vec::new() });
        if by_key.insert(field.key, i).is_some() {
            let text = "Could not avoid collision. This should not happen.";
            return Err(Error::Internal(text.to_owned()));
        }
    }
    let mut entries: Vec<Entry<'a>> = Vec::new();
    for (row, (example, place)) in examples.enumerate() {
        entries.clear();
        if read_example(example, &mut into(&mut entries)).is_none() {
            let example = String::from_utf8_lossy(example);
            return invalid!("Could not parse example input, value: '{example}'");
        }
        // The last of several features with one key counts.
        for (key, feature) in entries.iter().rev() {
            let Some(&i) = by_key.get(key) else { continue };
            take(&fields[i], feature, row, place, &mut columns[i])?;
        }
        for (field, column) in fields.iter().zip(&mut columns) {
            if column.ends.len() == row {
                miss(field, place, column)?;
            }
        }
    }
    Ok(columns)
}

/// Appends a feature of example number `row`, unless there was one already.
fn take(
    field: &Field<'_>,
    feature: &[u8],
    row: usize,
    place: Place<'_>,
    column: &mut Column,
) -> Result<()> {
    let kind = read_feature(feature)?;
    // A feature without a kind is no value in a batch, and not even there if alone or dense.
    let is_open_batch = matches!((field.role, place), (Role::Open, Place::Batch { .. }));
    if column.ends.len() > row || (kind.is_none() && !is_open_batch) {
        return Ok(());
    }
    if let Some((dtype, list)) = kind {
        if dtype != field.dtype {
            return Err(place.wrong_dtype(field, dtype));
        }
        let before = column.values.len();
        let parsed = column.values.append_list(list);
        check(field, parsed, column.values.len() - before, place)?;
    }
    column.ends.push(column.values.len());
    Ok(())
}

/// Fails if a list could not be parsed or has the wrong number of values.
fn check(field: &Field<'_>, parsed: Option<()>, count: usize, place: Place<'_>) -> Result<()> {
    if parsed.is_none() {
        return Err(place.malformed(field));
    }
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

/// Completes the column of a field that an example does not have.
fn miss(field: &Field<'_>, place: Place<'_>, column: &mut Column) -> Result<()> {
    if let Role::Fixed { default, .. } = field.role {
        if default.n_elements() == 0 {
            return Err(place.missing(field));
        }
        column.values.append_tensor(default);
    }
    column.ends.push(column.values.len());
    Ok(())
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

    fn parse(example: &[u8]) -> Result<Vec<Column>> {
        let field = |key: &'static [u8], dtype| Field { key, dtype, role: Role::Open };
        let fields = [field(b"x", DType::F32), field(b"i", DType::I64), field(b"s", DType::String)];
        parse_batch(&fields, [(example, Place::Batch { name: None, index: 0 })].into_iter())
    }

    #[test]
    fn the_sample_parses() {
        let columns = parse(EXAMPLE).unwrap();
        assert_eq!(columns.iter().map(|column| column.ends[0]).collect::<Vec<_>>(), [2, 3, 1]);
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
