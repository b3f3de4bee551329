//! Fills the page of devices.

use device::Driver as _;
use device::logical::GrowthRule;
use pages::{DeviceKind, DevicesPage, GrowthMode, LogicalEntry, PhysicalEntry, SimulationRates};

use crate::devices::{Devices, Logical, PhysicalDevice};

/// The devices that were found, and the logical devices made of them.
pub(crate) fn devices(devices: &Devices) -> DevicesPage {
    DevicesPage {
        physical: devices.physical.iter().map(physical).collect(),
        logical: devices.all().iter().map(|one| logical(devices, one)).collect(),
        warnings: devices.warnings.iter().map(ToString::to_string).collect(),
    }
}

fn physical(one: &PhysicalDevice) -> PhysicalEntry {
    PhysicalEntry {
        name: one.found.name.clone(),
        kind: kind(one.found.kind),
        driver: one.driver_name.to_owned(),
        engine: None,
        description: None,
        uuid: None,
        total_bytes: one.total_bytes(),
        limit_bytes: Some(one.driver.limit_bytes()),
        held_bytes: one.driver.account().held_bytes(),
        context_bytes: Some(one.driver.context_bytes()),
        simulation: simulation(one),
    }
}

fn simulation(one: &PhysicalDevice) -> Option<SimulationRates> {
    let rates = one.pace.as_ref()?.rates();
    Some(SimulationRates {
        flops_per_second: rates.flops_per_second,
        copy_bytes_per_second: rates.copy_bytes_per_second,
        launch_nanos: u64::try_from(rates.launch.as_nanos()).unwrap_or(u64::MAX),
        refused_bytes: one.played.as_ref().map_or(0, |played| played.refused_bytes()),
    })
}

fn logical(devices: &Devices, one: &Logical) -> LogicalEntry {
    let device = one.device.lock();
    LogicalEntry {
        name: device.name.clone(),
        kind: kind(one.space.kind()),
        physical: devices.physical[device.physical].found.name.clone(),
        engine: None,
        limit_bytes: one.space.account().limit_bytes(),
        limit_setting: device.limit_by.to_owned(),
        promised_bytes: None,
        growth: growth(device.growth),
        growth_setting: device.growth_by.to_string(),
        priority: device.priority,
        lanes: Some(one.executor.lanes.n_lanes()),
        fails_in: one.space.faults().fails_in(),
    }
}

/// The kind of a device, as pages say it.
pub(super) fn kind(kind: device::Kind) -> DeviceKind {
    match kind {
        device::Kind::Cpu => DeviceKind::Cpu,
        device::Kind::Gpu => DeviceKind::Gpu,
    }
}

/// The way a device takes its memory, as pages say it.
pub(crate) fn growth(rule: GrowthRule) -> GrowthMode {
    match rule {
        GrowthRule::OnDemand => GrowthMode::OnDemand,
        GrowthRule::Reserved => GrowthMode::Reserved,
    }
}
