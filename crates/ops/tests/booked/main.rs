//! No kernel takes memory that is not in the books: whatever it takes from the heap was booked
//! before, but for `FREE_BYTES`, and in hostile calls a multiple of the inputs. All cases of
//! `testdata/ops` are run as they are, with larger inputs, and with numbers in inputs and
//! attributes that ask for giant results.
#![allow(clippy::unwrap_used, reason = "tests")]

mod bombs;
mod hostility;

use std::alloc::System;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use device::logical::GrowthRule;
use device::{Category, Driver, Holder, Host, Limited, Owner, Space, SpaceOptions};
use hostility::{Random, Variant};
use ops::{Attrs, Cancel, Ctx, Env, NoFiles, NoFunctions, Output, Resources};
use pool::Pool;
use rustix::process::{Resource, Rlimit, setrlimit};
use tensor::{Spec, Tensor};
use testkit::opcases::{self, Case, Node};
use tracking_allocator::{AllocationGroupId, AllocationRegistry, AllocationTracker, Allocator};

#[global_allocator]
static HEAP: Allocator<System> = Allocator::system();

/// The bytes that a call may take from the heap without having booked them.
const FREE_BYTES: i64 = 64 << 10;

/// A hostile call may take so many times the bytes of its inputs besides: they are large already,
/// and what is inferred from a list of sizes, or said in an error, grows with them alone.
const FREE_TIMES: i64 = 16;

/// The limit of the host, and as much again for the buffers of tensors.
const LIMIT_BYTES: u64 = 64 << 20;

/// The bytes that the process may map: a kernel that passes its limit must not take the machine
/// down.
const MAPPED_BYTES: u64 = 6 << 30;

/// The number of hostile calls of one op, and the time that one may take if it looks at its
/// deadline.
const N_CALLS: usize = 25;
const CALL_TIME: Duration = Duration::from_millis(200);

thread_local! {
    /// The bytes of the heap that this thread holds, and the most of them that were not booked.
    static LIVE: Cell<i64> = const { Cell::new(0) };
    static MOST: Cell<i64> = const { Cell::new(0) };
}

thread_local! {
    /// The ops whose kernels were begun.
    static BEGUN: RefCell<BTreeSet<String>> = const { RefCell::new(BTreeSet::new()) };
}

/// The books of the bytes of the heap.
static BOOKS: OnceLock<Arc<Space>> = OnceLock::new();

/// Compares what is held with what is booked whenever something is taken.
struct Watch;

impl AllocationTracker for Watch {
    fn allocated(&self, _: usize, bytes: usize, _: usize, _: AllocationGroupId) {
        LIVE.set(LIVE.get() + i64::try_from(bytes).unwrap_or(i64::MAX >> 1));
        let booked = BOOKS.get().map_or(0, |space| space.books().in_use_bytes());
        MOST.set(MOST.get().max(LIVE.get() - booked.cast_signed()));
    }

    fn deallocated(
        &self,
        _: usize,
        bytes: usize,
        _: usize,
        _: AllocationGroupId,
        _: AllocationGroupId,
    ) {
        LIVE.set(LIVE.get() - i64::try_from(bytes).unwrap_or(i64::MAX >> 1));
    }
}

/// Returns the bytes that `call` takes of the heap beyond those it books, and its result. Both are
/// counted from nothing.
fn watched<R>(call: impl FnOnce() -> R) -> (i64, R) {
    let before = BOOKS.get().map_or(0, |space| space.books().in_use_bytes()).cast_signed();
    LIVE.set(before);
    MOST.set(0);
    let result = call();
    (MOST.get(), result)
}

/// The owner whose buffers are in a space apart, so that all that is booked on its host is heap.
fn owner() -> Arc<Owner> {
    let host = space(GrowthRule::OnDemand);
    let holder = Holder::Version { model: Arc::from("m"), version: 1 };
    let on_host = Owner::new(&host, holder.clone(), None);
    drop(BOOKS.set(host));
    Owner::beside(on_host, &space(GrowthRule::Reserved), holder, None)
}

fn space(growth: GrowthRule) -> Arc<Space> {
    let host = Arc::new(Host::new("cpu:0", 2 * LIMIT_BYTES)) as Arc<dyn Driver>;
    let driver = Arc::new(Limited::new(host, "cpu:0", LIMIT_BYTES));
    let physical = Arc::clone(driver.account());
    Space::new(SpaceOptions { driver, physical, growth, step_bytes: 1 << 20, context_bytes: 0 })
        .unwrap()
}

