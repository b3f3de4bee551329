//! The devices: what was found, what was made of it, and whose memory a version is loaded in.

mod changes;
mod found;
mod host;
mod model_rules;
mod requests;
mod simulation;
mod undo;
mod versions;

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use device::logical::{self, GrowthRule, GrowthSetting, LogicalDevice, Physical};
use device::{Driver, Holder, Limited, Owner, Simulated, Space, SpaceOptions};
use native::{Executor, Pace};
use parking_lot::Mutex;
use placement::{Claim, OwnDevice, OwnDevices, Placement, Plan};
use pool::Pool;
use schedule::Lanes;

pub(crate) use config::devices::DeviceOptions;
use requests::RequestBooks;
pub(crate) use undo::Undo;
pub(crate) use versions::{Change, Left, Resident, ServedVersion, Way, serve};

use host::HostLimit;
pub(crate) use host::{host_bytes, machine_bytes};

use crate::active::Active;

/// All devices of this process.
pub struct Devices {
    /// The owner that pays on the host for what is no version's, if there is a host.
    server: Option<Arc<Owner>>,
    pub(crate) physical: Vec<PhysicalDevice>,
    logical: Mutex<Vec<Arc<Logical>>>,
    host_limit: HostLimit,
    lanes: LaneOptions,
    step_bytes: u64,
    /// The growth of GPUs of which a device config says nothing, if a flag says it.
    gpu_memory: Option<GrowthRule>,
    /// The settings that had no effect, and other things to know.
    pub(crate) warnings: Vec<String>,
    /// The configs of the models that are to be served.
    active: Arc<Active>,
    /// The versions that are on devices or look for a place.
    pub(crate) placement: Placement<ServedVersion>,
    /// Told when versions go.
    pub(crate) left: Arc<Left>,
}

/// A device that was found.
pub(crate) struct PhysicalDevice {
    pub(crate) found: Physical,
    /// The memory that it has by now: that of the host can become another.
    total_bytes: Arc<AtomicU64>,
    /// The driver: `host`, `simulated`, `cuda`.
    pub(crate) driver_name: &'static str,
    pub(crate) driver: Arc<Limited>,
    /// The simulation, if it is played.
    pub(crate) pace: Option<Arc<Pace>>,
    /// Its driver, if it is played.
    pub(crate) played: Option<Arc<Simulated>>,
}

/// A share of one, with lanes of its own.
pub struct Logical {
    own: Arc<OwnDevice>,
    pub(crate) executor: Executor,
}

impl Deref for Logical {
    type Target = OwnDevice;

    fn deref(&self) -> &OwnDevice {
        &self.own
    }
}

/// The settings of lanes.
#[derive(Clone)]
pub(crate) struct LaneOptions {
    pub(crate) n_lanes: usize,
    pub(crate) inline_max: Duration,
    pub(crate) run_max: Option<Duration>,
    pub(crate) pool: Arc<Pool>,
}

