use std::sync::Arc;

use device::{Buffer, Category};

use crate::random::Random;
use crate::testing::{Fake, admit, demand, owner, placement_on, serve_plainly};
use crate::{
    Change, ChangeKind, Claim, Demand, Lease, Placement, Replicas, Resident, Rule, ServedModel, Way,
};

/// Loads a version where it has a lease.
fn load(resident: &Resident<Fake>, lease: &Lease) {
    let bytes = usize::try_from(resident.demand().needed.bytes).unwrap();
    let weights = Buffer::allocate_for(owner(lease), Category::Weights, bytes).unwrap();
    resident.payload.on.lock().insert(lease.device.clone(), Box::new(weights));
    resident.forget(&lease.device);
}

/// Makes changes as a server does.
fn carry_out(placement: &Placement<Fake>, changes: Vec<Change<Fake>>) {
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
            Ok(Way::After(changes)) => carry_out(placement, changes),
        }
    }
}

/// Brings versions to where they should be, as a server does when something has changed.
fn rearrange(placement: &Placement<Fake>) {
    for _ in 0..4 {
        let changes = placement.changes();
        if changes.is_empty() {
            return;
        }
        carry_out(placement, changes);
    }
}

/// A model of a random fleet.
#[derive(Debug)]
struct Candidate {
    name: String,
    mib: u64,
    /// The GPU that the model must be on, if any.
    pin: Option<u64>,
    n_replicas: usize,
    priority: i32,
}

impl Candidate {
    fn new(number: usize, n_gpus: u64, random: &mut Random) -> Candidate {
        Candidate {
            name: format!("m{number}"),
            mib: 2 + 2 * random.below(12),
            pin: (random.below(4) == 0).then(|| random.below(n_gpus)),
            n_replicas: if random.below(5) == 0 { 2 } else { 1 },
            priority: i32::from(random.below(4) == 0),
        }
    }

    fn demand(&self) -> Demand {
        Demand { keys: Vec::new(), ..demand(&self.name, self.mib, 0) }
    }

    fn served(&self) -> (String, ServedModel) {
        let devices = self.pin.iter().map(|gpu| format!("gpu:{gpu}")).collect();
        let (replicas, priority) = (Replicas::Number(self.n_replicas), self.priority);
        let rule = Rule { devices, replicas, priority, ..Rule::none() };
        (self.name.clone(), ServedModel { rule, ..ServedModel::plain() })
    }
}

/// The devices of each version when all have come one after another, as a server loads them: one
/// that gave way or found no place is gone, and comes again whenever something changed.
fn served(placement: &Placement<Fake>, fleet: &[Candidate]) -> Vec<Vec<String>> {
    let mut residents: Vec<Option<Arc<Resident<Fake>>>> = fleet.iter().map(|_| None).collect();
    let mut come = |number: usize| {
        let resident = admit(placement, fleet[number].demand());
        let is_there = arrive(placement, &resident);
        rearrange(placement);
        residents[number] = Some(resident);
        for one in &mut residents {
            one.take_if(|one| one.payload.on.lock().is_empty());
        }
        let lacking = (0..residents.len()).filter(|at| residents[*at].is_none()).collect();
        (is_there, lacking)
    };
    for newcomer in 0..fleet.len() {
        let (_, mut lacking): (bool, Vec<usize>) = come(newcomer);
        while let Some(more) = lacking.iter().filter(|at| **at <= newcomer).find_map(|at| {
            let (is_there, more) = come(*at);
            is_there.then_some(more)
        }) {
            lacking = more;
        }
    }
    let on = |one: &Option<Arc<Resident<Fake>>>| {
        one.iter()
            .flat_map(|one| one.payload.on.lock().keys().cloned().collect::<Vec<_>>())
            .collect()
    };
    residents.iter().map(on).collect()
}

#[test]
fn a_fleet_that_is_planned_is_the_fleet_that_is_served() {
    let mut random = Random(24);
    let (mut n_fitting, mut n_refused) = (0, 0);
    for _ in 0..100 {
        let gpus: Vec<u64> = (0..1 + random.below(3)).map(|_| 16 + 2 * random.below(17)).collect();
        let room: u64 = gpus.iter().sum();
        let mut fleet: Vec<Candidate> = Vec::new();
        while fleet.iter().map(|one| one.mib).sum::<u64>() < room - random.below(room / 2) {
            fleet.push(Candidate::new(fleet.len(), gpus.len() as u64, &mut random));
        }
        let placement = placement_on(&gpus, 1);
        placement.models().replace(fleet.iter().map(Candidate::served));
        let claims: Vec<Claim> = fleet.iter().map(|one| Claim::new(one.demand())).collect();
        let planned = placement.plan(&claims);
        let name = |device: &usize| planned.names[*device].clone();
        let places = planned.fleet.devices.iter().map(|on| on.iter().map(name).collect());
        let places: Vec<Vec<String>> = places.collect();
        assert_eq!(served(&placement, &fleet), places, "{gpus:?} {fleet:?}");
        let fits = places.iter().all(|on| !on.is_empty());
        *(if fits { &mut n_fitting } else { &mut n_refused }) += 1;
    }
    assert!(n_fitting > 15 && n_refused > 15, "{n_fitting} fit, {n_refused} do not");
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
