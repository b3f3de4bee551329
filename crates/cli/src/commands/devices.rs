//! `tensord devices`: shows the devices of this machine.

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use config::Flags;
use server::say;

use crate::table::Perform;

/// Show the devices, and what the flags make of them
///
/// Prints JSON: the page that a server has at /v1/devices. The flags are those of `serve`.
#[derive(Debug, Parser)]
#[command(next_line_help = true)]
pub(crate) struct Devices {
    #[command(flatten)]
    flags: Flags,
}

impl Perform for Devices {
    fn perform(self) -> Result<ExitCode> {
        say!("{}", pages::print(&server::devices_page(&self.flags)?).trim_end());
        Ok(ExitCode::SUCCESS)
    }
}
