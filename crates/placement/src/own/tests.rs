use std::sync::Arc;

use device::{Amount, Buffer, Category, Holder, Owner};

use crate::testing::{Fake, MIB, admit, demand, owner, placement_on};
use crate::{
    Demand, Lease, Needed, OwnDevice, Placement, Refusal, Resident, Rule, ServedModel, Way,
    WeightKey,
};

fn lease(
    placement: &Placement<Fake>,
    resident: &Arc<Resident<Fake>>,
) -> Result<Vec<Lease>, Box<Refusal>> {
    match placement.lease(resident)? {
        Way::Free(leases) => Ok(leases),
        Way::After(_) | Way::Later => panic!("nobody is to make way"),
    }
}

fn gpu(placement: &Placement<Fake>) -> Arc<OwnDevice> {
    placement.own().get("gpu:0").unwrap()
}

fn in_mib(promised: Vec<(Holder, u64)>) -> Vec<(String, u64)> {
    promised.into_iter().map(|(holder, bytes)| (holder.to_string(), bytes / MIB)).collect()
}

/// A refusal in MiB: the device, what is needed, what is free, and what is promised to whom.
fn said(refusal: Refusal) -> (String, u64, u64, Vec<(String, u64)>) {
    let promised = in_mib(refusal.promised);
    (refusal.device, refusal.needed_bytes / MIB, refusal.free_bytes / MIB, promised)
}

#[test]
fn a_refusal_says_what_is_promised_to_loads_under_way() {
    let placement = placement_on(&[64], 1);
    let own = placement.own();
    let first = admit(&placement, demand("a", 40, 0));
    let second = admit(&placement, demand("b", 30, 0));
    let leases = lease(&placement, &first).unwrap();
    let refused = lease(&placement, &second).unwrap_err();
    let text = "gpu:0 has no room: 31457280 bytes are needed, 25165824 are free and 0 would be \
                if other models were unloaded; promised to loads under way: a:1 41943040; \
                gpu:0 may hold 67108864 (default)";
    assert_eq!(refused.to_string(), text);
    // What was read of it changes nothing for others.
    let weights = Buffer::allocate_for(owner(&leases[0]), Category::Weights, 8 << 20).unwrap();
    let refused = said(*lease(&placement, &second).unwrap_err());
    assert_eq!(refused, ("gpu:0".to_owned(), 30, 24, vec![("a:1".to_owned(), 32)]));
    assert!(!own.has_room("c", 25 * MIB) && own.has_room("c", 24 * MIB));
    // Nobody is in the way of himself.
    assert_eq!(said(own.refusal(&first.holder(), &gpu(&placement), 99 * MIB)).2, 56);
    drop((weights, leases, first));
    assert_eq!(lease(&placement, &second).unwrap().len(), 1);
}

#[test]
fn runs_on_all_lanes_are_promised_to_a_model_that_is_loaded() {
    let placement = placement_on(&[64], 2);
    let own = placement.own();
    let admit_running = |model: &str, mib: u64, run: u64| {
        let run_bytes = run * MIB;
        let needed = Needed {
            bytes: (mib + run) * MIB,
            resident_bytes: mib * MIB,
            run_bytes,
            largest_run_bytes: run_bytes,
            ..Needed::default()
        };
        admit(&placement, Demand { needed, keys: Vec::new(), ..demand(model, 0, 0) })
    };
    let first = admit_running("a", 20, 5);
    let leases = lease(&placement, &first).unwrap();
    let gpu = gpu(&placement);
    // While it is loaded, all of that is promised to its load.
    assert_eq!(own.unpromised_bytes(&gpu, None), 34 * MIB);
    let holder = owner(&leases[0]);
    let weights = Buffer::allocate_for(holder, Category::Weights, 20 << 20).unwrap();
    holder.note_peak(first.demand().needed.largest_run_bytes);
    first.forget("gpu:0");
    assert_eq!(own.missing_for_runs(&gpu), 10 * MIB);
    assert_eq!(own.unpromised_bytes(&gpu, None), 34 * MIB);
    assert!(!own.has_room("c", 35 * MIB) && own.has_room("c", 34 * MIB));
    let refused = lease(&placement, &admit_running("b", 30, 5)).unwrap_err().to_string();
    assert!(refused.contains("promised to runs of the models there: 10485760"), "{refused}");
    // What a run has of it is not missing, and what it took once it is promised again.
    let run = Buffer::allocate_for(holder, Category::Activations, 4 << 20).unwrap();
    assert_eq!(own.missing_for_runs(&gpu), 6 * MIB);
    drop(run);
    holder.note_work(15 << 20);
    assert_eq!(own.missing_for_runs(&gpu), 30 * MIB);
    // More than a device has for all lanes at once is promised for one.
    holder.note_work(30 << 20);
    assert_eq!(own.missing_for_runs(&gpu), 30 * MIB);
    drop((weights, leases));
    assert_eq!(own.missing_for_runs(&gpu), 0);
}

