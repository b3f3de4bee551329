//! `tensord plan`: what fits where, and how often, before anything is served.
//!
//! Every model is rehearsed: what is traced, folded, packed and planned is what would be, but no
//! weight is read and nothing runs.

mod copies;
mod fitting;
mod needed;
mod worker;

use std::fmt::Write as _;
use std::sync::Arc;

use anyhow::Result;
use device::placement::{Fleet, Replicas, Seat, Slot};
use serde_json::{Value, json};

use super::devices;
use super::memory::{bytes, human, list, word};
use crate::active::Active;
use crate::cli::Persona;
use crate::config::Config;
use crate::devices::{Devices, Logical, ModelRule, Taken};
use crate::flags::Flags;
use copies::Room;
use needed::{Needed, rehearse};
use worker::{TensorFlow, Worker};

/// The batch sizes that are tried.
const BATCHES: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

/// What the command is asked for beside the flags of `serve`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    form: Form,
    /// What sizes are that signatures leave open, but for the rows.
    length: usize,
}

/// How what was found is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// For people.
    Table,
    /// For programs.
    Json,
}

impl Asked {
    /// Takes `--json` and `--length=N` out of the arguments of the command.
    ///
    /// # Errors
    /// If a length is no number from 1.
    pub(crate) fn take(args: &mut Vec<String>) -> Result<Self> {
        let (mut form, mut length) = (Form::Table, Ok(1));
        args.retain(|arg| {
            if arg == "--json" {
                form = Form::Json;
            } else if let Some(number) = arg.strip_prefix("--length=") {
                length = number.parse().ok().filter(|length| *length > 0).ok_or_else(|| {
                    anyhow::anyhow!("--length wants a number of elements from 1, got {number:?}")
                });
            } else {
                return true;
            }
            false
        });
        Ok(Self { form, length: length? })
    }
}

/// Runs the command.
pub(crate) fn main(flags: &Flags, asked: Asked) -> Result<()> {
    let config = Config::new(Persona::Tensord, flags)?;
    let active = Arc::new(Active::default());
    drop(active.replace(&config.models));
    let devices = devices::find(flags, config.n_lanes, active)?;
    let tensorflow = TensorFlow::new(flags, &config, &devices)?;
    let mut needs = Vec::new();
    for model in &config.models {
        let kind = slots(&devices).first().map_or(device::Kind::Cpu, |slot| slot.space.kind());
        let rows = super::open(std::path::Path::new(&model.base_path));
        let rows = rows.map_or(1, |dir| config.batching.batch_rows(&dir));
        let sizes = native::Sizes { rows, length: asked.length };
        let native = || rehearse(&model.base_path, &config.tags, kind, sizes);
        needs.push((model.name.clone(), tensorflow.measure(&devices, model, native)));
    }
    let report = report(&devices, &tensorflow.slots(), &mut needs);
    match asked.form {
        Form::Json => say!("{report:#}"),
        Form::Table => say!("{}", table(&report).trim_end()),
    }
    Ok(())
}

fn report(devices: &Devices, external: &[Slot], needs: &mut [(String, Result<Needed>)]) -> Value {
    let logical = slots(devices);
    let own = logical.iter().map(|one| Slot {
        device: one.space.name().to_owned(),
        free_bytes: one.space.room_bytes(),
    });
    let slots: Vec<Slot> = own.chain(external.iter().cloned()).collect();
    let host = HostRoom::beside(devices, &logical);
    let places: Vec<Slot> =
        slots.iter().cloned().chain(host.as_ref().map(HostRoom::slot)).collect();
    let board = Board { devices, logical: &logical, slots: &places, n_gpus: slots.len() };
    let placement = board.search(needs);
    let needs = &*needs;
    let fit = fit(needs);
    let wanted = board.wanted(&fit);
    let mut host = host;
    let mut models = Vec::new();
    for (at, (name, need)) in fit.iter().enumerate() {
        let on = &placement.devices[at];
        let mut answer = model((name, need), &wanted[at].seat, on, (&places, &placement));
        let rule = devices.rule(name);
        let room_on = |slot: usize| {
            let may_be = wanted[at].pins.contains(&slot);
            let own = logical.get(slot).filter(|_| need.worker.is_none());
            may_be.then(|| room(devices, &rule, (slots[slot].free_bytes, own)))
        };
        answer["copies_alone"] = copies_alone(need, &slots, room_on);
        say_replicas(&mut answer, &wanted[at], rule.replicas);
        refuse(&mut answer, taken(devices, &logical, name, need), (&wanted[at], &placement));
        if let Some(limit) = own_limit(devices, &logical, name) {
            let fits = need.plans.iter().filter(|(batch, _)| need.total(*batch) <= limit);
            let rows = fits.map(|(batch, _)| *batch as u64).max().unwrap_or(1);
            let most = answer["batch_size_max"].as_u64().map(|most| most.min(rows));
            answer["batch_size_max"] = json!(most);
        }
        if let Some(host) = &mut host {
            let own_limit = rule.limit.and(devices.host());
            let own_limit = own_limit.map(|host| devices.limit_on(Some(&rule), &host));
            host.take(need, (board.n_gpus(on), own_limit), &mut answer);
            if board.n_gpus(on) < on.len() {
                host.left_bytes = host.left_bytes.saturating_sub(need.total(1));
            }
        }
        models.push(answer);
    }
    let failed = needs.iter().filter_map(|(name, need)| {
        let error = need.as_ref().err()?;
        Some(json!({"name": name, "error": format!("{error:#}")}))
    });
    let free = left(&slots, &placement, &logical);
    let free: Vec<Value> = free.into_iter().chain(host.map(|host| host.to_json())).collect();
    let fits = models.iter().all(|model| model["refused"].is_null()) && fit.len() == needs.len();
    models.extend(failed);
    json!({"devices": free, "models": models, "fits": fits})
}

