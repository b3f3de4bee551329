//! The meaning of each TensorFlow op: attributes, shape inference and CPU kernel. This crate knows
//! nothing of graphs or models.
//!
//! An op is one file in its family's folder (`nn/softmax.rs`) and one line in that family's `OPS`.
//! The way to write one: a kernel on slices, an `impl Op` that checks and dispatches, a `DEF` with
//! its [`Facts`].
#![forbid(unsafe_code)]
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
mod facts;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
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
mod order;
mod outputs;
mod parse;
mod pieces;
mod prelude;
mod random;
mod registry;
mod resources;
mod scratch;
mod seq;
mod sizes;
mod sparse;
mod state;
mod text;
mod usage;
mod walk;

pub use attrs::Attrs;
pub use cancel::Cancel;
pub use control::join;
pub use ctx::{Ctx, Made, Output, Room};
pub use env::{Env, Files, Frame, Functions, NoFiles, NoFunctions, Observer, Ready};
pub use error::{Error, Result};
pub use facts::{Cost, Facts, FunctionCall, PassThrough, RowRule, VariableAccess};
pub use kernels::{instruction_set, instruction_sets, use_instruction_set};
pub use list::item_shape;
pub use lookup::table::Table;
pub use op::{Kind, Op, OpDef, Packed, ReadyOp};
pub use outputs::{OutputArg, OutputCount, outputs};
pub use registry::{FAMILIES, Family, all, find};
pub use resources::Resources;
pub use state::{REF_OPS, Variable};
pub use usage::{Usage, usage};