impl Devices {
    /// Finds the devices and makes of them what the options say. Buffers that no version pays for,
    /// as those of requests being read, are the server's from now on.
    pub(crate) fn start(
        options: &DeviceOptions,
        lanes: &LaneOptions,
        active: Arc<Active>,
    ) -> Result<Arc<Devices>> {
        let found = found::find(options)?;
        let descriptions: Vec<Physical> = found.iter().map(|found| found.found.clone()).collect();
        let configured = match &options.rules {
            Some(rules) => logical::configure_rules(rules, &descriptions, options.gpu.gpu_memory)?,
            None => logical::configure(&options.gpu, &options.environment, &descriptions)?,
        };
        check_lanes(&configured.devices, lanes.n_lanes)?;
        let limits = configured.physical_limit_bytes;
        let host_limit = HostLimit::new(options, limits.first().copied().unwrap_or(0));
        let physical: Vec<PhysicalDevice> =
            found.into_iter().zip(limits).map(|(found, limit)| found.limited(limit)).collect();
        let mut all = Vec::new();
        for device in configured.devices {
            let of = &physical[device.physical];
            let name = device.name.clone();
            let around = Around {
                of,
                step_bytes: options.step_bytes,
                lanes,
                host: host_among(&all),
                context_bytes: of.context_for(device.physical, &all),
            };
            let growth = growth_text(device.growth_by);
            let logical = logical(device, &around);
            all.push(Arc::new(logical.with_context(|| format!("device {name}: {growth}"))?));
        }
        let server = host_among(&all).map(|host| Owner::new(&host.space, Holder::Server, None));
        if let Some(server) = &server {
            device::set_default_owner(Arc::clone(server));
        }
        let devices = Devices {
            server,
            physical,
            logical: Mutex::default(),
            host_limit,
            lanes: lanes.clone(),
            step_bytes: options.step_bytes,
            gpu_memory: options.gpu.gpu_memory,
            warnings: (configured.warnings.iter().map(ToString::to_string))
                .chain(options.without_effect())
                .collect(),
            active,
            placement: Placement::default(),
            left: Arc::default(),
        };
        drop(devices.replace(all));
        devices.tell_models();
        devices.check_simulations(&options.simulations)?;
        devices.simulate(&options.simulations());
        let devices = Arc::new(devices);
        let told = Arc::downgrade(&devices);
        devices.active.tell_of_changes(move || {
            if let Some(devices) = told.upgrade() {
                devices.tell_models();
                devices.own().relimit();
                devices.left.changed.notify_one();
            }
        });
        Ok(devices)
    }

    /// The threads that lanes share.
    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.lanes.pool
    }

    /// The same devices, as placement sees them.
    pub fn own(&self) -> &OwnDevices {
        self.placement.own()
    }

    /// The models that are to be served, as placement was told.
    pub fn models(&self) -> &placement::Models {
        self.placement.models()
    }

    /// The places of versions that come one after another, by the same function as when they are
    /// served.
    pub fn plan(&self, claims: &[Claim]) -> Plan {
        self.placement.plan(claims)
    }

    /// Replaces the logical devices, and gives those that were there.
    fn replace(&self, all: Vec<Arc<Logical>>) -> Vec<Arc<Logical>> {
        self.own().replace(all.iter().map(|one| Arc::clone(&one.own)).collect());
        std::mem::replace(&mut *self.logical.lock(), all)
    }

    /// The logical devices, CPUs first.
    pub fn all(&self) -> Vec<Arc<Logical>> {
        self.logical.lock().clone()
    }

    /// The host: what cannot be on a GPU is there.
    pub fn host(&self) -> Option<Arc<Logical>> {
        host_among(&self.all()).cloned()
    }

    /// The budget of requests and answers: bytes of the host, whatever its limit is by then.
    pub(crate) fn requests(&self) -> api::Budget {
        let books = self.server.clone().map(RequestBooks);
        books.map_or_else(|| api::Budget::of_bytes(usize::MAX), api::Budget::new)
    }

    /// The logical device of this name.
    pub fn logical(&self, name: &str) -> Option<Arc<Logical>> {
        self.all().into_iter().find(|logical| logical.space.name() == name)
    }

    /// Gives back all memory that nobody uses, on every device; how many bytes of each.
    pub(crate) fn trim(&self, cause: &'static str) -> Vec<(String, u64)> {
        let trim = |logical: &Arc<Logical>| (logical.space.name().to_owned(), logical.trim(cause));
        let given = self.all().iter().map(trim).collect();
        self.placement.forget_gone();
        // Last, so that it gives back what the others let go of.
        trim_heap();
        given
    }
}

/// Trims the heap, and wakes the threads that serve: each gives back what it kept for itself as it
/// goes on waiting, and one that nobody asked for anything would keep it.
pub(crate) fn trim_heap() {
    heap::trim();
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        // Whoever wakes may take two of them.
        for _ in 0..2 * runtime.metrics().num_workers() {
            runtime.spawn(async {});
        }
    }
}

impl PhysicalDevice {
    /// The memory that it has by now.
    pub(crate) fn total_bytes(&self) -> u64 {
        self.total_bytes.load(Ordering::Relaxed)
    }

