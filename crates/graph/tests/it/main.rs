//! Graphs written by hand: tracing, folding, planning, running, and what is refused.
#![allow(clippy::unwrap_used, reason = "a test")]

mod fusion;
mod loops;
mod memory;
mod outputs;
mod rows;
mod tight;
mod watched;

use std::collections::BTreeMap;

use device::Workspace;
use graph::{Bindings, Build, Error, Homes, Library, Options, Program, Request, Source};
use ops::{Cancel, Env, NoFiles, NoFunctions, Resources, Variable};
use pool::Pool;
use proto::tensorflow::attr_value::{ListValue, Value};
use proto::tensorflow::op_def::ArgDef;
use proto::tensorflow::{
    AttrValue, FunctionDef, FunctionDefLibrary, GraphDef, NameAttrList, NodeDef, OpDef, OpList,
};
use rustc_hash::FxHashSet;
use tensor::{DType, Layout, Shape, Spec, Tensor};

/// `name Op input input`, with a dtype for `T` and friends.
fn node(text: &str) -> NodeDef {
    let mut words = text.split_whitespace().map(str::to_owned);
    let mut node = NodeDef {
        name: words.next().unwrap(),
        op: words.next().unwrap(),
        input: words.collect(),
        ..NodeDef::default()
    };
    for name in ["T", "dtype"] {
        node.attr.insert(name.to_owned(), attr(Value::Type(DType::F32.number())));
    }
    node
}

fn attr(value: Value) -> AttrValue {
    AttrValue { value: Some(value) }
}

fn constant(name: &str, values: &[f32]) -> NodeDef {
    let tensor = Tensor::vector(values).unwrap().to_proto(Layout::Values).unwrap();
    let mut node = node(&format!("{name} Const"));
    node.attr.insert("value".to_owned(), attr(Value::Tensor(Box::new(tensor))));
    node
}

