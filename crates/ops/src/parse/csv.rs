//! `DecodeCSV`: records of comma-separated values as one tensor a column.
//!
//! Follows `decode_csv_op.cc` of TensorFlow.

use super::number::{parse_float, parse_float32, parse_int};
use crate::prelude::*;

pub(super) const DEF: OpDef = OpDef::pure("DecodeCSV", RowRule::Mixed, |attrs| {
    let delimiter = match attrs.str_or("field_delim", ",")?.as_bytes() {
        [byte] => *byte,
        _ => return invalid!("field_delim should be only 1 char"),
    };
    let columns: Option<Vec<usize>> =
        attrs.ints_or("select_cols", &[])?.iter().map(|c| usize::try_from(*c).ok()).collect();
    let dtypes = attrs.dtypes("OUT_TYPE")?;
    match columns {
        Some(columns) if columns.is_empty() || columns.len() == dtypes.len() => {
            if columns.windows(2).any(|pair| pair[0] >= pair[1]) {
                return invalid!("select_cols should be strictly increasing indices");
            }
            Ok(Box::new(DecodeCsv {
                dtypes,
                columns,
                delimiter,
                quotes: attrs.bool_or("use_quote_delim", true)?,
                missing: attrs.str_or("na_value", "")?.as_bytes().to_vec(),
            }))
        }
        _ => invalid!("select_cols should match output size and not be below zero"),
    }
});

struct DecodeCsv {
    dtypes: Vec<DType>,
    /// The columns wanted; all if empty.
    columns: Vec<usize>,
    delimiter: u8,
    quotes: bool,
    missing: Vec<u8>,
}

impl Op for DecodeCsv {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        if inputs.len() != self.dtypes.len() + 1 {
            return invalid!("expected {} inputs but got {}", self.dtypes.len() + 1, inputs.len());
        }
        inputs[0].require_dtype(DType::String)?;
        for (default, dtype) in inputs[1..].iter().zip(&self.dtypes) {
            default.require_dtype(*dtype)?;
            if default.rank().is_some_and(|rank| rank > 1) {
                return invalid!("Each record default should be at most rank 1");
            }
        }
        Ok(self.dtypes.iter().map(|dtype| inputs[0].with_dtype(*dtype)).collect())
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let records = ctx.input(0);
        let n_columns = self.dtypes.len();
        if ctx.inputs()[1..].iter().any(|default| default.n_elements() > 1) {
            return invalid!("There should only be 1 default per field");
        }
        let mut texts: Vec<Strings> = Vec::new();
        for (column, dtype) in self.dtypes.iter().enumerate() {
            match dtype {
                DType::String => texts.push(Strings::default()),
                DType::F32 | DType::F64 | DType::I32 | DType::I64 => {
                    ctx.output(column, *dtype, records.shape())?;
                }
                other => return invalid!("csv: data type {other} not supported"),
            }
        }
        let mut places = ctx.scratch().part::<[usize; 3]>(n_columns)?;
        for (row, record) in records.strings().iter().enumerate() {
            pace(64 + record.len())?;
            let n_fields = self.find_fields(record, &mut places)?;
            if n_fields != n_columns {
                return invalid!("Expect {n_columns} fields but have {n_fields} in record");
            }
            let mut texts = texts.iter_mut();
            for (column, place) in places.iter().enumerate() {
                let field = CsvField::at(record, *place);
                let default = ctx.input(1 + column);
                let field = Some(field).filter(|field| !field.is(b"") && !field.is(&self.missing));
                if field.is_none() && default.n_elements() == 0 {
                    return invalid!("Field {column} is required but missing in record {row}!");
                }
                if self.dtypes[column] == DType::String {
                    let Some(texts) = texts.next() else { continue };
                    push_text(texts, field, default)?;
                } else {
                    write_number(ctx, (column, row), field, default)?;
                }
            }
        }
        let columns = self.dtypes.iter().enumerate().filter(|(_, dtype)| **dtype == DType::String);
        for ((column, _), texts) in columns.zip(texts) {
            ctx.set_output(column, Tensor::from_strings(records.shape().clone(), texts)?)?;
        }
        Ok(())
    }

    fn scratch_bytes(&self, _: &[Spec], _: &[Spec]) -> usize {
        Scratch::bytes_of::<[usize; 3]>(self.dtypes.len())
    }
}

impl DecodeCsv {
    /// Finds the fields of the columns wanted, as many as there is room for. Returns their number.
    fn find_fields(&self, record: &[u8], places: &mut [[usize; 3]]) -> Result<usize> {
        let mut n_fields = 0;
        let mut start = Some(0).filter(|_| !record.is_empty());
        let mut column = 0;
        while let Some(at) = start {
            let (place, next) = if self.quotes && record.get(at) == Some(&b'"') {
                self.quoted(record, at + 1)?
            } else {
                self.bare(record, at)?
            };
            if self.columns.is_empty() || self.columns.contains(&column) {
                if let Some(slot) = places.get_mut(n_fields) {
                    *slot = place;
                }
                n_fields += 1;
            }
            column += 1;
            start = next;
        }
        Ok(n_fields)
    }