/// The devices that models are placed on, of which the first few are our own engine's. Beside GPUs
/// the host is the last: for models that name it, and for those that wait there while others move.
struct Board<'a> {
    devices: &'a Devices,
    logical: &'a [Arc<Logical>],
    slots: &'a [Slot],
    /// How many of them there are but for the host beside GPUs.
    n_gpus: usize,
}

/// What a model wants of the devices.
struct Wanted {
    /// The devices that it may be on, by their index.
    pins: Vec<usize>,
    seat: Seat,
}

impl Board<'_> {
    /// How many of some devices are not the host beside GPUs.
    fn n_gpus(&self, on: &[usize]) -> usize {
        on.iter().filter(|slot| **slot < self.n_gpus).count()
    }

    /// What each model wants of the devices.
    fn wanted(&self, fit: &[(&String, &Needed)]) -> Vec<Wanted> {
        fit.iter().map(|(name, need)| self.wanted_by(name, need)).collect()
    }

    fn wanted_by(&self, name: &str, need: &Needed) -> Wanted {
        let rule = self.devices.rule(name);
        // Our own engine has kernels for its own devices, TensorFlow for its own.
        let is_external = need.worker.as_ref().is_some_and(Worker::is_on_gpu);
        let n_own = self.logical.len();
        let usable = (0..self.n_gpus).filter(|slot| (*slot >= n_own) == is_external);
        let usable: Vec<usize> = usable.collect();
        let is_named = |slot: &usize| rule.devices.contains(&self.slots[*slot].device);
        let host = (self.n_gpus..self.slots.len()).filter(|_| need.worker.is_none());
        let pins: Vec<usize> = usable.iter().copied().chain(host).filter(is_named).collect();
        let pins = if pins.is_empty() { usable } else { pins };
        let takes = |slot: usize| self.takes(slot, name, need);
        let slots = 0..self.slots.len();
        let bytes = slots
            .clone()
            .map(|slot| takes(slot).filter(|_| pins.contains(&slot)).map(|taken| taken.bytes));
        let runs = slots.map(|slot| takes(slot).map_or(0, |taken| taken.runs));
        let (bytes, runs) = (bytes.collect(), runs.collect());
        let park = (self.n_gpus..self.slots.len()).find(|slot| !pins.contains(slot));
        let park = park.filter(|_| need.worker.is_none() && !need.keeps_state);
        let seat = Seat {
            bytes,
            runs,
            current: Vec::new(),
            replicas: if need.keeps_state { Replicas::Number(1) } else { rule.replicas },
            priority: rule.priority,
            stays: false,
            park: park.and_then(|slot| Some((slot, takes(slot)?.bytes))),
        };
        Wanted { pins, seat }
    }

    /// What a model takes of a device; nothing if its own limit there is too small.
    fn takes(&self, slot: usize, name: &str, need: &Needed) -> Option<Taken> {
        let own = self.logical.get(slot).cloned();
        let own = own.or_else(|| self.devices.host().filter(|_| slot >= self.n_gpus));
        match own.filter(|_| need.worker.is_none()) {
            Some(own) => {
                self.devices.takes_alone(&need.to_device(), &self.devices.rule(name), &own)
            }
            // TensorFlow runs within what its worker has.
            None => {
                let bytes = taken(self.devices, self.logical, name, need).ok()?;
                Some(Taken { bytes, runs: 0 })
            }
        }
    }
}

