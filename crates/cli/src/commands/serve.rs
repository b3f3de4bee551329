//! `tensord serve`, also without its name: serves models.

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use config::{Flags, Persona};

use crate::table::Perform;

/// Serve models over gRPC and REST
///
/// The command may be left out: `tensord DIR` serves a SavedModel, a model with versions or a
/// folder of models. Flags and their defaults are those of TensorFlow Serving. Underscores in
/// flags may be typed as hyphens.
#[derive(Debug, Parser)]
#[command(version, next_line_help = true)]
pub(crate) struct Serve {
    #[command(flatten)]
    pub(crate) flags: Flags,
}

impl Perform for Serve {
    fn perform(self) -> Result<ExitCode> {
        server::serve(Persona::Tensord, &self.flags)
    }
}
