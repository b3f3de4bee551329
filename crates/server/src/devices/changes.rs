//! Changing devices while serving.

use std::sync::Arc;

use anyhow::ensure;
use config::devices::{device_config, device_rules, simulations};
use device::Error;
use device::logical::{self, ConfigWarning, Configured, GrowthRule, LogicalDevice, Physical};
use proto::serving::DeviceConfig;
use status::{Code, Status};

use super::{Around, Devices, Logical, PhysicalDevice, Undo};
use crate::external::External;

/// The logical devices before a change, and those of them that it keeps.
#[derive(Clone, Copy)]
struct ChangedDevices<'a> {
    all: &'a [Arc<Logical>],
    kept: &'a [Arc<Logical>],
}

impl Devices {
    /// Makes of the devices what a device config says, or leaves all as they are. What is in
    /// use keeps its place: limits change at once, but a device in use cannot go, nor change how it
    /// grows.
    pub(crate) fn change(&self, config: &str) -> Result<Vec<ConfigWarning>, Status> {
        let bad = |error: anyhow::Error| Status::invalid(format!("{error:#}"));
        let config = changed_config(config).map_err(bad)?;
        let rules = device_rules(&config).map_err(bad)?;
        let simulations = simulations(&config).map_err(bad)?;
        self.check_simulations(&simulations).map_err(bad)?;
        let found: Vec<Physical> = self.physical.iter().map(PhysicalDevice::physical).collect();
        let mut configured =
            logical::configure_rules(&rules, &found, self.gpu_memory).map_err(status)?;
        super::check_lanes(&configured.devices, self.lanes.n_lanes).map_err(bad)?;
        // Nobody finds a place on a device that is about to become another.
        let _leasing = self.placement.leasing();
        let all = self.all();
        self.bear_with_host(&rules, &mut configured);
        let before: Vec<LogicalDevice> =
            all.iter().map(|logical| logical.device.lock().clone()).collect();
        let in_use = |logical: &Arc<Logical>| !self.own().owners_on(&logical.space).is_empty();
        let names: Vec<String> = all
            .iter()
            .filter(|logical| in_use(logical))
            .map(|logical| logical.space.name().to_owned())
            .collect();
        let is_in_use = |name: &str| names.iter().any(|other| other == name);
        logical::check_change(&before, &configured.devices, is_in_use).map_err(status)?;
        check_growth(&before, &configured.devices, is_in_use)?;
        self.check_lanes(&all, &configured.devices, is_in_use)?;
        let warnings = configured.warnings.clone();
        let kept = self.kept(&all, &configured, is_in_use);
        self.check_limits(ChangedDevices { all: &all, kept: &kept }, &configured)?;
        let changed = self.rebuilt(&all, &kept, configured)?;
        let before = self.replace(changed);
        drop((all, before));
        self.note_host(&rules);
        self.simulate(&simulations);
        self.own().relimit();
        self.left.changed.notify_one();
        self.active.make_room();
        Ok(warnings)
    }

    /// Refuses another number of lanes for a device in use, and for the host.
    fn check_lanes(
        &self,
        before: &[Arc<Logical>],
        after: &[LogicalDevice],
        is_in_use: impl Fn(&str) -> bool,
    ) -> Result<(), Status> {
        for one in before {
            let name = one.space.name();
            let new = after.iter().find(|new| new.name == name);
            let is_kept = is_in_use(name) || one.space.kind() == device::Kind::Cpu;
            if is_kept && new.is_some_and(|new| !self.has_lanes(one, new)) {
                return Err(Status::new(Code::FailedPrecondition, INITIALIZED));
            }
        }
        Ok(())
    }

    /// Returns whether a device has as many lanes as it is to have.
    fn has_lanes(&self, logical: &Logical, new: &LogicalDevice) -> bool {
        logical.executor.lanes.n_lanes() == new.n_lanes.unwrap_or(self.lanes.n_lanes).max(1)
    }