/// Those models that could be measured.
fn fit(needs: &[(String, Result<Needed>)]) -> Vec<(&String, &Needed)> {
    needs.iter().filter_map(|(name, need)| Some((name, need.as_ref().ok()?))).collect()
}

/// What is left on each device, of which the first few are our own engine's.
fn left(slots: &[Slot], placement: &Fleet, own: &[Arc<Logical>]) -> Vec<Value> {
    let left = slots.iter().zip(&placement.free_bytes).enumerate().map(|(at, (slot, left))| {
        let own = own.get(at).map(|own| own.space.account().limit_bytes());
        json!({
            "name": slot.device,
            "engine": if own.is_some() { "native" } else { "tensorflow" },
            "limit_bytes": own.unwrap_or(slot.free_bytes),
            "left_bytes": left,
        })
    });
    left.collect()
}

/// How many copies of a model fit on each device alone, of those that it may be on.
fn copies_alone(need: &Needed, slots: &[Slot], room_on: impl Fn(usize) -> Option<Room>) -> Value {
    let copies = slots.iter().enumerate().map(|(at, slot)| {
        let n = room_on(at).map_or(0, |room| room.copies(need));
        json!({"device": slot.device, "copies": n})
    });
    copies.collect()
}

/// What a copy of a model has to do with on a device that has so many bytes: on one of ours, or
/// another.
fn room(devices: &Devices, rule: &ModelRule, device: (u64, Option<&Arc<Logical>>)) -> Room {
    let (free_bytes, own) = device;
    let limit_on = |one: &Arc<Logical>| devices.limit_on(Some(rule), one);
    let is_gpu = own.is_some_and(|one| one.space.kind() == device::Kind::Gpu);
    let host = devices.host().filter(|_| is_gpu);
    Room {
        free_bytes,
        n_lanes: own.map_or(1, |own| own.executor.lanes.n_lanes()),
        own_limit_bytes: own.and_then(|own| rule.limit.map(|_| limit_on(own))),
        reserved_bytes: own.and_then(|own| devices.aside_on(rule, own)).map(|(least, _)| least),
        host: host
            .map(|host| (host.space.account().limit_bytes(), rule.limit.map(|_| limit_on(&host)))),
    }
}

/// Says on how many devices a model would be if that is fewer than was asked for, and why.
fn say_replicas(answer: &mut Value, wanted: &Wanted, asked: Replicas) {
    let n_devices = wanted.pins.len();
    let n_asked = match asked {
        Replicas::Number(n) => n,
        Replicas::All => n_devices,
    };
    let n_placed = answer["devices"].as_array().map_or(0, Vec::len);
    answer["replicas"] = json!(n_placed);
    answer["replicas_asked"] = json!(n_asked);
    if n_placed >= n_asked || n_placed == 0 {
        return;
    }
    let why = if wanted.seat.replicas == Replicas::Number(1) && n_asked > 1 {
        "requests change its variables or tables".to_owned()
    } else if n_asked > n_devices {
        format!("it may be on {n_devices} devices")
    } else {
        format!("the others of the {n_devices} devices that it may be on have no room for it")
    };
    answer["fewer_replicas"] =
        json!(format!("{n_placed} of the {n_asked} replicas asked for: {why}"));
}

/// What a model takes of a device with a run of one row: what it needs, or what is set aside for
/// it; its own limit if that is too small.
fn taken(
    devices: &Devices,
    logical: &[Arc<Logical>],
    name: &str,
    need: &Needed,
) -> Result<u64, OwnLimit> {
    let needed = need.total(1);
    match own_limit(devices, logical, name) {
        Some(limit) if need.worker.is_none() && limit < needed => Err(OwnLimit { limit, needed }),
        Some(_) | None => Ok(needed.max(reserved(devices, logical, name))),
    }
}

/// What is set aside for a model when it is loaded, on the device where that is most.
fn reserved(devices: &Devices, logical: &[Arc<Logical>], name: &str) -> u64 {
    let rule = devices.rule(name);
    let reserved = logical.iter().filter_map(|one| devices.aside_on(&rule, one));
    reserved.map(|(least, _)| least).max().unwrap_or(0)
}

