use std::sync::Arc;

use device::logical::{Physical, configure_rules};
use device::{Amount, Category, Holder, Kind};

use super::{ExternalDevice, ExternalDevices, GpuUsage, ModelUsage, Monitor, Usage, WorkerUsage};
use crate::testing::{Fake, admit, demand, placement_on};
use crate::{Demand, Placement, Resident, Rule, ServedModel, Way, Within};

const GIB: u64 = 1 << 30;

/// A monitor that has always measured the same.
struct Still(Usage);

impl Monitor for Still {
    fn usage(&self) -> Usage {
        self.0.clone()
    }
}

/// The host, and external GPUs of so many GiB.
fn external(gpus: &[u64], usage: Usage) -> (Placement<Fake>, Arc<ExternalDevices>) {
    let placement = placement_on(&[], 1);
    let gpu = |(number, gib): (usize, &u64)| GpuUsage {
        uuid: format!("GPU-{number}"),
        name: "a GPU".to_owned(),
        total_bytes: gib * GIB,
        used_bytes: 0,
        processes: Vec::new(),
    };
    let found: Vec<GpuUsage> = gpus.iter().enumerate().map(gpu).collect();
    let physical = |(number, gpu): (usize, &GpuUsage)| Physical {
        name: format!("gpu:{number}"),
        kind: Kind::Gpu,
        total_bytes: gpu.total_bytes,
        free_bytes: gpu.total_bytes,
        compute_capability: None,
        priorities: (0, -5),
    };
    let physical: Vec<Physical> = found.iter().enumerate().map(physical).collect();
    let configured = configure_rules(&[], &physical, None).unwrap().devices.into_iter();
    let devices = configured.map(|one| {
        let gpu = found[one.physical].clone();
        Arc::new(ExternalDevice::new(one, gpu, true))
    });
    let external = placement.add_external(devices.collect(), Arc::new(Still(usage)));
    (placement, external)
}

fn in_worker(placement: &Placement<Fake>, model: &str, mib: u64) -> Arc<Resident<Fake>> {
    admit(placement, Demand { within: Within::Workers, ..demand(model, mib, 0) })
}

#[test]
fn a_gpu_says_what_is_promised_to_loads_under_way() {
    let (placement, _) = external(&[4], Usage::default());
    let first = in_worker(&placement, "a", 3 << 10);
    let second = in_worker(&placement, "b", 2 << 10);
    let Ok(Way::Free(leases)) = placement.lease(&first) else { panic!("there is room") };
    assert!(leases[0].device == "gpu:0" && leases[0].owner.is_none());
    let refused = placement.lease(&second).err().unwrap().to_string();
    let text = "gpu:0 has no room: 2147483648 bytes are needed (2147483648 for variables, 0 \
                reserved, 0 for a worker), 1073741824 are free; promised to a:1 3221225472; it \
                may hold 4294967296 (default)";
    assert_eq!(refused, text);
}

#[test]
fn memory_of_a_gpu_is_charged_until_a_version_is_unloaded() {
    let (placement, external) = external(&[4], Usage::default());
    let (first, second) =
        (in_worker(&placement, "a", 3 << 10), in_worker(&placement, "b", 2 << 10));
    let gpu = Arc::clone(&external.all()[0]);
    let booked = external.book(&first, Some(&gpu), 3 * GIB, 0).unwrap();
    assert_eq!((gpu.account.held_bytes(), gpu.admissions().len()), (3 * GIB, 1));
    let refused = external.book(&second, Some(&gpu), 2 * GIB, 0).err().unwrap().to_string();
    assert!(refused.contains("1073741824 are free; promised to a:1 3221225472"), "{refused}");
    drop(booked);
    assert_eq!((gpu.account.held_bytes(), gpu.admissions().len()), (0, 0));
    assert!(external.book(&second, Some(&gpu), 2 * GIB, 0).is_ok());
}

#[test]
fn a_version_in_a_worker_is_on_the_host_only_if_it_may_be_on_no_gpu() {
    let (placement, _) = external(&[4], Usage::default());
    let rule = Rule { devices: vec!["cpu:0".to_owned()], ..Rule::none() };
    let on_host = ServedModel { rule, ..ServedModel::plain() };
    placement.models().replace([("h".to_owned(), on_host)]);
    for (model, expected) in [("g", "gpu:0"), ("h", "cpu:0")] {
        let Ok(Way::Free(leases)) = placement.lease(&in_worker(&placement, model, 1)) else {
            panic!("there is room")
        };
        assert_eq!(leases[0].device, expected);
    }
}

/// The worker of version 3 of a model, with so many bytes beside its variables.
fn worker(model: &str, is_shared: bool, resident_bytes: u64) -> WorkerUsage {
    let model = ModelUsage {
        model: model.into(),
        version: 3,
        is_loaded: false,
        is_loading: false,
        weights_bytes: 0,
    };
    let (device, pid, models) = ("cpu:0".to_owned(), Some(1), vec![model]);
    WorkerUsage { device, pid, is_shared, models, resident_bytes, base_bytes: 0 }
}

