//! All versions and where they may be, as placement sees them: those of our own engine on our own
//! devices, those in workers on TensorFlow's GPUs, or on the host if they may be on none of those.

use std::sync::Arc;

use device::logical::GrowthRule;
use device::placement::Seat;
use tensorflow::{Gpu, WorkerSnapshot};

use super::{External, ExternalDevice, Wish};
use crate::devices::{Board, Change, Promise, Resident, Way, Within};

/// What GPUs and workers hold at a moment.
struct Now {
    gpus: Vec<Gpu>,
    workers: Vec<WorkerSnapshot>,
}

impl External {
    /// All devices, our own first and then TensorFlow's GPUs, and all versions that are on them or
    /// look for a place. The host is for those of both engines.
    pub(crate) fn board(&self, looks: Option<&Resident>) -> Board {
        // What a worker held that is gone is free, though its model only left a moment ago.
        self.refresh();
        let mut board = self.devices.board(looks);
        let devices = self.all();
        if devices.is_empty() {
            return board;
        }
        let now = Now { gpus: self.gpus(), workers: self.worker_snapshots() };
        let n_own = board.names.len();
        board.names.extend(devices.iter().map(|one| one.name()));
        board.free_bytes.extend(devices.iter().map(|one| self.room(one, &now.gpus)));
        for (resident, seat) in board.residents.iter().zip(&mut board.seats) {
            if resident.within == Within::Devices {
                seat.bytes.resize(board.names.len(), None);
                seat.runs.resize(board.names.len(), 0);
                continue;
            }
            for (device, held) in self.sit(resident, seat, &devices, &now) {
                // What was promised is not taken yet, but nobody else's either.
                let promised = seat.current.iter().find(|(at, _)| *at == n_own + device);
                let missing = promised.map_or(0, |(_, bytes)| bytes.saturating_sub(held));
                let free = &mut board.free_bytes[n_own + device];
                *free = free.saturating_sub(missing);
            }
        }
        board
    }

    /// What has to change so that versions are where they should be.
    pub(crate) fn changes(&self) -> Vec<Change> {
        let _leasing = self.devices.leasing();
        self.board(None).all_changes()
    }

    /// The devices that a version is to be loaded on, or what has to change first; `None` if there
    /// is no place for it.
    pub(crate) fn lease(&self, resident: &Arc<Resident>) -> Option<Way<Vec<String>>> {
        let _leasing = self.devices.leasing();
        let board = self.board(Some(resident));
        Some(match board.way(resident)? {
            Way::Free(on) => {
                let names: Vec<String> = on.iter().map(|at| board.names[*at].clone()).collect();
                for (name, at) in names.iter().zip(&on) {
                    resident.promise(Promise::new(name, board.takes(resident, *at)));
                }
                Way::Free(names)
            }
            Way::After(changes) => Way::After(changes),
            Way::Later => Way::Later,
        })
    }

    /// Promises a version that serves what it takes of one more device.
    pub(crate) fn promise(&self, resident: &Resident, device: &str) {
        let _leasing = self.devices.leasing();
        let board = self.board(None);
        let at = board.names.iter().position(|name| name == device);
        let bytes = at.map_or(0, |at| board.takes(resident, at));
        resident.promise(Promise::new(device, bytes));
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
        let all = self.devices.residents();
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

    /// Says in the seat of a version in a worker what it wants and has of GPUs, and that it may be
    /// on the host only if it may be on none of them. Gives what it was promised of each that it is
    /// on.
    fn sit(
        &self,
        resident: &Resident,
        seat: &mut Seat,
        devices: &[Arc<ExternalDevice>],
        now: &Now,
    ) -> Vec<(usize, u64)> {
        let (model, weights_bytes) = (&*resident.model, resident.needed.bytes);
        let (config, rule) = (self.devices.config(model), self.devices.rule(model));
        let wish = Wish { model, version: resident.version, config: &config, rule: &rule };
        let candidates = self.candidates(&wish);
        if !candidates.is_empty() {
            seat.bytes.iter_mut().for_each(|bytes| *bytes = None);
        }
        let served = resident.replicas().map(|replicas| replicas.devices()).unwrap_or_default();
        let mut all_held = Vec::new();
        for (number, device) in devices.iter().enumerate() {
            let (at, name) = (seat.bytes.len(), device.name());
            let may_be = candidates.iter().any(|one| Arc::ptr_eq(one, device));
            let held = device.promised_to(model, resident.version);
            let promised = resident.promised_on(&name);
            let takes = match promised {
                None if !served.contains(&name) => {
                    Self::needed_on(&wish, (device, &now.workers), weights_bytes).bytes()
                }
                None => {
                    seat.current.push((at, Self::freed_by(now, resident, device, held)));
                    all_held.push((number, held));
                    held
                }
                Some(promised) => {
                    seat.current.push((at, held.max(promised)));
                    all_held.push((number, held));
                    held
                }
            };
            seat.bytes.push(may_be.then_some(takes));
            seat.runs.push(0);
        }
        let is_busy = !resident.promised().is_empty() || !self.devices.has_model(model);
        seat.stays |= !seat.current.is_empty() && (resident.keeps_state || is_busy);
        all_held
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
pub(super) mod tests {
    use std::time::Duration;

    use pool::Pool;

    use super::*;
    use crate::active::Active;
    use crate::devices::{DeviceOptions, Devices, LaneOptions, newcomer};
    use crate::external::{Books, configure};

    const GIB: u64 = 1 << 30;

    /// TensorFlow with GPUs of so many GiB beside the host, and a device config that says nothing.
    fn external(gpus: &[u64]) -> External {
        let flags = crate::cli::parse(&[]);
        let options =
            DeviceOptions { rules: Some(Vec::new()), ..DeviceOptions::new(&flags).unwrap() };
        external_with(gpus, &options, Arc::default())
    }

    /// The same with other options and models.
    pub(in crate::external) fn external_with(
        gpus: &[u64],
        options: &DeviceOptions,
        active: Arc<Active>,
    ) -> External {
        let (inline_max, pool) = (Duration::ZERO, Arc::new(Pool::new(1)));
        let lanes = LaneOptions { n_lanes: 1, inline_max, run_max: None, pool };
        let devices = Devices::start(options, &lanes, active).unwrap();
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
        let logical = configure(&found, options).unwrap();
        let books = Books::new(&devices);
        let logical = parking_lot::Mutex::new(logical);
        External { nvml: None, found, logical, workers: None, gpu_memory: None, devices, books }
    }

    #[test]
    fn a_gpu_says_what_is_promised_to_loads_under_way() {
        let external = external(&[4]);
        let admit = |model: &str, mib: u64| {
            external.devices.admit(newcomer(model, (mib, 0), Within::Workers))
        };
        let (first, second) = (admit("a", 3 << 10), admit("b", 2 << 10));
        let leased = external.lease(&first).unwrap();
        assert!(matches!(&leased, Way::Free(names) if *names == ["gpu:0"]));
        assert!(external.lease(&second).is_none());
        let (config, rule) = (external.devices.config("b"), external.devices.rule("b"));
        let wish = Wish { model: "b", version: 1, config: &config, rule: &rule };
        let refused = external.refusal(&wish, &external.all()[0], 2 * GIB).to_string();
        assert!(refused.contains("1073741824 are free; promised to a:1 3221225472"), "{refused}");
    }
}
