//! The versions in workers and where they may be, as placement sees them: on TensorFlow's GPUs, and
//! on the host if they may be on none of those.

use std::sync::Arc;

use device::logical::GrowthRule;
use device::placement::{Replicas as Number, Seat};
use tensorflow::{Gpu, WorkerSnapshot};

use super::{External, ExternalDevice, HOST, Wish};
use crate::devices::{Board, Promise, Resident, Way, Within};

/// What GPUs and workers hold at a moment.
struct Now {
    gpus: Vec<Gpu>,
    workers: Vec<WorkerSnapshot>,
}

impl External {
    /// TensorFlow's GPUs and then the host, and the versions that are in workers or look for a
    /// place in one.
    pub(crate) fn board(&self, looks: Option<&Arc<Resident>>) -> Board {
        let devices = self.all();
        let now = Now { gpus: self.gpus(), workers: self.worker_snapshots() };
        let residents = self
            .devices
            .seated(looks.map(|resident| &**resident), |within| within == Within::TensorFlow);
        // What was promised of the host is not free; of GPUs it is left out below.
        let host = self.devices.host();
        let host = host.map_or(0, |host| self.devices.unpromised_bytes(&host, None));
        let free = devices.iter().map(|one| self.room(one, &now.gpus));
        let mut free_bytes: Vec<u64> = free.chain([host]).collect();
        let mut seats = Vec::new();
        for resident in &residents {
            let (seat, held) = self.seat(resident, &devices, &now);
            // What was promised is not taken yet, but nobody else's either.
            for (device, bytes) in &seat.current {
                let missing = bytes.saturating_sub(held[*device]);
                free_bytes[*device] = free_bytes[*device].saturating_sub(missing);
            }
            seats.push(seat);
        }
        let names = devices.iter().map(|one| one.name()).chain([HOST.to_owned()]).collect();
        Board { names, residents, free_bytes, seats }
    }

    /// The devices that a version is to be loaded on, or what has to change first; no devices if
    /// there is no place for it.
    pub(crate) fn lease(&self, resident: &Arc<Resident>) -> Way<Vec<String>> {
        let _leasing = self.leasing.lock();
        let board = self.board(Some(resident));
        match board.way(resident) {
            Some(Way::Free(on)) => {
                let names: Vec<String> = on.iter().map(|at| board.names[*at].clone()).collect();
                for (name, at) in names.iter().zip(&on) {
                    resident.promise(Promise::new(name, board.takes(resident, *at)));
                }
                Way::Free(names)
            }
            Some(Way::After(changes)) => Way::After(changes),
            None => Way::Free(Vec::new()),
        }
    }

    /// Who is being loaded on a GPU, and what each will take besides what was admitted for it; but
    /// for one, whom they are in the way of.
    pub(super) fn promises(
        &self,
        device: &ExternalDevice,
        but: (&str, i64),
    ) -> Vec<(Arc<Resident>, u64)> {
        let name = device.name();
        let rest = |resident: Arc<Resident>| {
            let admitted = device.promised_to(&resident.model, resident.version);
            let bytes = resident.promised_on(&name)?.saturating_sub(admitted);
            (bytes > 0).then_some((resident, bytes))
        };
        let all = self.devices.seated(None, |within| within == Within::TensorFlow);
        all.into_iter().filter(|one| one.who() != but).filter_map(rest).collect()
    }

    /// How much more could be promised on a GPU if a version went that was promised `held` bytes. A
    /// worker that has other models too keeps what it took: TensorFlow gives nothing back.
    fn freed_by(now: &Now, resident: &Resident, device: &ExternalDevice, held: u64) -> u64 {
        if device.device.lock().growth == GrowthRule::Reserved {
            return held;
        }
        let Now { gpus, workers } = now;
        let on_it = || workers.iter().filter(|worker| worker.device == device.name());
        let is_its_own = |worker: &&WorkerSnapshot| {
            let mut models = worker.models.iter();
            !worker.is_shared && models.any(|one| *one.model == *resident.model)
        };
        if let Some(own) = on_it().find(is_its_own) {
            return device.held_by(gpus, own.pid).map_or(held, |bytes| bytes.min(held));
        }
        let all: u64 = on_it().filter_map(|worker| device.held_by(gpus, worker.pid)).sum();
        held.min(device.account.held_bytes().saturating_sub(all))
    }

