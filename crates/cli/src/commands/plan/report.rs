//! The page of a plan: what fits where, and how often, before anything is served.
//!
//! Every model is rehearsed: what is traced, folded, packed and planned is what would be, but no
//! weight is read and nothing runs.

use std::sync::Arc;

use anyhow::Result;
use config::{Config, Flags, Persona};
use pages::{
    BatchPlan, CopiesAlone, EngineName, PlanEntry, PlanPage, PlannedDevice, PlannedModel,
    UnplannedModel,
};
use placement::{Fleet, Plan, Replicas, Rule, Seat};

use server::{Devices, Logical};

use super::copies::Room;
use super::needed::{Needed, rehearse};
use super::worker::{TensorFlow, Worker};

/// The batch sizes that are tried.
pub(in crate::commands) const BATCHES: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

/// The page that says what of the models of these flags fits where. Sizes that signatures leave
/// open, but for the rows, are `length`.
///
/// # Errors
/// If the flags or the files they name are wrong, or a device cannot be started.
pub(super) fn plan(flags: &Flags, length: usize) -> Result<PlanPage> {
    let config = Config::new(Persona::Tensord, flags)?;
    let devices = server::find_devices(flags, config.n_lanes, &config.models)?;
    let tensorflow = TensorFlow::new(flags, &config, &devices)?;
    let mut needs = Vec::new();
    for model in &config.models {
        let kind = devices.own().kind_for(&model.name);
        let rows = config::open_model(std::path::Path::new(&model.base_path));
        let rows = rows.map_or(1, |dir| config.batching.batch_rows(&dir));
        let sizes = native::Sizes { rows, length };
        let native = || rehearse(&model.base_path, &config.tags, kind, sizes);
        needs.push((model.name.clone(), tensorflow.measure(model, native)));
    }
    Ok(report(&devices, &mut needs))
}

/// A device that models can be placed on.
struct Slot {
    device: String,
    /// The bytes that models may have of it together.
    free_bytes: u64,
}

fn report(devices: &Devices, needs: &mut [(String, Result<Needed>)]) -> PlanPage {
    let logical = slots(devices);
    let mut host = HostRoom::beside(devices, &logical);
    let board = Board { devices, logical: &logical };
    let planned = board.search(needs);
    let placement = &planned.fleet;
    let needs = &*needs;
    let fit = fit(needs);
    let places = places(&planned);
    // Beside GPUs the host is shown apart.
    let is_beside = |at: &usize| host.as_ref().is_some_and(|host| host.name == places[*at].device);
    let shown: Vec<usize> = (0..places.len()).filter(|at| !is_beside(at)).collect();
    let mut models = Vec::new();
    for (at, (name, need)) in fit.iter().enumerate() {
        let on = &placement.devices[at];
        let n_gpus = board.n_gpus(on, &planned);
        let wanted = Wanted { pins: planned.open[at].clone(), seat: planned.seats[at].clone() };
        let mut answer =
            model((name, need), &wanted.seat, on, PlannedFleet { slots: &places, placement });
        let rule = &devices.models().get(name).rule;
        let room_on = |slot: usize| {
            let may_be = wanted.pins.contains(&slot);
            let own = devices.logical(&places[slot].device).filter(|_| need.worker.is_none());
            may_be.then(|| room(devices, rule, places[slot].free_bytes, own.as_deref()))
        };
        answer.copies_alone = copies_alone(need, &places, &shown, room_on);
        say_replicas(&mut answer, &wanted, rule.replicas);
        refuse(&mut answer, taken(devices, &logical, name, need), (&wanted, placement));
        if let Some(limit) = own_limit(devices, &logical, name) {
            let fits = need.plans.iter().filter(|(batch, _)| need.total(*batch) <= limit);
            let rows = fits.map(|(batch, _)| *batch as u64).max().unwrap_or(1);
            answer.batch_size_max = answer.batch_size_max.map(|most| most.min(rows));
        }
        if let Some(host) = &mut host {
            let own_limit = rule.limit.and(devices.host());
            let own_limit = own_limit.map(|host| host.limit_for(rule));
            host.take(need, (n_gpus, own_limit), &mut answer);
            if n_gpus < on.len() {
                host.left_bytes = host.left_bytes.saturating_sub(need.total(1));
            }
        }
        models.push(answer);
    }
    let failed = needs.iter().filter_map(|(name, need)| {
        let error = format!("{:#}", need.as_ref().err()?);
        Some(PlanEntry::Failed(UnplannedModel { name: name.clone(), error }))
    });
    let mut free = left(devices, &shown, &places, placement);
    free.extend(host.map(HostRoom::into_entry));
    let fits = models.iter().all(|model| model.refused.is_none()) && fit.len() == needs.len();
    let planned = models.into_iter().map(|model| PlanEntry::Planned(Box::new(model)));
    PlanPage { devices: free, models: planned.chain(failed).collect(), fits }
}

