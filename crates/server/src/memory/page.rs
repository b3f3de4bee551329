//! Fills the page of memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::logical::LogicalDevice;
use device::{Category, Holder, Idle, Owner, Row, Snapshot};
use pages::{
    Categories, DeviceMemory, HeapBytes, IdleBytes, IdleKind, MemoryCategory, MemoryPage,
    PlanBytes, ServerMemory, SharedBytes, SharedMemory, TensorBytes, TrimPage, TrimmedDevice,
    VersionMemory, WorkspaceMemory,
};

use super::devices::{growth, kind};
use crate::devices::{Devices, Logical};

/// The number of a version's tensors that are shown.
const N_TENSORS: usize = 5;

/// The holders of the bytes of our own devices.
pub(crate) fn memory(devices: &Devices) -> MemoryPage {
    let heap = heap::bytes();
    MemoryPage {
        resident_bytes: resident_bytes(),
        heap: HeapBytes {
            allocated_bytes: heap.allocated_bytes,
            resident_bytes: heap.resident_bytes,
        },
        devices: devices.all().iter().map(|one| device(devices, one)).collect(),
        workers: Vec::new(),
    }
}

/// Returns all memory that nobody uses, and says how much that was.
pub(crate) fn trim(devices: &Devices) -> TrimPage {
    let given = devices.trim("asked");
    let entry = |(name, bytes): &(String, u64)| TrimmedDevice { name: name.clone(), bytes: *bytes };
    TrimPage {
        released_bytes: given.iter().map(|(_, bytes)| bytes).sum(),
        devices: given.iter().map(entry).collect(),
    }
}

fn device(devices: &Devices, logical: &Arc<Logical>) -> DeviceMemory {
    let snapshot = logical.space.ledger();
    let LogicalDevice { physical, limit_by, growth_by, .. } = *logical.device.lock();
    let mut owners = devices.own().owners_on(&logical.space);
    // A version on a GPU that needs nothing of the host is not on the host.
    owners.retain(|owner| {
        owner.bytes() > 0 || owner.work_bytes() > 0 || !devices.own().is_beside_a_gpu(owner)
    });
    let version = |owner: &Arc<Owner>| version(devices, logical, owner, &snapshot);
    DeviceMemory {
        name: snapshot.name.clone(),
        kind: kind(snapshot.kind),
        physical: devices.physical[physical].found.name.clone(),
        driver: devices.physical[physical].driver_name.to_owned(),
        engine: None,
        description: None,
        limit_bytes: snapshot.limit_bytes,
        limit_setting: limit_by.to_owned(),
        growth: growth(snapshot.growth),
        growth_setting: growth_by.to_string(),
        reserved_bytes: snapshot.held_bytes,
        peak_reserved_bytes: Some(snapshot.peak_held_bytes),
        in_use_bytes: snapshot.in_use_bytes,
        peak_in_use_bytes: snapshot.peak_in_use_bytes,
        free_bytes: logical.space.free_bytes(),
        promised_bytes: promised_bytes(devices, logical),
        others_bytes: None,
        worker_bytes: None,
        largest_free_bytes: Some(snapshot.largest_free_bytes),
        fragmentation: Some(snapshot.fragmentation),
        bookkeeping_bytes: Some(snapshot.bookkeeping_bytes),
        growths: Some(snapshot.n_growths),
        releases: Some(snapshot.n_releases),
        idle: idle(&snapshot),
        categories: categories(&snapshot, |_| true),
        workspaces: Some(workspaces(&snapshot, logical, &owners)),
        server: ServerMemory {
            categories: categories(&snapshot, |holder| *holder == Holder::Server),
        },
        named_bytes: Some(named_bytes(&snapshot)),
        shared: shared(&snapshot, logical.space.sharing().saved_bytes()),
        models: owners.iter().filter_map(version).collect(),
    }
}

/// The bytes that nobody holds yet, and that are promised to loads under way and to runs of the
/// models there.
fn promised_bytes(devices: &Devices, logical: &Logical) -> u64 {
    let loads: u64 = devices.own().promises(logical, None).iter().map(|(_, bytes)| bytes).sum();
    loads.saturating_add(devices.own().missing_for_runs(logical))
}

/// The workspaces of the lanes, which every model on the device shares: the bytes held for them,
/// and what each model needs in one of them.
fn workspaces(snapshot: &Snapshot, logical: &Logical, owners: &[Arc<Owner>]) -> WorkspaceMemory {
    let is_work = |row: &&Row| matches!(row.category, Category::Activations | Category::Workspace);
    let models = owners.iter().filter_map(|owner| {
        let (name, version) = version_id(owner.holder())?;
        Some(PlanBytes { name, version, largest_plan_bytes: owner.work_bytes() })
    });
    WorkspaceMemory {
        bytes: snapshot.rows.iter().filter(is_work).map(|row| row.bytes).sum(),
        lanes: logical.executor.lanes.n_lanes(),
        models: models.collect(),
    }
}

