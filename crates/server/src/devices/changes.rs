//! Changing devices while serving.

use std::sync::Arc;

use api::Status;
use device::logical::{self, Configured, GrowthRule, LogicalDevice, Physical};
use device::{ConfigCode, Error};
use lifecycle::Code;

use super::options::{device_config, device_rules, simulations};
use super::{Around, Devices, Logical, PhysicalDevice, Undo};
use crate::external::External;

impl Devices {
    /// Makes of the devices what a device config says, or leaves all as they are. What is in
    /// use keeps its place: limits change at once, but a device in use cannot go, nor change how it
    /// grows.
    pub(crate) fn change(&self, config: &str) -> Result<Vec<String>, Status> {
        let bad = |error: anyhow::Error| Status::invalid(format!("{error:#}"));
        let config = device_config(config).map_err(bad)?;
        let rules = device_rules(&config).map_err(bad)?;
        let simulations = simulations(&config).map_err(bad)?;
        self.check_simulations(&simulations).map_err(bad)?;
        let found: Vec<Physical> = self.physical.iter().map(PhysicalDevice::physical).collect();
        let mut configured = logical::configure_rules(&rules, &found).map_err(status)?;
        super::check_lanes(&configured.devices, self.lanes.n_lanes).map_err(bad)?;
        // Nobody finds a place on a device that is about to become another.
        let _leasing = self.leasing.lock();
        let mut all = self.logical.lock();
        self.bear_with_host(&rules, &mut configured);
        let before: Vec<LogicalDevice> =
            all.iter().map(|logical| logical.device.lock().clone()).collect();
        let in_use = |logical: &Arc<Logical>| !self.owners_on(&logical.space).is_empty();
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
        let changed = self.rebuilt(&all, configured, is_in_use)?;
        *all = changed;
        self.note_host(&rules);
        drop(all);
        self.simulate(&simulations);
        self.relimit();
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

    /// Whether a device has as many lanes as it is to have.
    fn has_lanes(&self, logical: &Logical, new: &LogicalDevice) -> bool {
        logical.executor.lanes.n_lanes() == new.n_lanes.unwrap_or(self.lanes.n_lanes).max(1)
    }

    /// The devices as configured: those in use and the host with their new limits, the others anew.
    fn rebuilt(
        &self,
        before: &[Arc<Logical>],
        configured: Configured,
        is_in_use: impl Fn(&str) -> bool,
    ) -> Result<Vec<Arc<Logical>>, Status> {
        let stays = |logical: &Arc<Logical>| {
            let old = logical.device.lock();
            let same = |new: &&LogicalDevice| new.name == old.name && new.physical == old.physical;
            let new = configured.devices.iter().find(same);
            let is_same =
                |new: &LogicalDevice| new.growth == old.growth && self.has_lanes(logical, new);
            new.is_some_and(|new| is_in_use(&new.name) || is_same(new))
        };
        let kept: Vec<Arc<Logical>> = before.iter().filter(|one| stays(one)).cloned().collect();
        self.check_limits(&kept, &configured)?;
        let mut undo = Undo::default();
        for (one, limit) in self.physical.iter().zip(&configured.physical_limit_bytes) {
            let before = one.driver.limit_bytes();
            one.driver.set_limit(*limit).map_err(status)?;
            // Whoever took more meanwhile keeps it, and the limit that allows it.
            undo.push(move || drop(one.driver.set_limit(before)));
        }
        // Its context is the GPU's: whoever books it from now on, it is there once.
        for one in before.iter().filter(|one| !kept.iter().any(|kept| Arc::ptr_eq(kept, one))) {
            let context = one.space.context_bytes();
            one.space.set_context(0).map_err(status)?;
            undo.push(move || drop(one.space.set_context(context)));
        }
        let mut all = Vec::new();
        for device in configured.devices {
            let known = kept.iter().find(|logical| logical.space.name() == device.name);
            let logical = match known {
                Some(logical) => {
                    let limit = logical.space.account().limit_bytes();
                    logical.space.account().set_limit(device.limit_bytes).map_err(status)?;
                    let before = std::mem::replace(&mut *logical.device.lock(), device);
                    undo.push(move || {
                        drop(logical.space.account().set_limit(limit));
                        *logical.device.lock() = before;
                    });
                    Arc::clone(logical)
                }
                None => {
                    let of = &self.physical[device.physical];
                    let around = Around {
                        of,
                        step_bytes: self.step_bytes,
                        lanes: &self.lanes,
                        host: super::host_among(&all),
                        context_bytes: of.context_for(device.physical, all.iter().chain(&kept)),
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
                space.set_context(context).map_err(status)?;
                undo.push(move || drop(space.set_context(0)));
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
        let config = device_config(config).map_err(bad)?;
        let rules = device_rules(&config).map_err(bad)?;
        external.change(&rules).map_err(status)
    }

    /// Refuses limits below what is held when all that nobody uses was given back.
    fn check_limits(&self, kept: &[Arc<Logical>], configured: &Configured) -> Result<(), Status> {
        let refuse = |name: &str, held: u64, limit: u64| {
            let text = format!("{name} holds {held} bytes, more than a limit of {limit}");
            Err(Status::new(Code::FailedPrecondition, text))
        };
        for logical in kept {
            drop(logical.space.trim("limit"));
            let (name, account) = (logical.space.name(), logical.space.account());
            let new = configured.devices.iter().find(|new| new.name == name);
            let limit = new.map_or(u64::MAX, |new| new.limit_bytes);
            if account.held_bytes() > limit {
                return refuse(name, account.held_bytes(), limit);
            }
        }
        for (one, limit) in self.physical.iter().zip(&configured.physical_limit_bytes) {
            if one.driver.account().held_bytes() > *limit {
                return refuse(&one.found.name, one.driver.account().held_bytes(), *limit);
            }
        }
        Ok(())
    }
}

/// What TensorFlow says of devices in use.
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
        if is_other_limit {
            let text = format!(
                "{} is held up to its limit of {} bytes: let it grow, and then give it another",
                old.name, old.limit_bytes
            );
            return Err(Status::new(Code::FailedPrecondition, text));
        }
    }
    Ok(())
}

/// The code of a refusal.
#[expect(clippy::needless_pass_by_value, reason = "it is what `map_err` gives")]
fn status(error: Error) -> Status {
    let code = match &error {
        Error::Config { code, .. } => match code {
            ConfigCode::InvalidArgument => Code::InvalidArgument,
            ConfigCode::Unknown => Code::Unknown,
            ConfigCode::Internal => Code::Internal,
            ConfigCode::FailedPrecondition => Code::FailedPrecondition,
        },
        Error::Exhausted { .. } | Error::Full { .. } => Code::FailedPrecondition,
        _ => Code::Internal,
    };
    Status::new(code, error.to_string())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use device::{Buffer, Category, Holder, Owner};
    use pool::Pool;

    use super::super::{DeviceOptions, LaneOptions};
    use super::*;

    /// Three GPUs that grow: on the first two is a version each, and the first is also held.
    fn devices() -> (Arc<Devices>, Vec<Arc<Owner>>, Buffer) {
        let flags = crate::cli::parse(&["--simulated_gpus=64MiB,64MiB,64MiB"]);
        let options =
            DeviceOptions { rules: Some(Vec::new()), ..DeviceOptions::new(&flags).unwrap() };
        let (inline_max, pool) = (Duration::ZERO, Arc::new(Pool::new(1)));
        let lanes = LaneOptions { n_lanes: 1, inline_max, pool };
        let devices = Devices::start(&options, &lanes, Arc::default()).unwrap();
        let owner = |name: &str| {
            let holder = Holder::Version { model: Arc::from("m"), version: 1 };
            let owner = Owner::new(&devices.logical(name).unwrap().space, holder, None);
            devices.note(&owner);
            owner
        };
        let owners = vec![owner("gpu:0"), owner("gpu:1")];
        let buffer = Buffer::allocate_for(&owners[0], Category::Weights, 8 << 20).unwrap();
        (devices, owners, buffer)
    }

    /// What is refused, as its code and its text.
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
        let two = "logical_device { memory_limit: 9 } logical_device { memory_limit: 9 }";
        let before = names(&devices);
        let in_use = [
            (gpu(0, "visible: false"), "Visible devices cannot be modified after being initia"),
            (gpu(0, two), "Virtual devices cannot be modified after being initialized"),
            (gpu(0, "allow_growth: false"), "Physical devices cannot be modified after being"),
            (gpu(0, "lanes: 7"), "Physical devices cannot be modified after being initialized"),
            (cpu("lanes: 7"), "Physical devices cannot be modified after being initialized"),
            (gpu(0, "memory_limit: 1"), "gpu:0 holds "),
        ];
        for (rules, expected) in in_use {
            let (code, text) = refusal(&devices, &rules).unwrap();
            assert_eq!(code, Code::FailedPrecondition, "{rules}: {text}");
            assert!(text.starts_with(expected), "{rules}: {text}");
        }
        let lanes = "logical_device { memory_limit: 9 lanes: 256 }".repeat(17);
        let nonsense = [
            ("device {".to_owned(), "device config: "),
            ("{\"device\": 3}".to_owned(), "device config: "),
            (gpu(2, "memory_limit: \"much\""), "much is neither a size nor a fraction"),
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
        let (code, text) = refusal(&devices, smaller).unwrap();
        assert_eq!(code, Code::FailedPrecondition);
        assert!(text.starts_with("gpu:2 is held up to its limit of 67108864 bytes"), "{text}");
    }
}
