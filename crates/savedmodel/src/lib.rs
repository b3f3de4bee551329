//! Reads a SavedModel: its graph, signatures, assets and the values of its variables.
//!
//! Nothing here runs anything. A file may be damaged or hostile: it is refused with an [`Error`]
//! that names the file, the tensor and the reason, and what is allocated is bounded by what is
//! there, never by what a length field says.
#![forbid(unsafe_code)]

mod assets;
pub mod checkpoint;
mod complete;
mod error;
pub mod foreign;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod init;
mod model;
mod restore;
mod signature;
mod warmup;

pub use assets::Asset;
pub use checkpoint::Checkpoint;
pub use error::{Error, Fault, Result};
pub use model::SavedModel;
pub use restore::{Assignment, Part, Restore, Source, TableImport, VariableId, VariableKind};
pub use signature::{Endpoint, Signature};
pub use warmup::{Warmup, tfrecord};
