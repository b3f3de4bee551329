//! `tensord`: serves TensorFlow SavedModels.

use std::process::ExitCode;

fn main() -> ExitCode {
    server::main(server::Persona::Tensord)
}