/// The memory of a version; `None` for a holder that is none.
fn version(
    devices: &Devices,
    logical: &Arc<Logical>,
    owner: &Owner,
    snapshot: &Snapshot,
) -> Option<VersionMemory> {
    let (name, version) = version_id(owner.holder())?;
    let is_it = |holder: &Holder| holder == owner.holder();
    let is_of = |row: &Row| is_it(&row.holder) || row.sharers.iter().any(is_it);
    Some(VersionMemory {
        bytes: total(snapshot, is_it),
        limit_bytes: Some(devices.own().account(&name, logical).limit_bytes()),
        promised_bytes: devices.own().promised_to(owner.holder(), logical),
        largest_plan_bytes: Some(owner.work_bytes()),
        categories: categories(snapshot, is_it),
        largest_tensors: largest(snapshot, is_of),
        name,
        version,
    })
}

/// The model and the version that a holder is, if it is one.
fn version_id(holder: &Holder) -> Option<(String, i64)> {
    match holder {
        Holder::Version { model, version } => Some((model.to_string(), *version)),
        Holder::Server | Holder::Shared => None,
    }
}

/// The largest weights, packed or not, among some rows; and who shares those that are shared.
fn largest(snapshot: &Snapshot, of: impl Fn(&Row) -> bool) -> Vec<TensorBytes> {
    let is_weight =
        |row: &&Row| matches!(row.category, Category::Weights | Category::PackedWeights);
    let rows = snapshot.rows.iter().filter(is_weight).filter(|row| of(row));
    let mut rows: Vec<&Row> = rows.filter(|row| !row.tensor.is_empty()).collect();
    rows.sort_by_key(|row| u64::MAX - row.bytes);
    let entry = |row: &&Row| TensorBytes {
        name: row.tensor.to_string(),
        bytes: row.bytes,
        category: category(row.category),
        sharers: row.sharers.iter().map(ToString::to_string).collect(),
    };
    rows.iter().take(N_TENSORS).map(entry).collect()
}

/// The bytes that several versions hold together, and those versions.
fn shared(snapshot: &Snapshot, saved_bytes: u64) -> SharedMemory {
    let is_shared = |holder: &Holder| *holder == Holder::Shared;
    let mut holders: BTreeMap<&Holder, u64> = BTreeMap::new();
    for row in snapshot.rows.iter().filter(|row| is_shared(&row.holder)) {
        for sharer in &row.sharers {
            *holders.entry(sharer).or_insert(0) += row.bytes;
        }
    }
    let entry = |(holder, bytes): (&Holder, u64)| {
        version_id(holder).map(|(name, version)| SharedBytes { name, version, bytes })
    };
    SharedMemory {
        bytes: total(snapshot, is_shared),
        saved_bytes,
        holders: holders.into_iter().filter_map(entry).collect(),
        largest_tensors: largest(snapshot, |row| is_shared(&row.holder)),
    }
}

/// The bytes in use that carry the name of a tensor or a plan.
fn named_bytes(snapshot: &Snapshot) -> u64 {
    let named = snapshot.rows.iter().filter(|row| !row.tensor.is_empty());
    named.map(|row| row.bytes).sum()
}

fn total(snapshot: &Snapshot, of: impl Fn(&Holder) -> bool) -> u64 {
    snapshot.rows.iter().filter(|row| of(&row.holder)).map(|row| row.bytes).sum()
}

fn categories(snapshot: &Snapshot, of: impl Fn(&Holder) -> bool) -> Categories {
    let mut totals = Categories::new();
    for row in snapshot.rows.iter().filter(|row| of(&row.holder)) {
        *totals.entry(category(row.category)).or_insert(0) += row.bytes;
    }
    totals
}

/// The bytes that are held and not in use, by reason.
fn idle(snapshot: &Snapshot) -> Vec<IdleBytes> {
    let entry = |(idle, bytes): &(Idle, u64)| IdleBytes {
        bytes: *bytes,
        kind: idle_kind(*idle),
        reason: idle.reason().to_owned(),
    };
    snapshot.idle.iter().map(entry).collect()
}

fn idle_kind(idle: Idle) -> IdleKind {
    match idle {
        Idle::Kept => IdleKind::Kept,
        Idle::PartlyUsed => IdleKind::PartlyUsed,
        Idle::Reserved => IdleKind::Reserved,
        Idle::SetAside => IdleKind::SetAside,
        Idle::Rounding => IdleKind::Rounding,
    }
}

fn category(category: Category) -> MemoryCategory {
    match category {
        Category::Weights => MemoryCategory::Weights,
        Category::PackedWeights => MemoryCategory::PackedWeights,
        Category::Plans => MemoryCategory::Plans,
        Category::Activations => MemoryCategory::Activations,
        Category::Requests => MemoryCategory::Requests,
        Category::Workspace => MemoryCategory::Workspace,
        Category::Context => MemoryCategory::Context,
        Category::Fragmentation => MemoryCategory::Fragmentation,
        Category::Reserve => MemoryCategory::Reserve,
    }
}

/// The resident memory of the process, as the system says.
fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
}
