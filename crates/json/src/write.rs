//! Answers as JSON, in the layout of TensorFlow Serving's `json_tensor.cc`, byte for byte.

use proto::serving::{ClassificationResult, RegressionResult};
use status::{Result, Status};
use tensor::{DType, Tensor};

use super::base64;
use super::float::{write_f32, write_f64};
use super::predict::Format;
use super::pretty::{Lists, Pretty};

/// String outputs whose names end so are written as base64.
const BYTES_SUFFIX: &str = "_bytes";

const RESULTS: &[u8] = b"results";

/// The most lists that are written for a tensor without elements: its shape may be of any size.
const EMPTY_LISTS_MAX: usize = 1 << 20;

/// The outputs of a `Predict`, in the format of its inputs.
pub fn outputs(outputs: &[(String, Tensor)], format: Format) -> Result<Vec<u8>> {
    if outputs.is_empty() {
        return Err(Status::invalid("Cannot convert empty tensor map to JSON"));
    }
    match format {
        Format::Row => rows(outputs),
        Format::Columnar => columns(outputs),
    }
}

/// The outputs as a list of instances.
fn rows(outputs: &[(String, Tensor)]) -> Result<Vec<u8>> {
    let n_instances = batch_size(outputs)?;
    let n_bytes = outputs_bytes(outputs, Format::Row);
    let mut out = Pretty::with_capacity(Lists::ManyLines, n_bytes);
    out.start_object();
    out.string(b"predictions");
    out.start_list();
    for instance in 0..n_instances {
        if outputs.len() > 1 {
            out.start_object();
        }
        out.set_lists(Lists::OneLine);
        for (name, tensor) in outputs {
            if outputs.len() > 1 {
                out.string(name.as_bytes());
            }
            let mut at = tensor.n_elements() / n_instances * instance;
            WriteValues::new(name, tensor)?.write(&mut out, &tensor.shape()[1..], &mut at);
        }
        out.set_lists(Lists::ManyLines);
        if outputs.len() > 1 {
            out.end_object();
        }
    }
    out.end_list();
    out.end_object();
    debug_assert!(out.len() <= n_bytes, "{} bytes, not {n_bytes}", out.len());
    Ok(out.into_bytes())
}

/// The size that all outputs have in their first dimension.
fn batch_size(outputs: &[(String, Tensor)]) -> Result<usize> {
    let mut batch_size = None;
    for (name, tensor) in outputs {
        let Some(size) = tensor.shape().first().copied() else {
            let text = format!("Tensor name: {name} has no shape information ");
            return Err(Status::invalid(text));
        };
        let expected = *batch_size.get_or_insert(size);
        if size != expected {
            return Err(Status::invalid(format!(
                "Tensor name: {name} has inconsistent batch size: {size} expecting: {expected}"
            )));
        }
    }
    Ok(batch_size.unwrap_or(0))
}

/// Each output as a whole.
fn columns(outputs: &[(String, Tensor)]) -> Result<Vec<u8>> {
    let n_bytes = outputs_bytes(outputs, Format::Columnar);
    let mut out = Pretty::with_capacity(Lists::ManyLines, n_bytes);
    out.start_object();
    out.string(b"outputs");
    if outputs.len() > 1 {
        out.start_object();
    }
    for (name, tensor) in outputs {
        if outputs.len() > 1 {
            out.string(name.as_bytes());
        }
        WriteValues::new(name, tensor)?.write(&mut out, tensor.shape(), &mut 0);
    }
    if outputs.len() > 1 {
        out.end_object();
    }
    out.end_object();
    debug_assert!(out.len() <= n_bytes, "{} bytes, not {n_bytes}", out.len());
    Ok(out.into_bytes())
}

