//! `StringFormat`: tensors put into a text, as `tf.strings.format` and assertions do.
//!
//! Follows `string_format_op.cc` and `Tensor::SummarizeValue` of TensorFlow.

use half::{bf16, f16};

use super::printf::{Format, Notation};
use crate::prelude::*;

pub(super) const DEF: OpDef = OpDef::pure("StringFormat", RowRule::Mixed, |attrs| {
    let bytes = |name, default: &'static [u8]| {
        if attrs.has(name) { attrs.bytes(name).map(<[u8]>::to_vec) } else { Ok(default.to_vec()) }
    };
    let (template, placeholder) = (bytes("template", b"%s")?, bytes("placeholder", b"%s")?);
    let mut pieces = vec![Vec::new()];
    let mut rest = &template[..];
    if placeholder.is_empty() && !template.is_empty() {
        // Nothing stands between any two bytes.
        pieces = template.iter().map(|byte| vec![*byte]).collect();
        rest = &[];
    }
    while let Some((first, tail)) = rest.split_first() {
        match rest.strip_prefix(&placeholder[..]) {
            Some(after) => {
                pieces.push(Vec::new());
                rest = after;
            }
            None => {
                pieces.last_mut().expect("there is always a piece").push(*first);
                rest = tail;
            }
        }
    }
    let n_inputs = attrs.dtypes("T")?.len();
    if pieces.len() != n_inputs + 1 {
        return invalid!(
            "num placeholders in template and num inputs must match: {} vs. {n_inputs}",
            pieces.len() - 1
        );
    }
    let n_shown = usize::try_from(attrs.int_or("summarize", 3)?).ok();
    Ok(Box::new(StringFormat { pieces, n_shown }))
});

struct StringFormat {
    /// The text around the inputs.
    pieces: Vec<Vec<u8>>,
    /// The number of elements that are shown at each end of a dimension; all if none.
    n_shown: Option<usize>,
}

impl Op for StringFormat {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        if inputs.len() + 1 != self.pieces.len() {
            return invalid!("expected {} inputs but got {}", self.pieces.len() - 1, inputs.len());
        }
        Ok(vec![Spec::scalar(DType::String)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let mut text = BookedVec::from_slice(&self.pieces[0])?;
        for (input, piece) in ctx.inputs().iter().zip(&self.pieces[1..]) {
            let mut summary = Summary { tensor: *input, n_shown: self.n_shown, out: &mut text };
            match input.dtype() {
                dtype if !is_printable(dtype) => summary.write_marks()?,
                _ if summary.shows_nothing() => summary.abbreviate()?,
                _ => summary.write(0, 0)?,
            }
            text.extend_from_slice(piece)?;
        }
        let text = Strings::copied(std::iter::once(&text[..]))?;
        ctx.set_output(0, Tensor::from_strings(Shape::scalar(), text)?)
    }
}

/// A tensor being written in brackets.
struct Summary<'a> {
    tensor: View<'a>,
    n_shown: Option<usize>,
    out: &'a mut BookedVec<u8>,
}

