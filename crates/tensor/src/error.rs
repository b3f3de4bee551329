//! Errors of tensors.

use status::Code;

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
        /// The fault of the message.
        reason: String,
    },
    /// There is no memory for it.
    #[error(transparent)]
    Memory(#[from] device::Error),
}

/// The result of this crate's calls.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The canonical code.
    pub fn code(&self) -> Code {
        match self {
            Self::Memory(_) => Code::ResourceExhausted,
            Self::TooLarge { .. }
            | Self::NegativeDim { .. }
            | Self::WrongCount { .. }
            | Self::Proto { .. } => Code::InvalidArgument,
        }
    }
}