fn start() {
    let limit = Rlimit { current: Some(MAPPED_BYTES), maximum: Some(MAPPED_BYTES) };
    setrlimit(Resource::As, limit).unwrap();
    AllocationRegistry::set_global_tracker(Watch).unwrap();
    AllocationRegistry::enable_tracking();
}

fn cases() -> Vec<Case> {
    let folder: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/ops");
    opcases::read_all(&folder)
}

/// The ops that a file of `testdata` names with a reason.
fn listed(file: &str) -> BTreeSet<String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(file);
    let text = std::fs::read_to_string(file).unwrap();
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.filter_map(|line| line.split(" : ").next()).map(str::to_owned).collect()
}

/// The worst that was seen of each op, with the call.
#[derive(Default)]
struct Findings(BTreeMap<String, (i64, String)>);

impl Findings {
    fn add(&mut self, op: &str, excess: i64, call: impl FnOnce() -> String) {
        let worst = self.0.get(op).map_or(FREE_BYTES, |(worst, _)| *worst);
        if excess > worst {
            self.0.insert(op.to_owned(), (excess, call()));
        }
    }

    fn check(&self) {
        let show = |(op, (excess, call)): (&String, &(i64, String))| match *excess {
            i64::MAX => format!("{op} panics: {call}"),
            excess => format!("{op} takes {excess} bytes beyond what it booked: {call}"),
        };
        let all: Vec<String> = self.0.iter().map(show).collect();
        assert!(all.is_empty(), "{} ops:\n{}", all.len(), all.join("\n"));
    }
}

/// Runs a node with these inputs. Fails as the op does.
fn call(node: &Node, inputs: &[Tensor], env: &Env<'_>) -> ops::Result<Vec<Tensor>> {
    let def = ops::find(&node.op).ok_or(ops::Error::Cancelled)?;
    let op = (def.build)(&Attrs::new(&node.attrs))?;
    let specs: Vec<Spec> = inputs.iter().cloned().map(Spec::constant).collect();
    let n_outputs = op.infer_with(&specs, env.functions)?.len();
    let outputs = (0..n_outputs).map(|_| Output::Open(None));
    let mut ctx = Ctx::new(inputs.iter().map(Tensor::view), outputs, env);
    if !BEGUN.with_borrow(|begun| begun.contains(&node.op)) {
        BEGUN.with_borrow_mut(|begun| begun.insert(node.op.clone()));
    }
    op.run(&mut ctx)?;
    Ok(ctx.finish()?.into_iter().map(|(_, tensor)| tensor).collect())
}

