//! What can be wrong with a tensor.

use crate::{DType, Shape};

/// A refusal of this crate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The dimensions multiply to more than memory can address.
    #[error("a tensor of dtype {dtype} and shape {dims:?} is too large")]
    TooLarge {
        /// Its dtype.
        dtype: DType,
        /// Its dimensions.
        dims: Vec<i64>,
    },
    /// A dimension is below zero.
    #[error("shape {dims:?} has a negative dimension")]
    NegativeDim {
        /// The dimensions.
        dims: Vec<i64>,
    },
    /// The values do not fit the shape.
    #[error("{got} elements do not fill shape {shape}, which has {}", shape.n_elements())]
    WrongCount {
        /// The shape.
        shape: Shape,
        /// The number of elements given.
        got: usize,
    },
    /// A `TensorProto` that cannot be a tensor.
    #[error("malformed TensorProto: {reason}")]
    Proto {
        /// What is wrong with it.
        reason: String,
    },
    /// There is no memory for it.
    #[error(transparent)]
    Memory(#[from] device::Error),
}

/// The result of this crate's calls.
pub type Result<T> = std::result::Result<T, Error>;
