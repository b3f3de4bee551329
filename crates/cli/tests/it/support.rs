//! The programs under test, and what `servertest` gives to run them.

use std::process::Command;

pub(crate) use servertest::{
    Server, ask, block_on, check_half_plus_two, copy, half_plus_two, model_with_versions, root,
    until, until_some,
};
pub(crate) use testkit::zoo::python;

/// The binary called `tensord`.
pub(crate) fn tensord() -> Command {
    Command::new(env!("CARGO_BIN_EXE_tensord"))
}

/// The binary under TensorFlow Serving's name.
pub(crate) fn model_server() -> Command {
    Command::new(env!("CARGO_BIN_EXE_tensorflow_model_server"))
}