/// The devices that models are placed on.
pub(super) struct Board<'a> {
    pub(super) devices: &'a Devices,
    /// Our own GPUs, or the host without any.
    pub(super) logical: &'a [Arc<Logical>],
}

/// The devices that a model may be on, by their index, and its figures for each.
struct Wanted {
    pins: Vec<usize>,
    seat: Seat,
}

impl Board<'_> {
    /// The number of some devices that are not the host beside GPUs.
    pub(super) fn n_gpus(&self, on: &[usize], planned: &Plan) -> usize {
        let host = HostRoom::beside(self.devices, self.logical);
        let is_host =
            |at: &&usize| host.as_ref().is_some_and(|host| host.name == planned.names[**at]);
        on.len() - on.iter().filter(is_host).count()
    }

    /// The places of models, by the same function as when they are served.
    pub(super) fn plan(&self, fit: &[(&String, &Needed)]) -> Plan {
        let claims: Vec<_> = fit.iter().map(|(name, need)| need.claim(name)).collect();
        self.devices.plan(&claims)
    }
}

/// The devices of a plan, in its order.
fn places(planned: &Plan) -> Vec<Slot> {
    let places = planned.names.iter().zip(&planned.room_bytes);
    let place = |(name, bytes): (&String, &u64)| Slot { device: name.clone(), free_bytes: *bytes };
    places.map(place).collect()
}

/// Those models that could be measured.
pub(super) fn fit(needs: &[(String, Result<Needed>)]) -> Vec<(&String, &Needed)> {
    needs.iter().filter_map(|(name, need)| Some((name, need.as_ref().ok()?))).collect()
}

/// The bytes left on each device that is shown.
fn left(
    devices: &Devices,
    shown: &[usize],
    slots: &[Slot],
    placement: &Fleet,
) -> Vec<PlannedDevice> {
    let left = shown.iter().map(|at| {
        let slot = &slots[*at];
        let own = devices.logical(&slot.device).map(|own| own.space.account().limit_bytes());
        PlannedDevice {
            name: slot.device.clone(),
            engine: if own.is_some() { EngineName::Native } else { EngineName::TensorFlow },
            limit_bytes: own.unwrap_or(slot.free_bytes),
            left_bytes: placement.free_bytes[*at],
        }
    });
    left.collect()
}

/// The number of copies of a model that fit on each device that is shown alone, of those that the
/// model may be on.
fn copies_alone(
    need: &Needed,
    slots: &[Slot],
    shown: &[usize],
    room_on: impl Fn(usize) -> Option<Room>,
) -> Vec<CopiesAlone> {
    let copies = shown.iter().map(|at| CopiesAlone {
        device: slots[*at].device.clone(),
        copies: room_on(*at).map_or(0, |room| room.copies(need)),
    });
    copies.collect()
}

/// The figures that a copy of a model has to do with on a device that has so many bytes: on one of
/// ours, or another.
fn room(devices: &Devices, rule: &Rule, free_bytes: u64, own: Option<&Logical>) -> Room {
    let is_gpu = own.is_some_and(|one| one.space.kind() == device::Kind::Gpu);
    let host = devices.host().filter(|_| is_gpu);
    let limit_on = |one: &Logical| rule.limit.map(|_| one.limit_for(rule));
    Room {
        free_bytes,
        n_lanes: own.map_or(1, |own| own.n_lanes),
        own_limit_bytes: own.and_then(limit_on),
        reserved_bytes: own.and_then(|own| own.reservation_for(rule)).map(|one| one.bytes),
        host: host.map(|host| (host.space.account().limit_bytes(), limit_on(&host))),
    }
}