    /// What a version wants, and what it has of each device.
    fn seat(
        &self,
        resident: &Resident,
        devices: &[Arc<ExternalDevice>],
        now: &Now,
    ) -> (Seat, Vec<u64>) {
        let (model, weights_bytes) = (&*resident.model, resident.needed.bytes);
        let (config, rule) = (self.devices.config(model), self.devices.rule(model));
        let wish = Wish { model, version: resident.version, config: &config, rule: &rule };
        let candidates = self.candidates(&wish);
        let served = resident.replicas().map(|replicas| replicas.devices()).unwrap_or_default();
        let promised = resident.promised();
        let (mut bytes, mut current, mut all_held) = (Vec::new(), Vec::new(), Vec::new());
        for (at, device) in devices.iter().map(Some).chain([None]).enumerate() {
            let name = device.map_or_else(|| HOST.to_owned(), |device| device.name());
            let may_be = match device {
                Some(device) => candidates.iter().any(|one| Arc::ptr_eq(one, device)),
                None => candidates.is_empty(),
            };
            let takes = device.map_or(weights_bytes, |device| {
                Self::needed_on(&wish, (device, &now.workers), weights_bytes).bytes()
            });
            let is_here = promised.contains(&name) || served.contains(&name);
            let held = match device {
                Some(device) => device.promised_to(model, resident.version),
                None if is_here => weights_bytes,
                None => 0,
            };
            if let Some(promised) = resident.promised_on(&name) {
                current.push((at, held.max(promised)));
            } else if is_here {
                let freed =
                    device.map_or(held, |device| Self::freed_by(now, resident, device, held));
                current.push((at, freed));
            }
            bytes.push(may_be.then_some(if is_here { held } else { takes }));
            all_held.push(held);
        }
        let is_busy = !promised.is_empty() || !self.devices.has_model(model);
        let stays = !current.is_empty() && (resident.keeps_state || is_busy);
        let replicas = if resident.keeps_state { Number::Number(1) } else { rule.replicas };
        (Seat { bytes, current, replicas, priority: rule.priority, stays }, all_held)
    }
}

impl ExternalDevice {
    /// What was promised to a version.
    fn promised_to(&self, model: &str, version: i64) -> u64 {
        let admissions = self.admissions();
        let own = admissions.iter().filter(|one| one.model == model && one.version == version);
        own.map(|one| one.needed.bytes()).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pool::Pool;

    use super::*;
    use crate::devices::{DeviceOptions, Devices, LaneOptions, newcomer};
    use crate::external::{Books, configure};

    const GIB: u64 = 1 << 30;

    /// TensorFlow with GPUs of so many GiB beside the host.
    fn external(gpus: &[u64]) -> External {
        let flags = crate::cli::parse(&[]);
        let options =
            DeviceOptions { rules: Some(Vec::new()), ..DeviceOptions::new(&flags).unwrap() };
        let (inline_max, pool) = (Duration::ZERO, Arc::new(Pool::new(1)));
        let lanes = LaneOptions { n_lanes: 1, inline_max, pool };
        let devices = Devices::start(&options, &lanes, Arc::default()).unwrap();
        let gpu = |(number, gib): (usize, &u64)| Gpu {
            index: u32::try_from(number).unwrap(),
            uuid: format!("GPU-{number}"),
            name: "a GPU".to_owned(),
            total_bytes: gib * GIB,
            used_bytes: 0,
            compute_capability: None,
            processes: Vec::new(),
        };
        let found: Vec<Gpu> = gpus.iter().enumerate().map(gpu).collect();
        let logical = configure(&found, &options).unwrap();
        let (books, leasing) = (Books::new(&devices), parking_lot::Mutex::default());
        let logical = parking_lot::Mutex::new(logical);
        External { nvml: None, found, logical, workers: None, devices, books, leasing }
    }

    #[test]
    fn a_gpu_says_what_is_promised_to_loads_under_way() {
        let external = external(&[4]);
        let admit = |model: &str, mib: u64| {
            external.devices.admit(newcomer(model, (mib, 0), Within::TensorFlow))
        };
        let (first, second) = (admit("a", 3 << 10), admit("b", 2 << 10));
        let leased = external.lease(&first);
        assert!(matches!(&leased, Way::Free(names) if *names == ["gpu:0"]));
        assert!(matches!(external.lease(&second), Way::Free(names) if names.is_empty()));
        let (config, rule) = (external.devices.config("b"), external.devices.rule("b"));
        let wish = Wish { model: "b", version: 1, config: &config, rule: &rule };
        let refused = external.refusal(&wish, &external.all()[0], 2 * GIB).to_string();
        assert!(refused.contains("1073741824 are free; promised to a:1 3221225472"), "{refused}");
    }
}