impl Summary<'_> {
    fn shows_nothing(&self) -> bool {
        self.tensor.n_elements() == 0 || self.n_shown == Some(0)
    }

    /// Writes what TensorFlow writes if there is nothing to show.
    fn abbreviate(&mut self) -> Result<()> {
        let shape = self.tensor.shape();
        let text = match shape.first() {
            _ if self.tensor.dtype() == DType::Bool => String::new(),
            None => "...".to_owned(),
            Some(0) => "[]".to_owned(),
            Some(_) => format!("[{}...]", gap(shape.rank(), 0)),
        };
        Ok(self.out.extend_from_slice(text.as_bytes())?)
    }

    /// Writes a mark for each element, in one row whatever the shape.
    fn write_marks(&mut self) -> Result<()> {
        let n = self.tensor.n_elements();
        let n_shown = self.n_shown.map_or(n, |shown| shown.min(n));
        let is_scalar = self.tensor.shape().rank() == 0;
        self.out.extend_from_slice(if is_scalar { b"" } else { b"[" })?;
        for i in 0..n_shown {
            pace(32)?;
            self.out.extend_from_slice(if i > 0 { b" ?" } else { b"?" })?;
        }
        self.out.extend_from_slice(if n_shown < n { b"..." } else { b"" })?;
        Ok(self.out.extend_from_slice(if is_scalar { b"" } else { b"]" })?)
    }

    /// Writes the part along `axis` and behind it that starts at element `start`.
    fn write(&mut self, axis: usize, start: usize) -> Result<()> {
        let shape = self.tensor.shape();
        if axis == shape.rank() {
            return self.element(start);
        }
        let size = shape[axis];
        let stride = shape.strides()[axis];
        let gap = gap(shape.rank(), axis);
        let hidden = match self.n_shown {
            Some(n) if size > 2 * n => n..size - n,
            _ => 0..0,
        };
        self.out.push(b'[')?;
        for i in 0..size {
            if hidden.contains(&i) && i > hidden.start {
                continue;
            }
            if i > 0 {
                self.out.extend_from_slice(gap.as_bytes())?;
            }
            if hidden.contains(&i) {
                self.out.extend_from_slice(b"...")?;
            } else {
                self.write(axis + 1, start + i * stride)?;
            }
        }
        Ok(self.out.push(b']')?)
    }

    fn element(&mut self, at: usize) -> Result<()> {
        let tensor = &self.tensor;
        macro_rules! pick {
            ($T:ty) => {
                tensor.as_slice::<$T>()[at]
            };
        }
        let text = match tensor.dtype() {
            DType::String => {
                return Ok(escape(tensor.strings().get(at), self.out)?);
            }
            DType::F32 => float(pick!(f32)),
            DType::F16 => float(pick!(f16).into()),
            DType::BF16 => float(pick!(bf16).into()),
            DType::F64 => double(pick!(f64)),
            DType::Bool | DType::U8 => pick!(u8).to_string(),
            DType::I8 => pick!(i8).to_string(),
            DType::I16 => pick!(i16).to_string(),
            DType::I32 => pick!(i32).to_string(),
            DType::I64 => pick!(i64).to_string(),
            DType::U16 => pick!(u16).to_string(),
            DType::U32 => pick!(u32).to_string(),
            DType::U64 => pick!(u64).to_string(),
            _ => "?".to_owned(),
        };
        Ok(self.out.extend_from_slice(text.as_bytes())?)
    }
}

/// Returns whether TensorFlow writes elements of a dtype as they are.
fn is_printable(dtype: DType) -> bool {
    let is_float = matches!(dtype, DType::F16 | DType::BF16 | DType::F32 | DType::F64);
    let is_signed = matches!(dtype, DType::I8 | DType::I16 | DType::I32 | DType::I64);
    let is_unsigned = matches!(dtype, DType::U8 | DType::U16 | DType::U32 | DType::U64);
    is_float || is_signed || is_unsigned || matches!(dtype, DType::Bool | DType::String)
}

/// Returns the text between two parts along `axis`: inner parts stand below each other, with as
/// many blank lines as they have dimensions.
fn gap(rank: usize, axis: usize) -> String {
    match rank - 1 - axis {
        0 => " ".to_owned(),
        n_lines => format!("{}{}", "\n".repeat(n_lines), " ".repeat(axis + 1)),
    }
}

/// Six digits if they are enough to read the number back, else nine.
fn float(value: f32) -> String {
    let short = digits(value.into(), 6);
    if short.parse() == Ok(value) || !value.is_finite() { short } else { digits(value.into(), 9) }
}

/// Fifteen digits if they are enough to read the number back, else seventeen.
fn double(value: f64) -> String {
    let short = digits(value, 15);
    if short.parse() == Ok(value) || !value.is_finite() { short } else { digits(value, 17) }
}

fn digits(value: f64, precision: usize) -> String {
    let format =
        Format { precision: Some(precision), notation: Notation::Shortest, ..Format::default() };
    format.float(value)
}

/// Writes a string in quotes, with what is not printable escaped as in C; UTF-8 stays.
fn escape(string: &[u8], out: &mut BookedVec<u8>) -> device::Result<()> {
    out.push(b'"')?;
    for byte in string {
        match byte {
            b'\n' => out.extend_from_slice(b"\\n")?,
            b'\r' => out.extend_from_slice(b"\\r")?,
            b'\t' => out.extend_from_slice(b"\\t")?,
            b'"' | b'\'' | b'\\' => out.extend_from_slice(&[b'\\', *byte])?,
            0x20..=0x7e | 0x80..=0xff => out.push(*byte)?,
            _ => out.extend_from_slice(format!("\\{byte:03o}").as_bytes())?,
        }
    }
    out.push(b'"')
}