    /// The devices that get no more than other limits: those in use, and those that are to be as
    /// they are otherwise.
    fn kept(
        &self,
        before: &[Arc<Logical>],
        configured: &Configured,
        is_in_use: impl Fn(&str) -> bool,
    ) -> Vec<Arc<Logical>> {
        let stays = |logical: &&Arc<Logical>| {
            let old = logical.device.lock();
            let is_same =
                |new: &LogicalDevice| new.growth == old.growth && self.has_lanes(logical, new);
            same(&old, configured).is_some_and(|new| is_in_use(&new.name) || is_same(new))
        };
        before.iter().filter(stays).cloned().collect()
    }

    /// The devices as configured: those that are kept with their new limits, the others anew.
    fn rebuilt(
        &self,
        before: &[Arc<Logical>],
        kept: &[Arc<Logical>],
        configured: Configured,
    ) -> Result<Vec<Arc<Logical>>, Status> {
        let mut undo = Undo::default();
        for one in before.iter().filter(|one| gives_back(one, kept, &configured)) {
            give_back(one, &mut undo)?;
        }
        for (one, limit) in self.physical.iter().zip(&configured.physical_limit_bytes) {
            let before = one.driver.limit_bytes();
            one.driver.set_limit(*limit).map_err(status)?;
            // Whoever took more meanwhile keeps it, and the limit that allows it.
            undo.push(move || drop(one.driver.set_limit(before)));
        }
        // Its context is the GPU's: whoever books it from now on, it is there once.
        for one in before.iter().filter(|one| !kept.iter().any(|kept| Arc::ptr_eq(kept, one))) {
            let context = one.space.books().context_bytes();
            one.space.books().set_context(0).map_err(status)?;
            undo.push(move || drop(one.space.books().set_context(context)));
        }
        let mut all = Vec::new();
        for device in configured.devices {
            let known = kept.iter().find(|logical| logical.space.name() == device.name);
            let logical = match known {
                Some(logical) => {
                    limit_anew(logical, device, &mut undo)?;
                    Arc::clone(logical)
                }
                None => {
                    let of = &self.physical[device.physical];
                    let around = Around {
                        of,
                        step_bytes: self.step_bytes,
                        lanes: &self.lanes,
                        host: super::host_among(&all),
                        context_bytes: of.context_for(device.physical, all.iter().chain(kept)),
                    };
                    let made = super::logical(device, &around);
                    let failed = |error: anyhow::Error| {
                        Status::new(Code::ResourceExhausted, format!("{error:#}"))
                    };
                    Arc::new(made.map_err(failed)?)
                }
            };
            all.push(logical);
        }
        self.book_contexts(&all, &mut undo)?;
        undo.keep();
        Ok(all)
    }
}

impl Devices {
    /// Books the contexts of GPUs whose books went with the device that had them.
    fn book_contexts(&self, all: &[Arc<Logical>], undo: &mut Undo<'_>) -> Result<(), Status> {
        for (number, one) in self.physical.iter().enumerate() {
            let first = all.iter().find(|logical| logical.device.lock().physical == number);
            let context = one.context_for(number, all);
            if let Some(first) = first.filter(|_| context > 0) {
                let space = Arc::clone(&first.space);
                space.books().set_context(context).map_err(status)?;
                undo.push(move || drop(space.books().set_context(0)));
            }
        }
        Ok(())
    }

