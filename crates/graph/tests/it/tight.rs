//! Offsets are searched for where it decides whether a run fits.

use device::{Account, Category, Driver, Holder, Host, Limited, Owner, Space, SpaceOptions};
use graph::{Plan, Room, Searches};
use std::sync::Arc;
use testkit::tight::{BEST_UNITS, GREEDY_UNITS, answer, graph as tight_graph, looped};

use super::*;

const UNIT_BYTES: usize = 64 << 10;

/// The bytes that scalars take beside the buffers.
const SLACK_BYTES: u64 = 1 << 10;

fn units(n: usize) -> u64 {
    (n * UNIT_BYTES) as u64
}

fn room(device_bytes: u64) -> Room {
    Room { device_bytes, host_bytes: 0 }
}

/// The program, and the plan for a vector of two.
fn program(runner: &Runner) -> (Program, Arc<Plan>) {
    let source = Source::new(tight_graph(UNIT_BYTES), OpList::default()).unwrap();
    let program = runner.program(&source, &request(&["x:0"], &["y:0"])).unwrap();
    let plan = plan(runner, &program);
    (program, plan)
}

fn plan(runner: &Runner, program: &Program) -> Arc<Plan> {
    runner.with_env(|env| program.plan(&[(DType::F32, Shape::of(&[2]))], env).unwrap())
}

/// The plan in a room, searched for until `n_asked` times were asked whether to stop.
fn lowered(runner: &Runner, program: &Program, room: Room, n_asked: u64) -> Arc<Plan> {
    let mut n = 0;
    let mut should_stop = || {
        n += 1;
        n > n_asked
    };
    let old = plan(runner, program);
    runner.with_env(|env| program.lowered(old, env, &room, &mut should_stop).unwrap())
}

fn searches(n_searches: u64, n_found: u64) -> Searches {
    Searches { n_searches, n_found }
}

#[test]
fn a_plan_that_does_not_fit_is_packed_again_and_the_one_that_does_is_run() {
    let runner = Runner::default();
    let (program, greedy) = program(&runner);
    let work = |plan: &Plan| plan.work_bytes() as u64;
    assert!(work(&greedy) >= units(GREEDY_UNITS), "greedy offsets are not the best");
    assert!(greedy.live_bytes() as u64 <= units(BEST_UNITS) + SLACK_BYTES);
    assert!(!greedy.is_lowest());
    let tight = room(units(BEST_UNITS) + SLACK_BYTES);
    assert!(!greedy.fits(&tight));
    let lower = lowered(&runner, &program, tight, u64::MAX);
    assert!(lower.fits(&tight), "{} bytes", lower.work_bytes());
    assert_eq!(program.searches(), searches(1, 1));
    // It is kept, and so is the one that runs.
    assert!(Arc::ptr_eq(&plan(&runner, &program), &lower));
    assert!(Arc::ptr_eq(&lowered(&runner, &program, tight, u64::MAX), &lower));
    assert_eq!(program.searches(), searches(1, 1));
    let input = [Tensor::vector(&[1f32, 3.0]).unwrap()];
    let mut workspace = Workspace::allocate(0).unwrap();
    let outputs = runner.with_env(|env| program.run(&input, env, &mut workspace)).unwrap();
    assert_eq!(outputs[0].as_slice::<f32>(), [1.0 + answer(4.0), 3.0 + answer(4.0)]);
    assert_eq!(workspace.len(), lower.work_bytes());
}

/// The program that does it in a loop, and the functions of that.
fn looped_program(env: &Env<'_>) -> (Program, Library) {
    let source = Source::new(looped(UNIT_BYTES, 2), OpList::default()).unwrap();
    let graph = source.trace(&request(&["x:0"], &["y:0"])).unwrap();
    let (resources, written) = (Resources::default(), FxHashSet::default());
    let bindings = Bindings::new(&resources, &written);
    let options = Options { plans_max: 2, homes: Homes::One };
    let mut library = Library::default();
    library.add(&source, &graph, &Build { bindings: &bindings, env, options }).unwrap();
    let env = Env { functions: &library, ..*env };
    let build = Build { bindings: &bindings, env: &env, options };
    let mut program = Program::build(graph, &build).unwrap();
    graph::pack([&mut program], &mut library).unwrap();
    (program, library)
}