#[test]
fn weights_that_turn_out_to_be_shared_are_promised_no_longer() {
    let placement = placement_on(&[64], 1);
    let keys = vec![WeightKey { checksum: 7, bytes: 20 * MIB }];
    let alike = |model: &str, mib: u64| {
        admit(&placement, Demand { keys: keys.clone(), ..demand(model, mib, 0) })
    };
    let (first, second) = (alike("a", 30), alike("b", 24));
    let read = |owner: &Arc<Owner>| {
        let mut buffer = Buffer::allocate_for(owner, Category::Weights, 20 << 20).unwrap();
        buffer.bytes_mut().unwrap().fill(1);
        owner.space().sharing().share(buffer, owner, Category::Weights)
    };
    let gpu = gpu(&placement);
    let promised = || in_mib(placement.own().promises(&gpu, None));
    let said = |all: &[(&str, u64)]| {
        all.iter().map(|(model, mib)| (format!("{model}:1"), *mib)).collect::<Vec<_>>()
    };
    let leases = lease(&placement, &first).unwrap();
    let others = lease(&placement, &second).unwrap();
    // The second was known to share what the first will have.
    assert_eq!(promised(), said(&[("a", 30), ("b", 4)]));
    let weights = read(owner(&leases[0]));
    assert_eq!(promised(), said(&[("a", 10), ("b", 4)]));
    let same = read(owner(&others[0]));
    assert_eq!(promised(), said(&[("a", 10), ("b", 4)]));
    let third = admit(&placement, demand("c", 30, 0));
    assert_eq!(lease(&placement, &third).unwrap().len(), 1);
    // What is no longer shared is the first one's own.
    gpu.space.sharing().unshare(owner(&others[0]));
    drop((same, others, second, third));
    assert_eq!(promised(), said(&[("a", 10)]));
    drop(weights);
}

#[test]
fn weights_of_others_are_no_use_to_a_model_with_memory_of_its_own() {
    let placement = placement_on(&[64], 1);
    let (reservation, limit) = (Some(Amount::Bytes(8 * MIB)), Some(Amount::Bytes(64 * MIB)));
    let rule = Rule { reservation, limit, ..Rule::none() };
    let model = ServedModel { rule, ..ServedModel::plain() };
    placement.models().replace([("b".to_owned(), model)]);
    let keys = vec![WeightKey { checksum: 7, bytes: 20 * MIB }];
    let alike =
        |model: &str| admit(&placement, Demand { keys: keys.clone(), ..demand(model, 34, 0) });
    let (first, with_its_own, plain) = (alike("a"), alike("b"), alike("c"));
    let leases = lease(&placement, &first).unwrap();
    let refused = said(*lease(&placement, &with_its_own).unwrap_err());
    assert_eq!(refused, ("gpu:0".to_owned(), 34, 30, vec![("a:1".to_owned(), 34)]));
    assert_eq!(lease(&placement, &plain).unwrap().len(), 1);
    drop(leases);
}

#[test]
fn what_loads_on_gpus_need_of_the_host_is_promised_too() {
    let placement = placement_on(&[64], 1);
    let first = admit(&placement, demand("a", 1, 40));
    let second = admit(&placement, demand("b", 1, 30));
    let leases = lease(&placement, &first).unwrap();
    let tables =
        Buffer::allocate_for(owner(&leases[0]).host(), Category::Weights, 8 << 20).unwrap();
    let refused = said(*lease(&placement, &second).unwrap_err());
    assert_eq!(refused, ("cpu:0".to_owned(), 30, 24, vec![("a:1".to_owned(), 32)]));
    drop((tables, leases, first));
    assert_eq!(lease(&placement, &second).unwrap().len(), 1);
}
