//! `InitializeTableFromTextFileV2`: a table from an asset file, one key a line.
//!
//! Follows `lookup_util.cc` of TensorFlow, whose texts the messages are.

use super::table::table;
use crate::prelude::*;

pub(super) const FROM_TEXT_FILE: OpDef = OpDef::of_kind(
    "InitializeTableFromTextFile",
    Kind::Writes,
    RowRule::Mixed,
    FromTextFile::build,
)
.on_host();
pub(super) const FROM_TEXT_FILE_V2: OpDef = OpDef::of_kind(
    "InitializeTableFromTextFileV2",
    Kind::Writes,
    RowRule::Mixed,
    FromTextFile::build,
)
.on_host();

struct FromTextFile {
    key: TextFilePart,
    value: TextFilePart,
    /// The number of lines that are read; all if `None`.
    n_lines: Option<usize>,
    delimiter: u8,
    offset: i64,
}

/// The part of a line that is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TextFilePart {
    Line,
    Number,
    Column(usize),
}

impl FromTextFile {
    fn build(attrs: &Attrs<'_>) -> Result<Box<dyn Op>> {
        let part = |name: &str| match attrs.int(name)? {
            -2 => Ok(TextFilePart::Line),
            -1 => Ok(TextFilePart::Number),
            column => match usize::try_from(column) {
                Ok(column) => Ok(TextFilePart::Column(column)),
                Err(_) => invalid!("{name} is {column}, below -2"),
            },
        };
        let vocab_size = attrs.int_or("vocab_size", -1)?;
        let n_lines = match usize::try_from(vocab_size) {
            Ok(n_lines) if n_lines > 0 => Some(n_lines),
            _ if vocab_size == -1 => None,
            _ => return invalid!("vocab_size must be -1 or above 0, not {vocab_size}"),
        };
        let delimiter =
            match attrs.has("delimiter").then(|| attrs.bytes("delimiter")).transpose()? {
                None => b'\t',
                Some([delimiter]) => *delimiter,
                Some(_) => return invalid!("delimiter must be only 1 char"),
            };
        let offset = attrs.int_or("offset", 0)?;
        let (key, value) = (part("key_index")?, part("value_index")?);
        Ok(Box::new(Self { key, value, n_lines, delimiter, offset }))
    }
}

impl Op for FromTextFile {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [_, name] = arity(inputs)?;
        name.require_rank(0)?;
        Ok(Vec::new())
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (table, name) = (table(ctx)?, ctx.input(1));
        if name.dtype() != DType::String || name.n_elements() != 1 {
            return invalid!("filename should be a single string, but got shape {}", name.shape());
        }
        let name = name.strings().get(0);
        let (key, value) = table.dtypes();
        check_part("Key", self.key, key)?;
        check_part("Value", self.value, value)?;
        let text = ctx.env().files.read(name)?;
        let _booked = Booked::new(text.len())?;
        let file = String::from_utf8_lossy(name);
        let lines = self.lines(&text, &file)?;
        let keys = self.column(&lines, self.key, key, &file)?;
        let values = self.column(&lines, self.value, value, &file)?;
        table.insert(&keys.view(), &values.view())
    }
}

impl FromTextFile {
    /// The lines that are meant, without their ends.
    fn lines(&self, text: &[u8], file: &str) -> Result<Strings> {
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        let mut lines = Strings::default();
        let limit = self.n_lines.unwrap_or(usize::MAX);
        let all = text.split(|byte| *byte == b'\n').filter(|_| !text.is_empty());
        for line in all.take(limit) {
            pace(32)?;
            // A carriage return is dropped wherever it stands.
            for part in line.split(|byte| *byte == b'\r') {
                lines.extend_last(part)?;
            }
            if line.iter().all(|byte| *byte == b'\r') {
                let at = lines.len();
                return invalid!("Invalid content in {file}: empty line found at line {at}.");
            }
            lines.end()?;
        }
        match self.n_lines {
            Some(expected) if expected != lines.len() => {
                let got = lines.len();
                invalid!("Invalid vocab_size in {file}: expected {expected} but got {got}")
            }
            _ => Ok(lines),
        }
    }

    /// One part of every line, as a vector.
    fn column(
        &self,
        lines: &Strings,
        part: TextFilePart,
        dtype: DType,
        file: &str,
    ) -> Result<Tensor> {
        let shape = Shape::of(&[lines.len()]);
        let at = match part {
            TextFilePart::Number => {
                let numbers =
                    (0..lines.len() as i64).map(|number| number.wrapping_add(self.offset));
                return Ok(Tensor::from_slice(shape, &BookedVec::collect(numbers)?)?);
            }
            TextFilePart::Line => {
                return Ok(Tensor::from_strings(shape, lines.try_clone()?)?);
            }
            TextFilePart::Column(at) => at,
        };
        let mut fields = BookedVec::with_capacity(lines.len())?;
        for (number, line) in lines.iter().enumerate() {
            pace(32)?;
            let mut columns = line.split(|byte| *byte == self.delimiter);
            let Some(field) = columns.nth(at) else {
                let got = line.split(|byte| *byte == self.delimiter).count();
                return invalid!(
                    "Invalid number of columns in {file} line {number} ({}) : expected at least {} \
                     got {got}",
                    String::from_utf8_lossy(line),
                    at + 1
                );
            };
            fields.push(field)?;
        }
        parse(&fields, dtype, shape)
    }
}

fn check_part(what: &str, part: TextFilePart, dtype: DType) -> Result<()> {
    match part {
        TextFilePart::Line if dtype != DType::String => {
            invalid!("{what} index for whole line requires string data type, got {dtype}")
        }
        TextFilePart::Number if dtype != DType::I64 => {
            invalid!("{what} index for line number requires int64 data type, got {dtype}")
        }
        _ => Ok(()),
    }
}

/// Fields of text as elements of a dtype.
fn parse(fields: &[&[u8]], dtype: DType, shape: Shape) -> Result<Tensor> {
    fn numbers<T: Element + std::str::FromStr>(
        fields: &[&[u8]],
        dtype: DType,
        shape: Shape,
    ) -> Result<Tensor> {
        let mut numbers = BookedVec::with_capacity(fields.len())?;
        for (line, field) in fields.iter().enumerate() {
            pace(32)?;
            let text = String::from_utf8_lossy(field);
            let Ok(number) = text.trim().parse::<T>() else {
                return invalid!("Field {text} in line {line} is not a valid {dtype}.");
            };
            numbers.push(number)?;
        }
        Ok(Tensor::from_slice(shape, &numbers)?)
    }
    match dtype {
        DType::String => Ok(Tensor::from_strings(shape, Strings::copied(fields.iter().copied())?)?),
        DType::I32 => numbers::<i32>(fields, dtype, shape),
        DType::I64 => numbers::<i64>(fields, dtype, shape),
        DType::F32 => numbers::<f32>(fields, dtype, shape),
        DType::F64 => numbers::<f64>(fields, dtype, shape),
        other => invalid!("Data type {other} not supported."),
    }
}