/// Calls `each` with the nodes of a case and the inputs that they have in it, as far as they run.
fn walk(case: &Case, mut each: impl FnMut(&Node, &[Tensor], &Env<'_>)) {
    let (pool, resources) = (Pool::new(1), Resources::default());
    let env = Env {
        pool: &pool,
        functions: &NoFunctions,
        files: &NoFiles,
        resources: &resources,
        cancel: &Cancel::default(),
    };
    let mut values: HashMap<String, Tensor> = HashMap::new();
    for (i, input) in case.inputs.iter().enumerate() {
        values.insert(format!("in{i}:0"), input.clone());
    }
    for node in &case.nodes {
        let inputs = node.inputs.iter().map(|input| {
            let name = if input.contains(':') { input.clone() } else { format!("{input}:0") };
            values.get(&name).cloned()
        });
        let Some(inputs) = inputs.collect::<Option<Vec<Tensor>>>() else { return };
        each(node, &inputs, &env);
        let Ok(outputs) = call(node, &inputs, &env) else { return };
        for (i, output) in outputs.into_iter().enumerate() {
            values.insert(format!("{}:{i}", node.name), output);
        }
    }
}

#[test]
fn no_case_takes_more_from_the_heap_than_it_booked() {
    start();
    let cases = cases();
    let owner = owner();
    let _scope = device::booked_to(&owner, Category::Requests);
    let mut findings = Findings::default();
    let mut n_calls = 0;
    // A thread keeps a buffer of one size for products, from the first one on.
    let products = cases.iter().filter(|case| case.nodes.iter().any(|node| node.op == "Conv2D"));
    products.for_each(|case| walk(case, |_, _, _| {}));
    for case in &cases {
        walk(case, |node, inputs, env| {
            let (excess, result) = watched(|| call(node, inputs, env));
            n_calls += usize::from(result.is_ok());
            drop(result);
            findings.add(&node.op, excess, || case.name.clone());
        });
    }
    findings.check();
    assert!(n_calls > 5000, "only {n_calls} calls ran");
}

/// The calls are made of the cases: of each op some, spread over them. A file says of which op the
/// last ones were, should one end the process.
#[test]
fn no_call_however_hostile_takes_more_from_the_heap_than_it_booked() {
    start();
    std::panic::set_hook(Box::new(|_| {}));
    let mut by_op: BTreeMap<String, Vec<(Node, Case)>> = BTreeMap::new();
    for case in cases() {
        if let Some(node) = case.nodes.last() {
            by_op.entry(node.op.clone()).or_default().push((node.clone(), case));
        }
    }
    let owner = owner();
    let _scope = device::booked_to(&owner, Category::Requests);
    let mut findings = Findings::default();
    let (mut n_calls, mut n_refused, mut n_done) = (0, 0, 0);
    let mut begun = BTreeSet::new();
    let progress = Path::new(env!("CARGO_TARGET_TMPDIR")).join("booked_op.txt");
    let listed = listed("ops_beyond_their_books.txt");
    for (op, cases) in by_op.iter().filter(|(op, _)| !listed.contains(*op)) {
        std::fs::write(&progress, op).unwrap();
        let mut random = Random::new(op);
        for turn in 0..N_CALLS {
            let (node, case) = &cases[turn * cases.len() / N_CALLS];
            walk(case, |this, inputs, env| {
                if this.name != node.name {
                    return;
                }
                let Some(variant) = Variant::new(this, inputs, turn, &mut random) else { return };
                let deadline = Some(Instant::now() + CALL_TIME);
                let cancel = Cancel::new(Arc::new(AtomicBool::new(false)), deadline);
                let env = Env { cancel: &cancel, ..*env };
                // Kernels that the walk ran on its way do not count.
                BEGUN.take();
                let run = || call(&variant.node, &variant.inputs, &env);
                let (excess, result) = watched(|| catch_unwind(AssertUnwindSafe(run)));
                begun.append(&mut BEGUN.take());
                n_calls += 1;
                let excess = match &result {
                    Err(_) => i64::MAX,
                    Ok(Err(ops::Error::ResourceExhausted(_))) => {
                        n_refused += 1;
                        excess
                    }
                    Ok(Err(_)) => excess,
                    Ok(Ok(_)) => {
                        n_done += 1;
                        excess
                    }
                };
                drop(result);
                let n_bytes: usize = variant.inputs.iter().map(Tensor::n_bytes).sum();
                let free = FREE_TIMES * i64::try_from(n_bytes).unwrap();
                let excess = if excess == i64::MAX { excess } else { excess - free };
                findings.add(op, excess, || format!("{}: {}", case.name, variant.what));
            });
        }
    }
    drop(std::panic::take_hook());
    findings.check();
    let without: BTreeSet<String> =
        by_op.keys().filter(|op| !begun.contains(*op)).cloned().collect();
    assert_eq!(without, self::listed("ops_without_hostile_calls.txt"), "ops that never ran");
    assert!(n_calls > 5000, "only {n_calls} calls");
    assert!(n_refused > 100 && n_done > 1000, "{n_refused} refused, {n_done} done");
    let left = BOOKS.get().unwrap().books().in_use_bytes();
    assert!(left < 1 << 20, "{left} bytes are still booked");
}

#[test]
fn no_picture_takes_more_from_the_heap_than_it_booked_however_small_its_file() {
    start();
    let (large, giant) = (bombs::large(), bombs::giant());
    let n_large = large.len();
    let cases = cases();
    let owner = owner();
    let _scope = device::booked_to(&owner, Category::Requests);
    let mut findings = Findings::default();
    let mut n_refused = 0;
    for (i, bomb) in large.iter().chain(&giant).enumerate() {
        let of_op = |case: &&Case| case.nodes.last().is_some_and(|node| node.op == bomb.op);
        let case = cases.iter().find(of_op).unwrap();
        walk(case, |node, inputs, env| {
            if node.op != bomb.op {
                return;
            }
            let mut inputs = inputs.to_vec();
            inputs[0] = bomb.contents();
            let cancel = Cancel::new(Arc::default(), Some(Instant::now() + 10 * CALL_TIME));
            let _watch = cancel.watch();
            let (excess, result) =
                watched(|| call(node, &inputs, &Env { cancel: &cancel, ..*env }));
            let free = FREE_TIMES * i64::try_from(bomb.file.len()).unwrap();
            findings.add(&node.op, excess - free, || bomb.name.clone());
            assert!(i >= n_large || result.is_ok(), "{}: {:?}", bomb.name, result.err());
            n_refused += usize::from(result.is_err());
        });
    }
    findings.check();
    assert!(n_refused > 15, "{n_refused} of {} were refused", giant.len());
}
