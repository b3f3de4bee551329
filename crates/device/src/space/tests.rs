use super::*;
use crate::buffer::Buffer;
use crate::ledger::Holder;
use crate::random::Random;
use crate::workspace::Workspace;
use crate::{Host, Simulated};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

fn space_of(driver: Arc<dyn Driver>, limit: u64, growth: GrowthRule) -> Result<Arc<Space>> {
    let physical = Arc::new(Limited::new(driver, "physical", u64::MAX));
    let account = physical.account().clone();
    let name = physical.properties().kind.to_string() + ":0";
    let driver = Arc::new(Limited::new(physical, name, limit));
    Space::new(SpaceOptions { driver, physical: account, growth, step_bytes: 64 << 10 })
}

fn host(limit: usize) -> Arc<Space> {
    let host = Arc::new(Host::new("cpu:0", 1 << 30));
    space_of(host, limit as u64, GrowthRule::OnDemand).unwrap()
}

fn version(model: &str, version: i64) -> Holder {
    Holder::Version { model: Arc::from(model), version }
}

fn model(space: &Arc<Space>, name: &str, limit: Option<u64>) -> Arc<Owner> {
    let account = limit.map(|limit| Arc::new(Account::new(format!("model {name}"), limit)));
    Owner::new(space, version(name, 1), account)
}

/// The rows as `holder category bytes`, without what nobody uses; asserts that all sum up.
#[track_caller]
fn rows(space: &Space) -> Vec<String> {
    let snapshot = space.snapshot();
    let sum: u64 = snapshot.rows.iter().map(|row| row.bytes).sum();
    assert_eq!(sum, snapshot.held_bytes);
    assert_eq!(snapshot.held_bytes, space.account().held_bytes());
    assert!(snapshot.held_bytes <= snapshot.limit_bytes);
    let used = snapshot.rows.iter().filter(|row| row.category < Category::Fragmentation);
    used.map(|row| format!("{} {} {}", row.holder, row.category.name(), row.bytes)).collect()
}

#[test]
fn buffers_are_booked_to_whom_their_thread_works_for() {
    let space = host(64 * MIB);
    let a = model(&space, "a", None);
    let (small, large) = {
        let _scope = booked_to(&a, Category::Requests);
        let small = Buffer::allocate(100).unwrap();
        let packed = booked_as(Category::PackedWeights);
        let large = Buffer::allocate(MIB).unwrap();
        drop(packed);
        drop(Buffer::allocate(MIB).unwrap());
        (small, large)
    };
    let outside = Buffer::allocate(MIB).unwrap();
    assert_eq!(rows(&space), ["a:1 packed_weights 1048576", "a:1 requests 100"]);
    drop((small, large, outside));
    assert_eq!(rows(&space), [""; 0]);
    space.trim("test").unwrap();
    assert_eq!(space.account().held_bytes(), 0);
    let causes: Vec<(bool, &str)> =
        space.take_events().iter().map(|event| (event.bytes > 0, event.cause)).collect();
    assert_eq!(causes[0], (true, "packed_weights"));
    assert!(causes.contains(&(false, "test")), "{causes:?}");
}

#[test]
fn a_model_at_its_limit_is_refused_and_others_are_not() {
    let space = host(64 * MIB);
    let (a, b) = (model(&space, "a", Some(3 * MIB as u64)), model(&space, "b", None));
    let kept = Buffer::allocate_for(&a, Category::Weights, 2 * MIB).unwrap();
    let error = Buffer::allocate_for(&a, Category::Requests, 2 * MIB).unwrap_err();
    let text = "model a has no room for 2097152 bytes: 1048576 of 3145728 are free; held by a:1 \
                2097152";
    assert_eq!(error.to_string(), text);
    let other = Buffer::allocate_for(&b, Category::Requests, 2 * MIB).unwrap();
    drop(kept);
    Buffer::allocate_for(&a, Category::Requests, 3 * MIB).unwrap();
    drop(other);
}

#[test]
fn the_limit_of_the_device_holds_for_heap_and_arena_together() {
    let space = host(2 * MIB);
    let a = model(&space, "a", None);
    let mut small = Vec::new();
    while let Ok(buffer) = Buffer::allocate_for(&a, Category::Requests, 32 * KIB) {
        small.push(buffer);
    }
    assert_eq!(small.len(), 64);
    assert!(Buffer::allocate_for(&a, Category::Requests, MIB).is_err());
    small.truncate(32);
    let large = Buffer::allocate_for(&a, Category::Requests, MIB).unwrap();
    assert_eq!(rows(&space), [format!("a:1 requests {}", 2 * MIB)]);
    drop(large);
}