fn call(name: &str, function: &str, inputs: &str) -> NodeDef {
    let mut node = node(&format!("{name} StatefulPartitionedCall {inputs}"));
    let function = NameAttrList { name: function.to_owned(), attr: BTreeMap::new() };
    node.attr.insert("f".to_owned(), attr(Value::Func(Box::new(function))));
    let types = ListValue { r#type: vec![DType::F32.number()], ..ListValue::default() };
    node.attr.insert("Tout".to_owned(), attr(Value::List(Box::new(types))));
    node
}

fn variable(name: &str) -> NodeDef {
    let mut node = node(&format!("{name} VarHandleOp"));
    node.attr.insert("shared_name".to_owned(), attr(Value::S(name.to_owned().into())));
    node
}

/// A function of one argument `x` and one result `y`.
fn function(name: &str, nodes: Vec<NodeDef>, result: &str) -> FunctionDef {
    let arg = |name: &str| ArgDef {
        name: name.to_owned(),
        r#type: DType::F32.number(),
        ..ArgDef::default()
    };
    FunctionDef {
        signature: Some(OpDef {
            name: name.to_owned(),
            input_arg: vec![arg("x")],
            output_arg: vec![arg("y")],
            ..OpDef::default()
        }),
        node_def: nodes,
        ret: [("y".to_owned(), result.to_owned())].into(),
        ..FunctionDef::default()
    }
}

fn source(nodes: Vec<NodeDef>, functions: Vec<FunctionDef>) -> Result<Source, Error> {
    let library = FunctionDefLibrary { function: functions, ..FunctionDefLibrary::default() };
    let graph = GraphDef { node: nodes, library: Some(library), ..GraphDef::default() };
    Source::new(graph, OpList::default())
}

fn request(feeds: &[&str], fetches: &[&str]) -> Request {
    let feed = |name: &&str| ((*name).to_owned(), Spec::unknown(DType::F32));
    Request {
        feeds: feeds.iter().map(feed).collect(),
        fetches: fetches.iter().map(|name| (*name).to_owned()).collect(),
        targets: Vec::new(),
    }
}

/// A servable in small: resources, and a way to run requests on them.
#[derive(Default)]
struct Runner {
    resources: Resources,
    written: FxHashSet<(String, String)>,
}

impl Runner {
    fn with_env<T>(&self, work: impl FnOnce(&Env<'_>) -> T) -> T {
        let (pool, cancel) = (Pool::new(1), Cancel::default());
        work(&Env {
            pool: &pool,
            functions: &NoFunctions,
            files: &NoFiles,
            resources: &self.resources,
            cancel: &cancel,
        })
    }

    fn program(&self, source: &Source, request: &Request) -> Result<Program, Error> {
        let graph = source.trace(request)?;
        self.with_env(|env| {
            let bindings = Bindings::new(&self.resources, &self.written);
            let options = Options { plans_max: 2, homes: Homes::One };
            let build = Build { bindings: &bindings, env, options };
            Library::default().add(source, &graph, &build)?;
            let mut program = Program::build(graph, &build)?;
            graph::pack([&mut program], &mut Library::default())?;
            Ok(program)
        })
    }

    fn run(&self, program: &Program, inputs: &[Tensor]) -> Result<Vec<Tensor>, Error> {
        let mut workspace = Workspace::allocate(0)?;
        self.with_env(|env| program.run(inputs, env, &mut workspace))
    }

    /// Runs a request on vectors and gives the first result.
    fn check(&self, source: &Source, request: &Request, inputs: &[&[f32]], expected: &[f32]) {
        let inputs: Vec<Tensor> = inputs.iter().map(|x| Tensor::vector(x).unwrap()).collect();
        let program = self.program(source, request).unwrap();
        let outputs = self.run(&program, &inputs).unwrap();
        assert_eq!(outputs[0].as_slice::<f32>(), expected);
    }
}

fn refused(result: Result<impl Sized, Error>, expected: &str) {
    let error = result.err().expect("it is refused").to_string();
    assert!(error.contains(expected), "{error}");
}

#[test]
fn any_tensor_may_be_fed_and_what_lies_behind_it_does_not_run() {
    let nodes = vec![
        node("in Placeholder"),
        node("broken NoSuchOp in"),
        node("x Identity broken"),
        constant("two", &[2.0]),
        node("y Mul x two"),
    ];
    let source = source(nodes, vec![]).unwrap();
    Runner::default().check(&source, &request(&["x:0"], &["y:0"]), &[&[1., 2.]], &[2., 4.]);
    refused(source.trace(&request(&["in:0"], &["y:0"])), "NoSuchOp (×1, used by 0 of ");
}

#[test]
fn functions_are_put_in_place_of_their_calls() {
    let double = function("double", vec![node("sum AddV2 x x")], "sum:z:0");
    let twice = function(
        "twice",
        vec![call("a", "double", "x"), call("b", "double", "a:output:0")],
        "b:output:0",
    );
    let nodes = vec![node("x Placeholder"), call("call", "twice", "x")];
    let source = source(nodes, vec![double, twice]).unwrap();
    let request = request(&["x:0"], &["call:0"]);
    Runner::default().check(&source, &request, &[&[1.5]], &[6.0]);
    let graph = source.trace(&request).unwrap();
    assert!(graph.nodes.iter().all(|node| !node.op_name().contains("Call")));
}

#[test]
fn what_does_not_depend_on_feeds_is_folded() {
    let nodes = vec![
        node("x Placeholder"),
        constant("one", &[1.0]),
        constant("two", &[2.0]),
        node("three AddV2 one two"),
        node("y Mul x three"),
    ];
    let source = source(nodes, vec![]).unwrap();
    let request = request(&["x:0"], &["y:0"]);
    let runner = Runner::default();
    runner.check(&source, &request, &[&[2.0]], &[6.0]);
    let program = runner.program(&source, &request).unwrap();
    let ops = program.graph().nodes.iter().map(graph::Node::op_name);
    assert_eq!(ops.filter(|op| *op == "AddV2").count(), 0);
}

#[test]
fn a_variable_is_folded_only_if_nothing_writes_it() {
    let nodes = vec![
        node("x Placeholder"),
        variable("v"),
        node("read ReadVariableOp v"),
        node("y Mul x read"),
    ];
    let source = source(nodes, vec![]).unwrap();
    let request = request(&["x:0"], &["y:0"]);
    for is_written in [false, true] {
        let mut runner = Runner::default();
        let value = runner.resources.get_or_create("", "v", || Variable::new("v", DType::F32));
        let value = value.unwrap();
        value.assign(Tensor::vector(&[3f32]).unwrap()).unwrap();
        if is_written {
            runner.written.insert((String::new(), "v".to_owned()));
        }
        let program = runner.program(&source, &request).unwrap();
        let input = [Tensor::vector(&[2f32]).unwrap()];
        assert_eq!(runner.run(&program, &input).unwrap()[0].as_slice::<f32>(), [6.0]);
        value.assign(Tensor::vector(&[5f32]).unwrap()).unwrap();
        let expected = if is_written { [10.0] } else { [6.0] };
        assert_eq!(runner.run(&program, &input).unwrap()[0].as_slice::<f32>(), expected);
    }
}

/// Products of `x` and `v`, with more that could be fused; the ops if `v` is a constant; and the
/// shapes of `x` and `v`.
fn products() -> [(Vec<NodeDef>, &'static str, [Shape; 2]); 2] {
    let nodes = |product: NodeDef| {
        let read = node("read ReadVariableOp v");
        let bias = [constant("b", &[1.0, 2.0]), node("sum BiasAdd product b"), node("y Relu sum")];
        [vec![node("x Placeholder"), variable("v"), read, product], bias.into()].concat()
    };
    let mut convolution = node("product Conv2D x read");
    let strides = ListValue { i: vec![1; 4], ..ListValue::default() };
    convolution.attr.insert("strides".to_owned(), attr(Value::List(Box::new(strides))));
    convolution.attr.insert("padding".to_owned(), attr(Value::S("SAME".into())));
    [
        (
            nodes(node("product MatMul x read")),
            "_FusedMatMul",
            [Shape::of(&[1, 3]), Shape::of(&[3, 2])],
        ),
        (nodes(convolution), "_FusedConv2D", [Shape::of(&[1, 1, 1, 3]), Shape::of(&[1, 1, 3, 2])]),
    ]
}

#[test]
fn a_weight_is_packed_and_fused_only_if_nothing_writes_it() {
    for (nodes, fused, [x, shape]) in products() {
        let source = source(nodes, vec![]).unwrap();
        let request = request(&["x:0"], &["y:0"]);
        let x = [Tensor::from_slice(x, &[1f32, 2.0, 3.0]).unwrap()];
        for is_written in [false, true] {
            let mut runner = Runner::default();
            let value = runner.resources.get_or_create("", "v", || Variable::new("v", DType::F32));
            let value = value.unwrap();
            let assign = |factor: f32| {
                let values = [1f32, 2.0, 3.0, 4.0, 5.0, 6.0].map(|x| factor * x);
                value.assign(Tensor::from_slice(shape.clone(), &values).unwrap()).unwrap();
            };
            assign(1.0);
            if is_written {
                runner.written.insert((String::new(), "v".to_owned()));
            }
            let program = runner.program(&source, &request).unwrap();
            let answer = || runner.run(&program, &x).unwrap()[0].as_slice::<f32>().to_vec();
            assert_eq!(answer(), [23.0, 30.0]);
            assign(10.0);
            let (expected, ops) = match is_written {
                false => ([23.0, 30.0], vec![fused]),
                true => ([221.0, 282.0], vec!["ReadVariableOp", &fused["_Fused".len()..]]),
            };
            assert_eq!(answer(), expected, "{fused}, written: {is_written}");
            assert!(ops_of(&program).starts_with(&ops), "{:?}", ops_of(&program));
        }
    }
}

#[test]
fn variables_tell_who_is_written() {
    let nodes = vec![
        variable("v"),
        variable("w"),
        constant("one", &[1.0]),
        node("add AssignAddVariableOp v one"),
        node("read ReadVariableOp v ^add"),
        node("other ReadVariableOp w"),
        node("y AddV2 read other"),
    ];
    let source = source(nodes, vec![]).unwrap();
    let graph = source.trace(&request(&[], &["y:0"])).unwrap();
    let uses = graph::variables(&graph, &source).unwrap();
    let is_written = |name: &str| uses[&(String::new(), name.to_owned())].is_written;
    assert!(is_written("v") && !is_written("w"));
}

#[test]
fn reference_variables_of_tensorflow_1_are_read_after_they_are_assigned() {
    let mut v = node("v VariableV2");
    v.attr.insert("shape".to_owned(), attr(Value::Shape(Default::default())));
    let nodes =
        vec![v, constant("one", &[1.0]), node("set AssignAdd v one"), node("y Identity set")];
    let source = source(nodes, vec![]).unwrap();
    let mut runner = Runner::default();
    runner.written.insert((String::new(), "v".to_owned()));
    let value = runner.resources.get_or_create("", "v", || Variable::new("v", DType::F32)).unwrap();
    value.assign(Tensor::vector(&[3f32]).unwrap()).unwrap();
    let request = request(&[], &["set:0"]);
    runner.check(&source, &request, &[], &[4.0]);
    runner.check(&source, &request, &[], &[5.0]);
}

#[test]
fn plans_are_kept_for_a_bounded_number_of_shapes() {
    let nodes = vec![node("x Placeholder"), node("y AddV2 x x")];
    let source = source(nodes, vec![]).unwrap();
    let runner = Runner::default();
    let program = runner.program(&source, &request(&["x:0"], &["y:0"])).unwrap();
    runner.with_env(|env| {
        let plan = |n: usize| program.plan(&[(DType::F32, Shape::of(&[n]))], env).unwrap();
        let first = plan(1);
        assert!(std::sync::Arc::ptr_eq(&first, &plan(1)));
        plan(2);
        plan(3);
        assert!(!std::sync::Arc::ptr_eq(&first, &plan(1)), "two are kept, the oldest goes");
    });
}

#[test]
fn memory_of_activations_is_planned_and_shared() {
    let mut nodes = vec![node("x Placeholder"), node("n0 Neg x")];
    for i in 1..10 {
        nodes.push(node(&format!("n{i} Neg n{}", i - 1)));
    }
    let source = source(nodes, vec![]).unwrap();
    let runner = Runner::default();
    let program = runner.program(&source, &request(&["x:0"], &["n9:0"])).unwrap();
    runner.with_env(|env| {
        let plan = program.plan(&[(DType::F32, Shape::of(&[1024]))], env).unwrap();
        assert_eq!(plan.snapshot().len(), 10);
        assert!(plan.work_bytes() <= 2 * 4096, "{}", plan.work_bytes());
        assert!(plan.live_bytes() <= plan.work_bytes());
    });
}

#[test]
fn a_wrong_dtype_is_refused_with_tensorflows_text() {
    let source = source(vec![node("x Placeholder"), node("y Neg x")], vec![]).unwrap();
    let runner = Runner::default();
    let program = runner.program(&source, &request(&["x:0"], &["y:0"])).unwrap();
    let input = [Tensor::vector(&[1i32]).unwrap()];
    refused(runner.run(&program, &input), "Expects arg[0] to be float but int32 is provided");
}

#[test]
fn a_failing_node_is_named() {
    let nodes = vec![node("a Placeholder"), node("b Placeholder"), node("sum AddV2 a b")];
    let source = source(nodes, vec![]).unwrap();
    let runner = Runner::default();
    let program = runner.program(&source, &request(&["a:0", "b:0"], &["sum:0"])).unwrap();
    let inputs = [Tensor::vector(&[1f32, 2.]).unwrap(), Tensor::vector(&[1f32, 2., 3.]).unwrap()];
    refused(runner.run(&program, &inputs), "[[{{node sum}}]]");
}

#[test]
fn hostile_graphs_are_refused() {
    let cycle = source(vec![node("a Neg b"), node("b Neg a")], vec![]).unwrap();
    refused(cycle.trace(&request(&[], &["a:0"])), "depends on itself");
    let lost = source(vec![node("a Neg nowhere")], vec![]).unwrap();
    refused(lost.trace(&request(&[], &["a:0"])), "nowhere is not in the graph (node a asks");
    refused(lost.trace(&request(&[], &["b:0"])), "b:0 is not in the graph");
    refused(source(vec![node("a Neg b"), node("a Neg b")], vec![]), "defined twice");
    let own = function("own", vec![call("again", "own", "x")], "again:output:0");
    let own = source(vec![node("x Placeholder"), call("y", "own", "x")], vec![own]).unwrap();
    refused(own.trace(&request(&["x:0"], &["y:0"])), "calls itself");
}

#[test]
fn functions_that_call_too_deep_are_refused() {
    let mut functions = vec![function("f0", vec![node("n Neg x")], "n:y:0")];
    for i in 1..10_000 {
        let inner = call("c", &format!("f{}", i - 1), "x");
        functions.push(function(&format!("f{i}"), vec![inner], "c:output:0"));
    }
    let nodes = vec![node("x Placeholder"), call("y", "f9999", "x")];
    let source = source(nodes, functions).unwrap();
    refused(source.trace(&request(&["x:0"], &["y:0"])), "calls too deep");
}

#[test]
fn functions_that_multiply_are_refused() {
    let mut functions = vec![function("f0", vec![node("n Neg x")], "n:y:0")];
    for i in 1..64 {
        let inner = format!("f{}", i - 1);
        let body = vec![call("a", &inner, "x"), call("b", &inner, "a:output:0")];
        functions.push(function(&format!("f{i}"), body, "b:output:0"));
    }
    let nodes = vec![node("x Placeholder"), call("y", "f63", "x")];
    let source = source(nodes, functions).unwrap();
    refused(source.trace(&request(&["x:0"], &["y:0"])), "more than");
}

#[test]
fn a_chain_of_a_million_nodes_neither_overflows_nor_hangs() {
    let mut nodes = vec![node("n0 Placeholder")];
    for i in 1..1_000_000 {
        let mut link =
            NodeDef { name: format!("n{i}"), op: "Identity".to_owned(), ..NodeDef::default() };
        link.input.push(format!("n{}", i - 1));
        nodes.push(link);
    }
    let source = source(nodes, vec![]).unwrap();
    let request = request(&["n0:0"], &["n999999:0"]);
    Runner::default().check(&source, &request, &[&[7.0]], &[7.0]);
}

/// A matrix constant.
fn matrix(name: &str, dims: [usize; 2], values: &[f32]) -> NodeDef {
    let tensor = Tensor::from_slice(Shape::of(&dims), values).unwrap();
    let mut node = node(&format!("{name} Const"));
    let proto = tensor.to_proto(Layout::Values).unwrap();
    node.attr.insert("value".to_owned(), attr(Value::Tensor(Box::new(proto))));
    node
}

/// The ops of a program besides constants and feeds.
fn ops_of(program: &Program) -> Vec<&'static str> {
    let names = program.graph().nodes.iter().map(graph::Node::op_name);
    names.filter(|op| !["Arg", "Const"].contains(op)).collect()
}

#[test]
fn scales_sums_and_activations_are_fused_into_a_product() {
    let check = |after: &[&str], fetch: &str, ops: &[&str], expected: [f32; 2]| {
        let mut nodes = vec![
            node("x Placeholder"),
            matrix("w", [2, 2], &[1., 2., 3., 4.]),
            constant("s", &[2., -1.]),
            constant("b", &[0.5, 1.]),
            node("p MatMul x w"),
        ];
        nodes.extend(after.iter().map(|text| node(text)));
        let source = source(nodes, vec![]).unwrap();
        let runner = Runner::default();
        let program = runner.program(&source, &request(&["x:0"], &[fetch])).unwrap();
        assert_eq!(ops_of(&program), ops);
        let input = [Tensor::from_slice(Shape::of(&[1, 2]), &[1f32, 1.]).unwrap()];
        let got = runner.run(&program, &input).unwrap();
        let near = got[0].as_slice::<f32>().iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-5);
        assert!(near, "{:?} is not {expected:?}", got[0].as_slice::<f32>());
    };
    let fused = &["_FusedMatMul"][..];
    check(&["a AddV2 p b", "r Relu a"], "r:0", fused, [4.5, 7.0]);
    check(&["m Mul p s", "a AddV2 m b", "r Relu a"], "r:0", fused, [8.5, 0.0]);
    check(&["a BiasAdd p b", "m Mul s a", "d Sub m b"], "d:0", fused, [8.5, -8.0]);
    let sigmoid = |x: f32| 1.0 / (1.0 + (-x).exp());
    let swish = [4.5 * sigmoid(4.5), 7.0 * sigmoid(7.0)];
    check(&["a AddV2 p b", "g Sigmoid a", "r Mul g a"], "r:0", fused, swish);
    // What somebody else reads stays.
    check(
        &["a AddV2 p b", "r Relu a", "t AddV2 a r"],
        "t:0",
        &["_FusedMatMul", "Relu", "AddV2"],
        [9.0, 14.0],
    );
    check(&["r Relu p", "t AddV2 p r"], "t:0", &["MatMul", "Relu", "AddV2"], [8.0, 12.0]);
}
