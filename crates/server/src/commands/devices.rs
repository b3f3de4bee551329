//! `tensord devices`: shows the devices, and what the flags make of them.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use config::Flags;
use pages::DevicesPage;
use pool::Pool;
use proto::serving::ModelConfig;

use crate::active::Active;
use crate::devices::{DeviceOptions, Devices, LaneOptions};
use crate::external::External;
use crate::memory;

/// The page of the devices that these flags make.
///
/// # Errors
/// If the flags or the files they name are wrong, or a device cannot be started.
pub fn devices_page(flags: &Flags) -> Result<DevicesPage> {
    let devices = find(flags, 1, &[])?;
    let mut page = memory::devices(&devices);
    External::start(&DeviceOptions::new(flags)?, None, devices)?.add_devices(&mut page);
    Ok(page)
}

/// The devices as the flags configure them, with so many lanes each where no config says it, for
/// these models.
///
/// # Errors
/// If the flags or the files they name are wrong, or a device cannot be started.
pub fn find(flags: &Flags, n_lanes: usize, models: &[ModelConfig]) -> Result<Arc<Devices>> {
    let active = Arc::new(Active::default());
    drop(active.replace(models));
    let (inline_max, pool) = (Duration::ZERO, Arc::new(Pool::new(1)));
    let lanes = LaneOptions { n_lanes, inline_max, run_max: None, pool };
    let devices = Devices::start(&DeviceOptions::new(flags)?, &lanes, active)?;
    devices.warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));
    Ok(devices)
}