    /// Puts other limits in force on the GPUs that only TensorFlow can use, or none; gives their
    /// names, and says how to take the change back.
    pub(crate) fn change_external<'a>(
        &self,
        config: &str,
        external: &'a External,
    ) -> Result<(Vec<String>, Undo<'a>), Status> {
        let bad = |error: anyhow::Error| Status::invalid(format!("{error:#}"));
        let config = changed_config(config).map_err(bad)?;
        let rules = device_rules(&config).map_err(bad)?;
        external.change(&rules).map_err(status)
    }

    /// Refuses limits below what is held when all that nobody uses was given back.
    fn check_limits(
        &self,
        devices: ChangedDevices<'_>,
        configured: &Configured,
    ) -> Result<(), Status> {
        let ChangedDevices { all, kept } = devices;
        let refuse = |name: &str, held: u64, limit: u64| {
            let text = format!("{name} holds {held} bytes, more than a limit of {limit}");
            Err(Status::new(Code::FailedPrecondition, text))
        };
        let gives_back = |one: &&Arc<Logical>| gives_back(one, kept, configured);
        for logical in kept.iter().filter(|one| !gives_back(one)) {
            drop(logical.space.trim("limit"));
            let (name, account) = (logical.space.name(), logical.space.account());
            let new = configured.devices.iter().find(|new| new.name == name);
            let limit = new.map_or(u64::MAX, |new| new.limit_bytes);
            if account.held_bytes() > limit {
                return refuse(name, account.held_bytes(), limit);
            }
        }
        for (number, one) in self.physical.iter().enumerate() {
            // What goes, or is held anew, is given back before.
            let goes = |logical: &&Arc<Logical>| {
                logical.device.lock().physical == number && gives_back(logical)
            };
            let going = all.iter().filter(goes).map(|one| one.space.account().held_bytes());
            let held = one.driver.account().held_bytes().saturating_sub(going.sum());
            let limit = configured.physical_limit_bytes.get(number).copied().unwrap_or(u64::MAX);
            if held > limit {
                return refuse(&one.found.name, held, limit);
            }
        }
        Ok(())
    }
}

/// The device as it is to be.
fn same<'a>(old: &LogicalDevice, configured: &'a Configured) -> Option<&'a LogicalDevice> {
    let same = |new: &&LogicalDevice| new.name == old.name && new.physical == old.physical;
    configured.devices.iter().find(same)
}

/// Returns whether a device is held up to its limit, and is to be so with another.
fn is_held_anew(old: &LogicalDevice, configured: &Configured) -> bool {
    let is_other = |new: &LogicalDevice| {
        [old.growth, new.growth] == [GrowthRule::Reserved; 2] && new.limit_bytes != old.limit_bytes
    };
    same(old, configured).is_some_and(is_other)
}

/// Returns whether a device gives back all that it holds before others are made: one that is not
/// kept, or is held up to another limit.
fn gives_back(one: &Arc<Logical>, kept: &[Arc<Logical>], configured: &Configured) -> bool {
    let is_kept = kept.iter().any(|kept| Arc::ptr_eq(kept, one));
    !is_kept || is_held_anew(&one.device.lock(), configured)
}

/// Gives back what a device holds that nobody uses: what it was and what it is to be would not fit
/// side by side. Whoever looks at it meanwhile sees one that holds nothing.
fn give_back<'a>(one: &'a Arc<Logical>, undo: &mut Undo<'a>) -> Result<(), Status> {
    one.trim("limit");
    if !one.space.arenas().give_up_reserve() {
        return Err(Status::new(Code::FailedPrecondition, INITIALIZED));
    }
    undo.push(|| take_again(one));
    Ok(())
}

/// Lets a device hold again what its limit allows, if it does not grow.
fn take_again(one: &Logical) {
    if let Err(error) = one.space.arenas().take_reserve(one.space.books().context_bytes()) {
        tracing::error!("{} is not held up to its limit: {error}", one.space.name());
    }
}

/// Gives a device that is kept its new limit, and lets it hold as much if it does not grow.
fn limit_anew<'a>(
    one: &'a Arc<Logical>,
    device: LogicalDevice,
    undo: &mut Undo<'a>,
) -> Result<(), Status> {
    let account = one.space.account();
    let limit = account.limit_bytes();
    let is_anew = limit != device.limit_bytes;
    account.set_limit(device.limit_bytes).map_err(status)?;
    let before = std::mem::replace(&mut *one.device.lock(), device);
    undo.push(move || {
        if is_anew {
            one.space.arenas().give_up_reserve();
        }
        drop(account.set_limit(limit));
        *one.device.lock() = before;
    });
    one.space.arenas().take_reserve(one.space.books().context_bytes()).map_err(status)
}

