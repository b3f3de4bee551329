use super::*;
use crate::buffer::Buffer;
use crate::ledger::{Holder, Row};
use crate::random::Random;
use crate::workspace::Workspace;
use crate::{Host, Simulated, SimulatedOptions};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

fn space_of(driver: Arc<dyn Driver>, limit: u64, growth: GrowthRule) -> Result<Arc<Space>> {
    let physical = Arc::new(Limited::new(driver, "physical", u64::MAX));
    let account = physical.account().clone();
    let context_bytes = physical.context_bytes();
    let name = physical.properties().kind.to_string() + ":0";
    let driver = Arc::new(Limited::new(physical, name, limit));
    let step_bytes = 64 << 10;
    Space::new(SpaceOptions { driver, physical: account, growth, step_bytes, context_bytes })
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
        space.take_events().events.iter().map(|event| (event.bytes > 0, event.cause)).collect();
    assert_eq!(causes[0], (true, "packed_weights"));
    assert!(causes.contains(&(false, "test")), "{causes:?}");
}

#[test]
fn weights_that_were_read_and_packed_leave_no_pages_behind() {
    const N: usize = 24;
    let gpu = Arc::new(Simulated::gpu("gpu:0", 1 << 30));
    let granule = gpu.properties().granule_bytes;
    let space = space_of(gpu, 1 << 30, GrowthRule::OnDemand).unwrap();
    let a = model(&space, "a", None);
    let new = |category, bytes| Buffer::allocate_for(&a, category, bytes).unwrap();
    // Kernels and biases as a file has them, one behind the other.
    let size = |n: usize| (100 + n * 37 % 800) * KIB;
    let read: Vec<(Buffer, Buffer)> = (0..N)
        .map(|n| (new(Category::Weights, size(n)), new(Category::Weights, 4 * KIB)))
        .collect();
    let kept: Vec<(Buffer, Buffer)> = read
        .into_iter()
        .enumerate()
        .map(|(n, (kernel, bias))| {
            let packed = new(Category::PackedWeights, size(n));
            drop(kernel);
            (packed, bias)
        })
        .collect();
    space.trim_read("load").unwrap();
    let used = space.in_use_bytes();
    assert_eq!(used, (0..N).map(|n| (size(n) + 4 * KIB) as u64).sum());
    let held = space.account().held_bytes();
    assert!(held <= used.next_multiple_of(granule) + granule, "{held} for {used}");
    drop(kept);
    space.trim("test").unwrap();
    assert_eq!(space.account().held_bytes(), 0);
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
fn weights_that_stay_as_they_were_read_move_together() {
    let gpu = Arc::new(Simulated::gpu("gpu:0", 1 << 30));
    assert_eq!(gpu.properties().granule_bytes, 2 << 20);
    let space = space_of(gpu, 1 << 30, GrowthRule::OnDemand).unwrap();
    let a = model(&space, "a", Some(1 << 30));
    let read = |value: u8| {
        let mut buffer = Buffer::allocate_for(&a, Category::Weights, MIB).unwrap();
        buffer.bytes_mut().unwrap().fill(value);
        space.share(buffer, &a, Category::Weights)
    };
    let mut left: Vec<Buffer> = (0..8).map(read).collect();
    // Every other one is packed and gone: each that is left keeps a granule.
    let mut number = 0..8;
    left.retain(|_| number.next().is_some_and(|number| number % 2 == 0));
    space.trim("test").unwrap();
    assert_eq!(space.account().held_bytes(), 8 << 20);
    // What somebody else holds stays where it is.
    let other = left[0].clone();
    assert!(space.settle(&left[0], 1, &a).unwrap().is_none());
    drop(other);
    for buffer in &mut left {
        *buffer = space.settle(buffer, 1, &a).unwrap().unwrap();
    }
    space.trim("test").unwrap();
    assert_eq!(space.account().held_bytes(), 4 << 20);
    assert_eq!(rows(&space), ["a:1 weights 4194304"]);
    assert!(left.iter().zip([0, 2, 4, 6]).all(|(one, value)| one.bytes() == vec![value; MIB]));
    // Others find them where they are now, and they do not move again.
    assert!(read(4).shares_memory_with(&left[2]));
    assert!(space.settle(&left[0], 1, &a).unwrap().is_none());
    drop(left);
    space.unshare(&a);
    space.trim("test").unwrap();
    assert_eq!((space.account().held_bytes(), a.account().unwrap().held_bytes()), (0, 0));
}

#[test]
fn weights_that_were_read_go_back_while_others_are_packed() {
    let space = host(1 << 30);
    let a = model(&space, "a", None);
    let new = |category| Buffer::allocate_for(&a, category, MIB).unwrap();
    let mut read: Vec<Buffer> = (0..128).map(|_| new(Category::Weights)).collect();
    let mut packed = Vec::new();
    while read.pop().is_some() {
        packed.push(new(Category::PackedWeights));
        let held = space.account().held_bytes();
        assert!(held <= (128 << 20) + TRIM_STEP_BYTES + (2 << 20), "{held} bytes are held");
    }
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

/// Random work for several owners of a space.
struct Churn<'a> {
    space: &'a Arc<Space>,
    random: Random,
    owners: Vec<Arc<Owner>>,
    buffers: Vec<Buffer>,
}

impl<'a> Churn<'a> {
    fn new(space: &'a Arc<Space>, seed: u64) -> Churn<'a> {
        let owners = (0..4i64).zip(1u64..).map(|(n, mib)| {
            let account = Arc::new(Account::new("model m", mib << 20));
            Owner::new(space, version("m", n), Some(account))
        });
        let owners = owners.collect();
        Churn { space, random: Random(seed), owners, buffers: Vec::new() }
    }

    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.random.below(n as u64)).unwrap()
    }

    /// Allocates, shares, frees or trims.
    fn step(&mut self) {
        let categories = [Category::Weights, Category::PackedWeights, Category::Requests];
        let owner = self.below(4);
        let owner = Arc::clone(&self.owners[owner]);
        match self.random.below(200) {
            0 | 1 => drop(self.space.trim("test")),
            2 => self.space.unshare(&owner),
            3..100 if !self.buffers.is_empty() => {
                let at = self.below(self.buffers.len());
                self.buffers.swap_remove(at);
            }
            100..110 => {
                let bytes = (4 * KIB) << self.random.below(6);
                let made = Buffer::allocate_for(&owner, Category::Weights, bytes);
                self.buffers.extend(
                    made.ok().map(|buffer| self.space.share(buffer, &owner, Category::Weights)),
                );
            }
            _ => {
                let category = categories[self.below(3)];
                let bytes = usize::try_from(self.random.size(20)).unwrap();
                self.buffers.extend(Buffer::allocate_for(&owner, category, bytes));
            }
        }
    }

    /// Asserts that every byte has one owner, that all of them sum to what the device holds, and
    /// that no limit is exceeded.
    #[track_caller]
    fn check(&self) {
        let snapshot = self.space.snapshot();
        let sum = |rows: &mut dyn Iterator<Item = &Row>| rows.map(|row| row.bytes).sum::<u64>();
        assert_eq!(sum(&mut snapshot.rows.iter()), snapshot.held_bytes);
        assert_eq!(snapshot.held_bytes, self.space.account().held_bytes());
        assert!(snapshot.held_bytes <= snapshot.limit_bytes);
        for (owner, limit) in self.owners.iter().zip(1u64..) {
            let own = sum(&mut snapshot.rows.iter().filter(|row| row.holder == *owner.holder()));
            assert_eq!(own, owner.bytes(), "what is booked to {}", owner.holder());
            assert_eq!(own, owner.account().unwrap().held_bytes());
            assert!(own <= limit << 20);
        }
        let mut used = snapshot.rows.iter().filter(|row| row.category < Category::Fragmentation);
        assert_eq!(sum(&mut used), snapshot.in_use_bytes, "all of it is used by somebody");
        let server = snapshot.rows.iter().filter(|row| row.holder == Holder::Server);
        assert!(server.into_iter().all(|row| row.category >= Category::Fragmentation));
        let idle: u64 = snapshot.idle.iter().map(|(_, bytes)| bytes).sum();
        assert_eq!(
            idle,
            snapshot.held_bytes - snapshot.in_use_bytes,
            "each idle byte has a reason"
        );
    }

    /// Gives everything back, and asserts that it went.
    fn finish(self) {
        drop(self.buffers);
        self.owners.iter().for_each(|owner| self.space.unshare(owner));
        self.owners.iter().for_each(|owner| assert_eq!(owner.bytes(), 0));
        self.space.trim("test").unwrap();
        assert_eq!(self.space.account().held_bytes(), 0);
    }
}

