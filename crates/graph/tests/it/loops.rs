//! Loops and conditionals of TensorFlow 1, written by hand: what they mean, and what is refused.

use std::time::{Duration, Instant};

use super::*;

/// A scalar constant.
fn scalar(text: &str, value: f32) -> NodeDef {
    let mut words = text.split_whitespace();
    let mut node = node(&format!("{} Const", words.next().unwrap()));
    node.input = words.map(str::to_owned).collect();
    let tensor = Tensor::scalar(value).unwrap().to_proto(Layout::Values).unwrap();
    node.attr.insert("value".to_owned(), attr(Value::Tensor(Box::new(tensor))));
    node
}

/// `name input` as an `Enter` of a frame.
fn enter(text: &str, frame: &str, is_constant: bool) -> NodeDef {
    let (name, input) = text.split_once(' ').unwrap();
    let mut node = node(&format!("{name} Enter {input}"));
    node.attr.insert("frame_name".to_owned(), attr(Value::S(frame.to_owned().into())));
    node.attr.insert("is_constant".to_owned(), attr(Value::B(is_constant)));
    node
}

/// `x`, plus `step` as long as it is less than `limit`.
fn counting(frame: &str) -> Vec<NodeDef> {
    vec![
        node("x Placeholder"),
        node("step Placeholder"),
        enter("e x", frame, false),
        enter("s step", frame, true),
        node("m Merge e n"),
        scalar("limit ^m", 10.0),
        node("less Less m limit"),
        node("c LoopCond less"),
        node("w Switch m c"),
        node("i Identity w:1"),
        node("add AddV2 i s"),
        node("n NextIteration add"),
        node("out Exit w"),
    ]
}

/// Runs a request with its loops on scalars; gives the first result.
fn run(nodes: Vec<NodeDef>, request: &Request, inputs: &[f32], end: Option<Instant>) -> Answer {
    let source = source(nodes, vec![])?;
    let graph = source.trace(request)?;
    let (resources, written) = (Resources::default(), FxHashSet::default());
    let (pool, cancel) = (Pool::new(1), Cancel::new(Default::default(), end));
    let env = Env {
        pool: &pool,
        functions: &NoFunctions,
        files: &NoFiles,
        resources: &resources,
        cancel: &cancel,
    };
    let bindings = Bindings::new(&resources, &written);
    let build = Build {
        bindings: &bindings,
        env: &env,
        options: Options { plans_max: 2, homes: Homes::One },
    };
    let mut library = Library::default();
    library.add(&source, &graph, &build)?;
    let env = Env { functions: &library, ..env };
    let program = Program::build(graph, &Build { env: &env, ..build })?;
    let inputs: Vec<Tensor> = inputs.iter().map(|x| Tensor::scalar(*x).unwrap()).collect();
    program.run(&inputs, &env, &mut Workspace::allocate(0)?)
}

type Answer = Result<Vec<Tensor>, Error>;

#[track_caller]
fn check(nodes: Vec<NodeDef>, request: &Request, inputs: &[f32], expected: f32) {
    let outputs = run(nodes, request, inputs, None).unwrap();
    assert_eq!(outputs[0].as_slice::<f32>(), [expected]);
}

#[test]
fn a_loop_goes_around_as_long_as_its_condition_holds() {
    let request = request(&["x:0", "step:0"], &["out:0"]);
    check(counting("f"), &request, &[0.0, 3.0], 12.0);
    check(counting("f"), &request, &[11.0, 3.0], 11.0);
}

#[test]
fn what_is_computed_between_the_switch_and_the_exit_runs_once() {
    let mut nodes = counting("f");
    nodes.retain(|node| node.name != "out");
    nodes.extend([node("last AddV2 w w"), node("out Exit last")]);
    check(nodes, &request(&["x:0", "step:0"], &["out:0"]), &[0.0, 3.0], 24.0);
}

#[test]
fn an_endless_loop_ends_with_its_deadline() {
    let request = request(&["x:0", "step:0"], &["out:0"]);
    let end = Instant::now() + Duration::from_millis(20);
    let answer = run(counting("f"), &request, &[0.0, 0.0], Some(end));
    assert_eq!(answer.unwrap_err(), Error::Stopped(ops::Error::DeadlineExceeded));
}

#[test]
fn a_merge_gives_what_is_alive_and_a_dead_result_is_an_error() {
    let nodes = || {
        vec![
            node("x Placeholder"),
            scalar("zero", 0.0),
            node("p Greater x zero"),
            node("w Switch x p"),
            node("minus Neg w"),
            node("twice AddV2 w:1 w:1"),
            node("y Merge minus twice"),
            // Dead unless x is positive, because it waits for something that may be dead.
            scalar("only ^twice", 5.0),
            node("z Merge only minus"),
        ]
    };
    let fetch = |name: &str| request(&["x:0"], &[name]);
    check(nodes(), &fetch("y:0"), &[3.0], 6.0);
    check(nodes(), &fetch("y:0"), &[-3.0], 3.0);
    check(nodes(), &fetch("z:0"), &[3.0], 5.0);
    check(nodes(), &fetch("z:0"), &[-2.0], 2.0);
    check(nodes(), &fetch("minus:0"), &[-2.0], 2.0);
    refused(run(nodes(), &fetch("minus:0"), &[2.0], None), "Retval[0] does not have value");
    refused(run(nodes(), &fetch("w:1"), &[-2.0], None), "Retval[0] does not have value");
}

