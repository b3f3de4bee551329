//! `tensord devices`: shows the devices, and what the flags make of them.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use pool::Pool;

use crate::active::Active;
use crate::devices::{DeviceOptions, Devices, LaneOptions};
use crate::external::External;
use crate::flags::Flags;
use crate::memory;

/// Runs the command.
pub(crate) fn main(flags: &Flags) -> Result<()> {
    let devices = find(flags, 1, Arc::default())?;
    let mut page = memory::devices(&devices);
    External::start(&DeviceOptions::new(flags)?, None, devices)?.add_devices(&mut page);
    say!("{page:#}");
    Ok(())
}

/// The devices as the flags configure them, with so many lanes each where no config says it.
pub(super) fn find(flags: &Flags, n_lanes: usize, active: Arc<Active>) -> Result<Arc<Devices>> {
    let (inline_max, pool) = (Duration::ZERO, Arc::new(Pool::new(1)));
    let lanes = LaneOptions { n_lanes, inline_max, run_max: None, pool };
    let devices = Devices::start(&DeviceOptions::new(flags)?, &lanes, active)?;
    devices.warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));
    Ok(devices)
}
