//! A dtype, a shape and a buffer; views for kernels, specs for inference, and the way to and from
//! `TensorProto`. It knows nothing of ops or graphs.
#![forbid(unsafe_code)]
#![allow(clippy::wildcard_enum_match_arm, reason = "there are thirty dtypes")]

mod dim;
mod dtype;
mod element;
mod error;
mod handle;
mod proto;
mod shape;
mod spec;
mod strings;
mod tensor;
mod view;

pub use dim::{Dim, Symbol};
pub use dtype::DType;
pub use element::Element;
pub use error::{Error, Result};
pub use handle::Handle;
pub use proto::{Layout, dims_from_proto, proto_dtype};
pub use shape::Shape;
pub use spec::{Items, ListSpec, Spec, Value};
pub use strings::Strings;
pub use tensor::Tensor;
pub use view::{View, ViewMut};