/// Says on how many devices a model would be if that is fewer than was asked for, and why.
fn say_replicas(answer: &mut PlannedModel, wanted: &Wanted, asked: Replicas) {
    let n_devices = wanted.pins.len();
    let n_asked = match asked {
        Replicas::Number(n) => n,
        Replicas::All => n_devices,
    };
    let n_placed = answer.devices.len();
    (answer.replicas, answer.replicas_asked) = (n_placed, n_asked);
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
    answer.fewer_replicas = Some(format!("{n_placed} of the {n_asked} replicas asked for: {why}"));
}

/// The memory that a model takes of a device with a run of one row: what it needs, or what is set
/// aside for it; its own limit if that is too small.
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

/// The bytes that are set aside for a model when it is loaded, on the device where that is most.
fn reserved(devices: &Devices, logical: &[Arc<Logical>], name: &str) -> u64 {
    let rule = &devices.models().get(name).rule;
    let reserved = logical.iter().filter_map(|one| one.reservation_for(rule));
    reserved.map(|reservation| reservation.bytes).max().unwrap_or(0)
}

/// The most that a model may hold by its own limit, on the device where that is most.
pub(super) fn own_limit(devices: &Devices, logical: &[Arc<Logical>], name: &str) -> Option<u64> {
    let rule = &devices.models().get(name).rule;
    let limit_on = |one: &Arc<Logical>| {
        one.reservation_for(rule).map_or_else(|| one.limit_for(rule), |it| it.limit_bytes)
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
fn refuse(answer: &mut PlannedModel, taken: Result<u64, OwnLimit>, around: (&Wanted, &Fleet)) {
    let (wanted, placement) = around;
    if !answer.devices.is_empty() {
        return;
    }
    let largest = wanted.pins.iter().map(|at| placement.free_bytes[*at]).max().unwrap_or(0);
    answer.refused = Some(match taken {
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

/// The bytes that are left of the host for the strings and tables of models on GPUs.
pub(super) struct HostRoom {
    name: String,
    limit_bytes: u64,
    pub(super) left_bytes: u64,
}

impl HostRoom {
    /// The host, if models go on other devices.
    pub(super) fn beside(devices: &Devices, slots: &[Arc<Logical>]) -> Option<Self> {
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
        answer: &mut PlannedModel,
    ) {
        let needed = need.host_total(1).saturating_mul(n_devices as u64);
        answer.host_bytes = Some(need.host_total(1));
        answer.host_resident_bytes = Some(need.load.host_bytes);
        if let Some(limit) = own_limit.filter(|limit| *limit < needed) {
            answer.refused = Some(format!(
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
        answer.refused = Some(format!(
            "{needed} bytes of strings and tables are needed on {}, but {} are left there: unload \
             another model, or raise its limit by {}",
            self.name,
            self.left_bytes,
            needed - self.left_bytes,
        ));
    }

    fn into_entry(self) -> PlannedDevice {
        let Self { name, limit_bytes, left_bytes } = self;
        PlannedDevice { name, engine: EngineName::Native, limit_bytes, left_bytes }
    }
}

/// The devices that models are placed on: the GPUs, or the host without any.
fn slots(devices: &Devices) -> Vec<Arc<Logical>> {
    let (gpus, cpus): (Vec<_>, Vec<_>) =
        devices.all().into_iter().partition(|one| one.space.kind() == device::Kind::Gpu);
    if gpus.is_empty() { cpus } else { gpus }
}

/// The devices of a plan, and what is placed on them.
#[derive(Clone, Copy)]
struct PlannedFleet<'a> {
    slots: &'a [Slot],
    placement: &'a Fleet,
}

fn model(
    (name, need): (&str, &Needed),
    seat: &Seat,
    on: &[usize],
    fleet: PlannedFleet<'_>,
) -> PlannedModel {
    let plans = need.plans.iter().map(|(batch, plan)| BatchPlan {
        batch: *batch,
        activation_bytes: plan.work_bytes,
        dynamic_bytes: plan.dynamic_bytes,
        plan_bytes: plan.plan_bytes,
        is_static: plan.is_static,
        total_bytes: need.total(*batch),
        host_bytes: plan.host_bytes,
    });
    // The largest batch that fits with what is left where it is placed.
    let batch = on.iter().map(|device| {
        let room = fleet.placement.free_bytes[*device] + own(seat, *device).max(need.total(1));
        let fits = need.plans.iter().filter(|(batch, _)| need.total(*batch) <= room);
        fits.map(|(batch, _)| *batch as u64).max().unwrap_or(1)
    });
    let is_native = need.worker.is_none();
    PlannedModel {
        name: name.to_owned(),
        engine: if is_native { EngineName::Native } else { EngineName::TensorFlow },
        weights_bytes: need.load.weights_bytes,
        packed_weights_bytes: need.load.packed_bytes,
        other_bytes: need.load.other_bytes,
        load_peak_bytes: need.load.load_peak_bytes,
        total_bytes: need.total(1),
        plans: plans.collect(),
        worker: need.worker.as_ref().map(Worker::entry),
        devices: on.iter().map(|device| fleet.slots[*device].device.clone()).collect(),
        batch_size_max: batch.min(),
        promised_bytes: on.iter().map(|device| own(seat, *device)).max(),
        // The rest is said of it when all models are placed.
        ..PlannedModel::default()
    }
}

/// The bytes that a model is promised of a device: what it takes there, and what its runs do on all
/// lanes.
fn own(seat: &Seat, device: usize) -> u64 {
    seat.bytes[device].unwrap_or(0).saturating_add(seat.runs[device])
}

#[cfg(test)]
pub(super) mod tests {
    use placement::fleet;

    use super::*;

    pub(in super::super) fn needed(weights_bytes: u64) -> Needed {
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
            let devices = on.iter().map(|name| (*name).to_owned()).collect();
            let mut answer = PlannedModel { devices, ..PlannedModel::default() };
            let keeps_state = expected.is_some_and(|text| text.contains("requests change"));
            let replicas = if keeps_state { Replicas::Number(1) } else { asked };
            let wanted = Wanted { pins: pins.to_vec(), seat: Seat { replicas, ..seat(1, 3) } };
            say_replicas(&mut answer, &wanted, asked);
            assert_eq!(answer.fewer_replicas.as_deref(), expected);
            assert_eq!(answer.replicas, on.len());
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
        let (mut first, mut second) = (PlannedModel::default(), PlannedModel::default());
        host.take(&needed(100), (2, Some(34)), &mut first);
        assert_eq!((first.host_bytes, host.left_bytes), (Some(17), 6));
        host.take(&needed(100), (2, Some(33)), &mut second);
        let refused = second.refused.as_deref().unwrap();
        assert!(refused.ends_with("may hold 33 there: raise its limit by 1"), "{refused}");
        host.take(&needed(100), (1, None), &mut second);
        let refused = second.refused.as_deref().unwrap();
        assert!(refused.starts_with("17 bytes of strings and tables are needed on cpu:0"));
        assert!(first.refused.is_none() && host.into_entry().left_bytes == 6);
    }

    #[test]
    fn the_largest_batch_is_the_one_that_fits_with_what_is_left() {
        let slots = [Slot { device: "gpu:0".to_owned(), free_bytes: 130 }];
        let need = needed(100);
        let one = seat(need.total(1), 1);
        let placement = fleet(&[130], std::slice::from_ref(&one));
        let on = &placement.devices[0];
        let fleet = PlannedFleet { slots: &slots, placement: &placement };
        let answer = model(("m", &need), &one, on, fleet);
        assert_eq!((answer.batch_size_max, answer.total_bytes), (Some(2), 110));
        let mut nowhere = model(("m", &need), &one, &[], fleet);
        let pinned = Wanted { pins: vec![0], seat: one };
        refuse(&mut nowhere, Err(OwnLimit { limit: 60, needed: 110 }), (&pinned, &placement));
        assert!(nowhere.refused.as_deref().unwrap().ends_with("raise its limit by 50"));
        // Elsewhere there is room, but not where it may be.
        refuse(&mut nowhere, Ok(110), (&pinned, &placement));
        assert!(nowhere.refused.as_deref().unwrap().starts_with("110 bytes are needed"));
    }
}