    /// A field up to the next delimiter, and where the next begins.
    fn bare(&self, record: &[u8], start: usize) -> Result<([usize; 3], Option<usize>)> {
        let text = &record[start..];
        let length = text.iter().position(|byte| *byte == self.delimiter);
        let end = start + length.unwrap_or(text.len());
        let field = &record[start..end];
        if self.quotes && field.iter().any(|byte| matches!(byte, b'"' | b'\n' | b'\r')) {
            return invalid!("Unquoted fields cannot have quotes/CRLFs inside");
        }
        Ok(([start, end, 0], length.map(|_| end + 1)))
    }

    /// A field behind its quote, in which two quotes are one.
    fn quoted(&self, record: &[u8], start: usize) -> Result<([usize; 3], Option<usize>)> {
        let (mut at, mut n_doubled) = (start, 0);
        loop {
            match (record.get(at), record.get(at + 1)) {
                (None, _) => {
                    return invalid!("Quoted field has to end with quote followed by delim or end");
                }
                (Some(b'"'), Some(b'"')) => {
                    n_doubled += 1;
                    at += 2;
                }
                (Some(b'"'), None) => return Ok(([start, at, n_doubled], None)),
                (Some(b'"'), Some(byte)) if *byte == self.delimiter => {
                    return Ok(([start, at, n_doubled], Some(at + 2)));
                }
                (Some(b'"'), _) => {
                    return invalid!("Quote inside a string has to be escaped by another quote");
                }
                (Some(_), _) => at += 1,
            }
        }
    }
}

/// A field as it stands in its record.
#[derive(Clone, Copy)]
struct CsvField<'r> {
    text: &'r [u8],
    /// The number of times that two quotes in the field mean one.
    n_doubled: usize,
}

impl<'r> CsvField<'r> {
    /// The field from the first place to the second, with its number of doubled quotes.
    fn at(record: &'r [u8], [start, end, n_doubled]: [usize; 3]) -> Self {
        Self { text: &record[start..end], n_doubled }
    }

    /// Returns the bytes that the field means.
    fn bytes(self) -> impl Iterator<Item = u8> + 'r {
        let mut skips = false;
        self.text.iter().copied().filter(move |byte| {
            skips = self.n_doubled > 0 && *byte == b'"' && !skips;
            !skips
        })
    }

    fn is(self, text: &[u8]) -> bool {
        self.text.len() - self.n_doubled == text.len() && self.bytes().eq(text.iter().copied())
    }
}

fn push_text(texts: &mut Strings, field: Option<CsvField<'_>>, default: View<'_>) -> Result<()> {
    match field {
        None => texts.push(default.strings().get(0))?,
        Some(CsvField { text, n_doubled: 0 }) => texts.push(text)?,
        Some(field) => {
            field.bytes().try_for_each(|byte| texts.extend_last(&[byte]))?;
            texts.end()?;
        }
    }
    Ok(())
}

/// Writes a number to its place in its column.
fn write_number(
    ctx: &mut Ctx<'_>,
    place: (usize, usize),
    field: Option<CsvField<'_>>,
    default: View<'_>,
) -> Result<()> {
    let mut output = ctx.output_again(place.0)?;
    match default.dtype() {
        DType::F32 => write(&mut output, place, field, parse_float32, default),
        DType::F64 => write(&mut output, place, field, parse_float, default),
        DType::I32 => write(&mut output, place, field, parse_int::<i32>, default),
        _ => write(&mut output, place, field, parse_int::<i64>, default),
    }
}

/// Reads a field.
type Parse<T> = fn(&[u8]) -> Option<T>;

fn write<T: Element>(
    output: &mut ViewMut<'_>,
    (column, row): (usize, usize),
    field: Option<CsvField<'_>>,
    parse: Parse<T>,
    default: View<'_>,
) -> Result<()> {
    let value = match field {
        None => Some(default.as_slice::<T>()[0]),
        // No number has a quote in it.
        Some(field) => Some(field.text).filter(|_| field.n_doubled == 0).and_then(parse),
    };
    let (Some(value), out) = (value, output.as_mut_slice::<T>()) else {
        let text: Vec<u8> = field.into_iter().flat_map(CsvField::bytes).collect();
        let (text, dtype) = (String::from_utf8_lossy(&text), T::DTYPE);
        return invalid!("Field {column} in record {row} is not a valid {dtype}: {text}");
    };
    out[row] = value;
    Ok(())
}
