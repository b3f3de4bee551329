use std::collections::BTreeMap;

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
    space.arenas().trim_read("load").unwrap();
    let used = space.books().in_use_bytes();
    assert_eq!(used, (0..N).map(|n| (size(n) + 4 * KIB) as u64).sum::<u64>());
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
    let aside = space.set_aside(version("a", 1), &account()).unwrap();
    assert_eq!(space.account().held_bytes(), 3 << 20);
    let a = Owner::new(&aside, version("a", 1), None);
    let kept = Buffer::allocate_for(&a, Category::Weights, MIB).unwrap();
    assert!(Buffer::allocate_for(&a, Category::Requests, 3 * MIB).is_err());
    assert_eq!(rows(&space), ["a:1 weights 1048576"]);
    assert_eq!(space.snapshot().holders(), [(version("a", 1), 3 << 20)]);
    let b = model(&space, "b", None);
    assert!(Buffer::allocate_for(&b, Category::Requests, 6 * MIB).is_err());
    drop(Buffer::allocate_for(&b, Category::Requests, 5 * MIB).unwrap());
    assert!(space.set_aside(version("c", 1), &Arc::new(Account::new("c", 6 << 20))).is_err());
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
        space.sharing().share(buffer, owner, Category::Weights)
    };
    let (first, other) = (weights(&a, 1), weights(&a, 2));
    let second = weights(&b, 1);
    assert!(second.shares_memory_with(&first));
    assert_eq!(rows(&space), ["a:1 weights 1048576", "shared weights 1048576"]);
    assert_eq!((space.sharing().saved_bytes(), b.bytes()), (1 << 20, 0));
    drop((first, other));
    space.sharing().unshare(&a);
    assert_eq!(rows(&space), ["b:1 weights 1048576"]);
    assert_eq!(a.account().unwrap().held_bytes(), 0);
    drop(second);
    space.sharing().unshare(&b);
    assert_eq!(b.account().unwrap().held_bytes(), 0);
    space.trim("test").unwrap();
    assert_eq!(space.account().held_bytes(), 0);
}

#[test]
fn every_tensor_with_a_name_has_a_row_that_says_who_shares_it() {
    let space = host(64 * MIB);
    let (a, b) = (model(&space, "a", None), model(&space, "b", None));
    let weights = |owner: &Arc<Owner>, tensor: &str, value: u8| {
        let _name = named(Arc::from(tensor));
        let mut buffer = Buffer::allocate_for(owner, Category::Weights, 8 * KIB).unwrap();
        buffer.bytes_mut().unwrap().fill(value);
        space.sharing().share(buffer, owner, Category::Weights)
    };
    let kept = [weights(&a, "w", 1), weights(&a, "v", 2), weights(&b, "w", 1)];
    // Requests are not named.
    let _name = named(Arc::from("reply"));
    let request = Buffer::allocate_for(&b, Category::Requests, 100).unwrap();
    let rows = |space: &Space| -> Vec<String> {
        let ledger = space.ledger();
        assert_eq!(ledger.rows.iter().map(|row| row.bytes).sum::<u64>(), ledger.held_bytes);
        let row = |row: &Row| {
            let sharers: Vec<String> = row.sharers.iter().map(ToString::to_string).collect();
            let Row { holder, tensor, bytes, .. } = row;
            format!("{holder} {} {tensor} {bytes} {}", row.category.name(), sharers.join(" "))
        };
        ledger.rows.iter().map(row).collect()
    };
    assert_eq!(
        rows(&space),
        [
            "a:1 weights v 8192 ".to_owned(),
            "b:1 requests  100 ".to_owned(),
            "shared weights w 8192 a:1 b:1".to_owned(),
        ]
    );
    space.sharing().unshare(&b);
    drop((kept, request));
    space.sharing().unshare(&a);
    assert_eq!(rows(&space), [""; 0]);
}

#[test]
fn scratch_memory_in_a_workspace_is_booked_as_such_within_the_same_limit() {
    let space = host(64 * MIB);
    let owner = model(&space, "a", Some(MIB as u64));
    let mut workspace = Workspace::for_owner(Arc::clone(&owner)).unwrap();
    workspace.ensure(MIB).unwrap();
    workspace.note_scratch(crate::Home::Device, 100 * KIB);
    // The most so far stays.
    workspace.note_scratch(crate::Home::Device, 10 * KIB);
    assert_eq!(rows(&space), ["a:1 activations 946176", "a:1 workspace 102400"]);
    workspace.note_scratch(crate::Home::Device, 200 * KIB);
    assert_eq!(rows(&space), ["a:1 activations 843776", "a:1 workspace 204800"]);
    assert_eq!(owner.account().unwrap().held_bytes(), MIB as u64);
    workspace.trim().unwrap();
    assert_eq!(rows(&space), [""; 0]);
    workspace.ensure(MIB / 2).unwrap();
    assert_eq!(rows(&space), ["a:1 activations 524288"]);
}