#[test]
fn one_arena_gives_way_to_the_other() {
    let space = host(4 * MIB);
    let a = model(&space, "a", None);
    drop(Buffer::allocate_for(&a, Category::Requests, 3 * MIB).unwrap());
    assert_eq!(space.account().held_bytes(), 3 << 20);
    drop(Buffer::allocate_for(&a, Category::Weights, 3 * MIB).unwrap());
    assert!(space.account().held_bytes() <= 4 << 20);
}

#[test]
fn a_reserved_space_holds_its_limit_from_the_start() {
    let gpu = Arc::new(Simulated::gpu("gpu:0", 16 << 20));
    let space = space_of(gpu.clone(), 8 << 20, GrowthRule::Reserved).unwrap();
    assert_eq!((gpu.held_bytes(), rows(&space).len()), (8 << 20, 0));
    let a = model(&space, "a", None);
    let weights = Buffer::allocate_for(&a, Category::Weights, 5 * MIB).unwrap();
    assert!(Buffer::allocate_for(&a, Category::Requests, 4 * MIB).is_err());
    drop(weights);
    assert_eq!((space.trim("test").unwrap(), gpu.held_bytes()), (0, 8 << 20));
    drop(a);
    drop(space);
    assert_eq!(gpu.held_bytes(), 0);
    assert!(space_of(gpu, 32 << 20, GrowthRule::Reserved).is_err());
}

#[test]
fn what_is_set_aside_for_a_model_is_held_at_once_and_given_back() {
    let space = host(8 * MIB);
    let account = || Arc::new(Account::new("model a on cpu:0", 3 << 20));
    let aside = space.set_aside(version("a", 1), account()).unwrap();
    assert_eq!(space.account().held_bytes(), 3 << 20);
    let a = Owner::new(&aside, version("a", 1), None);
    let kept = Buffer::allocate_for(&a, Category::Weights, MIB).unwrap();
    assert!(Buffer::allocate_for(&a, Category::Requests, 3 * MIB).is_err());
    assert_eq!(rows(&space), ["a:1 weights 1048576"]);
    assert_eq!(space.snapshot().holders(), [(version("a", 1), 3 << 20)]);
    let b = model(&space, "b", None);
    assert!(Buffer::allocate_for(&b, Category::Requests, 6 * MIB).is_err());
    drop(Buffer::allocate_for(&b, Category::Requests, 5 * MIB).unwrap());
    assert!(space.set_aside(version("c", 1), Arc::new(Account::new("c", 6 << 20))).is_err());
    assert!(Arc::ptr_eq(aside.root(), &space));
    drop((kept, a, aside));
    space.trim("test").unwrap();
    assert_eq!(space.account().held_bytes(), 0);
}

#[test]
fn equal_weights_are_held_once_and_booked_as_shared() {
    let space = host(64 * MIB);
    let (a, b) = (model(&space, "a", Some(1 << 30)), model(&space, "b", Some(1 << 30)));
    let weights = |owner: &Arc<Owner>, value: u8| {
        let mut buffer = Buffer::allocate_for(owner, Category::Weights, MIB).unwrap();
        buffer.bytes_mut().unwrap().fill(value);
        space.share(buffer, owner, Category::Weights)
    };
    let (first, other) = (weights(&a, 1), weights(&a, 2));
    let second = weights(&b, 1);
    assert!(second.shares_memory_with(&first));
    assert_eq!(rows(&space), ["a:1 weights 1048576", "shared weights 1048576"]);
    assert_eq!((space.saved_bytes(), b.bytes()), (1 << 20, 0));
    drop((first, other));
    space.unshare(&a);
    assert_eq!(rows(&space), ["b:1 weights 1048576"]);
    assert_eq!(a.account().unwrap().held_bytes(), 0);
    drop(second);
    space.unshare(&b);
    assert_eq!(b.account().unwrap().held_bytes(), 0);
    space.trim("test").unwrap();
    assert_eq!(space.account().held_bytes(), 0);
}

