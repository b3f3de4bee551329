//! Turns a `GraphDef` into a plan and runs the plan. It knows nothing of files, signatures or
//! batching.
//!
//! The way of a graph:
//!
//! 1. [`Source`] indexes the nodes and functions of a `GraphDef`.
//! 2. [`Source::trace`] follows the fetches back to the feeds, puts function bodies in place of
//!    their calls, and gives a flat [`Graph`] in an order that respects every dependency.
//! 3. [`Program::build`] binds variables, folds what does not depend on the feeds and runs the
//!    passes; [`pack`] then packs the weights of all programs.
//! 4. A program makes a [`Plan`] for each combination of input shapes it meets, in a bounded cache:
//!    shapes inferred, size arithmetic folded away, every tensor at its offset.
//! 5. [`Program::run`] runs the plan, step by step.
#![forbid(unsafe_code)]
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "attribute values and dtypes have many variants"
)]

mod adopt;
mod captures;
mod digest;
mod error;
mod fold;
mod functions;
mod graph;
mod infer;
mod merge;
mod pack;
mod passes;
mod plan;
mod program;
mod ready;
mod reference;
mod rows;
mod run;
mod scaled;
mod searches;
mod source;
mod specialise;
mod trace;
mod variables;
mod wide;

pub use adopt::Adoption;
pub use digest::mark;
pub use error::{Error, MissingOps, Result};
pub use functions::Library;
pub use graph::{Graph, Node, Port};
pub use pack::pack;
pub use plan::{Homes, Plan, Room, StepSnapshot};
pub use program::{Bindings, Build, Options, Program, fits};
pub use rows::{Mixing, ROWS};
pub use searches::Searches;
pub use source::{Request, Source};
pub use variables::{VariableUse, variables};