#[test]
fn the_books_of_a_large_model_take_little_of_what_they_are_about() {
    let host = Arc::new(Host::new("cpu:0", 1 << 40)) as Arc<dyn Driver>;
    let driver = Arc::new(Limited::new(host, "cpu:0", 1 << 40));
    let physical = Arc::clone(driver.account());
    let growth = GrowthRule::OnDemand;
    let options = SpaceOptions { driver, physical, growth, step_bytes: 1 << 20, context_bytes: 0 };
    // Nothing is written where a load is rehearsed.
    let space = Space::rehearsal(options).unwrap();
    let owner = model(&space, "large", None);
    // As many weights as a large language model for questions has, each read and then packed.
    let mut kept = Vec::new();
    for layer in 0..24 {
        let sizes = [("query", 4 * MIB), ("key", 4 * MIB), ("value", 4 * MIB), ("out", 4 * MIB)];
        let sizes = sizes.into_iter().chain([("wide", 16 * MIB), ("narrow", 16 * MIB)]);
        for (name, bytes) in sizes.chain((0..10).map(|_| ("bias", 4 * KIB))) {
            let n = kept.len();
            let _name = named(format!("model/encoder/layer_{layer}/{name}_{n}/kernel:0").into());
            let read = Buffer::allocate_for(&owner, Category::Weights, bytes).unwrap();
            kept.push(Buffer::allocate_for(&owner, Category::PackedWeights, bytes).unwrap());
            drop(read);
        }
    }
    let snapshot = space.snapshot();
    let (own, held) = (snapshot.bookkeeping_bytes, snapshot.held_bytes);
    let stats: u64 =
        space.arenas().iter().map(|arena| arena.lock().stats().bookkeeping_bytes).sum();
    assert!(held > 1 << 30 && own * 2000 <= held, "{own} of {held}");
    // The names of as many tensors are a good part of it, and so are the last events.
    let names = kept.len() * "model/encoder/layer_00/query_000/kernel:0".len();
    assert!(own > stats + names as u64, "{own} with {stats} of the arenas");
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
        space.sharing().share(buffer, &a, Category::Weights)
    };
    let mut left: Vec<Buffer> = (0..8).map(read).collect();
    // Every other one is packed and gone: each that is left keeps a granule.
    let mut number = 0..8;
    left.retain(|_| number.next().is_some_and(|number| number % 2 == 0));
    space.trim("test").unwrap();
    assert_eq!(space.account().held_bytes(), 8 << 20);
    // What somebody else holds stays where it is.
    let other = left[0].clone();
    assert!(space.sharing().settle(&left[0], 1, &a).unwrap().is_none());
    drop(other);
    for buffer in &mut left {
        *buffer = space.sharing().settle(buffer, 1, &a).unwrap().unwrap();
    }
    space.trim("test").unwrap();
    assert_eq!(space.account().held_bytes(), 4 << 20);
    assert_eq!(rows(&space), ["a:1 weights 4194304"]);
    assert!(left.iter().zip([0, 2, 4, 6]).all(|(one, value)| one.bytes() == vec![value; MIB]));
    // Others find them where they are now, and they do not move again.
    assert!(read(4).shares_memory_with(&left[2]));
    assert!(space.sharing().settle(&left[0], 1, &a).unwrap().is_none());
    drop(left);
    space.sharing().unshare(&a);
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
        assert!(held <= (128 << 20) + arenas::TRIM_STEP_BYTES + (2 << 20), "{held} bytes are held");
    }
}

#[test]
fn a_workspace_is_an_activation_of_its_owner() {
    let space = host(64 * MIB);
    let server = Owner::new(&space, Holder::Server, None);
    let mut workspace = Workspace::for_owner(server).unwrap();
    workspace.ensure(MIB).unwrap();
    workspace.ensure(5 * MIB).unwrap();
    assert_eq!(rows(&space), ["server activations 5242880"]);
    assert!(workspace.ensure(65 * MIB).is_err());
    workspace.ensure(MIB).unwrap();
    workspace.trim().unwrap();
    assert_eq!(rows(&space), [""; 0]);
}

