//! `tensord`: serves TensorFlow SavedModels.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