#[test]
fn a_workspace_is_an_activation_of_its_owner() {
    let space = host(64 * MIB);
    let server = Owner::new(&space, Holder::Server, None);
    let mut workspace = Workspace::of(server).unwrap();
    workspace.ensure(MIB).unwrap();
    workspace.ensure(5 * MIB).unwrap();
    assert_eq!(rows(&space), ["server activations 5242880"]);
    assert!(workspace.ensure(65 * MIB).is_err());
    workspace.ensure(MIB).unwrap();
    workspace.trim().unwrap();
    assert_eq!(rows(&space), [""; 0]);
}

/// Random work for several owners: everything sums up at each step, and nothing is left behind.
fn churn(space: &Arc<Space>, n_operations: u32, seed: u64) {
    let mut random = Random(seed);
    let categories = [Category::Weights, Category::PackedWeights, Category::Requests];
    let owners: Vec<Arc<Owner>> =
        (0..4u64).map(|n| model(space, "m", Some((n + 1) << 20))).collect();
    let mut buffers: Vec<(Buffer, usize)> = Vec::new();
    for _ in 0..n_operations {
        let owner = usize::try_from(random.below(4)).unwrap();
        match random.below(100) {
            0 => drop(space.trim("test").unwrap()),
            1..50 if !buffers.is_empty() => {
                let at = usize::try_from(random.below(buffers.len() as u64)).unwrap();
                buffers.swap_remove(at);
            }
            _ => {
                let category = categories[usize::try_from(random.below(3)).unwrap()];
                let bytes = usize::try_from(random.size(20)).unwrap();
                let made = Buffer::allocate_for(&owners[owner], category, bytes);
                buffers.extend(made.ok().map(|buffer| (buffer, owner)));
            }
        }
        for (number, owner) in owners.iter().enumerate() {
            let account = owner.account().unwrap();
            assert_eq!(account.held_bytes(), owner.bytes());
            assert!(account.held_bytes() <= (number as u64 + 1) << 20);
        }
        rows(space);
    }
    drop(buffers);
    space.trim("test").unwrap();
}

#[test]
fn random_buffers_always_sum_to_what_is_held() {
    let gpu = Arc::new(Simulated::gpu("gpu:0", 32 << 20));
    for space in [host(8 * MIB), space_of(gpu, 24 << 20, GrowthRule::OnDemand).unwrap()] {
        churn(&space, 20_000, 11);
        assert_eq!(space.account().held_bytes(), 0);
    }
}

#[test]
fn a_driver_call_that_fails_costs_only_that_buffer() {
    for n in 0..60 {
        let gpu = Arc::new(Simulated::gpu("gpu:0", 24 << 20));
        let space = space_of(gpu.clone(), 24 << 20, GrowthRule::OnDemand).unwrap();
        gpu.fail_call(n);
        let owner = model(&space, "a", None);
        let mut buffers = Vec::new();
        for bytes in [MIB, 3 * MIB, 700, 5 * MIB, 2 * MIB] {
            buffers.extend(Buffer::allocate_for(&owner, Category::Requests, bytes));
            buffers.extend(Buffer::allocate_for(&owner, Category::Weights, bytes));
            drop(space.trim("test"));
            rows(&space);
        }
        assert!(buffers.len() >= 8, "call {n}");
        gpu.fail_call(u64::MAX);
        drop(buffers);
        space.trim("test").unwrap();
        assert_eq!(gpu.held_bytes(), 0);
    }
}

#[test]
fn threads_share_a_space_without_losing_a_byte() {
    let space = host(256 * MIB);
    std::thread::scope(|scope| {
        for seed in 0..2 {
            let space = Arc::clone(&space);
            scope.spawn(move || {
                let mut random = Random(seed);
                let owner = model(&space, "m", None);
                let mut buffers = Vec::new();
                for _ in 0..2000 {
                    match random.below(2) {
                        0 => drop(buffers.pop()),
                        _ => {
                            let bytes = usize::try_from(random.size(18)).unwrap();
                            let made = Buffer::allocate_for(&owner, Category::Requests, bytes);
                            buffers.push(made.unwrap());
                        }
                    }
                }
            });
        }
        for _ in 0..50 {
            let snapshot = space.snapshot();
            let sum: u64 = snapshot.rows.iter().map(|row| row.bytes).sum();
            assert_eq!(sum, snapshot.held_bytes);
        }
    });
    assert_eq!(rows(&space), [""; 0]);
}
