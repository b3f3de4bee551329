//! What versions that are being loaded were promised of devices, and do not hold yet: it is not
//! taken, but nobody else's either.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use device::{Category, Holder, Kind, Owner, Row, Snapshot};

use super::residents::{Resident, held};
use super::{Devices, Logical, is_beside};

/// What a version is to hold of a device that it is being loaded on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Promise {
    pub(crate) device: String,
    pub(crate) share: Share,
    /// What it is to hold of the host then, beside GPUs.
    pub(crate) host: Share,
}

/// What a version is to hold of one device, alone and with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Share {
    pub(crate) bytes: u64,
    /// The weights that it shares already, and those that it was known to share: they are no part
    /// of `bytes`. What it shares besides is.
    pub(crate) shared_bytes: u64,
}

impl Promise {
    /// A promise of one device and nothing beside it.
    pub(crate) fn new(device: &str, bytes: u64) -> Self {
        let share = Share { bytes, shared_bytes: 0 };
        Self { device: device.to_owned(), share, host: Share::default() }
    }

    /// What it says of a device.
    fn on(&self, logical: &Logical) -> Share {
        match logical.space.kind() {
            _ if self.device == logical.space.name() => self.share,
            Kind::Cpu => self.host,
            Kind::Gpu => Share::default(),
        }
    }
}

impl Share {
    /// What of it is not there yet, if so much is held, and so much shared with others.
    fn missing_bytes(&self, held_bytes: u64, shared_bytes: u64) -> u64 {
        let found = shared_bytes.saturating_sub(self.shared_bytes);
        self.bytes.saturating_sub(held_bytes).saturating_sub(found)
    }
}

impl Devices {
    /// Who is being loaded, and how many bytes of a device each will take besides what it holds,
    /// the most first; but for one, whom they are in the way of.
    pub(crate) fn promises(
        &self,
        logical: &Logical,
        but: Option<(&str, i64)>,
    ) -> Vec<(Holder, u64)> {
        let mut snapshot: Option<Snapshot> = None;
        let mut all = Vec::new();
        for resident in self.residents().iter().filter(|one| Some(one.who()) != but) {
            let promises = resident.promises();
            let promised = promises.iter().map(|promise| promise.on(logical)).max();
            let Some(promised) = promised.filter(|share| share.bytes > 0) else { continue };
            let snapshot = snapshot.get_or_insert_with(|| logical.space.snapshot());
            // What turned out to be shared is booked to nobody in particular.
            let shared = logical.space.shared_bytes(&resident.holder());
            match promised.missing_bytes(held(snapshot, resident), shared) {
                0 => {}
                bytes => all.push((resident.holder(), bytes)),
            }
        }
        all.sort_by_key(|(_, bytes)| u64::MAX - bytes);
        all
    }

    /// What nobody has of a device, nor was promised but for one.
    pub(crate) fn unpromised_bytes(&self, logical: &Logical, but: Option<(&str, i64)>) -> u64 {
        let promised: u64 = self.promises(logical, but).iter().map(|(_, bytes)| bytes).sum();
        let promised = promised.saturating_add(self.missing_for_runs(logical));
        logical.space.free_bytes().saturating_sub(promised)
    }

    /// What the models on a device were promised for their runs, and do not hold now: memory that
    /// nobody uses goes back, and is taken again for the next run. Nobody else is given it
    /// meanwhile, so that growth fails no model that serves.
    pub(crate) fn missing_for_runs(&self, logical: &Logical) -> u64 {
        let snapshot = logical.space.snapshot();
        let is_for_runs = |row: &&Row| {
            matches!(row.category, Category::Activations | Category::Workspace | Category::Requests)
        };
        let held: u64 = snapshot.rows.iter().filter(is_for_runs).map(|row| row.bytes).sum();
        self.promised_for_runs(logical).saturating_sub(held)
    }

    /// What runs of a version that is on a device were promised there.
    pub(super) fn runs_of(&self, resident: &Resident, logical: &Logical) -> u64 {
        let holder = resident.holder();
        let owners = self.owners_on(&logical.space);
        // What was set aside for a model has its own workspaces.
        let is_its = |owner: &&Arc<Owner>| {
            *owner.holder() == holder && Arc::ptr_eq(owner.space(), &logical.space)
        };
        let n_lanes = logical.executor.lanes.n_lanes();
        let of = |owner: &Arc<Owner>| runs(owner, logical, n_lanes);
        owners.iter().filter(is_its).map(of).max().unwrap_or(0)
    }

