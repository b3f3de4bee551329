//! The program: from the words on its command line to a command. `server` serves; the other
//! commands are here, one file each.
#![forbid(unsafe_code)]
#![allow(
    clippy::wildcard_enum_match_arm,
    clippy::disallowed_methods,
    reason = "this crate talks to the terminal and reads the environment; there are many dtypes"
)]

mod arguments;
mod commands;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod help;
#[doc(hidden)]
pub mod npz;
mod program;
mod table;

pub use program::main;
