//! Fused nodes give the same results as the patterns that they replace. The reference is the same
//! graph with every node fetched: a fetched node is never taken into another op.
#![allow(clippy::unwrap_used, reason = "a test")]

use device::Workspace;
use graph::{Bindings, Build, Homes, Library, Options, Program, Request, Source};
use ops::{Cancel, Env, NoFiles, NoFunctions, Resources};
use pool::Pool;
use proto::tensorflow::attr_value::{ListValue, Value};
use proto::tensorflow::{AttrValue, GraphDef, NodeDef, OpList};
use rustc_hash::FxHashSet;
use tensor::{DType, Dim, Layout, Shape, Spec, Tensor};

/// Numbers in [-1, 1) that a seed decides.
fn random(seed: usize, dims: &[usize]) -> Tensor {
    let mut state = seed as u64 + 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.
    };
    let shape = Shape::of(dims);
    let values: Vec<f32> = (0..shape.n_elements()).map(|_| next()).collect();
    Tensor::from_slice(shape, &values).unwrap()
}

/// The graph of a text, a node a line: `name = Op input … {attr=value …}` or `name = [d,d]`, a
/// constant of random numbers, `name = +[d]` of positive ones, or `name = 1.5`, or of integers:
/// `name = i[1,2]`, `name = int 3`.
fn graph(text: &str) -> GraphDef {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    GraphDef {
        node: lines.enumerate().map(|(i, line)| node(i, line)).collect(),
        ..Default::default()
    }
}

fn node(number: usize, line: &str) -> NodeDef {
    let (name, what) = line.split_once(" = ").unwrap();
    let dims = |text: &str| -> Vec<usize> {
        let text = text.trim_matches(['[', ']', 'i', '+']);
        text.split(',').filter(|n| !n.is_empty()).map(|n| n.parse().unwrap()).collect()
    };
    let integers = |text: &str| -> Vec<i32> {
        text.trim_matches(['[', ']', 'i']).split(',').map(|n| n.parse().unwrap()).collect()
    };
    let constant = match what {
        _ if what.starts_with('[') => Some(random(number, &dims(what))),
        _ if what.starts_with("+[") => {
            let any = random(number, &dims(what));
            let positive: Vec<f32> = any.as_slice::<f32>().iter().map(|x| x.abs() + 0.1).collect();
            Some(Tensor::from_slice(any.shape().clone(), &positive).unwrap())
        }
        _ if what.starts_with("i[") => Some(Tensor::vector(&integers(what)).unwrap()),
        _ if what.starts_with("int ") => {
            let number = integers(&what[4..]);
            Some(Tensor::from_slice(Shape::scalar(), &number).unwrap())
        }
        _ => what.parse().ok().map(|x: f32| Tensor::from_slice(Shape::scalar(), &[x]).unwrap()),
    };
    let mut node = NodeDef { name: name.to_owned(), ..NodeDef::default() };
    let mut set = |name: &str, value: Value| {
        node.attr.insert(name.to_owned(), AttrValue { value: Some(value) });
    };
    if let Some(tensor) = constant {
        set("dtype", Value::Type(tensor.dtype().number()));
        set("value", Value::Tensor(Box::new(tensor.to_proto(Layout::Values).unwrap())));
        node.op = "Const".to_owned();
        return node;
    }
    for name in ["T", "dtype"] {
        set(name, Value::Type(DType::F32.number()));
    }
    let (op, attrs) = what.split_once(" {").unwrap_or((what, ""));
    for attr in attrs.trim_end_matches('}').split_whitespace() {
        let (name, value) = attr.split_once('=').unwrap();
        set(name, attr_value(value));
    }
    let mut words = op.split_whitespace().map(str::to_owned);
    node.op = words.next().unwrap();
    node.input = words.collect();
    node
}