    /// What the models on a device were promised for their runs: on each lane as much as the
    /// largest of them takes, since they share the lanes' memory. On the host also what runs on
    /// each GPU take there.
    pub(crate) fn promised_for_runs(&self, logical: &Logical) -> u64 {
        let mut most: BTreeMap<String, u64> = BTreeMap::new();
        let owners: Vec<Arc<Owner>> = self.owners.lock().iter().filter_map(Weak::upgrade).collect();
        for owner in owners.iter().filter(|owner| !is_beside(owner, &owners)) {
            let root = owner.space().root();
            // What was set aside for a model has its own workspaces.
            let is_there = Arc::ptr_eq(owner.space(), &logical.space);
            let on_host = owner.is_split() && Arc::ptr_eq(owner.host().space(), &logical.space);
            let n_lanes = self.logical(root.name()).map_or(1, |one| one.executor.lanes.n_lanes());
            let bytes = match (is_there, on_host) {
                (true, _) => runs(owner, logical, n_lanes),
                (false, true) => runs(owner.host(), logical, n_lanes),
                (false, false) => continue,
            };
            let entry = most.entry(root.name().to_owned()).or_insert(0);
            *entry = bytes.max(*entry);
        }
        most.values().fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }

    /// What a version is to hold of the host when it is on so many more GPUs.
    pub(super) fn host_share_beside(&self, resident: &Resident, n_gpus: usize) -> Share {
        let more = resident.needed.host_bytes.saturating_mul(n_gpus as u64);
        let Some(host) = self.host().filter(|_| more > 0) else { return Share::default() };
        Share {
            bytes: held(&host.space.snapshot(), resident).saturating_add(more),
            shared_bytes: host.space.shared_bytes(&resident.holder()),
        }
    }
}