    /// The part of its driver's context that is for the next logical device on it to book: all of
    /// it, unless one of those there are has it.
    fn context_for<'a>(
        &self,
        number: usize,
        all: impl IntoIterator<Item = &'a Arc<Logical>>,
    ) -> u64 {
        let has = |one: &Arc<Logical>| {
            one.device.lock().physical == number && one.space.books().context_bytes() > 0
        };
        if all.into_iter().any(has) { 0 } else { self.driver.context_bytes() }
    }

    /// The device as it is by now, to make logical devices of.
    fn physical(&self) -> Physical {
        Physical { total_bytes: self.total_bytes(), ..self.found.clone() }
    }
}

impl Logical {
    /// Gives back all memory that nobody uses; how many bytes.
    fn trim(&self, cause: &'static str) -> u64 {
        self.executor.lanes.trim();
        self.space.trim(cause).unwrap_or_else(|error| {
            tracing::warn!("{} gives nothing back: {error}", self.space.name());
            0
        })
    }
}

/// The way in which a device takes its memory, and which setting says so.
pub(crate) fn growth_text(setting: GrowthSetting) -> String {
    match setting.rule() {
        GrowthRule::OnDemand => format!("grow as models need it ({setting})"),
        GrowthRule::Reserved => format!("reserve all that they may hold at the start ({setting})"),
    }
}

/// The most lanes of all devices together: they are threads.
const LANES_MAX: usize = 4096;

/// Refuses more lanes than the system could run.
fn check_lanes(devices: &[LogicalDevice], default: usize) -> Result<()> {
    let lanes = devices.iter().map(|device| device.n_lanes.unwrap_or(default));
    let n_lanes = lanes.fold(0, usize::saturating_add);
    anyhow::ensure!(
        n_lanes <= LANES_MAX,
        "all devices together would have {n_lanes} lanes, but {LANES_MAX} is the most"
    );
    Ok(())
}

/// The first host among devices.
fn host_among(all: &[Arc<Logical>]) -> Option<&Arc<Logical>> {
    all.iter().find(|one| one.space.kind() == device::Kind::Cpu)
}

/// The parts of a logical device.
struct Around<'a> {
    of: &'a PhysicalDevice,
    step_bytes: u64,
    lanes: &'a LaneOptions,
    host: Option<&'a Arc<Logical>>,
    /// The part of the physical device's context that is in its books.
    context_bytes: u64,
}

fn logical(device: LogicalDevice, around: &Around<'_>) -> Result<Logical> {
    let Around { of, step_bytes, lanes, host, context_bytes } = *around;
    let inner = Arc::clone(&of.driver) as Arc<dyn Driver>;
    let driver = Arc::new(Limited::new(inner, device.name.clone(), device.limit_bytes));
    let physical = Arc::clone(of.driver.account());
    let growth = device.growth;
    let options = SpaceOptions { driver, physical, growth, step_bytes, context_bytes };
    let space = Space::new(options)?;
    let host = host.filter(|_| space.kind() == device::Kind::Gpu);
    let host = host.map(|host| Owner::new(&host.space, Holder::Server, None));
    let owner = match host {
        Some(host) => Owner::beside(host, &space, Holder::Server, None),
        None => Owner::new(&space, Holder::Server, None),
    };
    let n_lanes = device.n_lanes.unwrap_or(lanes.n_lanes).max(1);
    let LaneOptions { inline_max, run_max, .. } = *lanes;
    let options = schedule::Options { n_lanes, inline_max, run_max };
    let executor = Executor {
        lanes: Arc::new(Lanes::start_for(options, Some(owner))?),
        pool: Arc::clone(&lanes.pool),
        device: space.name().into(),
        pace: of.pace.as_ref().map(|pace| Arc::new(pace.share())),
    };
    let total_bytes = Arc::clone(&of.total_bytes);
    let own = OwnDevice { device: Mutex::new(device), space, n_lanes, total_bytes };
    Ok(Logical { own: Arc::new(own), executor })
}
