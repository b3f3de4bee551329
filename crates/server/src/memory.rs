//! Who holds which bytes: as JSON, and as events in the log.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::{Kind, Metric, Point, Status, Value};
use device::logical::{GrowthRule, LogicalDevice};
use device::{
    Category, Driver, EVENT_MICROS, Event, EventSum, EventTotal, Holder, Owner, Recent, Row,
    Snapshot,
};
use serde_json::{Map, Value as Json, json};
use tokio_util::sync::CancellationToken;

use crate::devices::{Devices, Logical};

/// How many of a version's tensors are shown.
const N_TENSORS: usize = 5;

/// How often what nobody uses is looked for.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// For how many looks a device must have given out nothing new before its memory goes back.
const N_IDLE_LOOKS: u32 = 3;

/// What REST says and does about memory.
pub(crate) struct Pages(pub(crate) Arc<Devices>);

impl api::Memory for Pages {
    fn memory(&self) -> Vec<u8> {
        print(&memory(&self.0))
    }

    fn devices(&self) -> Vec<u8> {
        print(&devices(&self.0))
    }

    fn change_devices(&self, change: &[u8]) -> Result<Vec<u8>, Status> {
        let text = std::str::from_utf8(change)
            .map_err(|_| Status::invalid("a device config is text, or JSON"))?;
        let warnings = self.0.change(text)?;
        warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        let mut answer = devices(&self.0);
        answer["warnings"] = json!(warnings);
        Ok(print(&answer))
    }

    fn trim(&self) -> Vec<u8> {
        let given = self.0.trim("asked");
        let total: u64 = given.iter().map(|(_, bytes)| bytes).sum();
        let devices = given.iter().map(|(name, bytes)| json!({"name": name, "bytes": bytes}));
        print(&json!({"released_bytes": total, "devices": devices.collect::<Vec<_>>()}))
    }
}

/// A page, as it is sent.
pub(crate) fn print(value: &Json) -> Vec<u8> {
    let mut text = serde_json::to_vec_pretty(value).unwrap_or_default();
    text.push(b'\n');
    text
}

/// Which devices were found, and what was made of them.
pub(crate) fn devices(devices: &Devices) -> Json {
    let physical = devices.physical.iter().map(|one| {
        let mut shown = json!({
            "name": one.found.name,
            "kind": one.found.kind.to_string(),
            "driver": one.driver_name,
            "total_bytes": one.total_bytes(),
            "limit_bytes": one.driver.limit_bytes(),
            "held_bytes": one.driver.account().held_bytes(),
            "context_bytes": one.driver.context_bytes(),
        });
        if let Some(rates) = one.pace.as_ref().map(|pace| pace.rates()) {
            shown["simulation"] = json!({
                "flops_per_second": rates.flops_per_second,
                "copy_bytes_per_second": rates.copy_bytes_per_second,
                "launch_nanos": u64::try_from(rates.launch.as_nanos()).unwrap_or(u64::MAX),
                "refused_bytes": one.played.as_ref().map_or(0, |played| played.refused_bytes()),
            });
        }
        shown
    });
    let logical = devices.all().into_iter().map(|one| {
        let device = one.device.lock();
        json!({
            "name": device.name,
            "kind": one.space.kind().to_string(),
            "physical": devices.physical[device.physical].found.name,
            "limit_bytes": one.space.account().limit_bytes(),
            "limit_setting": device.limit_by,
            "growth": growth(device.growth),
            "growth_setting": device.growth_by.to_string(),
            "priority": device.priority,
            "lanes": one.executor.lanes.n_lanes(),
            "fails_in": one.space.fails_in(),
        })
    });
    json!({
        "physical": physical.collect::<Vec<_>>(),
        "logical": logical.collect::<Vec<_>>(),
        "warnings": devices.warnings,
    })
}

/// Who holds which bytes of which device.
pub(crate) fn memory(devices: &Devices) -> Json {
    let all = devices.all();
    let heap = device::heap_bytes();
    json!({
        "resident_bytes": resident_bytes(),
        "heap": {
            "allocated_bytes": heap.allocated_bytes,
            "resident_bytes": heap.resident_bytes,
        },
        "devices": all.iter().map(|one| device(devices, one)).collect::<Vec<_>>(),
    })
}

