//! What each TensorFlow op means: attributes, shape inference and CPU kernel. It knows nothing of
//! graphs or models.
//!
//! An op is one file in its family's folder (`nn/softmax.rs`) and one line in that family's `OPS`.
//! The way to write one: a kernel on slices, an `impl Op` that checks and dispatches, a `DEF`.
#![deny(unsafe_code)]
#![allow(
    clippy::wildcard_enum_match_arm,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "kernels match on thirty dtypes and convert between number types as TensorFlow does"
)]

mod array;
mod attrs;
mod audio;
mod cancel;
mod combine;
mod control;
mod ctx;
mod dispatch;
mod env;
mod error;
mod hash;
mod image;
mod infer;
mod linalg;
mod list;
mod lookup;
mod math;
mod moves;
mod nn;
mod op;
mod parse;
mod pieces;
mod prelude;
mod random;
mod registry;
mod resources;
mod scratch;
mod seq;
mod simd;
mod sizes;
mod sparse;
mod state;
mod text;
mod walk;

pub use attrs::Attrs;
pub use cancel::Cancel;
pub use control::join;
pub use ctx::{Ctx, Made, Output, Room};
pub use env::{Env, Files, Frame, Functions, NoFiles, NoFunctions, Observer, Ready};
pub use error::{Error, Result};
pub use list::item_shape;
pub use lookup::table::Table;
pub use op::{Kind, Op, OpDef, Packed, ReadyOp};
pub use registry::{all, find};
pub use resources::Resources;
pub use simd::{instruction_set, instruction_sets, use_instruction_set};
pub use state::{REF_OPS, Variable};