/// Half a million operations, and the whole ledger after each.
fn check_ledger(space: &Arc<Space>, seed: u64) {
    let mut churn = Churn::new(space, seed);
    for _ in 0..500_000 {
        churn.step();
        churn.check();
    }
    churn.finish();
}

#[test]
fn random_buffers_of_the_host_always_sum_to_what_is_held() {
    check_ledger(&host(8 * MIB), 11);
}

#[test]
fn random_buffers_of_a_gpu_always_sum_to_what_is_held() {
    let gpu = Arc::new(Simulated::gpu("gpu:0", 32 << 20));
    check_ledger(&space_of(gpu, 24 << 20, GrowthRule::OnDemand).unwrap(), 12);
}

/// A space's whole life, of which the `n`-th driver call fails; whether there were as many.
fn loses_nothing(n: u64) -> bool {
    let gpu = Arc::new(Simulated::gpu("gpu:0", 24 << 20));
    gpu.fail_call(n);
    let space = space_of(gpu.clone(), 24 << 20, GrowthRule::OnDemand).unwrap();
    let mut churn = Churn::new(&space, 13);
    for _ in 0..600 {
        churn.step();
        churn.check();
    }
    let aside = space.set_aside(version("b", 1), Arc::new(Account::new("b", 4 << 20)));
    let mut workspace = Workspace::of(Arc::clone(&churn.owners[3])).unwrap();
    drop(workspace.ensure(MIB));
    churn.check();
    drop((aside, workspace));
    churn.check();
    let was_reached = gpu.n_calls() > n;
    gpu.fail_call(u64::MAX);
    churn.finish();
    assert_eq!(gpu.held_bytes(), 0, "call {n}");
    drop(space);
    was_reached
}