/// What runs of an owner may take of a device at most, as it was planned or as it has been: on so
/// many lanes at once, or on one where even all of the device is too little for that.
fn runs(owner: &Owner, logical: &Logical, n_lanes: usize) -> u64 {
    let limit = owner.account().map_or(u64::MAX, |account| account.limit_bytes());
    let room = logical.space.room_bytes().min(limit).saturating_sub(owner.bytes());
    let run = owner.peak_bytes().max(owner.work_bytes());
    let all = run.saturating_mul(n_lanes as u64);
    if all <= room { all } else { run.min(room) }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use device::{Buffer, Category, Owner};
    use native::WeightKey;
    use pool::Pool;

    use super::super::leases::Refusal;
    use super::super::{
        DeviceOptions, LaneOptions, Lease, Needed, Newcomer, Resident, Way, Within,
    };
    use super::*;

    const MIB: u64 = 1 << 20;

    /// The host and one GPU of 64 MiB each.
    fn devices() -> Arc<Devices> {
        devices_with(1)
    }

    /// The same with so many lanes on each.
    fn devices_with(n_lanes: usize) -> Arc<Devices> {
        let flags = crate::cli::parse(&["--simulated_gpus=64MiB"]);
        let options =
            DeviceOptions { rules: Some(Vec::new()), ..DeviceOptions::new(&flags).unwrap() };
        let (inline_max, pool) = (Duration::ZERO, Arc::new(Pool::new(1)));
        let lanes = LaneOptions { n_lanes, inline_max, run_max: None, pool };
        let devices = Devices::start(&options, &lanes, Arc::default()).unwrap();
        assert!(devices.change("device { name: \"cpu:0\" memory_limit: \"64MiB\" }").is_ok());
        devices
    }

    /// A version that looks for its place, and needs so many MiB there and of the host beside it.
    pub(crate) fn newcomer(model: &str, (mib, host_mib): (u64, u64), within: Within) -> Newcomer {
        Newcomer {
            model: model.into(),
            version: 1,
            dir: storage::open(env!("CARGO_MANIFEST_DIR")).unwrap(),
            path: model.to_owned(),
            needed: Needed { bytes: mib * MIB, host_bytes: host_mib * MIB, ..Needed::default() },
            // Nobody else has such weights.
            keys: vec![WeightKey { checksum: u32::from(model.as_bytes()[0]), bytes: mib * MIB }],
            keeps_state: false,
            within,
        }
    }

    fn admit(devices: &Devices, model: &str, mib: (u64, u64)) -> Arc<Resident> {
        devices.admit(newcomer(model, mib, Within::Devices))
    }

    #[expect(clippy::result_large_err, reason = "a refusal is rare, and says much")]
    fn lease(devices: &Devices, resident: &Arc<Resident>) -> Result<Vec<Lease>, Refusal> {
        match devices.lease(resident, || devices.board(Some(resident)))? {
            Way::Free(leases) => Ok(leases),
            Way::After(_) | Way::Later => panic!("nobody is to make way"),
        }
    }

    /// What a refusal says, in MiB: needed, free, and promised to whom.
    fn said(refusal: Refusal) -> (String, u64, u64, Vec<(String, u64)>) {
        let promised = refusal.promised.iter();
        let promised = promised.map(|(holder, bytes)| (holder.to_string(), bytes / MIB));
        let promised = promised.collect();
        (refusal.device, refusal.needed_bytes / MIB, refusal.free_bytes / MIB, promised)
    }

    #[test]
    fn a_refusal_says_what_is_promised_to_loads_under_way() {
        let devices = devices();
        let (first, second) = (admit(&devices, "a", (40, 0)), admit(&devices, "b", (30, 0)));
        let leases = lease(&devices, &first).unwrap();
        let refused = lease(&devices, &second).err().unwrap();
        let text = "gpu:0 has no room: 31457280 bytes are needed, 25165824 are free and 0 would be \
                    if other models were unloaded; promised to loads under way: a:1 41943040; \
                    gpu:0 may hold 67108864 (default)";
        assert_eq!(refused.to_string(), text);
        // What was read of it changes nothing for others.
        let weights = Buffer::allocate_for(&leases[0].owner, Category::Weights, 8 << 20).unwrap();
        let refused = said(lease(&devices, &second).err().unwrap());
        assert_eq!(refused, ("gpu:0".to_owned(), 30, 24, vec![("a:1".to_owned(), 32)]));
        assert!(!devices.has_room("c", 25 * MIB) && devices.has_room("c", 24 * MIB));
        // Nobody is in the way of himself.
        let gpu = devices.logical("gpu:0").unwrap();
        assert_eq!(said(devices.refusal(first.who(), &gpu, 99 * MIB)).2, 56);
        drop((weights, leases, first));
        assert_eq!(lease(&devices, &second).unwrap().len(), 1);
    }

    #[test]
    fn runs_on_all_lanes_are_promised_to_a_model_that_is_loaded() {
        let devices = devices_with(2);
        let admit = |model: &str, mib: u64, run: u64| {
            let run_bytes = run * MIB;
            let needed = Needed {
                bytes: (mib + run) * MIB,
                resident_bytes: mib * MIB,
                run_bytes,
                largest_run_bytes: run_bytes,
                ..Needed::default()
            };
            let keys = Vec::new();
            devices.admit(Newcomer { needed, keys, ..newcomer(model, (0, 0), Within::Devices) })
        };
        let first = admit("a", 20, 5);
        let leases = lease(&devices, &first).unwrap();
        let gpu = devices.logical("gpu:0").unwrap();
        // While it is loaded, all of that is promised to its load.
        assert_eq!(devices.unpromised_bytes(&gpu, None), 34 * MIB);
        let weights = Buffer::allocate_for(&leases[0].owner, Category::Weights, 20 << 20).unwrap();
        leases[0].owner.note_peak(first.needed.largest_run_bytes);
        first.forget("gpu:0");
        assert_eq!(devices.missing_for_runs(&gpu), 10 * MIB);
        assert_eq!(devices.unpromised_bytes(&gpu, None), 34 * MIB);
        assert!(!devices.has_room("c", 35 * MIB) && devices.has_room("c", 34 * MIB));
        let refused = lease(&devices, &admit("b", 30, 5)).err().unwrap().to_string();
        assert!(refused.contains("promised to runs of the models there: 10485760"), "{refused}");
        // What a run has of it is not missing, and what it took once it is promised again.
        let run = Buffer::allocate_for(&leases[0].owner, Category::Activations, 4 << 20).unwrap();
        assert_eq!(devices.missing_for_runs(&gpu), 6 * MIB);
        drop(run);
        leases[0].owner.note_work(15 << 20);
        assert_eq!(devices.missing_for_runs(&gpu), 30 * MIB);
        // More than a device has for all lanes at once is promised for one.
        leases[0].owner.note_work(30 << 20);
        assert_eq!(devices.missing_for_runs(&gpu), 30 * MIB);
        drop((weights, leases));
        assert_eq!(devices.missing_for_runs(&gpu), 0);
    }

    #[test]
    fn weights_that_turn_out_to_be_shared_are_promised_no_longer() {
        let devices = devices();
        let keys = vec![WeightKey { checksum: 7, bytes: 20 * MIB }];
        let admit_alike = |model: &str, mib: u64| {
            let newcomer = newcomer(model, (mib, 0), Within::Devices);
            devices.admit(Newcomer { keys: keys.clone(), ..newcomer })
        };
        let (first, second) = (admit_alike("a", 30), admit_alike("b", 24));
        let read = |owner: &Arc<Owner>| {
            let mut buffer = Buffer::allocate_for(owner, Category::Weights, 20 << 20).unwrap();
            buffer.bytes_mut().unwrap().fill(1);
            owner.space().share(buffer, owner, Category::Weights)
        };
        let gpu = devices.logical("gpu:0").unwrap();
        let promised = || {
            let promises = devices.promises(&gpu, None).into_iter();
            promises.map(|(holder, bytes)| (holder.to_string(), bytes / MIB)).collect::<Vec<_>>()
        };
        let said = |all: &[(&str, u64)]| {
            all.iter().map(|(model, mib)| (format!("{model}:1"), *mib)).collect::<Vec<_>>()
        };
        let leases = lease(&devices, &first).unwrap();
        let others = lease(&devices, &second).unwrap();
        // The second was known to share what the first will have.
        assert_eq!(promised(), said(&[("a", 30), ("b", 4)]));
        let weights = read(&leases[0].owner);
        assert_eq!(promised(), said(&[("a", 10), ("b", 4)]));
        let same = read(&others[0].owner);
        assert_eq!(promised(), said(&[("a", 10), ("b", 4)]));
        let third = admit(&devices, "c", (30, 0));
        assert_eq!(lease(&devices, &third).unwrap().len(), 1);
        // What is no longer shared is the first one's own.
        gpu.space.unshare(&others[0].owner);
        drop((same, others, second, third));
        assert_eq!(promised(), said(&[("a", 10)]));
        drop(weights);
    }

    #[test]
    fn weights_of_others_are_no_use_to_a_model_with_memory_of_its_own() {
        let devices = devices();
        let config = "name: \"b\" memory { reservation: \"8MiB\" limit: \"64MiB\" }";
        let _before = devices.active.replace(&[proto::text::parse(config).unwrap()]);
        let keys = vec![WeightKey { checksum: 7, bytes: 20 * MIB }];
        let alike = |model: &str| {
            let newcomer = newcomer(model, (34, 0), Within::Devices);
            devices.admit(Newcomer { keys: keys.clone(), ..newcomer })
        };
        let (first, with_its_own, plain) = (alike("a"), alike("b"), alike("c"));
        let leases = lease(&devices, &first).unwrap();
        let refused = said(lease(&devices, &with_its_own).err().unwrap());
        assert_eq!(refused, ("gpu:0".to_owned(), 34, 30, vec![("a:1".to_owned(), 34)]));
        assert_eq!(lease(&devices, &plain).unwrap().len(), 1);
        drop(leases);
    }

    #[test]
    fn what_loads_on_gpus_need_of_the_host_is_promised_too() {
        let devices = devices();
        let (first, second) = (admit(&devices, "a", (1, 40)), admit(&devices, "b", (1, 30)));
        let leases = lease(&devices, &first).unwrap();
        let tables = Buffer::allocate_for(leases[0].owner.host(), Category::Weights, 8 << 20);
        let (device, needed, free, promised) = said(lease(&devices, &second).err().unwrap());
        assert_eq!((device.as_str(), needed), ("cpu:0", 30));
        assert_eq!(promised, [("a:1".to_owned(), 32)]);
        // But for what the server itself holds of the host.
        assert!((20..=24).contains(&free), "{free}");
        drop((tables, leases, first));
        assert_eq!(lease(&devices, &second).unwrap().len(), 1);
    }
}