/// The most that a model may hold by its own limit, on the device where that is most.
fn own_limit(devices: &Devices, logical: &[Arc<Logical>], name: &str) -> Option<u64> {
    let rule = devices.rule(name);
    let limit_on = |one: &Arc<Logical>| {
        devices.aside_on(&rule, one).map_or_else(|| devices.limit_on(Some(&rule), one), |two| two.1)
    };
    rule.limit.and(logical.iter().map(limit_on).max())
}

/// A model's own limit that is too small for it.
#[derive(Debug, Clone, Copy)]
struct OwnLimit {
    limit: u64,
    needed: u64,
}

/// Says of a model that is placed nowhere why that is, and what to change.
fn refuse(answer: &mut Value, taken: Result<u64, OwnLimit>, around: (&Wanted, &Fleet)) {
    let (wanted, placement) = around;
    if answer["devices"].as_array().is_some_and(|on| !on.is_empty()) {
        return;
    }
    let largest = wanted.pins.iter().map(|at| placement.free_bytes[*at]).max().unwrap_or(0);
    answer["refused"] = json!(match taken {
        Err(OwnLimit { limit, needed }) => format!(
            "{needed} bytes are needed, but the model itself may hold {limit}: raise its limit by \
             {}",
            needed - limit
        ),
        Ok(needed) => format!(
            "{needed} bytes are needed, but no device that it may be on has more than {largest} \
             left: unload another model, raise a limit by {}, or let it be on another device",
            needed.saturating_sub(largest),
        ),
    });
}

/// What is left of the host for the strings and tables of models on GPUs.
struct HostRoom {
    name: String,
    limit_bytes: u64,
    left_bytes: u64,
}

impl HostRoom {
    /// The host, if models go on other devices.
    fn beside(devices: &Devices, slots: &[Arc<Logical>]) -> Option<Self> {
        let is_gpu = |one: &Arc<Logical>| one.space.kind() == device::Kind::Gpu;
        let host = devices.host().filter(|_| slots.iter().any(is_gpu))?;
        let limit_bytes = host.space.account().limit_bytes();
        Some(Self { name: host.space.name().to_owned(), limit_bytes, left_bytes: limit_bytes })
    }

    /// Takes what a model on so many devices has of the host, or says why there is no room.
    fn take(
        &mut self,
        need: &Needed,
        (n_devices, own_limit): (usize, Option<u64>),
        answer: &mut Value,
    ) {
        let needed = need.host_total(1).saturating_mul(n_devices as u64);
        answer["host_bytes"] = json!(need.host_total(1));
        answer["host_resident_bytes"] = json!(need.load.host_bytes);
        if let Some(limit) = own_limit.filter(|limit| *limit < needed) {
            answer["refused"] = json!(format!(
                "{needed} bytes of strings and tables are needed on {}, but the model itself may \
                 hold {limit} there: raise its limit by {}",
                self.name,
                needed - limit,
            ));
            return;
        }
        if needed <= self.left_bytes {
            self.left_bytes -= needed;
            return;
        }
        answer["refused"] = json!(format!(
            "{needed} bytes of strings and tables are needed on {}, but {} are left there: unload \
             another model, or raise its limit by {}",
            self.name,
            self.left_bytes,
            needed - self.left_bytes,
        ));
    }

    /// The host as a device that models may be on.
    fn slot(&self) -> Slot {
        Slot { device: self.name.clone(), free_bytes: self.limit_bytes }
    }

    fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "engine": "native",
            "limit_bytes": self.limit_bytes,
            "left_bytes": self.left_bytes,
        })
    }
}

/// The devices that models are placed on: the GPUs, or the host without any.
fn slots(devices: &Devices) -> Vec<Arc<Logical>> {
    let (gpus, cpus): (Vec<_>, Vec<_>) =
        devices.all().into_iter().partition(|one| one.space.kind() == device::Kind::Gpu);
    if gpus.is_empty() { cpus } else { gpus }
}

