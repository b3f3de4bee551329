use std::sync::Arc;

use device::{Buffer, Category};

use crate::random::Random;
use crate::testing::{Fake, admit, demand, owner, placement_on, serve_plainly};
use crate::{ChangeKind, Claim, Demand, Lease, Placement, Resident, Way};

/// Loads a version where it has a lease.
fn load(resident: &Resident<Fake>, lease: &Lease) {
    let bytes = usize::try_from(resident.demand().needed.bytes).unwrap();
    let weights = Buffer::allocate_for(owner(lease), Category::Weights, bytes).unwrap();
    resident.payload.on.lock().insert(lease.device.clone(), Box::new(weights));
    resident.forget(&lease.device);
}

/// Loads a version as a server does, once others have moved; whether it found a place.
fn arrive(placement: &Placement<Fake>, resident: &Arc<Resident<Fake>>) -> bool {
    loop {
        match placement.lease(resident) {
            Err(_) => return false,
            Ok(Way::Free(leases)) => {
                leases.iter().for_each(|lease| load(resident, lease));
                return true;
            }
            Ok(Way::Later) => panic!("nobody is being loaded"),
            Ok(Way::After(changes)) => {
                for change in changes {
                    let resident = change.resident.upgrade().unwrap();
                    match change.kind {
                        ChangeKind::Add => {
                            let lease = placement.lease_on(&resident, &change.device).unwrap();
                            load(&resident, &lease);
                        }
                        ChangeKind::Remove | ChangeKind::GiveWay => {
                            resident.payload.on.lock().remove(&change.device).unwrap();
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn a_fleet_that_is_planned_is_the_fleet_that_is_served() {
    let mut random = Random(24);
    let (mut n_fitting, mut n_refused) = (0, 0);
    for _ in 0..60 {
        let gpus: Vec<u64> = (0..1 + random.below(3)).map(|_| 16 + 2 * random.below(17)).collect();
        let room: u64 = gpus.iter().sum();
        let mut sizes: Vec<u64> = Vec::new();
        while sizes.iter().sum::<u64>() < room - random.below(room / 2) {
            sizes.push(2 + 2 * random.below(12));
        }
        let names: Vec<String> = (0..sizes.len()).map(|number| format!("m{number}")).collect();
        let demands = || {
            let all = names.iter().zip(&sizes);
            all.map(|(name, mib)| Demand { keys: Vec::new(), ..demand(name, *mib, 0) })
        };
        let placement = placement_on(&gpus, 1);
        serve_plainly(&placement, names.iter().map(String::as_str));
        let planned = placement.plan(&demands().map(Claim::new).collect::<Vec<_>>());
        let fits = planned.fleet.devices.iter().all(|on| !on.is_empty());
        let residents: Vec<_> = demands().map(|demand| admit(&placement, demand)).collect();
        let served = residents.iter().filter(|one| arrive(&placement, one)).count();
        assert_eq!(served == sizes.len(), fits, "{gpus:?} {sizes:?} {:?}", planned.fleet);
        *(if fits { &mut n_fitting } else { &mut n_refused }) += 1;
    }
    assert!(n_fitting > 10 && n_refused > 10, "{n_fitting} fit, {n_refused} do not");
}

#[test]
fn a_plan_promises_what_a_load_is_promised() {
    let placement = placement_on(&[64], 1);
    serve_plainly(&placement, ["a"].into_iter());
    let planned = placement.plan(&[Claim::new(demand("a", 40, 0))]);
    assert_eq!(
        (&planned.names[..], &planned.open[0][..]),
        (&["cpu:0", "gpu:0"].map(str::to_owned)[..], &[1][..])
    );
    assert_eq!(planned.fleet.devices, [[1]]);
    let resident = admit(&placement, demand("a", 40, 0));
    assert!(matches!(placement.lease(&resident), Ok(Way::Free(_))));
    assert_eq!(resident.promised_on("gpu:0"), planned.seats[0].bytes[1]);
    assert_eq!(
        planned.fleet.free_bytes[1],
        placement.own().unpromised_bytes(&placement.own().get("gpu:0").unwrap(), None)
    );
}