fn device(devices: &Devices, logical: &Arc<Logical>) -> Json {
    let snapshot = logical.space.ledger();
    let LogicalDevice { physical, limit_by, growth_by, .. } = *logical.device.lock();
    let mut owners = devices.owners_on(&logical.space);
    // A version on a GPU that needs nothing of the host is not on the host.
    owners.retain(|owner| {
        owner.bytes() > 0 || owner.work_bytes() > 0 || !devices.is_beside_a_gpu(owner)
    });
    let mut models: Vec<Json> = Vec::new();
    for owner in &owners {
        if let Holder::Version { model, version } = owner.holder() {
            let limit = devices.account(model, logical).limit_bytes();
            models.push(version_of(owner, (model, *version), limit, &snapshot));
        }
    }
    json!({
        "name": snapshot.name,
        "kind": snapshot.kind.to_string(),
        "physical": devices.physical[physical].found.name,
        "driver": devices.physical[physical].driver_name,
        "limit_bytes": snapshot.limit_bytes,
        "limit_setting": limit_by,
        "reserved_bytes": snapshot.held_bytes,
        "peak_reserved_bytes": snapshot.peak_held_bytes,
        "in_use_bytes": snapshot.in_use_bytes,
        "peak_in_use_bytes": snapshot.peak_in_use_bytes,
        "free_bytes": logical.space.free_bytes(),
        "largest_free_bytes": snapshot.largest_free_bytes,
        "fragmentation": snapshot.fragmentation,
        "bookkeeping_bytes": snapshot.bookkeeping_bytes,
        "growth": growth(snapshot.growth),
        "growth_setting": growth_by.to_string(),
        "promised_bytes": promised_bytes(devices, logical),
        "growths": snapshot.n_growths,
        "releases": snapshot.n_releases,
        "idle": idle(&snapshot),
        "categories": categories(&snapshot, |_| true),
        "workspaces": workspaces(&snapshot, logical, &owners),
        "server": { "categories": categories(&snapshot, |holder| *holder == Holder::Server) },
        "named_bytes": named_bytes(&snapshot),
        "shared": shared(&snapshot, logical.space.saved_bytes()),
        "models": models,
    })
}

/// What nobody holds yet, and is promised to loads under way and to runs of the models there.
fn promised_bytes(devices: &Devices, logical: &Logical) -> u64 {
    let loads: u64 = devices.promises(logical, None).iter().map(|(_, bytes)| bytes).sum();
    loads.saturating_add(devices.missing_for_runs(logical))
}

/// The workspaces of the lanes, which every model on the device shares: what is held for them, and
/// what each model needs in one of them.
fn workspaces(snapshot: &Snapshot, logical: &Logical, owners: &[Arc<Owner>]) -> Json {
    let is_work = |row: &&Row| matches!(row.category, Category::Activations | Category::Workspace);
    let held = snapshot.rows.iter().filter(is_work).map(|row| row.bytes).sum::<u64>();
    let models = owners.iter().filter_map(|owner| match owner.holder() {
        Holder::Version { model, version } => Some(json!({
            "name": &**model,
            "version": version,
            "largest_plan_bytes": owner.work_bytes(),
        })),
        Holder::Server | Holder::Shared => None,
    });
    json!({
        "bytes": held,
        "lanes": logical.executor.lanes.n_lanes(),
        "models": models.collect::<Vec<_>>(),
    })
}

fn version_of(
    owner: &Owner,
    (model, version): (&str, i64),
    limit_bytes: u64,
    snapshot: &Snapshot,
) -> Json {
    let is_it = |holder: &Holder| holder == owner.holder();
    let is_of = |row: &Row| is_it(&row.holder) || row.sharers.iter().any(is_it);
    json!({
        "name": model,
        "version": version,
        "bytes": total(snapshot, is_it),
        "limit_bytes": limit_bytes,
        "largest_plan_bytes": owner.work_bytes(),
        "categories": categories(snapshot, is_it),
        "largest_tensors": largest(snapshot, is_of),
    })
}