/// A model `m` for which 1000 bytes are reserved on the host.
fn reserving(usage: Usage) -> (Placement<Fake>, Arc<ExternalDevices>) {
    let (placement, external) = external(&[], usage);
    let amount = Some(Amount::Bytes(1000));
    let rule = Rule { reservation: amount, limit: amount, ..Rule::none() };
    let model = ServedModel { rule, ..ServedModel::plain() };
    placement.models().replace([("m".to_owned(), model)]);
    (placement, external)
}

/// The bytes of versions on the host, by category.
fn booked(placement: &Placement<Fake>) -> Vec<(i64, Category, u64)> {
    let rows = placement.own().host().unwrap().space.snapshot().rows;
    let own = rows.into_iter().filter_map(|row| match row.holder {
        Holder::Version { version, .. } => Some((version, row.category, row.bytes)),
        Holder::Server | Holder::Shared => None,
    });
    own.collect()
}

#[test]
fn what_is_reserved_and_not_taken_yet_is_a_reserve() {
    use Category::{Context, Reserve, Weights};
    let book = |usage: Usage| {
        let (placement, external) = reserving(usage);
        let demand = Demand { version: 3, within: Within::Workers, ..demand("m", 0, 0) };
        let resident = admit(&placement, demand);
        let booking = external.book(&resident, None, 100, 0).unwrap();
        let rows = booked(&placement);
        drop(booking);
        let left = booked(&placement);
        assert!(left.iter().all(|(_, category, _)| *category == Context), "{left:?}");
        rows
    };
    assert_eq!(book(Usage::default()), [(3, Weights, 100), (3, Reserve, 900)]);
    // What the worker holds is booked as its own; those of others take nothing of it.
    let workers = vec![worker("m", false, 250)];
    let own = book(Usage { workers, ..Usage::default() });
    assert_eq!(own, [(3, Weights, 100), (3, Context, 250), (3, Reserve, 650)]);
    let workers = vec![worker("m", true, 80)];
    let shared = book(Usage { workers, ..Usage::default() });
    assert_eq!(shared, [(3, Weights, 100), (3, Reserve, 900)]);
}

#[test]
fn versions_of_a_model_take_what_is_reserved_for_it_together() {
    use Category::{Reserve, Weights};
    let (placement, external) = reserving(Usage::default());
    let book = |version: i64, bytes: u64| {
        let demand = Demand { version, within: Within::Workers, ..demand("m", 0, 0) };
        external.book(&admit(&placement, demand), None, bytes, 0)
    };
    let booked = || booked(&placement);
    let old = book(1, 600).unwrap();
    assert_eq!(booked(), [(1, Weights, 600), (1, Reserve, 400)]);
    // One that does not fit beside it changes nothing.
    assert!(book(2, 500).is_err());
    assert_eq!(booked(), [(1, Weights, 600), (1, Reserve, 400)]);
    let new = book(2, 300).unwrap();
    assert_eq!(booked(), [(1, Weights, 600), (2, Weights, 300), (2, Reserve, 100)]);
    drop(old);
    assert_eq!(booked(), [(2, Weights, 300), (2, Reserve, 700)]);
    drop(new);
    assert_eq!(booked(), []);
}

#[test]
fn a_version_that_fits_nowhere_by_itself_is_told_from_one_that_has_to_wait() {
    let (placement, external) = external(&[6], Usage::default());
    let limit = external.all()[0].account.limit_bytes();
    let on_gpu = |name, bytes| admit(&placement, needing(name, bytes));
    assert!(external.could_hold(&on_gpu("whole", limit)));
    assert!(!external.could_hold(&on_gpu("more", limit + 1)));
    // Another has the room for now.
    let first = on_gpu("first", limit);
    let _booked = external.book(&first, Some(&external.all()[0]), limit, 0).unwrap();
    assert!(external.could_hold(&on_gpu("next", limit)));
}

#[test]
fn on_the_host_a_version_must_fit_beside_its_worker() {
    let (placement, external) = external(&[], Usage::default());
    let limit = placement.own().host().unwrap().space.account().limit_bytes();
    let version = admit(&placement, needing("m", limit - 10));
    assert!(external.could_hold(&version));
    drop(external.book(&version, None, 0, 11).unwrap());
    assert!(!external.could_hold(&version), "with a worker of 11 bytes");
}

/// A version for a worker with so many bytes of variables.
fn needing(model: &str, bytes: u64) -> Demand {
    let needed = crate::Needed { bytes, ..crate::Needed::default() };
    Demand { needed, within: Within::Workers, ..demand(model, 1, 0) }
}