/// The content of a change. One that is empty by accident would undo all that was configured.
fn changed_config(text: &str) -> anyhow::Result<DeviceConfig> {
    ensure!(
        !text.trim().is_empty(),
        "device config: the body is empty; {{\"device\": []}} makes all devices as without a config"
    );
    device_config(text)
}

/// TensorFlow's text on devices in use.
const INITIALIZED: &str = "Physical devices cannot be modified after being initialized";

/// Refuses another way of growing for a device in use, with TensorFlow's text; and another limit
/// for one that is held up to its limit, since that would have to be given back first.
fn check_growth(
    before: &[LogicalDevice],
    after: &[LogicalDevice],
    is_in_use: impl Fn(&str) -> bool,
) -> Result<(), Status> {
    for old in before {
        let same = |new: &&LogicalDevice| new.name == old.name && new.physical == old.physical;
        let Some(new) = after.iter().find(same) else { continue };
        let is_held = [old.growth, new.growth] == [GrowthRule::Reserved; 2];
        let is_other_limit = is_held && new.limit_bytes != old.limit_bytes;
        if is_in_use(&old.name) && (new.growth != old.growth || is_other_limit) {
            return Err(Status::new(Code::FailedPrecondition, INITIALIZED));
        }
    }
    Ok(())
}

