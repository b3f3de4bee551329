//! Tensors and examples in JSON, read and written as TensorFlow Serving does (`json_tensor.cc`).
//!
//! Requests are read straight into typed elements, without a tree of values in between and without
//! recursion: first in one pass that gives up at anything out of the ordinary, then, if need be, in
//! two that find out what it is.
//!
//! It knows neither signatures nor requests: names and specs come in ([`Inputs`]), tensors go out.

#![forbid(unsafe_code)]
#![allow(clippy::wildcard_enum_match_arm, reason = "there are thirty dtypes, and kinds of values")]

mod base64;
pub mod cost;
mod cursor;
mod elements;
pub mod examples;
mod fast;
mod float;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod inputs;
mod number;
mod predict;
mod pretty;
mod quote;
mod scan;
mod syntax;
#[cfg(test)]
mod tests;
pub mod write;

use status::Result;
use tensor::Tensor;

pub use inputs::{Input, Inputs};
pub use predict::{Format, Request};

/// Writes the outputs of a `Predict`, in the format of its inputs.
pub fn write_outputs(outputs: &[(String, Tensor)], format: Format) -> Result<Vec<u8>> {
    write::outputs(outputs, format)
}
