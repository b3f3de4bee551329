//! Devices and versions for tests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use device::logical::{LogicalDevice, Physical, configure_rules};
use device::{Driver, Host, Kind, Limited, Owner, Simulated, Space, SpaceOptions};
use parking_lot::Mutex;

use crate::{
    Demand, Needed, OwnDevice, Placement, Resident, ServedModel, Version, WeightKey, Within,
};

pub(crate) const MIB: u64 = 1 << 20;

/// A version whose memory is held by anything that is dropped when it goes.
#[derive(Default)]
pub(crate) struct Fake {
    pub(crate) on: Mutex<BTreeMap<String, Box<dyn Send>>>,
}

impl Version for Fake {
    fn serves_on(&self) -> Option<Vec<String>> {
        let on = self.on.lock();
        (!on.is_empty()).then(|| on.keys().cloned().collect())
    }
}

/// A host of 64 MiB, and GPUs of so many MiB, with so many lanes each.
pub(crate) fn placement_on(gpus_mib: &[u64], n_lanes: usize) -> Placement<Fake> {
    let placement = Placement::default();
    let host = Arc::new(Host::new("cpu:0", 64 * MIB)) as Arc<dyn Driver>;
    let gpus = gpus_mib.iter().enumerate().map(|(number, mib)| {
        Arc::new(Simulated::gpu(format!("gpu:{number}"), mib * MIB)) as Arc<dyn Driver>
    });
    let drivers: Vec<Arc<dyn Driver>> = [host].into_iter().chain(gpus).collect();
    let physical: Vec<Physical> = drivers.iter().map(|driver| physical(&**driver)).collect();
    let devices = configure_rules(&[], &physical, None).expect("nothing is wrong");
    let devices = devices.devices.into_iter();
    let own = devices.zip(drivers).map(|(device, driver)| own_device(device, driver, n_lanes));
    placement.own().replace(own.collect());
    placement
}

fn physical(driver: &dyn Driver) -> Physical {
    let properties = driver.properties();
    Physical {
        name: properties.name.clone(),
        kind: properties.kind,
        total_bytes: properties.capacity_bytes,
        free_bytes: properties.capacity_bytes,
        compute_capability: None,
        priorities: (0, if properties.kind == Kind::Gpu { -5 } else { 0 }),
    }
}

fn own_device(device: LogicalDevice, driver: Arc<dyn Driver>, n_lanes: usize) -> Arc<OwnDevice> {
    let total_bytes = Arc::new(AtomicU64::new(driver.properties().capacity_bytes));
    let driver = Arc::new(Limited::new(driver, device.name.clone(), device.limit_bytes));
    let physical = Arc::clone(driver.account());
    let (growth, step_bytes, context_bytes) = (device.growth, MIB, 0);
    let options = SpaceOptions { driver, physical, growth, step_bytes, context_bytes };
    let space: Arc<Space> = Space::new(options).expect("there is room");
    Arc::new(OwnDevice { device: parking_lot::Mutex::new(device), space, n_lanes, total_bytes })
}

/// A version that needs so many MiB of a device, and of the host beside it, and whose weights
/// nobody else has.
pub(crate) fn demand(model: &str, mib: u64, host_mib: u64) -> Demand {
    Demand {
        model: model.into(),
        version: 1,
        needed: Needed { bytes: mib * MIB, host_bytes: host_mib * MIB, ..Needed::default() },
        keys: vec![WeightKey { checksum: u32::from(model.as_bytes()[0]), bytes: mib * MIB }],
        keeps_state: false,
        within: Within::Devices,
    }
}

pub(crate) fn admit(placement: &Placement<Fake>, demand: Demand) -> Arc<Resident<Fake>> {
    placement.admit(demand, Fake::default())
}

/// Says that models of these names are to be served, and nothing else of them.
pub(crate) fn serve_plainly<'a>(placement: &Placement<Fake>, names: impl Iterator<Item = &'a str>) {
    let models = names.map(|name| (name.to_owned(), ServedModel::plain()));
    placement.models().replace(models);
}

/// The owner of a lease on one of our own devices.
pub(crate) fn owner(lease: &crate::Lease) -> &Arc<Owner> {
    lease.owner.as_ref().expect("our own devices have owners")
}
