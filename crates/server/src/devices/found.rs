//! The devices that there are: the host, and the GPUs that are simulated.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use anyhow::{Result, ensure};
use device::logical::Physical;
use device::{Driver, Host, Kind, Limited, Simulated, SimulatedOptions};
use native::Pace;

use super::{DeviceOptions, PhysicalDevice, host};

/// A device and its driver, before it is limited.
pub(super) struct Found {
    pub(super) found: Physical,
    driver_name: &'static str,
    driver: Arc<dyn Driver>,
    pace: Option<Arc<Pace>>,
    played: Option<Arc<Simulated>>,
}

impl Found {
    fn new(driver: Arc<dyn Driver>, driver_name: &'static str) -> Found {
        let properties = driver.properties();
        let found = Physical {
            name: properties.name.clone(),
            kind: properties.kind,
            total_bytes: properties.capacity_bytes,
            // What others have not taken: the driver's own context is no other's.
            free_bytes: driver.available_bytes().saturating_add(driver.context_bytes()),
            compute_capability: None,
            // As CUDA says of its streams.
            priorities: (0, if properties.kind == Kind::Gpu { -5 } else { 0 }),
        };
        Found { found, driver_name, driver, pace: None, played: None }
    }

    /// The same with a limit for all of it.
    pub(super) fn limited(self, limit_bytes: u64) -> PhysicalDevice {
        let driver = Limited::new(self.driver, self.found.name.clone(), limit_bytes);
        let Found { found, driver_name, pace, played, .. } = self;
        let total_bytes = Arc::new(AtomicU64::new(found.total_bytes));
        PhysicalDevice { found, total_bytes, driver_name, driver: Arc::new(driver), pace, played }
    }
}

/// Finds the devices: the host first.
pub(super) fn find(options: &DeviceOptions) -> Result<Vec<Found>> {
    // The driver knows the machine: what the process may have of it can become more.
    let machine = Host::new("cpu:0", host::machine_bytes(&options.system_root)?);
    let mut host = Found::new(Arc::new(machine), "host");
    host.found.total_bytes = host::host_bytes(&options.system_root)?;
    host.found.free_bytes = host.found.total_bytes;
    let mut found = vec![host];
    for (number, gpu) in options.simulated_gpus.iter().enumerate() {
        let name = format!("gpu:{number}");
        let context_bytes = context(options, &name, gpu.bytes)?;
        let played = SimulatedOptions { context_bytes, ..SimulatedOptions::gpu(name, gpu.bytes) };
        let driver = Arc::new(Simulated::new(played));
        let pace = Some(Arc::new(Pace::new(gpu.simulation.rates)));
        let played = Some(Arc::clone(&driver));
        found.push(Found { pace, played, ..Found::new(driver, "simulated") });
    }
    Ok(found)
}

/// The bytes that the driver of a played GPU takes for itself: what was said of it last.
fn context(options: &DeviceOptions, name: &str, bytes: u64) -> Result<u64> {
    let simulations = options.simulations();
    let of = simulations.iter().filter(|(of, _)| of == name);
    let context = of.filter_map(|(_, simulation)| simulation.context_bytes).next_back();
    let context = context.unwrap_or(0);
    ensure!(
        context <= bytes,
        "{name} has {bytes} bytes: its context cannot take {context} of them"
    );
    Ok(context)
}