/// The largest weights, packed or not, among some rows; and who shares those that are shared.
fn largest(snapshot: &Snapshot, of: impl Fn(&Row) -> bool) -> Json {
    let is_weight =
        |row: &&Row| matches!(row.category, Category::Weights | Category::PackedWeights);
    let rows = snapshot.rows.iter().filter(is_weight).filter(|row| of(row));
    let mut rows: Vec<&Row> = rows.filter(|row| !row.tensor.is_empty()).collect();
    rows.sort_by_key(|row| u64::MAX - row.bytes);
    let shown = rows.iter().take(N_TENSORS).map(|row| {
        let mut shown = json!({
            "name": &*row.tensor,
            "bytes": row.bytes,
            "category": row.category.name(),
        });
        if !row.sharers.is_empty() {
            shown["sharers"] = row.sharers.iter().map(ToString::to_string).collect();
        }
        shown
    });
    Json::Array(shown.collect())
}

/// What several versions hold together, and which.
fn shared(snapshot: &Snapshot, saved_bytes: u64) -> Json {
    let is_shared = |holder: &Holder| *holder == Holder::Shared;
    let mut holders: BTreeMap<&Holder, u64> = BTreeMap::new();
    for row in snapshot.rows.iter().filter(|row| is_shared(&row.holder)) {
        for sharer in &row.sharers {
            *holders.entry(sharer).or_insert(0) += row.bytes;
        }
    }
    let holders = holders.into_iter().filter_map(|(holder, bytes)| match holder {
        Holder::Version { model, version } => {
            Some(json!({"name": &**model, "version": version, "bytes": bytes}))
        }
        Holder::Server | Holder::Shared => None,
    });
    json!({
        "bytes": total(snapshot, is_shared),
        "saved_bytes": saved_bytes,
        "holders": holders.collect::<Vec<_>>(),
        "largest_tensors": largest(snapshot, |row| is_shared(&row.holder)),
    })
}

/// The bytes in use that carry the name of a tensor or a plan.
fn named_bytes(snapshot: &Snapshot) -> u64 {
    let named = snapshot.rows.iter().filter(|row| !row.tensor.is_empty());
    named.map(|row| row.bytes).sum()
}

fn total(snapshot: &Snapshot, of: impl Fn(&Holder) -> bool) -> u64 {
    snapshot.rows.iter().filter(|row| of(&row.holder)).map(|row| row.bytes).sum()
}

fn categories(snapshot: &Snapshot, of: impl Fn(&Holder) -> bool) -> Json {
    let mut totals: BTreeMap<Category, u64> = BTreeMap::new();
    for row in snapshot.rows.iter().filter(|row| of(&row.holder)) {
        *totals.entry(row.category).or_insert(0) += row.bytes;
    }
    let named =
        totals.into_iter().map(|(category, bytes)| (category.name().to_owned(), bytes.into()));
    Json::Object(named.collect::<Map<String, Json>>())
}

/// Why bytes that nobody uses are still held.
fn idle(snapshot: &Snapshot) -> Json {
    let reasons = snapshot.idle.iter();
    let reasons = reasons.map(|(reason, bytes)| json!({"bytes": bytes, "reason": reason.reason()}));
    Json::Array(reasons.collect())
}

/// How a device takes its memory, as pages say it.
pub(crate) fn growth(rule: GrowthRule) -> &'static str {
    match rule {
        GrowthRule::OnDemand => "on_demand",
        GrowthRule::Reserved => "reserved",
    }
}

/// What the system says that the process has in memory.
fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
}

