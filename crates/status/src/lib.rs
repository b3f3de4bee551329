//! The code and the message of a failure, and the one map to the codes of gRPC and HTTP.
//!
//! Any crate may use it. A crate with an `Error` of its own has one exhaustive `code()` beside it,
//! which says the [`Code`] of each variant; everything above passes a [`Status`] on as it is.
#![forbid(unsafe_code)]

mod code;
mod nearest;
mod status;

pub use code::Code;
pub use nearest::nearest;
pub use status::{Result, Status, clipped};