#[test]
fn a_branch_that_is_not_taken_may_be_impossible() {
    let mut shape = node("shape Const ^w");
    let seven = Tensor::vector(&[7i32]).unwrap().to_proto(Layout::Values).unwrap();
    shape.attr.insert("value".to_owned(), attr(Value::Tensor(Box::new(seven))));
    let nodes = vec![
        node("x Placeholder"),
        scalar("zero", 0.0),
        node("p Greater x zero"),
        node("w Switch x p"),
        shape,
        node("r Reshape w:1 shape"),
        node("minus Neg w"),
        node("y Merge minus r"),
    ];
    let request = request(&["x:0"], &["y:0"]);
    check(nodes.clone(), &request, &[-3.0], 3.0);
    refused(run(nodes, &request, &[3.0], None), "[[{{node r}}]]");
}

#[test]
fn hostile_frames_are_refused() {
    #[track_caller]
    fn check(change: impl Fn(&mut Vec<NodeDef>), fetch: &str, expected: &str) {
        let mut nodes = counting("f");
        change(&mut nodes);
        refused(
            source(nodes, vec![]).unwrap().trace(&request(&["x:0", "step:0"], &[fetch])),
            expected,
        );
    }
    fn at<'a>(nodes: &'a mut [NodeDef], name: &str) -> &'a mut NodeDef {
        nodes.iter_mut().find(|node| node.name == name).unwrap()
    }
    check(|nodes| at(nodes, "out").op = "Identity".to_owned(), "out:0", "out is inside of a loop");
    check(|_| {}, "add:0", "add is inside of a loop");
    check(|nodes| nodes.push(node("y Exit out")), "y:0", "leaves a loop where there is none");
    check(|nodes| at(nodes, "n").op = "Identity".to_owned(), "out:0", "depends on itself");
    check(|nodes| at(nodes, "c").op = "Identity".to_owned(), "out:0", "has no condition");
    check(|nodes| at(nodes, "add").input[1] = "step".to_owned(), "out:0", "different frames");
    check(
        |nodes| {
            let other = enter("s step", "g", true);
            *at(nodes, "s") = other;
        },
        "out:0",
        "different frames: 'f' and 'g'",
    );
    check(
        |nodes| {
            at(nodes, "s").attr.remove("is_constant");
        },
        "out:0",
        "neither constant in it nor merged",
    );
    check(|nodes| at(nodes, "m").input.push("n".to_owned()), "out:0", "does not merge one way");
    check(|nodes| drop(at(nodes, "e").attr.remove("frame_name")), "out:0", "names no frame");
    check(|nodes| at(nodes, "n").input.clear(), "out:0", "does not merge one way");
}

#[test]
fn loops_that_are_nested_too_deep_are_refused() {
    let mut nodes = vec![node("x Placeholder"), node("step Placeholder")];
    let mut last = "x".to_owned();
    for i in 0..100 {
        nodes.push(enter(&format!("e{i} {last}"), &format!("f{i}"), true));
        last = format!("e{i}");
    }
    nodes.push(node(&format!("out Exit {last}")));
    let source = source(nodes, vec![]).unwrap();
    refused(source.trace(&request(&["x:0", "step:0"], &["out:0"])), "nested too deep");
}

#[test]
fn missing_ops_in_loops_and_branches_are_counted() {
    let mut nodes = counting("f");
    nodes.retain(|node| node.name != "add");
    nodes.extend([node("strange NoSuchOp i"), node("add OddOp strange s")]);
    let source = source(nodes, vec![]).unwrap();
    let traced = || source.trace(&request(&["x:0", "step:0"], &["out:0"]));
    refused(traced(), "NoSuchOp (×1, used by 0 of ");
    refused(traced(), "), OddOp (×1, used by 0 of ");
}

#[test]
fn resource_variables_without_a_name_are_one() {
    // As TensorFlow has it: `VarHandleOp` does not take the name of its node.
    let nodes = vec![
        node("x Placeholder"),
        node("v VarHandleOp"),
        node("w VarHandleOp"),
        node("set AssignVariableOp v x"),
        node("y ReadVariableOp w ^set"),
    ];
    let runner =
        Runner { written: [Default::default()].into_iter().collect(), ..Runner::default() };
    let source = source(nodes, vec![]).unwrap();
    runner.check(&source, &request(&["x:0"], &["y:0"]), &[&[4.0]], &[4.0]);
}
