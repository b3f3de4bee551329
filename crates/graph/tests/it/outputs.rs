//! Function bodies that refer to outputs of ops by name, without the op list of the exporter.

use std::collections::BTreeSet;
use std::path::Path;

use graph::Request;
use ops::{OutputArg, OutputCount};
use proto::tensorflow::attr_value::Value;
use proto::tensorflow::op_def::ArgDef;
use proto::tensorflow::{FunctionDef, NodeDef, OpDef};
use tensor::{DType, Spec};
use testkit::opcases::{self, Node};

use super::{attr, call, function, node, refused, request, source};

/// The number of tensors that an output argument of an op stands for.
fn n_tensors(arg: &OutputArg<'_>, op: &Node) -> usize {
    let OutputCount::Attr { name, default } = arg.count else { return 1 };
    match op.attrs.get(name).and_then(|attr| attr.value.as_ref()) {
        Some(Value::I(count)) => usize::try_from(*count).unwrap(),
        Some(Value::List(list)) => list.r#type.len(),
        Some(other) => panic!("{}: {name} is {other:?}", op.op),
        None => default.unwrap_or_else(|| panic!("{}: no attribute {name}", op.op)),
    }
}

/// The outputs of an op, as a function body refers to them.
fn names(op: &Node) -> Vec<String> {
    let of_arg = |arg: &OutputArg<'_>| {
        let name = arg.name.to_owned();
        (0..n_tensors(arg, op)).map(move |index| format!("op:{name}:{index}"))
    };
    ops::outputs(&op.op).unwrap().iter().flat_map(of_arg).collect()
}

/// A function that runs an op on the inputs `x0`, `x1` and so on, and returns all of its outputs.
fn body(op: &Node, names: &[String]) -> FunctionDef {
    let arg = |name: String| ArgDef { name, ..ArgDef::default() };
    let inputs: Vec<String> = (0..op.inputs.len()).map(|i| format!("x{i}")).collect();
    let node = NodeDef {
        name: "op".to_owned(),
        op: op.op.clone(),
        input: inputs.clone(),
        attr: op.attrs.clone(),
        ..NodeDef::default()
    };
    FunctionDef {
        signature: Some(OpDef {
            name: "body".to_owned(),
            input_arg: inputs.into_iter().map(arg).collect(),
            output_arg: (0..names.len()).map(|i| arg(format!("y{i}"))).collect(),
            ..OpDef::default()
        }),
        node_def: vec![node],
        ret: names.iter().enumerate().map(|(i, name)| (format!("y{i}"), name.clone())).collect(),
        ..FunctionDef::default()
    }
}

/// Checks that output `i` of a call is output `i` of the op.
fn check(op: &Node) {
    let names = names(op);
    let inputs: Vec<String> = (0..op.inputs.len()).map(|i| format!("x{i}")).collect();
    let mut nodes: Vec<NodeDef> =
        inputs.iter().map(|input| node(&format!("{input} Placeholder"))).collect();
    nodes.push(call("call", "body", &inputs.join(" ")));
    let source = source(nodes, vec![body(op, &names)]).unwrap();
    let fetches = (0..names.len()).map(|i| format!("call:{i}")).collect();
    let feeds = inputs.iter().map(|input| (format!("{input}:0"), Spec::unknown(DType::F32)));
    let request = Request { feeds: feeds.collect(), fetches, targets: Vec::new() };
    let graph = source.trace(&request).unwrap_or_else(|error| panic!("{}: {error}", op.op));
    for (i, port) in graph.fetches.iter().enumerate() {
        assert_eq!(usize::try_from(port.output), Ok(i), "{}: {}", op.op, names[i]);
    }
}

#[test]
fn every_output_of_every_op_with_several_is_found_by_its_name() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/ops");
    let mut waiting: BTreeSet<&str> = ops::all()
        .map(|def| def.name)
        .filter(|op| ops::outputs(op).is_some_and(|outputs| outputs.len() > 1))
        .collect();
    assert!(waiting.len() > 60, "{} ops have several outputs", waiting.len());
    for case in opcases::read_all(&folder).iter().filter(|case| case.error.is_none()) {
        for op in &case.nodes {
            if waiting.remove(op.op.as_str()) {
                check(op);
            }
            if case.nodes.len() == 1 && ops::outputs(&op.op).is_some() {
                assert!(names(op).len() >= case.outputs.len(), "{}", case.name);
            }
        }
    }
    assert_eq!(waiting, BTreeSet::new(), "ops without cases");
}

#[test]
fn an_output_that_an_op_does_not_have_is_refused() {
    let trace = |result: &str, nodes: Vec<NodeDef>| {
        let function = function("f", nodes, result);
        let main = vec![node("x Placeholder"), call("call", "f", "x")];
        source(main, vec![function]).unwrap().trace(&request(&["x:0"], &["call:0"])).map(drop)
    };
    let unique = || vec![node("u Unique x")];
    trace("u:y:0", unique()).unwrap();
    trace("u:idx:0", unique()).unwrap();
    refused(trace("u:y:1", unique()), "node u (Unique) has no output y:1");
    refused(trace("u:values:0", unique()), "node u (Unique) has no output values:0");
    refused(trace("n:y:0", vec![node("n NoSuchOp x")]), "NoSuchOp (×1, used by 0 of ");
}

#[test]
fn the_number_of_tensors_may_be_an_attribute_of_the_call() {
    let mut split = node("s SparseSplit x x x x");
    split.attr.insert("num_split".to_owned(), attr(Value::Placeholder("n".to_owned())));
    let body = function("f", vec![split], "s:output_shape:1");
    let mut main = call("call", "f", "x");
    main.attr.insert("n".to_owned(), attr(Value::I(3)));
    let source = source(vec![node("x Placeholder"), main], vec![body]).unwrap();
    let graph = source.trace(&request(&["x:0"], &["call:0"])).unwrap();
    assert_eq!(graph.fetches[0].output, 7);
}