fn attr_value(text: &str) -> Value {
    match text {
        "true" | "false" => Value::B(text == "true"),
        _ if text.contains('/') => {
            let i = text.split('/').filter(|n| !n.is_empty()).map(|n| n.parse().unwrap()).collect();
            Value::List(Box::new(ListValue { i, ..ListValue::default() }))
        }
        _ => match (text.parse(), text.parse()) {
            (Ok(number), _) => Value::I(number),
            (_, Ok(number)) => Value::F(number),
            _ => Value::S(text.to_owned().into()),
        },
    }
}

fn program(graph: &GraphDef, inputs: &[Tensor], fetches: Vec<String>) -> Program {
    let source = Source::new(graph.clone(), OpList::default()).unwrap();
    let feed = |(i, input): (usize, &Tensor)| {
        // The first dimension is not known beforehand.
        let dims = input.shape().dims().iter().skip(1).map(|size| Dim::of(*size));
        (format!("in{i}:0"), Spec::new(input.dtype(), [Dim::Unknown].into_iter().chain(dims)))
    };
    let feeds = inputs.iter().enumerate().map(feed).collect();
    let traced = source.trace(&Request { feeds, fetches, targets: Vec::new() }).unwrap();
    with_env(1, |env| {
        let written = FxHashSet::default();
        let bindings = Bindings::new(env.resources, &written);
        let options = Options { plans_max: 2, homes: Homes::One };
        let build = Build { bindings: &bindings, env, options };
        let mut program = Program::build(traced, &build).unwrap();
        graph::pack([&mut program], &mut Library::default()).unwrap();
        program
    })
}