#[test]
fn a_driver_call_that_fails_costs_only_that_buffer() {
    let n_failed = (0..).take_while(|n| loses_nothing(*n)).count();
    assert!(n_failed > 20, "only {n_failed} calls");
}

#[test]
fn a_device_that_cannot_be_reserved_leaves_nothing_behind() {
    for n in 0..3 {
        let gpu = Arc::new(Simulated::gpu("gpu:0", 24 << 20));
        gpu.fail_call(n);
        let made = space_of(gpu.clone(), 24 << 20, GrowthRule::Reserved);
        assert_eq!(made.is_err(), n < 2, "a reserve and a commit, and nothing else");
        drop(made);
        assert_eq!(gpu.held_bytes(), 0);
    }
}

#[test]
fn every_growth_and_release_has_a_cause() {
    let space = host(16 * MIB);
    let a = model(&space, "a", None);
    drop(Buffer::allocate_for(&a, Category::Requests, 6 * MIB).unwrap());
    drop(Buffer::allocate_for(&a, Category::Weights, 6 * MIB).unwrap());
    // Neither arena has room for this, but both keep some.
    drop(Buffer::allocate_for(&a, Category::Weights, 12 * MIB).unwrap());
    drop(Buffer::allocate_for(&a, Category::Requests, 12 * MIB).unwrap());
    drop(space.set_aside(version("b", 1), Arc::new(Account::new("b", 1 << 20))).unwrap());
    space.trim("asked").unwrap();
    let snapshot = space.snapshot();
    let totals = snapshot.events.iter().map(|t| (t.change.name(), t.cause, t.bytes >> 20));
    assert_eq!(
        totals.collect::<Vec<_>>(),
        [
            ("growth", "requests", 6 + 12),
            ("growth", "reservation", 1),
            ("growth", "weights", 6 + 6),
            ("release", "asked", 12),
            ("release", "pressure", 6 + 12),
            ("release", "reservation", 1),
        ]
    );
    let all = snapshot.events.iter().map(EventTotal::n_events).sum::<u64>();
    assert_eq!(all, snapshot.n_growths + snapshot.n_releases);
    assert_eq!(space.take_events().events.len() as u64, all);
}