/// The code of a refusal.
#[expect(clippy::needless_pass_by_value, reason = "it is what `map_err` gives")]
fn status(error: Error) -> Status {
    let code = match &error {
        Error::Config { code, .. } => *code,
        Error::Exhausted { .. } | Error::Full { .. } => Code::FailedPrecondition,
        _ => Code::Internal,
    };
    Status::new(code, error.to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use device::{Buffer, Category, Holder, Owner};
    use pool::Pool;

    use super::super::{DeviceOptions, LaneOptions};
    use super::*;

    /// Three GPUs that grow: on the first two is a version each, and the first is also held.
    fn devices() -> (Arc<Devices>, Vec<Arc<Owner>>, Buffer) {
        let flags = config::flags::parse(&["--simulated_gpus=64MiB,64MiB,64MiB"]);
        let options =
            DeviceOptions { rules: Some(Vec::new()), ..DeviceOptions::new(&flags).unwrap() };
        let (inline_max, pool) = (Duration::ZERO, Arc::new(Pool::new(1)));
        let lanes = LaneOptions { n_lanes: 1, inline_max, run_max: None, pool };
        let devices = Devices::start(&options, &lanes, Arc::default()).unwrap();
        let owner = |name: &str| {
            let holder = Holder::Version { model: Arc::from("m"), version: 1 };
            let owner = Owner::new(&devices.logical(name).unwrap().space, holder, None);
            devices.own().note(&owner);
            owner
        };
        let owners = vec![owner("gpu:0"), owner("gpu:1")];
        let buffer = Buffer::allocate_for(&owners[0], Category::Weights, 8 << 20).unwrap();
        (devices, owners, buffer)
    }

    /// The refusal, as its code and its text.
    fn refusal(devices: &Devices, rules: &str) -> Option<(Code, String)> {
        let status = devices.change(rules).err()?;
        Some((status.code, status.message))
    }

    fn names(devices: &Devices) -> Vec<String> {
        devices.all().iter().map(|one| one.space.name().to_owned()).collect()
    }

    #[test]
    fn what_is_in_use_is_a_failed_precondition_and_nonsense_an_invalid_argument() {
        let (devices, _owners, _buffer) = devices();
        let gpu = |n: u32, more: &str| format!("device {{ name: \"gpu:{n}\" {more} }}");
        let cpu = |more: &str| format!("device {{ name: \"cpu:0\" {more} }}");
        let two = "logical_device { memory_limit: '9B' } logical_device { memory_limit: '9B' }";
        let before = names(&devices);
        let in_use = [
            (gpu(0, "visible: false"), "Visible devices cannot be modified after being initia"),
            (gpu(0, two), "Virtual devices cannot be modified after being initialized"),
            (gpu(0, "allow_growth: false"), "Physical devices cannot be modified after being"),
            (gpu(0, "lanes: 7"), "Physical devices cannot be modified after being initialized"),
            (cpu("lanes: 7"), "Physical devices cannot be modified after being initialized"),
            (gpu(0, "memory_limit: '1B'"), "gpu:0 holds "),
        ];
        for (rules, expected) in in_use {
            let (code, text) = refusal(&devices, &rules).unwrap();
            assert_eq!(code, Code::FailedPrecondition, "{rules}: {text}");
            assert!(text.starts_with(expected), "{rules}: {text}");
        }
        let lanes = "logical_device { memory_limit: '9B' lanes: 256 }".repeat(17);
        let nonsense = [
            ("device {".to_owned(), "device config: "),
            ("{\"device\": 3}".to_owned(), "device config: "),
            (gpu(2, "memory_limit: \"much\""), "much is neither a size"),
            (gpu(2, "memory_limit: \"65MiB\""), "the logical devices of gpu:2 need 68157440"),
            (gpu(2, "lanes: 257"), "gpu:2 would have 257 lanes"),
            (gpu(2, &lanes), "all devices together would have 4355 lanes"),
            (gpu(2, "logical_device { }"), "Setting memory limit is required for GPU virtual"),
            ("device { name: \"tpu:0\" }".to_owned(), "Unrecognized device: tpu:0"),
            (cpu("visible: false"), "cpu:0 cannot be hidden"),
            (cpu("allow_growth: true"), "Cannot set memory growth on non-GPU"),
            (cpu("simulation { copy_rate: \"1GB/s\" }"), "cpu:0 is not simulated"),
        ];
        for (rules, expected) in nonsense {
            let (code, text) = refusal(&devices, &rules).unwrap();
            assert_eq!(code, Code::InvalidArgument, "{rules}: {text}");
            assert!(text.contains(expected), "{rules}: {text}");
        }
        assert_eq!(names(&devices), before);
    }

    #[test]
    fn a_device_that_nobody_uses_is_hidden_and_seen_again() {
        let (devices, _owners, _buffer) = devices();
        let hidden = "device { name: \"gpu:2\" visible: false }";
        assert_eq!(refusal(&devices, hidden), None);
        assert_eq!(names(&devices), ["cpu:0", "gpu:0", "gpu:1"]);
        assert_eq!(refusal(&devices, "device { name: \"gpu:2\" allow_growth: false }"), None);
        assert_eq!(names(&devices), ["cpu:0", "gpu:0", "gpu:1", "gpu:2"]);
        // It is held up to its limit now.
        let smaller = "device { name: \"gpu:2\" allow_growth: false memory_limit: \"32MiB\" }";
        let held = || {
            let account = Arc::clone(devices.logical("gpu:2").unwrap().space.account());
            (account.limit_bytes() >> 20, account.held_bytes() >> 20)
        };
        assert_eq!(held(), (64, 64));
        assert_eq!(refusal(&devices, smaller), None);
        assert_eq!(held(), (32, 32));
        assert_eq!(refusal(&devices, "device { name: \"gpu:2\" allow_growth: false }"), None);
        assert_eq!(held(), (64, 64));
        assert_eq!(names(&devices), ["cpu:0", "gpu:0", "gpu:1", "gpu:2"]);
    }

    const FIXED: &str = "device { name: \"gpu:2\" allow_growth: false }";
    const SMALLER: &str = "device { name: \"gpu:2\" allow_growth: false memory_limit: \"32MiB\" }";

    /// The limit of the third GPU and what it holds, in MiB.
    fn held(devices: &Devices) -> (u64, u64) {
        let account = Arc::clone(devices.logical("gpu:2").unwrap().space.account());
        (account.limit_bytes() >> 20, account.held_bytes() >> 20)
    }

    #[test]
    fn a_device_held_up_to_its_limit_is_as_it_was_when_a_change_fails() {
        let (devices, _owners, _buffer) = devices();
        assert_eq!(refusal(&devices, FIXED), None);
        let before = devices.logical("gpu:2").unwrap();
        // Another device is in use and cannot be held at once.
        let with_other = format!("{SMALLER} device {{ name: \"gpu:0\" allow_growth: false }}");
        assert_eq!(refusal(&devices, &with_other).unwrap().0, Code::FailedPrecondition);
        // Somebody holds some of it.
        let server = Owner::new(&before.space, Holder::Server, None);
        let used = Buffer::allocate_for(&server, Category::Weights, 1).unwrap();
        assert_eq!(refusal(&devices, SMALLER).unwrap().0, Code::FailedPrecondition);
        assert_eq!(held(&devices), (64, 64));
        drop(used);
        // A share of it, so that the GPU itself is as large as before.
        let share = "logical_device { memory_limit: \"32MiB\" }";
        let share = format!("device {{ name: \"gpu:2\" allow_growth: false {share} }}");
        assert_eq!(refusal(&devices, &share), None);
        assert_eq!(held(&devices), (32, 32));
        // What it is to hold cannot be had any more.
        let account = devices.physical[3].driver.account();
        account.charge(4 << 20).unwrap();
        assert_eq!(refusal(&devices, FIXED).unwrap().0, Code::FailedPrecondition);
        assert_eq!(held(&devices), (32, 32));
        account.refund(4 << 20);
        assert_eq!(refusal(&devices, FIXED), None);
        assert_eq!(held(&devices), (64, 64));
        assert!(Arc::ptr_eq(&before, &devices.logical("gpu:2").unwrap()));
    }

    #[test]
    fn who_looks_at_a_device_held_up_to_its_limit_keeps_nobody_from_changing_it() {
        let (devices, _owners, _buffer) = devices();
        assert_eq!(refusal(&devices, FIXED), None);
        let looks = devices.logical("gpu:2").unwrap();
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    let snapshot = devices.logical("gpu:2").unwrap().space.snapshot();
                    let rows: u64 = snapshot.rows.iter().map(|row| row.bytes).sum();
                    assert_eq!(rows, snapshot.held_bytes);
                }
            });
            for _ in 0..50 {
                assert_eq!(refusal(&devices, SMALLER), None);
                assert_eq!(held(&devices), (32, 32));
                assert_eq!(refusal(&devices, FIXED), None);
                assert_eq!(held(&devices), (64, 64));
            }
            is_done.store(true, Ordering::Relaxed);
        });
        assert_eq!(looks.space.snapshot().held_bytes, 64 << 20);
    }

    #[test]
    fn devices_are_listed_while_they_become_others() {
        let (devices, _owners, _buffer) = devices();
        let gpu = devices.logical("gpu:2").unwrap();
        std::thread::scope(|scope| {
            // The change waits for this in its midst.
            let midst = gpu.device.lock();
            let change = scope.spawn(|| refusal(&devices, SMALLER));
            while devices.placement.is_idle() {
                std::thread::yield_now();
            }
            assert_eq!(names(&devices).len(), 4);
            assert!(!change.is_finished());
            drop(midst);
            assert_eq!(change.join().unwrap(), None);
        });
        assert_eq!(held(&devices), (32, 32));
    }

    #[test]
    fn what_goes_makes_room_for_what_comes() {
        let (devices, _owners, _buffer) = devices();
        let two = "logical_device { memory_limit: \"32MiB\" }".repeat(2);
        let two = format!("device {{ name: \"gpu:2\" allow_growth: false {two} }}");
        assert_eq!(refusal(&devices, &two), None);
        assert_eq!((names(&devices).len(), held(&devices)), (5, (32, 32)));
        // The second share goes, and the first takes what it had.
        assert_eq!(refusal(&devices, FIXED), None);
        assert_eq!((names(&devices).len(), held(&devices)), (4, (64, 64)));
        // The same limit with other lanes is another device.
        let lanes = "device { name: \"gpu:2\" allow_growth: false lanes: 3 }";
        assert_eq!(refusal(&devices, lanes), None);
        assert_eq!(devices.logical("gpu:2").unwrap().executor.lanes.n_lanes(), 3);
        assert_eq!(held(&devices), (64, 64));
    }
}