/// The memory of devices and models, as metrics.
pub(crate) fn metrics(devices: &Devices) -> [Metric; 6] {
    let gauge = |labels, bytes: u64| Point {
        labels,
        value: Value::Gauge(i64::try_from(bytes).unwrap_or(i64::MAX)),
    };
    let (mut of_devices, mut of_holders) = (Vec::new(), Vec::new());
    let (mut growths, mut releases) = (Vec::new(), Vec::new());
    let (mut changed, mut durations) = (Vec::new(), Vec::new());
    for logical in devices.all() {
        let snapshot = logical.space.snapshot();
        let device = || ("device", snapshot.name.clone());
        for (kind, bytes) in [
            ("limit", snapshot.limit_bytes),
            ("reserved", snapshot.held_bytes),
            ("in_use", snapshot.in_use_bytes),
            ("peak_in_use", snapshot.peak_in_use_bytes),
        ] {
            of_devices.push(gauge(vec![device(), ("kind", kind.to_owned())], bytes));
        }
        for row in &snapshot.rows {
            let (model, version) = match &row.holder {
                Holder::Version { model, version } => (model.to_string(), version.to_string()),
                Holder::Server | Holder::Shared => (String::new(), row.holder.to_string()),
            };
            let category = ("category", row.category.name().to_owned());
            let labels = vec![device(), ("model_name", model), ("version", version), category];
            of_holders.push(gauge(labels, row.bytes));
        }
        let counter = |n| Point { labels: vec![device()], value: Value::Counter(n) };
        growths.push(counter(snapshot.n_growths));
        releases.push(counter(snapshot.n_releases));
        for total in &snapshot.events {
            let labels = || {
                let change = ("change", total.change.name().to_owned());
                vec![device(), change, ("cause", total.cause.to_owned())]
            };
            changed.push(Point { labels: labels(), value: Value::Counter(total.bytes) });
            durations.push(Point { labels: labels(), value: duration(total) });
        }
    }
    let metric = |name, kind, points| Metric { name, kind, points };
    [
        metric("/tensord/device_memory_bytes", Kind::Gauge, of_devices),
        metric("/tensord/model_memory_bytes", Kind::Gauge, of_holders),
        metric("/tensord/device_memory_growth_count", Kind::Counter, growths),
        metric("/tensord/device_memory_release_count", Kind::Counter, releases),
        metric("/tensord/device_memory_changed_bytes", Kind::Counter, changed),
        metric("/tensord/device_memory_change_micros", Kind::Histogram, durations),
    ]
}

/// How long growths or releases took.
fn duration(total: &EventTotal) -> Value {
    let (limits, sum) = (&EVENT_MICROS, total.duration.as_secs_f64() * 1e6);
    Value::Histogram { limits, counts: total.counts.to_vec(), sum }
}

/// Until the token is cancelled: says what grew and what went back, gives back what devices have
/// not used for a while, and lets the host's limit follow what the process may have.
pub(crate) async fn watch(devices: Arc<Devices>, token: CancellationToken) {
    let mut looks: BTreeMap<String, (u64, u32)> = BTreeMap::new();
    let mut had_gone = false;
    while token.run_until_cancelled(tokio::time::sleep(LOOK_EVERY)).await.is_some() {
        devices.follow_host();
        // Threads that a load or an unload had give back what they kept when they end: by now.
        if std::mem::replace(&mut had_gone, devices.forget_gone()) {
            crate::devices::trim_heap();
        }
        for logical in devices.all() {
            let space = &logical.space;
            // What a driver did not give back when its model went.
            space.take_lent();
            say(space.name(), &space.take_events());
            let snapshot = space.snapshot();
            let look = looks.entry(snapshot.name).or_default();
            let is_same = look.0 == snapshot.n_growths + snapshot.in_use_bytes;
            *look =
                (snapshot.n_growths + snapshot.in_use_bytes, if is_same { look.1 + 1 } else { 0 });
            if look.1 == N_IDLE_LOOKS && snapshot.idle_bytes > 0 {
                drop(space.rest());
            }
        }
    }
    // What changed since the last look.
    devices.all().iter().for_each(|one| say(one.space.name(), &one.space.take_events()));
}

/// Each large growth and release, and the small ones summed by cause; those one by one for who
/// debugs.
fn say(device: &str, recent: &Recent) {
    for event in &recent.events {
        let Event { bytes, cause, duration } = event;
        match (event.is_large(), *bytes > 0) {
            (true, true) => tracing::info!(device, bytes, cause, ?duration, "memory grew"),
            (true, false) => tracing::info!(device, bytes, cause, ?duration, "memory went back"),
            (false, _) => tracing::debug!(device, bytes, cause, ?duration, "memory changed"),
        }
    }
    for EventSum { bytes, cause, n_events: times, longest } in &recent.sums {
        tracing::info!(device, bytes, cause, times, ?longest, "memory changed by little");
    }
    if recent.n_summed > 0 {
        let n = recent.n_summed;
        tracing::info!(device, "memory changed so often that {n} changes are only in the sums");
    }
}