/// The most bytes that the outputs of a `Predict` are long.
pub fn outputs_bytes(outputs: &[(String, Tensor)], format: Format) -> usize {
    // An indent for each list and object around, a line's end and a comma.
    let line = |depth: usize| 4 * (depth + 3) + 3;
    let of = |(name, tensor): &(String, Tensor)| {
        let (shape, rank) = (tensor.shape(), tensor.shape().rank());
        let n_lists = n_lists(tensor);
        let (n_names, beside) = match format {
            Format::Row => (shape.first().copied().unwrap_or(1), 3),
            Format::Columnar => (1, line(rank)),
        };
        let names = n_names.saturating_mul(6 * name.len() + 2 * line(2) + 8);
        let elements = element_bytes(tensor, beside);
        names.saturating_add(elements).saturating_add(n_lists.saturating_mul(2 * beside + 2))
    };
    outputs.iter().map(of).fold(128, usize::saturating_add)
}

/// The number of lists that a tensor is written as. Of one without elements no more are counted
/// than are written.
fn n_lists(tensor: &Tensor) -> usize {
    let outer = tensor.shape().rank().saturating_sub(1);
    let mut lists = 1usize;
    let mut sum = 1usize;
    for size in tensor.shape().iter().take(outer) {
        lists = lists.saturating_mul(*size);
        sum = sum.saturating_add(lists);
    }
    if tensor.n_elements() == 0 { sum.min(2 * EMPTY_LISTS_MAX + outer) } else { sum }
}

/// The most bytes that the elements of a tensor are long, with `beside` bytes around each.
fn element_bytes(tensor: &Tensor, beside: usize) -> usize {
    let width = match tensor.dtype() {
        DType::F32 => 16,
        DType::I16 | DType::I8 | DType::U8 | DType::Bool => 6,
        DType::I32 | DType::U32 => 11,
        // A string may be an object of base64, on lines of its own.
        DType::String => 16 + 4 * beside,
        _ => 25,
    };
    // A byte of a string may be an escape of six.
    let texts =
        if tensor.dtype() == DType::String { tensor.n_bytes().saturating_mul(6) } else { 0 };
    tensor.n_elements().saturating_mul(width + beside).saturating_add(texts)
}