#[test]
fn the_body_of_a_loop_is_packed_again_if_that_decides_whether_a_plan_fits() {
    let runner = Runner::default();
    let (program, library) = runner.with_env(looped_program);
    let shapes = [(DType::F32, Shape::of(&[2]))];
    let slack = 4 * SLACK_BYTES;
    let tight = room(units(BEST_UNITS) + slack);
    runner.with_env(|env| {
        let env = Env { functions: &library, ..*env };
        let greedy = program.plan(&shapes, &env).unwrap();
        let (work, live) = (greedy.work_bytes() as u64, greedy.live_bytes() as u64);
        assert!(work >= units(GREEDY_UNITS) && live <= units(BEST_UNITS) + slack, "{work} {live}");
        assert!(!greedy.fits(&tight) && !greedy.is_lowest());
        let lower = program.lowered(greedy, &env, &tight, &mut || false).unwrap();
        assert!(lower.fits(&tight), "{} bytes", lower.work_bytes());
        assert_eq!(program.searches(), searches(1, 1));
        assert!(Arc::ptr_eq(&program.plan(&shapes, &env).unwrap(), &lower));
        let mut expected = [1f32, 3.0];
        for _ in 0..2 {
            let more = answer(expected[0] + expected[1]);
            expected = expected.map(|value| value + more);
        }
        let input = [Tensor::vector(&[1f32, 3.0]).unwrap()];
        let mut workspace = Workspace::allocate(0).unwrap();
        let outputs = program.run(&input, &env, &mut workspace).unwrap();
        assert_eq!(outputs[0].as_slice::<f32>(), expected);
        assert_eq!(workspace.len(), lower.work_bytes());
    });
}

#[test]
fn nothing_is_searched_where_there_is_room_or_none_could_be_enough() {
    let runner = Runner::default();
    let (program, greedy) = program(&runner);
    let results = greedy.dynamic_bytes() as u64;
    assert!(results > 0);
    for bytes in [u64::MAX, greedy.work_bytes() as u64 + results, greedy.live_bytes() as u64, 0] {
        let same = lowered(&runner, &program, room(bytes), u64::MAX);
        assert!(Arc::ptr_eq(&same, &greedy), "{bytes}");
    }
    assert_eq!(program.searches(), searches(0, 0));
}

#[test]
fn a_search_in_vain_is_not_made_again_for_as_little() {
    let runner = Runner::default();
    let (program, greedy) = program(&runner);
    let (live, work) = (greedy.live_bytes() as u64, greedy.work_bytes() as u64);
    let results = greedy.dynamic_bytes() as u64;
    let stop = |bytes: u64| lowered(&runner, &program, room(bytes + results), 0);
    for bytes in [live, live, live + 4096] {
        assert!(Arc::ptr_eq(&stop(bytes), &greedy));
    }
    assert_eq!(program.searches(), searches(1, 0));
    // With half of what was missing it is worth another.
    stop(live.midpoint(work));
    assert_eq!(program.searches(), searches(2, 0));
    let found = lowered(&runner, &program, room(work - 64 + results), u64::MAX);
    assert!((found.work_bytes() as u64) < work);
    assert_eq!(program.searches(), searches(3, 1));
}

#[test]
fn inputs_of_ever_new_shapes_do_not_search_for_ever() {
    let runner = Runner::default();
    let (program, _) = program(&runner);
    for n in 1..100usize {
        runner.with_env(|env| {
            let plan = program.plan(&[(DType::F32, Shape::of(&[n]))], env).unwrap();
            let bytes = (plan.live_bytes() + plan.dynamic_bytes()) as u64;
            program.lowered(plan, env, &room(bytes), &mut || true).unwrap();
        });
    }
    assert_eq!(program.searches(), searches(16, 0));
}

/// An owner on a host of its own.
fn owner(account: Arc<Account>) -> Arc<Owner> {
    let host = Arc::new(Host::new("cpu:0", 1 << 30)) as Arc<dyn Driver>;
    let driver = Arc::new(Limited::new(host, "cpu:0", 1 << 30));
    let physical = Arc::clone(driver.account());
    let growth = device::logical::GrowthRule::OnDemand;
    let space = SpaceOptions { driver, physical, growth, step_bytes: 1 << 20, context_bytes: 0 };
    let holder = Holder::Version { model: Arc::from("tight"), version: 1 };
    Owner::new(&Space::new(space).unwrap(), holder, Some(account))
}

#[test]
fn what_a_plan_takes_of_the_heap_is_booked_while_it_is_kept() {
    let runner = Runner::default();
    let (program, plan) = program(&runner);
    drop(plan);
    let account = Arc::new(Account::new("tight", u64::MAX >> 1));
    let owner = owner(Arc::clone(&account));
    let make = |n: usize| {
        let _scope = device::booked_to(&owner, Category::Requests);
        runner.with_env(|env| program.plan(&[(DType::F32, Shape::of(&[n]))], env))
    };
    let plan = make(100).unwrap();
    assert!(plan.heap_bytes() > plan.snapshot().len() * 100, "{}", plan.heap_bytes());
    let booked = |owner: &Owner| match owner.categories()[..] {
        [] => 0,
        [(Category::Plans, bytes)] => bytes,
        ref other => panic!("{other:?}"),
    };
    let one = booked(&owner);
    assert!(one >= plan.heap_bytes() as u64, "{one}");
    drop(plan);
    assert_eq!(booked(&owner), one, "it is kept");
    // Two are kept: the third takes the place of the first.
    make(101).unwrap();
    make(102).unwrap();
    assert_eq!(booked(&owner), 2 * one);
    account.set_limit(account.held_bytes()).unwrap();
    let error = make(103).unwrap_err().to_string();
    assert!(error.contains("no room"), "{error}");
    drop(program);
    assert_eq!(booked(&owner), 0);
}