fn model(
    (name, need): (&str, &Needed),
    seat: &Seat,
    on: &[usize],
    (slots, placement): (&[Slot], &Fleet),
) -> Value {
    let plans = need.plans.iter().map(|(batch, plan)| {
        json!({
            "batch": batch,
            "activation_bytes": plan.work_bytes,
            "dynamic_bytes": plan.dynamic_bytes,
            "plan_bytes": plan.plan_bytes,
            "is_static": plan.is_static,
            "total_bytes": need.total(*batch),
            "host_bytes": plan.host_bytes,
        })
    });
    // The largest batch that fits with what is left where it is placed.
    let batch = on.iter().map(|device| {
        let room = placement.free_bytes[*device] + own(seat, *device).max(need.total(1));
        let fits = need.plans.iter().filter(|(batch, _)| need.total(*batch) <= room);
        fits.map(|(batch, _)| *batch).max().unwrap_or(1)
    });
    let mut answer = json!({
        "name": name,
        "weights_bytes": need.load.weights_bytes,
        "packed_weights_bytes": need.load.packed_bytes,
        "other_bytes": need.load.other_bytes,
        "load_peak_bytes": need.load.load_peak_bytes,
        "total_bytes": need.total(1),
        "plans": plans.collect::<Vec<_>>(),
        "devices": on.iter().map(|device| &slots[*device].device).collect::<Vec<_>>(),
        "batch_size_max": batch.min(),
        "promised_bytes": on.iter().map(|device| own(seat, *device)).max(),
    });
    answer["engine"] = json!(if need.worker.is_some() { "tensorflow" } else { "native" });
    if let Some(worker) = &need.worker {
        answer["worker"] = worker.to_json();
    }
    answer
}

/// What a model is promised of a device: what it takes there, and what its runs do on all lanes.
fn own(seat: &Seat, device: usize) -> u64 {
    seat.bytes[device].unwrap_or(0).saturating_add(seat.runs[device])
}