/// The elements of a tensor that can be written.
enum WriteValues<'t> {
    F32(&'t [f32]),
    F64(&'t [f64]),
    I32(&'t [i32]),
    I16(&'t [i16]),
    I8(&'t [i8]),
    U8(&'t [u8]),
    I64(&'t [i64]),
    U32(&'t [u32]),
    U64(&'t [u64]),
    Bool(&'t [u8]),
    Strings(&'t tensor::Strings),
    Base64(&'t tensor::Strings),
    Empty,
}

impl<'t> WriteValues<'t> {
    fn new(name: &str, tensor: &'t Tensor) -> Result<Self> {
        if tensor.n_elements() == 0 {
            let n_lists = tensor.shape().iter().filter(|size| **size > 0).product::<usize>();
            if n_lists > EMPTY_LISTS_MAX {
                let text = format!("Tensor name: {name} is {n_lists} empty lists");
                return Err(Status::invalid(text));
            }
            return Ok(Self::Empty);
        }
        Ok(match tensor.dtype() {
            DType::F32 => Self::F32(tensor.as_slice()),
            DType::F64 => Self::F64(tensor.as_slice()),
            DType::I32 => Self::I32(tensor.as_slice()),
            DType::I16 => Self::I16(tensor.as_slice()),
            DType::I8 => Self::I8(tensor.as_slice()),
            DType::U8 => Self::U8(tensor.as_slice()),
            DType::I64 => Self::I64(tensor.as_slice()),
            DType::U32 => Self::U32(tensor.as_slice()),
            DType::U64 => Self::U64(tensor.as_slice()),
            DType::Bool => Self::Bool(tensor.as_slice()),
            DType::String if name.ends_with(BYTES_SUFFIX) => Self::Base64(tensor.strings()),
            DType::String => Self::Strings(tensor.strings()),
            other => {
                let text = format!("Failed to write JSON value for tensor type: {other}");
                return Err(Status::invalid(text));
            }
        })
    }

    /// Writes the elements from `at` on as nested lists of the given dimensions. Recursion is no
    /// deeper than a tensor has dimensions.
    fn write(&self, out: &mut Pretty, dims: &[usize], at: &mut usize) {
        match dims {
            [] => self.write_run(out, at, 1),
            [n_elements] => {
                out.start_list();
                self.write_run(out, at, *n_elements);
                out.end_list();
            }
            [n_lists, inner @ ..] => {
                out.start_list();
                (0..*n_lists).for_each(|_| self.write(out, inner, at));
                out.end_list();
            }
        }
    }

    /// Writes so many elements one after another.
    fn write_run(&self, out: &mut Pretty, at: &mut usize, n_elements: usize) {
        let run = *at..*at + n_elements;
        *at = run.end;
        match self {
            Self::F32(all) => out.values(&all[run], write_f32),
            Self::F64(all) => out.values(&all[run], write_f64),
            Self::I32(all) => write_integers(out, &all[run]),
            Self::I16(all) => write_integers(out, &all[run]),
            Self::I8(all) => write_integers(out, &all[run]),
            Self::U8(all) => write_integers(out, &all[run]),
            Self::I64(all) => write_integers(out, &all[run]),
            Self::U32(all) => write_integers(out, &all[run]),
            Self::U64(all) => write_integers(out, &all[run]),
            Self::Bool(all) => all[run].iter().for_each(|x| {
                out.raw(if *x == 0 { b"false" } else { b"true" });
            }),
            Self::Strings(all) => run.for_each(|index| out.string(all.get(index))),
            Self::Base64(all) => run.for_each(|index| {
                out.start_object();
                out.string(b"b64");
                out.value(|out| {
                    out.push(b'"');
                    base64::encode(all.get(index), out);
                    out.push(b'"');
                });
                out.end_object();
            }),
            Self::Empty => {}
        }
    }
}

fn write_integers<T: Copy + std::fmt::Display>(out: &mut Pretty, values: &[T]) {
    for value in values {
        out.value(|out| {
            use std::io::Write as _;
            write!(out, "{value}").expect("writing to memory does not fail");
        });
    }
}

/// The labels and scores of each example.
pub fn classifications(result: &ClassificationResult) -> Result<Vec<u8>> {
    if result.classifications.is_empty() {
        return Err(Status::invalid("Cannot convert empty ClassificationResults to JSON"));
    }
    let mut out = Pretty::new(Lists::ManyLines);
    out.start_object();
    out.string(RESULTS);
    out.start_list();
    for classifications in &result.classifications {
        out.set_lists(Lists::OneLine);
        out.start_list();
        for class in &classifications.classes {
            out.start_list();
            out.string(&class.label);
            out.value(|out| write_f32(class.score, out));
            out.end_list();
        }
        out.end_list();
        out.set_lists(Lists::ManyLines);
    }
    out.end_list();
    out.end_object();
    Ok(out.into_bytes())
}

/// The value of each example.
pub fn regressions(result: &RegressionResult) -> Result<Vec<u8>> {
    if result.regressions.is_empty() {
        return Err(Status::invalid("Cannot convert empty RegressionResults to JSON"));
    }
    let mut out = Pretty::new(Lists::OneLine);
    out.start_object();
    out.string(RESULTS);
    out.start_list();
    for regression in &result.regressions {
        out.value(|out| write_f32(regression.value, out));
    }
    out.end_list();
    out.end_object();
    Ok(out.into_bytes())
}

/// Writes the answer of a failed request.
pub fn error(message: &str, hint: Option<&str>) -> Vec<u8> {
    let mut out = Pretty::new(Lists::ManyLines);
    out.start_object();
    out.string(b"error");
    out.string(message.as_bytes());
    if let Some(hint) = hint {
        out.string(b"hint");
        out.string(hint.as_bytes());
    }
    out.end_object();
    out.into_bytes()
}