fn with_env<T>(threads: usize, work: impl FnOnce(&Env<'_>) -> T) -> T {
    let (pool, cancel, resources) = (Pool::new(threads), Cancel::default(), Resources::default());
    let (functions, files) = (&NoFunctions, &NoFiles);
    work(&Env { pool: &pool, functions, files, resources: &resources, cancel: &cancel })
}

fn run(program: &Program, inputs: &[Tensor], threads: usize) -> Tensor {
    let mut workspace = Workspace::allocate(0).unwrap();
    with_env(threads, |env| program.run(inputs, env, &mut workspace).unwrap()).remove(0)
}

/// Checks that `y` of the graph is the same fused and not, for some numbers of rows, and that the
/// steps that are left are these.
#[track_caller]
fn check(text: &str, inputs: &[&[usize]], steps: &str) {
    let graph = graph(text);
    let all = graph.node.iter().filter(|node| node.op != "Placeholder" && node.op != "Const");
    let mut everything = vec!["y:0".to_owned()];
    everything.extend(all.map(|node| format!("{}:0", node.name)).filter(|name| name != "y:0"));
    let sample: Vec<Tensor> = inputs.iter().map(|dims| random(7, dims)).collect();
    let fused = program(&graph, &sample, vec!["y:0".to_owned()]);
    let plain = program(&graph, &sample, everything);
    let left: Vec<&str> = fused.graph().nodes.iter().map(graph::Node::op_name).collect();
    let left: Vec<&str> = left.into_iter().filter(|op| !["Arg", "Const"].contains(op)).collect();
    assert_eq!(left.join(" "), steps);
    for rows in [1, 2, 5] {
        let batch = |(i, dims): (usize, &&[usize])| {
            let dims: Vec<usize> = [rows].into_iter().chain(dims[1..].iter().copied()).collect();
            random(100 * rows + i, &dims)
        };
        let batch: Vec<Tensor> = inputs.iter().enumerate().map(batch).collect();
        let (got, want) = (run(&fused, &batch, 1), run(&plain, &batch, 1));
        assert_eq!(got.shape(), want.shape());
        let largest = want.as_slice::<f32>().iter().fold(1f32, |most, x| most.max(x.abs()));
        for (got, want) in got.as_slice::<f32>().iter().zip(want.as_slice::<f32>()) {
            assert!((got - want).abs() <= 1e-5 * largest, "{got} is not {want}");
        }
        let again = run(&fused, &batch, 3);
        assert_eq!(again.view().bytes(), got.view().bytes(), "threads change the answer");
        let first: Vec<Tensor> = batch.iter().map(first_row).collect();
        let alone = run(&fused, &first, 1);
        let n = alone.n_elements();
        assert_eq!(alone.as_slice::<f32>(), &got.as_slice::<f32>()[..n], "company changes a row");
    }
}

fn first_row(batch: &Tensor) -> Tensor {
    let dims: Vec<usize> = [1].into_iter().chain(batch.shape()[1..].iter().copied()).collect();
    let shape = Shape::of(&dims);
    Tensor::from_slice(shape.clone(), &batch.as_slice::<f32>()[..shape.n_elements()]).unwrap()
}

#[test]
fn bias_residual_and_activation_go_into_a_convolution() {
    let text = "in0 = Placeholder
        w = [3,3,5,6]
        b = [6]
        conv = Conv2D in0 w {strides=1/1/1/1 padding=SAME}
        biased = BiasAdd conv b
        w1 = [1,1,5,6]
        other = Conv2D in0 w1 {strides=1/1/1/1 padding=SAME}
        sum = AddV2 biased other
        y = Relu sum";
    check(text, &[&[1, 7, 6, 5]], "Conv2D _FusedConv2D");
}

#[test]
fn batch_norm_goes_into_a_convolution() {
    let convolutions = [
        ("[3,3,5,6]", "Conv2D", "_FusedConv2D"),
        ("[1,1,5,6]", "Conv2D", "_FusedConv2D"),
        ("[3,3,6,1]", "DepthwiseConv2dNative", "_FusedDepthwiseConv2dNative"),
    ];
    for (weight, op, fused) in convolutions {
        let n_channels = if op == "Conv2D" { 5 } else { 6 };
        let convolved = format!(
            "in0 = Placeholder
            w = {weight}
            conv = {op} in0 w {{strides=1/1/1/1 padding=SAME}}
            scale = [6]
            offset = [6]
            mean = [6]
            variance = +[6]"
        );
        for norm in ["FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"] {
            let text = format!(
                "{convolved}
                norm = {norm} conv scale offset mean variance {{is_training=false epsilon=0.01}}
                y = Relu norm"
            );
            check(&text, &[&[1, 7, 6, n_channels]], fused);
            let biased = text.replace(
                &format!("norm = {norm} conv"),
                &format!("bias = [6]\nbiased = BiasAdd conv bias\nnorm = {norm} biased"),
            );
            check(&biased, &[&[1, 7, 6, n_channels]], fused);
        }
        // As it is written where its constants were folded before.
        let by_hand = format!(
            "{convolved}
            scaled = Mul conv scale
            moved = AddV2 scaled offset
            y = Relu moved"
        );
        check(&by_hand, &[&[1, 7, 6, n_channels]], fused);
    }
}

#[test]
fn batch_norm_of_what_others_read_or_of_statistics_of_the_batch_stays() {
    let of_two = "in0 = Placeholder
        w = [3,3,5,6]
        conv = Conv2D in0 w {strides=1/1/1/1 padding=SAME}
        scale = [6]
        offset = [6]
        mean = [6]
        variance = +[6]
        norm = FusedBatchNormV3 conv scale offset mean variance {is_training=false}
        y = AddV2 conv norm";
    check(of_two, &[&[1, 7, 6, 5]], "Conv2D FusedBatchNormV3 AddV2");
    let open = of_two.replace("variance = +[6]", "variance = Mean conv axes").replace(
        "w = [3,3,5,6]",
        "w = [3,3,5,6]
        axes = i[0,1,2]",
    );
    let sample = [random(7, &[1, 7, 6, 5])];
    let program = program(&graph(&open), &sample, vec!["norm:0".to_owned()]);
    let mut ops = program.graph().nodes.iter().map(graph::Node::op_name);
    assert!(ops.any(|op| op == "FusedBatchNormV3"));
}

#[test]
fn what_always_runs_is_fused_beside_what_runs_on_conditions() {
    let text = "in0 = Placeholder
        w = [5,6]
        b = [6]
        product = MatMul in0 w
        biased = BiasAdd product b
        hidden = Relu biased
        axes = i[0,1]
        total = Sum in0 axes
        zero = 0
        positive = Greater total zero
        sides = Switch hidden positive
        v = [6,6]
        no = MatMul sides v
        below = Relu no
        yes = Square sides:1
        y = Merge below yes {N=2}";
    let graph = graph(text);
    let fetched = |fetch: &str, input: &Tensor| {
        let program = program(&graph, std::slice::from_ref(input), vec![fetch.to_owned()]);
        let steps: Vec<&str> = program.graph().nodes.iter().map(graph::Node::op_name).collect();
        (run(&program, std::slice::from_ref(input), 1), steps.join(" "))
    };
    for sign in [-1., 1.] {
        let values: Vec<f32> =
            random(3, &[4, 5]).as_slice::<f32>().iter().map(|x| x.abs() * sign).collect();
        let input = Tensor::from_slice(Shape::of(&[4, 5]), &values).unwrap();
        let (got, steps) = fetched("y:0", &input);
        assert!(steps.contains("_FusedMatMul") && !steps.contains("BiasAdd"), "{steps}");
        assert!(steps.contains(" MatMul"), "a branch is left as it is: {steps}");
        let (hidden, _) = fetched("hidden:0", &input);
        let (side, want) = if sign > 0. { ("yes:0", "Square") } else { ("below:0", "Relu") };
        let (want_side, steps) = fetched(side, &input);
        assert!(steps.contains(want), "{steps}");
        assert_eq!(got.as_slice::<f32>(), want_side.as_slice::<f32>());
        if sign > 0. {
            let squares: Vec<f32> = hidden.as_slice::<f32>().iter().map(|x| x * x).collect();
            assert_eq!(got.as_slice::<f32>(), squares);
        }
    }
}

#[test]
fn zeros_around_an_image_go_into_the_padding() {
    let text = "in0 = Placeholder
        zeros = i[0,0,1,2,3,0,0,0]
        square = i[4,2]
        around = Reshape zeros square
        padded = Pad in0 around
        w = [3,3,8,1]
        conv = DepthwiseConv2dNative padded w {strides=1/2/2/1 padding=VALID}
        y = Relu6 conv";
    check(text, &[&[1, 9, 8, 8]], "_FusedDepthwiseConv2dNative");
}

#[test]
fn swish_is_seen_through_identities() {
    let text = "in0 = Placeholder
        w = [1,1,5,20]
        conv = Conv2D in0 w {strides=1/1/1/1 padding=SAME}
        gate = Sigmoid conv
        product = Mul conv gate
        y = Identity product";
    check(text, &[&[1, 4, 4, 5]], "_FusedConv2D");
}

#[test]
fn swish_is_seen_as_keras_writes_it() {
    let text = "in0 = Placeholder
        w = [1,1,5,20]
        beta = 1
        conv = Conv2D in0 w {strides=1/1/1/1 padding=SAME}
        scaled = Mul beta conv
        gate = Sigmoid scaled
        y = Mul conv gate";
    check(text, &[&[1, 4, 4, 5]], "_FusedConv2D");
}

#[test]
fn hard_swish_is_seen() {
    let text = "in0 = Placeholder
        three = 3
        sixth = 0.16666667
        sum = AddV2 in0 three
        gate = Relu6 sum
        part = Mul gate sixth
        y = Mul in0 part";
    check(text, &[&[1, 4, 9]], "_Activation");
}

#[test]
fn all_forms_of_gelu_are_seen() {
    let by_complement = "in0 = Placeholder
        half = 0.5
        root = 0.70710677
        left = Mul half in0
        minus = Neg in0
        scaled = Mul minus root
        share = Erfc scaled
        y = Mul left share";
    let by_error = "in0 = Placeholder
        half = 0.5
        one = 1
        root = 1.4142135
        scaled = RealDiv in0 root
        share = Erf scaled
        sum = AddV2 share one
        right = Mul half sum
        y = Mul in0 right";
    let by_tangent = "in0 = Placeholder
        half = 0.5
        one = 1
        three = 3
        small = 0.044715
        root = 0.7978846
        cube = Pow in0 three
        little = Mul small cube
        inner = AddV2 in0 little
        scaled = Mul root inner
        share = Tanh scaled
        sum = AddV2 one share
        left = Mul half in0
        y = Mul left sum";
    for text in [by_complement, by_error, by_tangent] {
        check(text, &[&[1, 40]], "_Activation");
    }
}

#[test]
fn a_value_that_others_read_is_left_alone() {
    let text = "in0 = Placeholder
        gate = Sigmoid in0
        swish = Mul in0 gate
        y = AddV2 swish gate";
    check(text, &[&[1, 30]], "Sigmoid Mul AddV2");
}

#[test]
fn both_forms_of_layer_norm_are_seen() {
    let of_keras = "in0 = Placeholder
        axes = i[2]
        epsilon = 0.001
        mean = Mean in0 axes {keep_dims=true}
        squares = SquaredDifference in0 mean
        variance = Mean squares axes {keep_dims=true}
        sum = AddV2 variance epsilon
        inverse = Rsqrt sum
        scale = [1,1,24]
        shift = [1,1,24]
        factor = Mul inverse scale
        minus = Neg mean
        moved = Mul minus factor
        offset = AddV2 moved shift
        scaled = Mul in0 factor
        y = AddV2 scaled offset";
    let by_hand = "in0 = Placeholder
        axes = i[2]
        epsilon = 0.001
        mean = Mean in0 axes {keep_dims=true}
        squares = SquaredDifference in0 mean
        variance = Mean squares axes {keep_dims=true}
        sum = AddV2 variance epsilon
        inverse = Rsqrt sum
        centred = Sub in0 mean
        normal = Mul centred inverse
        scale = [24]
        shift = [24]
        scaled = Mul normal scale
        y = AddV2 scaled shift";
    for text in [of_keras, by_hand] {
        check(text, &[&[1, 3, 24]], "_LayerNorm");
    }
}

#[test]
fn a_dense_layer_on_more_dimensions_is_one_step() {
    let by_einsum = "in0 = Placeholder
        w = [10,3,4]
        b = [3,4]
        product = Einsum in0 w {equation=abc,cde->abde}
        y = AddV2 product b";
    let contracted = "in0 = Placeholder
        w = [2,5,12]
        product = Einsum in0 w {equation=abcd,cde->abe}
        b = [12]
        y = BiasAdd product b";
    let of_stack = "in0 = Placeholder
        w = [10,12]
        product = BatchMatMulV2 in0 w
        b = [12]
        sum = AddV2 product b
        y = Tanh sum";
    check(by_einsum, &[&[1, 6, 10]], "_Linear");
    check(contracted, &[&[1, 6, 2, 5]], "_Linear");
    check(of_stack, &[&[1, 6, 10]], "_Linear");
}

#[test]
fn reshapes_around_a_product_are_taken_in() {
    // As `tf.tensordot` writes it.
    let text = "in0 = Placeholder
        zero = i[0]
        two = i[2]
        step = i[1]
        shape = Shape in0
        lead = StridedSlice shape zero two step
        all = i[-1,12]
        rows = Reshape in0 all
        w = [12,12]
        product = MatMul rows w
        last = i[12]
        axis = int 0
        target = ConcatV2 lead last axis {N=2}
        shaped = Reshape product target
        b = [12]
        biased = BiasAdd shaped b
        y = AddV2 in0 biased";
    check(text, &[&[1, 6, 12]], "_Linear");
}

#[test]
fn a_constant_that_would_be_broadcast_into_the_result_is_not_a_bias() {
    let text = "in0 = Placeholder
        w = [10,12]
        product = MatMul in0 w
        b = [1,1,12]
        y = AddV2 product b";
    let graph = graph(text);
    let input = random(1, &[3, 10]);
    let program = program(&graph, std::slice::from_ref(&input), vec!["y:0".to_owned()]);
    assert_eq!(run(&program, &[input], 1).shape().dims(), [1, 3, 12]);
}

#[test]
fn outputs_take_over_the_memory_of_what_is_no_longer_needed() {
    let text = "in0 = Placeholder
        a = Neg in0
        b = Exp a
        c = Mul b in0
        d = Sqrt b
        e = AddV2 c d
        f = Tanh e
        y = Neg f";
    check(text, &[&[1, 300]], "Neg Exp Mul Sqrt AddV2 Tanh Neg");
    let input = random(1, &[4, 300]);
    let program = program(&graph(text), std::slice::from_ref(&input), vec!["y:0".to_owned()]);
    let plan = with_env(1, |env| program.plan_for(&[input], env).unwrap());
    // Two values are alive at once where the paths meet, and never more.
    assert!(plan.work_bytes() <= 2 * 4 * 300 * 4 + 128, "{}", plan.work_bytes());
}

/// The program for any input, and the one for inputs of the sample's rank and inner sizes.
fn both(graph: &GraphDef, sample: &Tensor) -> (Program, Option<Program>) {
    let source = Source::new(graph.clone(), OpList::default()).unwrap();
    let feeds = vec![("in0:0".to_owned(), Spec::unknown(sample.dtype()))];
    let request = Request { feeds, fetches: vec!["y:0".to_owned()], targets: Vec::new() };
    let traced = source.trace(&request).unwrap();
    let dims = sample.shape().iter().skip(1).map(|size| Dim::of(*size));
    let spec = Spec::new(sample.dtype(), [Dim::Unknown].into_iter().chain(dims));
    assert!(graph::fits(&spec, sample.dtype(), sample.shape()));
    with_env(1, |env| {
        let written = FxHashSet::default();
        let bindings = Bindings::new(env.resources, &written);
        let build = Build {
            bindings: &bindings,
            env,
            options: Options { plans_max: 2, homes: Homes::One },
        };
        let (mut any, mut fitted) = Program::build_both(traced, &[spec], &build).unwrap();
        let programs = std::iter::once(&mut any).chain(&mut fitted);
        graph::pack(programs, &mut Library::default()).unwrap();
        (any, fitted)
    })
}

#[test]
fn what_a_signature_says_of_its_inputs_lets_a_second_program_run_in_fewer_steps() {
    let text = "in0 = Placeholder
        w = [10,12]
        product = BatchMatMulV2 in0 w
        b = [12]
        biased = AddV2 product b
        y = Relu biased";
    let (sample, other) = (random(1, &[3, 5, 10]), random(2, &[4, 10]));
    let (any, fitted) = both(&graph(text), &sample);
    let fitted = fitted.unwrap();
    let n_ops =
        |program: &Program| program.graph().nodes.iter().filter(|n| n.op_name() != "Const").count();
    assert_eq!((n_ops(&any), n_ops(&fitted)), (4, 2));
    let (got, want) = (run(&fitted, std::slice::from_ref(&sample), 1), run(&any, &[sample], 1));
    assert_eq!(got.shape(), want.shape());
    let pairs = got.as_slice::<f32>().iter().zip(want.as_slice::<f32>());
    pairs.for_each(|(got, want)| assert!((got - want).abs() < 1e-5, "{got} is not {want}"));
    // What does not fit is run as it stands.
    assert_eq!(run(&any, &[other], 1).shape().dims(), [4, 12]);
}

#[test]
fn there_is_no_second_program_where_it_would_be_the_same() {
    let text = "in0 = Placeholder
        w = [10,12]
        product = MatMul in0 w
        y = Relu product";
    assert!(both(&graph(text), &random(1, &[3, 10])).1.is_none());
}