#[test]
fn small_buffers_get_what_the_arenas_keep() {
    let space = host(2 * MIB);
    let a = model(&space, "a", None);
    drop(Buffer::allocate_for(&a, Category::Requests, 2 * MIB).unwrap());
    assert_eq!(space.account().free_bytes(), 0);
    let small = Buffer::allocate_for(&a, Category::Requests, 100).unwrap();
    assert_eq!(rows(&space), ["a:1 requests 100"]);
    drop(small);
}

/// The reasons for idle bytes, in KiB.
fn idle(space: &Space) -> Vec<(Idle, u64)> {
    space.snapshot().idle.iter().map(|(reason, bytes)| (*reason, bytes >> 10)).collect()
}

#[test]
fn each_idle_byte_has_a_reason() {
    let gpu = || Arc::new(Simulated::gpu("gpu:0", 16 << 20));
    let space = space_of(gpu(), 16 << 20, GrowthRule::OnDemand).unwrap();
    let a = model(&space, "a", None);
    let kept = Buffer::allocate_for(&a, Category::Weights, 3 * MIB - 100).unwrap();
    drop(Buffer::allocate_for(&a, Category::Requests, 4 * MIB).unwrap());
    let lost = (Idle::Rounding, 0);
    assert_eq!(idle(&space), [(Idle::Kept, 4096), (Idle::PartlyUsed, 1024), lost]);
    space.trim("test").unwrap();
    assert_eq!(idle(&space), [(Idle::PartlyUsed, 1024), lost]);
    let aside = space.set_aside(version("b", 1), Arc::new(Account::new("b", 2 << 20))).unwrap();
    assert_eq!(idle(&space), [(Idle::PartlyUsed, 1024), (Idle::SetAside, 2048), lost]);
    drop((kept, aside));
    let reserved = space_of(gpu(), 16 << 20, GrowthRule::Reserved).unwrap();
    assert_eq!(idle(&reserved), [(Idle::Reserved, 16 << 10)]);
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

/// A GPU of 64 MiB of which its driver takes ten, and a limit of 32.
fn gpu_with_context(growth: GrowthRule) -> Arc<Space> {
    let options = SimulatedOptions::gpu("gpu:0", 64 * MIB as u64);
    let gpu = Simulated::new(SimulatedOptions { context_bytes: 10 * MIB as u64, ..options });
    space_of(Arc::new(gpu), 32 * MIB as u64, growth).unwrap()
}

#[test]
fn what_a_driver_takes_for_itself_is_the_servers_and_counts_against_every_limit() {
    let space = gpu_with_context(GrowthRule::OnDemand);
    assert_eq!(rows(&space), ["server context 10485760"]);
    assert_eq!(space.in_use_bytes(), 10 * MIB as u64);
    assert_eq!((space.snapshot().idle_bytes, space.free_bytes()), (0, 22 * MIB as u64));
    assert!(space.accounts.iter().all(|account| account.held_bytes() == 10 * MIB as u64));
    let owner = model(&space, "a", None);
    let _scope = booked_to(&owner, Category::Weights);
    assert!(Buffer::allocate(23 * MIB).is_err(), "the context has the rest");
    let buffer = Buffer::allocate(20 * MIB).unwrap();
    assert_eq!(rows(&space).len(), 2);
    assert!(space.set_context(30 * MIB as u64).is_err());
    assert_eq!(space.context_bytes(), 10 * MIB as u64, "nothing has changed");
    space.set_context(0).unwrap();
    assert_eq!(rows(&space), ["a:1 weights 20971520"]);
    space.set_context(MIB as u64).unwrap();
    drop(buffer);
    space.trim("test").unwrap();
    assert_eq!((space.in_use_bytes(), space.snapshot().held_bytes), (MIB as u64, MIB as u64));
    let accounts = space.accounts.clone();
    drop((owner, _scope, space));
    assert!(accounts.iter().all(|account| account.held_bytes() == 0), "it goes with the space");
}

#[test]
fn what_is_reserved_at_once_leaves_room_for_the_context() {
    let space = gpu_with_context(GrowthRule::Reserved);
    let snapshot = space.snapshot();
    assert_eq!((snapshot.held_bytes, snapshot.in_use_bytes), (32 * MIB as u64, 10 * MIB as u64));
    assert_eq!((snapshot.idle_bytes, space.free_bytes()), (22 * MIB as u64, 22 * MIB as u64));
    assert_eq!(rows(&space), ["server context 10485760"]);
}