/// Two logical devices of one physical device, whose limit is less than both of theirs.
fn two_of(driver: Arc<dyn Driver>) -> Vec<Arc<Space>> {
    let physical = Arc::new(Limited::new(driver, "physical", 28 << 20));
    let name = physical.properties().kind.to_string();
    let space = |number: u64| {
        let inner = Arc::clone(&physical) as Arc<dyn Driver>;
        let driver = Arc::new(Limited::new(inner, format!("{name}:{number}"), 24 << 20));
        let (physical, growth) = (Arc::clone(physical.account()), GrowthRule::OnDemand);
        Space::new(SpaceOptions {
            driver,
            physical,
            growth,
            step_bytes: 64 << 10,
            context_bytes: 0,
        })
        .unwrap()
    };
    (0..2).map(space).collect()
}

/// Random work for several owners on the logical devices of one physical device.
struct Churn {
    spaces: Vec<Arc<Space>>,
    random: Random,
    /// Four on each device.
    owners: Vec<Arc<Owner>>,
    buffers: Vec<Buffer>,
    charges: Vec<Charge>,
    workspaces: Vec<Workspace>,
    /// The owners with memory set aside, and the buffers that they hold of it.
    asides: Vec<(Arc<Owner>, Vec<Buffer>)>,
    tensors: Vec<Arc<str>>,
}

