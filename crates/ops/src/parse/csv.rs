//! `DecodeCSV`: records of comma-separated values as one tensor a column.
//!
//! Follows `decode_csv_op.cc` of TensorFlow.

use super::number::{parse_float, parse_float32, parse_int};
use crate::prelude::*;

pub(super) const DEF: OpDef = OpDef::pure("DecodeCSV", |attrs| {
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
        let defaults: Vec<View<'_>> = ctx.inputs()[1..].to_vec();
        if defaults.iter().any(|default| default.n_elements() > 1) {
            return invalid!("There should only be 1 default per field");
        }
        let mut columns: Vec<Column<'_>> = self
            .dtypes
            .iter()
            .zip(&defaults)
            .map(|(t, d)| Column::new(*t, *d))
            .collect::<Result<_>>()?;
        for (row, record) in records.strings().iter().enumerate() {
            let fields = self.fields(record)?;
            if fields.len() != columns.len() {
                return invalid!(
                    "Expect {} fields but have {} in record",
                    columns.len(),
                    fields.len()
                );
            }
            for (i, (column, field)) in columns.iter_mut().zip(&fields).enumerate() {
                let is_missing = field.is_empty() || *field == self.missing;
                column.push(if is_missing { None } else { Some(field) }, (i, row))?;
            }
        }
        for (i, column) in columns.into_iter().enumerate() {
            ctx.set_output(i, column.into_tensor(records.shape())?)?;
        }
        Ok(())
    }
}

impl DecodeCsv {
    /// The fields of the columns wanted.
    fn fields(&self, record: &[u8]) -> Result<Vec<Vec<u8>>> {
        let mut fields = Vec::new();
        let mut rest = Some(record).filter(|record| !record.is_empty());
        let mut column = 0;
        while let Some(text) = rest {
            let (field, after) = if self.quotes && text.first() == Some(&b'"') {
                self.quoted(&text[1..])?
            } else {
                self.bare(text)?
            };
            if self.columns.is_empty() || self.columns.contains(&column) {
                fields.push(field);
            }
            column += 1;
            rest = after;
        }
        Ok(fields)
    }

    /// A field up to the next delimiter, and what follows that.
    fn bare<'r>(&self, text: &'r [u8]) -> Result<(Vec<u8>, Option<&'r [u8]>)> {
        let end = text.iter().position(|byte| *byte == self.delimiter);
        let field = &text[..end.unwrap_or(text.len())];
        if self.quotes && field.iter().any(|byte| matches!(byte, b'"' | b'\n' | b'\r')) {
            return invalid!("Unquoted fields cannot have quotes/CRLFs inside");
        }
        Ok((field.to_vec(), end.map(|end| &text[end + 1..])))
    }

    /// A field behind its quote, in which two quotes are one.
    fn quoted<'r>(&self, text: &'r [u8]) -> Result<(Vec<u8>, Option<&'r [u8]>)> {
        let mut field = Vec::new();
        let mut at = 0;
        loop {
            match (text.get(at), text.get(at + 1)) {
                (None, _) => {
                    return invalid!("Quoted field has to end with quote followed by delim or end");
                }
                (Some(b'"'), Some(b'"')) => {
                    field.push(b'"');
                    at += 2;
                }
                (Some(b'"'), None) => return Ok((field, None)),
                (Some(b'"'), Some(byte)) if *byte == self.delimiter => {
                    return Ok((field, Some(&text[at + 2..])));
                }
                (Some(b'"'), _) => {
                    return invalid!("Quote inside a string has to be escaped by another quote");
                }
                (Some(byte), _) => {
                    field.push(*byte);
                    at += 1;
                }
            }
        }
    }
}

/// A column being filled.
struct Column<'a> {
    values: Values,
    default: View<'a>,
}

enum Values {
    F32(Vec<f32>),
    F64(Vec<f64>),
    I32(Vec<i32>),
    I64(Vec<i64>),
    Strings(Strings),
}

impl<'a> Column<'a> {
    fn new(dtype: DType, default: View<'a>) -> Result<Self> {
        let values = match dtype {
            DType::F32 => Values::F32(Vec::new()),
            DType::F64 => Values::F64(Vec::new()),
            DType::I32 => Values::I32(Vec::new()),
            DType::I64 => Values::I64(Vec::new()),
            DType::String => Values::Strings(Strings::default()),
            other => return invalid!("csv: data type {other} not supported"),
        };
        Ok(Self { values, default })
    }

    fn push(&mut self, field: Option<&Vec<u8>>, place: (usize, usize)) -> Result<()> {
        if field.is_none() && self.default.n_elements() == 0 {
            let (column, row) = place;
            return invalid!("Field {column} is required but missing in record {row}!");
        }
        let default = self.default;
        match &mut self.values {
            Values::F32(values) => push(values, field, place, (parse_float32, default)),
            Values::F64(values) => push(values, field, place, (parse_float, default)),
            Values::I32(values) => push(values, field, place, (parse_int, default)),
            Values::I64(values) => push(values, field, place, (parse_int, default)),
            Values::Strings(values) => {
                values.push(field.map_or_else(|| default.strings().get(0), |field| &field[..]));
                Ok(())
            }
        }
    }

    fn into_tensor(self, shape: &Shape) -> Result<Tensor> {
        let shape = shape.clone();
        Ok(match self.values {
            Values::F32(values) => Tensor::from_slice(shape, &values)?,
            Values::F64(values) => Tensor::from_slice(shape, &values)?,
            Values::I32(values) => Tensor::from_slice(shape, &values)?,
            Values::I64(values) => Tensor::from_slice(shape, &values)?,
            Values::Strings(values) => Tensor::from_strings(shape, values)?,
        })
    }
}

/// Reads a field.
type Parse<T> = fn(&[u8]) -> Option<T>;

fn push<T: Element>(
    values: &mut Vec<T>,
    field: Option<&Vec<u8>>,
    (column, row): (usize, usize),
    (parse, default): (Parse<T>, View<'_>),
) -> Result<()> {
    let Some(field) = field else {
        values.push(default.as_slice::<T>()[0]);
        return Ok(());
    };
    let Some(value) = parse(field) else {
        let (text, dtype) = (String::from_utf8_lossy(field), T::DTYPE);
        return invalid!("Field {column} in record {row} is not a valid {dtype}: {text}");
    };
    values.push(value);
    Ok(())
}