/// A report for people.
fn table(report: &Value) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "{:<16} {:>10} {:>10}", "device", "limit", "left");
    for device in list(report, "devices") {
        let (limit, left) = (bytes(device, "limit_bytes"), bytes(device, "left_bytes"));
        let _ =
            writeln!(text, "{:<16} {:>10} {:>10}", word(device, "name"), human(limit), human(left));
    }
    let columns = ["weights", "packed", "loading", "batch 1", "batch 8", "batch 64"];
    let columns = columns.map(|column| format!("{column:>10}")).join(" ");
    let _ = writeln!(text, "\n{:<16} {columns}  {:<12} most rows, copies", "model", "placed on");
    for model in list(report, "models") {
        let name = super::memory::shorten(word(model, "name"), 16);
        if let Some(error) = model["error"].as_str() {
            let _ = writeln!(text, "{name:<16} cannot be loaded: {error}");
            continue;
        }
        let at = |batch: u64| {
            let plan = list(model, "plans").find(|plan| plan["batch"] == batch);
            plan.map_or("?".to_owned(), |plan| human(bytes(plan, "total_bytes")))
        };
        let of = |key: &str| human(bytes(model, key));
        let figures = [
            of("weights_bytes"),
            of("packed_weights_bytes"),
            of("load_peak_bytes"),
            at(1),
            at(8),
            at(64),
        ];
        let figures = figures.map(|figure| format!("{figure:>10}")).join(" ");
        let on: Vec<&str> = list(model, "devices").filter_map(Value::as_str).collect();
        let on = if on.is_empty() { "nowhere".to_owned() } else { on.join(",") };
        let copies = list(model, "copies_alone")
            .map(|one| format!("{} on {}", one["copies"], word(one, "device")));
        let copies: Vec<String> = copies.collect();
        let rows = model["batch_size_max"].as_u64().map_or("-".to_owned(), |n| n.to_string());
        let _ = writeln!(text, "{name:<16} {figures}  {on:<12} {rows}, {}", copies.join(", "));
    }
    for model in list(report, "models") {
        if let Some(text_of) = model["fewer_replicas"].as_str() {
            let _ = writeln!(text, "\n{} would have {text_of}", word(model, "name"));
        }
        if let Some(why) = model["refused"].as_str() {
            let _ = writeln!(text, "\n{} would be refused: {why}", word(model, "name"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use device::placement::fleet;

    use super::*;

    pub(super) fn needed(weights_bytes: u64) -> Needed {
        let plan = |work_bytes| native::PlanNeed {
            work_bytes,
            plan_bytes: 0,
            dynamic_bytes: 0,
            host_bytes: work_bytes,
            is_static: true,
            is_searched: false,
        };
        let plans = vec![(1, plan(10)), (2, plan(20)), (4, plan(40))];
        let load_peak_bytes = weights_bytes;
        let load = native::Need {
            weights_bytes,
            packed_bytes: 0,
            other_bytes: 0,
            load_peak_bytes,
            host_bytes: 7,
            host_peak_bytes: 8,
        };
        let (worker, rehearsed) = (None, None);
        Needed { load, plans, worker, keeps_state: false, rows_asked: 1, rehearsed }
    }

    fn seat(bytes: u64, n_devices: usize) -> Seat {
        Seat {
            bytes: vec![Some(bytes); n_devices],
            runs: vec![0; n_devices],
            current: Vec::new(),
            replicas: Replicas::Number(1),
            priority: 0,
            stays: false,
            park: None,
        }
    }

    #[test]
    fn fewer_replicas_than_asked_for_are_told_with_the_reason() {
        let check = |asked, pins: &[usize], on: &[&str], expected: Option<&str>| {
            let mut answer = json!({ "devices": on });
            let keeps_state = expected.is_some_and(|text| text.contains("requests change"));
            let replicas = if keeps_state { Replicas::Number(1) } else { asked };
            let wanted = Wanted { pins: pins.to_vec(), seat: Seat { replicas, ..seat(1, 3) } };
            say_replicas(&mut answer, &wanted, asked);
            assert_eq!(answer["fewer_replicas"].as_str(), expected);
            assert_eq!(answer["replicas"], on.len());
        };
        let two = ["gpu:0", "gpu:1"];
        let any = [0, 1, 2];
        check(Replicas::Number(2), &any, &two, None);
        check(Replicas::Number(2), &any, &[], None);
        let room = "the others of the 3 devices that it may be on have no room for it";
        check(
            Replicas::Number(3),
            &any,
            &two,
            Some(&format!("2 of the 3 replicas asked for: {room}")),
        );
        check(Replicas::All, &any, &two, Some(&format!("2 of the 3 replicas asked for: {room}")));
        check(Replicas::All, &[0, 1], &two, None);
        let few = "2 of the 4 replicas asked for: it may be on 2 devices";
        check(Replicas::Number(4), &[0, 1], &two, Some(few));
        let one = "1 of the 3 replicas asked for: requests change its variables or tables";
        check(Replicas::All, &any, &two[..1], Some(one));
    }

    #[test]
    fn strings_and_tables_take_of_the_host_what_is_left_there() {
        let mut host = HostRoom { name: "cpu:0".to_owned(), limit_bytes: 40, left_bytes: 40 };
        let (mut first, mut second) = (json!({}), json!({}));
        host.take(&needed(100), (2, Some(34)), &mut first);
        assert_eq!((&first["host_bytes"], host.left_bytes), (&17.into(), 6));
        host.take(&needed(100), (2, Some(33)), &mut second);
        let refused = second["refused"].as_str().unwrap();
        assert!(refused.ends_with("may hold 33 there: raise its limit by 1"), "{refused}");
        host.take(&needed(100), (1, None), &mut second);
        let refused = second["refused"].as_str().unwrap();
        assert!(refused.starts_with("17 bytes of strings and tables are needed on cpu:0"));
        assert!(first["refused"].is_null() && host.to_json()["left_bytes"] == 6);
    }

    #[test]
    fn the_largest_batch_is_the_one_that_fits_with_what_is_left() {
        let slots = [Slot { device: "gpu:0".to_owned(), free_bytes: 130 }];
        let need = needed(100);
        let one = seat(need.total(1), 1);
        let placement = fleet(&[130], std::slice::from_ref(&one));
        let on = &placement.devices[0];
        let mut answer = model(("m", &need), &one, on, (&slots, &placement));
        answer["copies_alone"] = json!([{"device": "gpu:0", "copies": 7}]);
        assert_eq!((&answer["batch_size_max"], &answer["total_bytes"]), (&2.into(), &110.into()));
        let mut nowhere = model(("m", &need), &one, &[], (&slots, &placement));
        let pinned = Wanted { pins: vec![0], seat: one };
        refuse(&mut nowhere, Err(OwnLimit { limit: 60, needed: 110 }), (&pinned, &placement));
        assert!(nowhere["refused"].as_str().unwrap().ends_with("raise its limit by 50"));
        // Elsewhere there is room, but not where it may be.
        refuse(&mut nowhere, Ok(110), (&pinned, &placement));
        assert!(nowhere["refused"].as_str().unwrap().starts_with("110 bytes are needed"));
        let report = json!({"devices": [], "models": [answer, nowhere]});
        let table = table(&report);
        for expected in ["110 B", "gpu:0", "nowhere", "would be refused", "7 on gpu:0"] {
            assert!(table.contains(expected), "{expected} in {table}");
        }
    }
}