impl Churn {
    fn new(spaces: Vec<Arc<Space>>, seed: u64) -> Churn {
        let owners = spaces.iter().flat_map(|space| {
            (0..4i64).zip(1u64..).map(|(n, mib)| {
                let account = Arc::new(Account::new("model m", mib << 20));
                Owner::new(space, version("m", n), Some(account))
            })
        });
        let owners: Vec<Arc<Owner>> = owners.collect();
        let of = |owner: &Arc<Owner>| Workspace::for_owner(Arc::clone(owner)).unwrap();
        Churn {
            spaces,
            random: Random(seed),
            workspaces: owners.iter().skip(3).step_by(4).map(of).collect(),
            owners,
            buffers: Vec::new(),
            charges: Vec::new(),
            asides: Vec::new(),
            tensors: ["a", "b", "c"].map(Arc::from).to_vec(),
        }
    }

    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.random.below(n as u64)).unwrap()
    }

    fn mib(&mut self, from: u64, to: u64) -> u64 {
        (from + self.random.below(to - from)) << 20
    }

    /// Allocates, shares, frees or trims; now and then something rarer. Gives the device.
    fn step(&mut self) -> usize {
        let categories = [Category::Weights, Category::PackedWeights, Category::Requests];
        let at = self.below(self.owners.len());
        let owner = Arc::clone(&self.owners[at]);
        let tensor = Arc::clone(&self.tensors[at % self.tensors.len()]);
        let _name = at.is_multiple_of(2).then(|| named(tensor));
        match self.random.below(240) {
            0 | 1 => drop(owner.space().trim("test")),
            2 => owner.space().sharing().unshare(&owner),
            3..100 if !self.buffers.is_empty() => {
                let at = self.below(self.buffers.len());
                self.buffers.swap_remove(at);
            }
            100..110 => {
                let bytes = (4 * KIB) << self.random.below(6);
                let made = Buffer::allocate_for(&owner, Category::Weights, bytes);
                self.buffers.extend(made.ok().map(|buffer| {
                    owner.space().sharing().share(buffer, &owner, Category::Weights)
                }));
            }
            110..140 => self.rarer(&owner, at / 4),
            _ => {
                let category = categories[self.below(3)];
                let bytes = usize::try_from(self.random.size(20)).unwrap();
                self.buffers.extend(Buffer::allocate_for(&owner, category, bytes));
            }
        }
        at / 4
    }

    /// Changes limits, charges, sets aside, or works in a workspace of a device.
    fn rarer(&mut self, owner: &Arc<Owner>, device: usize) {
        // What is refused leaves everything as it was, which is checked.
        match self.random.below(30) {
            0..3 => drop(owner.account().unwrap().set_limit(self.mib(1, 6))),
            3 | 4 => drop(owner.space().account().set_limit(self.mib(8, 24))),
            5 => {
                let limit = self.mib(10, 40);
                drop(self.spaces[device].books().accounts()[1].set_limit(limit));
            }
            6..10 => {
                let bytes = self.random.size(20);
                self.charges.extend(Charge::new(owner, Category::Context, bytes));
            }
            10..14 if !self.charges.is_empty() => {
                let (at, bytes) = (self.below(self.charges.len()), self.random.size(21));
                let charged = self.charges[at].set(bytes);
                assert!(charged <= bytes.max(1), "no more than was asked for");
            }
            14..20 if !self.charges.is_empty() => {
                let at = self.below(self.charges.len());
                self.charges.swap_remove(at);
            }
            20..23 => {
                let bytes = usize::try_from(self.random.size(21)).unwrap();
                let workspace = &mut self.workspaces[device];
                drop(workspace.ensure(bytes));
                workspace.note_scratch(crate::Home::Device, bytes / 3);
            }
            23 => self.workspaces[device].trim().unwrap(),
            24 | 25 if self.asides.len() < 2 => {
                let account = Arc::new(Account::new("aside", self.mib(1, 3) * 2));
                let holder = version("aside", 1);
                let space = &self.spaces[device];
                let aside = match self.random.below(3) {
                    0 => space.set_aside(holder.clone(), &account),
                    n => space.set_aside_at_least(holder.clone(), &account, n << 20),
                };
                let owner = aside.map(|aside| Owner::new(&aside, holder, None));
                self.asides.extend(owner.map(|owner| (owner, Vec::new())));
            }
            26 => drop(self.asides.pop()),
            _ => {
                let bytes = usize::try_from(self.random.size(20)).unwrap();
                if let Some((owner, buffers)) = self.asides.last_mut() {
                    buffers.extend(Buffer::allocate_for(owner, Category::Requests, bytes));
                    buffers.extend(Buffer::allocate_for(owner, Category::Weights, bytes / 2));
                    buffers.drain(..buffers.len() / 8);
                }
            }
        }
    }

    /// Asserts that every byte of a device has one owner, that all of them sum to what it holds,
    /// and that no limit is exceeded: its own, the physical device's, those of models.
    #[track_caller]
    fn check(&self, device: usize) {
        let space = &self.spaces[device];
        let snapshot = space.snapshot();
        let sum = |rows: &mut dyn Iterator<Item = &Row>| rows.map(|row| row.bytes).sum::<u64>();
        assert_eq!(sum(&mut snapshot.rows.iter()), snapshot.held_bytes);
        assert_eq!(snapshot.held_bytes, space.account().held_bytes());
        assert!(snapshot.held_bytes <= snapshot.limit_bytes);
        let physical = &space.books().accounts()[1];
        let held: u64 = self.spaces.iter().map(|space| space.account().held_bytes()).sum();
        assert_eq!(physical.held_bytes(), held, "the physical device holds what its shares do");
        assert!(held <= physical.limit_bytes());
        for owner in self.owners[4 * device..][..4].iter() {
            let own = sum(&mut snapshot.rows.iter().filter(|row| row.holder == *owner.holder()));
            assert_eq!(own, owner.bytes(), "what is booked to {}", owner.holder());
            let account = owner.account().unwrap();
            assert_eq!(own, account.held_bytes());
            assert!(own <= account.limit_bytes());
        }
        for (owner, _) in self.asides.iter().filter(|(owner, _)| {
            Arc::ptr_eq(owner.space().root(), space) && owner.space().arenas().kept_bytes() > 0
        }) {
            let (aside, inner) = (owner.space(), owner.space().snapshot());
            assert!(inner.held_bytes >= aside.arenas().kept_bytes(), "what is set aside stays so");
            assert!(inner.held_bytes <= aside.account().limit_bytes());
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

    /// Asserts that the tensors of each holder and category sum to what is booked to them.
    #[track_caller]
    fn check_tensors(&self, device: usize) {
        let sums = |snapshot: Snapshot| {
            let mut sums: BTreeMap<(Holder, Category), u64> = BTreeMap::new();
            for row in snapshot.rows {
                *sums.entry((row.holder, row.category)).or_insert(0) += row.bytes;
            }
            sums
        };
        let space = &self.spaces[device];
        assert_eq!(sums(space.ledger()), sums(space.snapshot()));
    }

    /// Gives everything back, and asserts that it went.
    fn finish(self) {
        drop((self.buffers, self.charges, self.workspaces, self.asides));
        self.owners.iter().for_each(|owner| owner.space().sharing().unshare(owner));
        self.owners.iter().for_each(|owner| assert_eq!(owner.bytes(), 0));
        for space in &self.spaces {
            space.trim("test").unwrap();
            space.check();
            assert_eq!(space.account().held_bytes(), 0);
            assert!(space.ledger().rows.is_empty());
        }
    }
}

/// Half a million operations, and the ledger after each.
fn check_ledger(spaces: Vec<Arc<Space>>, seed: u64) {
    let mut churn = Churn::new(spaces, seed);
    for round in 0..500_000 {
        let device = churn.step();
        churn.check(device);
        if round % 64 == 0 {
            churn.check_tensors(device);
            churn.spaces[device].check();
        }
    }
    churn.finish();
}

#[test]
fn random_buffers_of_the_host_always_sum_to_what_is_held() {
    check_ledger(two_of(Arc::new(Host::new("cpu:0", 1 << 30))), 11);
}

#[test]
fn random_buffers_of_a_gpu_always_sum_to_what_is_held() {
    check_ledger(two_of(Arc::new(Simulated::gpu("gpu:0", 32 << 20))), 12);
}

/// A space's whole life, of which the `n`-th driver call fails; whether there were as many.
fn loses_nothing(n: u64) -> bool {
    let gpu = Arc::new(Simulated::gpu("gpu:0", 24 << 20));
    gpu.fail_call(n);
    let space = space_of(gpu.clone(), 24 << 20, GrowthRule::OnDemand).unwrap();
    let mut churn = Churn::new(vec![Arc::clone(&space)], 13);
    for _ in 0..600 {
        churn.step();
        churn.check(0);
    }
    let aside = space.set_aside(version("b", 1), &Arc::new(Account::new("b", 4 << 20)));
    let account = Arc::new(Account::new("c", 8 << 20));
    let grows = space.set_aside_at_least(version("c", 1), &account, 2 << 20);
    // More than was set aside, so that it moves and grows.
    let large = grows.as_ref().ok().map(|grows| {
        let owner = Owner::new(grows, version("c", 1), None);
        Buffer::allocate_for(&owner, Category::Weights, 5 * MIB)
    });
    churn.check(0);
    drop((large, grows));
    let mut workspace = Workspace::for_owner(Arc::clone(&churn.owners[3])).unwrap();
    drop(workspace.ensure(MIB));
    churn.check(0);
    drop((aside, workspace));
    churn.check(0);
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
    drop(space.set_aside(version("b", 1), &Arc::new(Account::new("b", 1 << 20))).unwrap());
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
    let aside = space.set_aside(version("b", 1), &Arc::new(Account::new("b", 2 << 20))).unwrap();
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
    assert_eq!(space.books().in_use_bytes(), 10 * MIB as u64);
    assert_eq!((space.snapshot().idle_bytes, space.free_bytes()), (0, 22 * MIB as u64));
    assert!(space.books().accounts().iter().all(|account| account.held_bytes() == 10 * MIB as u64));
    let owner = model(&space, "a", None);
    let _scope = booked_to(&owner, Category::Weights);
    assert!(Buffer::allocate(23 * MIB).is_err(), "the context has the rest");
    let buffer = Buffer::allocate(20 * MIB).unwrap();
    assert_eq!(rows(&space).len(), 2);
    assert!(space.books().set_context(30 * MIB as u64).is_err());
    assert_eq!(space.books().context_bytes(), 10 * MIB as u64, "nothing has changed");
    space.books().set_context(0).unwrap();
    assert_eq!(rows(&space), ["a:1 weights 20971520"]);
    space.books().set_context(MIB as u64).unwrap();
    drop(buffer);
    space.trim("test").unwrap();
    assert_eq!(
        (space.books().in_use_bytes(), space.snapshot().held_bytes),
        (MIB as u64, MIB as u64)
    );
    let accounts = space.books().accounts().to_vec();
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

#[test]
fn as_much_is_free_as_can_be_taken_under_a_limit_that_is_no_multiple_of_the_granule() {
    for growth in [GrowthRule::OnDemand, GrowthRule::Reserved] {
        for limit in [1, 2 * MIB - 1, 5 * MIB, 6 * MIB, 6 * MIB + 1] {
            let gpu = Arc::new(Simulated::gpu("gpu:0", 8 << 20));
            let room = limit / (2 * MIB) * 2 * MIB;
            let space = space_of(gpu, limit as u64, growth);
            // Nothing at all cannot be held at once.
            if room == 0 && growth == GrowthRule::Reserved {
                assert!(space.is_err());
                continue;
            }
            let space = space.unwrap();
            assert_eq!((space.room_bytes(), space.free_bytes()), (room as u64, room as u64));
            let owner = model(&space, "a", None);
            let take = |bytes: usize| Buffer::allocate_for(&owner, Category::Weights, bytes);
            assert!(take(room + 1).is_err(), "{limit}");
            drop((room > 0).then(|| take(room).unwrap()));
        }
    }
    let space = host(5 * MIB + 1);
    assert_eq!(space.room_bytes(), 5 * MIB as u64 + 1);
}
