//! `tensorflow_model_server`: tensord under the name, and with the manners, of what it replaces.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    server::main(server::Persona::TensorFlowModelServer)
}
