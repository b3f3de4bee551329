//! Kernels that can take long look whether their run should stop, and stop then. No time is
//! measured: looks are counted. The calls are those of `testdata/ops` with larger inputs.
#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "booked/bombs.rs"]
#[allow(dead_code, reason = "the giant ones are for the books")]
mod bombs;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use ops::{Attrs, Cancel, Ctx, Env, NoFiles, NoFunctions, Output, Resources};
use pool::{Pool, Stop};
use rustix::process::{Resource, Rlimit, setrlimit};
use tensor::{DType, Shape, Spec, Strings, Tensor};
use testkit::opcases::{self, Case, Node};

/// The way in which inputs are made larger: to so many elements at most, by a power of two times
/// one of these numbers.
#[derive(Clone, Copy)]
struct Growth {
    n_elements: usize,
    factors: &'static [usize],
}

/// The usual way, and one whose calls are large enough wherever one size is made larger.
const DOUBLED: Growth = Growth { n_elements: 1 << 19, factors: &[1] };
const FINE: Growth = Growth { n_elements: 9 << 16, factors: &[8, 9, 10, 11, 12, 13, 14, 15] };

/// Ops with an input that says how large the result is: a list of sizes, or a number.
const SIZED: &[(&str, usize)] = &[
    ("BroadcastTo", 1),
    ("Fill", 0),
    ("LinSpace", 2),
    ("RandomStandardNormal", 0),
    ("RandomUniform", 0),
    ("RandomUniformInt", 0),
    ("Range", 1),
    ("StatelessRandomNormal", 0),
    ("StatelessRandomNormalV2", 0),
    ("StatelessRandomUniform", 0),
    ("StatelessRandomUniformFullInt", 0),
    ("StatelessRandomUniformFullIntV2", 0),
    ("StatelessRandomUniformInt", 0),
    ("StatelessRandomUniformIntV2", 0),
    ("StatelessRandomUniformV2", 0),
    ("StatelessTruncatedNormal", 0),
    ("StatelessTruncatedNormalV2", 0),
    ("TruncatedNormal", 0),
];

/// The elements of their results.
const SIZED_ELEMENTS: i32 = 1 << 20;

/// A kernel that reads and writes so many elements in all looks once at least.
const ELEMENTS_A_LOOK: usize = 1 << 20;

/// A call is large enough that has so many: it looks once at least, too.
const ELEMENTS_MIN: usize = 1 << 19;

/// A call whose results have more elements is left out: products of long vectors do.
const RESULT_ELEMENTS_MAX: usize = 1 << 24;

/// The memory that the process may have, so that a call that takes far too much fails this test
/// and not the machine.
const PROCESS_BYTES_MAX: u64 = 8 << 30;

/// The number of looks that a kernel may take after the stop: each of its parts may, once or twice.
const LOOKS_AFTER: usize = 40;

/// The number of calls of an op that are tried until one runs with larger inputs.
const N_TRIES: usize = 40;

/// The number of them that are run until one looks.
const N_RUNS: usize = 8;

/// Ops whose work grows faster than their inputs, the elements of the inputs that they are called
/// with, and how often they look then at least.
const STEEP: &[(&str, usize, usize)] = &[
    ("BatchMatMulV2", 1 << 15, 1),
    ("Cholesky", 1 << 15, 1),
    ("Conv2D", 1 << 15, 1),
    ("Conv3D", 1 << 15, 1),
    ("DepthwiseConv2dNative", 1 << 15, 1),
    ("Dilation2D", 1 << 15, 1),
    ("Einsum", 1 << 15, 1),
    ("FFT", 1 << 15, 1),
    ("LRN", 1 << 15, 1),
    ("MatMul", 1 << 15, 1),
    ("MatrixDeterminant", 1 << 15, 1),
    ("MatrixTriangularSolve", 1 << 15, 1),
    ("MaxPool", 1 << 15, 1),
    ("Qr", 1 << 14, 1),
    ("Svd", 1 << 12, 1),
    ("TopKV2", 1 << 15, 1),
];

/// Ops that other tests here call with inputs of their own.
const DIRECT: &[&str] = &[
    "Conv2DBackpropInput",
    "DecodeAndCropJpeg",
    "DecodeBmp",
    "DecodeGif",
    "DecodeImage",
    "DecodeJpeg",
    "DecodePng",
    "MatrixInverse",
    "MatrixSolve",
    "NonMaxSuppressionV3",
];

fn testdata(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(name)
}

/// The ops that a file of `testdata` names with a reason.
fn listed(file: &str) -> BTreeSet<String> {
    let text = std::fs::read_to_string(testdata(file)).unwrap();
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.split_once(" : ").expect("an op and a reason").0.to_owned()).collect()
}

/// The cases whose last node is of an op, by op.
fn cases() -> BTreeMap<String, Vec<Case>> {
    let mut by_op: BTreeMap<String, Vec<Case>> = BTreeMap::new();
    for case in opcases::read_all(&testdata("ops")) {
        if let Some(node) = case.nodes.last() {
            by_op.entry(node.op.clone()).or_default().push(case);
        }
    }
    by_op
}

/// A call of the last node of a case: its inputs, and what the nodes before it left.
struct Call {
    node: Node,
    inputs: Vec<Tensor>,
    resources: Resources,
}

impl Call {
    /// The call that a case makes; `None` if a node before the last one fails.
    fn of(case: &Case) -> Option<Self> {
        let resources = Resources::default();
        let mut values: HashMap<String, Tensor> = HashMap::new();
        for (i, input) in case.inputs.iter().enumerate() {
            values.insert(format!("in{i}:0"), input.clone());
        }
        for (number, node) in case.nodes.iter().enumerate() {
            let input = |input: &String| {
                let name = if input.contains(':') { input.clone() } else { format!("{input}:0") };
                values.get(&name).cloned()
            };
            let inputs = node.inputs.iter().map(input).collect::<Option<Vec<Tensor>>>()?;
            if number + 1 == case.nodes.len() {
                return Some(Self { node: node.clone(), inputs, resources });
            }
            let outputs = run(node, &inputs, &resources, &Stop::default()).ok()?;
            for (i, output) in outputs.into_iter().enumerate() {
                values.insert(format!("{}:{i}", node.name), output);
            }
        }
        None
    }

    /// Runs the call with other inputs; `None` if it fails or panics.
    fn run(&self, inputs: &[Tensor], stop: &Stop) -> Option<Vec<Tensor>> {
        let call = || run(&self.node, inputs, &self.resources, stop);
        catch_unwind(AssertUnwindSafe(call)).ok()?.ok()
    }

    /// The sizes of the inputs, each by itself, and all of them.
    fn sizes(&self) -> Vec<Vec<usize>> {
        let open = self.inputs.iter().filter(|tensor| is_open(tensor));
        let all: BTreeSet<usize> = open.flat_map(|tensor| tensor.shape().dims().to_vec()).collect();
        let single = all.iter().rev().map(|size| vec![*size]);
        single.chain([all.iter().copied().collect()]).collect()
    }

    /// The inputs with some sizes so many times as large that they have as many elements as may
    /// be.
    fn grown(&self, sizes: &[usize], growth: Growth) -> Option<Vec<Tensor>> {
        let n = |times: usize| n_grown(&self.inputs, sizes, times);
        let powers = (0..22).map(|power| 1usize << power);
        let all = powers.flat_map(|power| growth.factors.iter().map(move |factor| power * factor));
        let fit = all.filter(|times| n(*times).is_some_and(|n| n <= growth.n_elements));
        let times = fit.max().filter(|times| *times > 1)?;
        Some(self.inputs.iter().map(|tensor| grown(tensor, sizes, times)).collect())
    }

    /// The inputs with a large number in one of them.
    fn sized(&self, input: usize) -> Option<Vec<Tensor>> {
        let mut inputs = self.inputs.clone();
        let shape = Shape::of(&[1][..inputs[input].shape().rank().min(1)]);
        inputs[input] = if inputs[input].dtype() == DType::I64 {
            Tensor::from_slice(shape, &[i64::from(SIZED_ELEMENTS)]).ok()?
        } else if inputs[input].dtype() == DType::I32 {
            Tensor::from_slice(shape, &[SIZED_ELEMENTS]).ok()?
        } else {
            return None;
        };
        Some(inputs)
    }
}

/// Runs a node on a thread that watches `stop`. Fails as the op does.
fn run(
    node: &Node,
    inputs: &[Tensor],
    resources: &Resources,
    stop: &Stop,
) -> ops::Result<Vec<Tensor>> {
    let (pool, cancel) = (Pool::new(1), Cancel::from(stop.clone()));
    let _watch = cancel.watch();
    let (functions, files) = (&NoFunctions, &NoFiles);
    let env = Env { pool: &pool, functions, files, resources, cancel: &cancel };
    let def = ops::find(&node.op).ok_or(ops::Error::Cancelled)?;
    let op = (def.build)(&Attrs::new(&node.attrs))?;
    let specs: Vec<Spec> = inputs.iter().cloned().map(Spec::constant).collect();
    let outputs = op.infer_with(&specs, env.functions)?;
    if outputs.iter().any(|output| !is_of_a_test_size(output)) {
        return Err(ops::Error::Cancelled);
    }
    let n_outputs = outputs.len();
    let outputs = (0..n_outputs).map(|_| Output::Open(None));
    let mut ctx = Ctx::new(inputs.iter().map(Tensor::view), outputs, &env);
    op.run(&mut ctx)?;
    Ok(ctx.finish()?.into_iter().map(|(_, tensor)| tensor).collect())
}

/// Returns whether a result is small enough for a test, or its size depends on values.
fn is_of_a_test_size(output: &Spec) -> bool {
    let dims = output.dims().unwrap_or_default();
    let mut sizes = dims.iter().map(|dim| dim.size().unwrap_or(1));
    let n = sizes.try_fold(1usize, usize::checked_mul);
    n.is_some_and(|n| n <= RESULT_ELEMENTS_MAX)
}

/// Returns whether a tensor is made larger: a few integers in a row are sizes, axes and the like.
fn is_open(tensor: &Tensor) -> bool {
    let is_integer = matches!(tensor.dtype(), DType::I32 | DType::I64 | DType::U64);
    let is_parameter = is_integer && tensor.shape().rank() <= 1 && tensor.n_elements() <= 4;
    let is_data = tensor.dtype().is_plain() || tensor.dtype() == DType::String;
    is_data && !is_parameter && tensor.n_elements() > 0
}

/// The number of elements that tensors would have with some sizes so many times as large.
fn n_grown(tensors: &[Tensor], sizes: &[usize], times: usize) -> Option<usize> {
    let of = |tensor: &Tensor| {
        let n = tensor.shape().dims().iter().filter(|dim| sizes.contains(dim)).count();
        let power = if is_open(tensor) { u32::try_from(n).ok()? } else { 0 };
        times.checked_pow(power)?.checked_mul(tensor.n_elements())
    };
    tensors.iter().try_fold(0usize, |sum, tensor| sum.checked_add(of(tensor)?))
}

/// The tensor with some sizes so many times as large: what is there is repeated.
fn grown(tensor: &Tensor, sizes: &[usize], times: usize) -> Tensor {
    let mut result = tensor.clone();
    if is_open(tensor) {
        let dims = tensor.shape().dims();
        for axis in (0..dims.len()).filter(|axis| sizes.contains(&dims[*axis])) {
            result = repeated(&result, axis, times);
        }
    }
    result
}

fn repeated(tensor: &Tensor, axis: usize, times: usize) -> Tensor {
    let mut dims = tensor.shape().dims().to_vec();
    let run: usize = dims[axis..].iter().product();
    dims[axis] *= times;
    let shape = Shape::of(&dims);
    if tensor.dtype() == DType::String {
        let strings = tensor.strings();
        let runs = (0..strings.len() / run).flat_map(|i| (0..times).map(move |_| i));
        let places = runs.flat_map(|i| i * run..(i + 1) * run);
        let strings = Strings::copied(places.map(|at| strings.get(at))).unwrap();
        return Tensor::from_strings(shape, strings).unwrap();
    }
    let bytes = tensor.view().bytes().chunks_exact(run * tensor.dtype().size());
    let bytes: Vec<u8> = bytes.flat_map(|run| run.repeat(times)).collect();
    Tensor::from_bytes(tensor.dtype(), shape, &bytes).unwrap()
}

/// Limits the address space of this process, the memory of all its threads.
fn limit_memory() {
    let limit = Rlimit { current: Some(PROCESS_BYTES_MAX), maximum: Some(PROCESS_BYTES_MAX) };
    setrlimit(Resource::As, limit).expect("a limit may be lowered");
}

fn n_elements(tensors: &[Tensor]) -> usize {
    tensors.iter().map(Tensor::n_elements).sum()
}

/// Asserts that a call stops when it is told to, at its first look and half way.
fn stops(call: &Call, inputs: &[Tensor], n_looks: usize) -> Result<(), String> {
    for last in [0, n_looks / 2] {
        let stop = Stop::at_look(last);
        drop(call.run(inputs, &stop));
        if stop.n_looks() > last + LOOKS_AFTER {
            let n = stop.n_looks() - last;
            return Err(format!("looks {n} times after it was told to stop at look {last}"));
        }
    }
    Ok(())
}

/// Of the first calls of an op that run with large inputs one that looks, if any does: the elements
/// that it reads and writes, how often it looks, and whether it stops. `None` if none runs. Some
/// calls do nothing, as a cast to the same dtype.
fn try_op(cases: &[Case], growth: Growth) -> Option<(usize, usize, Result<(), String>)> {
    let mut best = None;
    let (mut n_tries, mut n_runs) = (0, 0);
    for call in cases.iter().filter_map(Call::of) {
        for sizes in call.sizes() {
            let Some(inputs) = call.grown(&sizes, growth) else { continue };
            n_tries += 1;
            let is_found = best.as_ref().is_some_and(|(_, n_looks, _)| *n_looks > 0);
            if n_tries > N_TRIES || n_runs >= N_RUNS || is_found {
                return best;
            }
            let stop = Stop::at_look(usize::MAX);
            let Some(outputs) = call.run(&inputs, &stop) else { continue };
            let n = n_elements(&inputs) + n_elements(&outputs);
            if n >= ELEMENTS_MIN && n_elements(&inputs) >= growth.n_elements / 4 {
                n_runs += 1;
                best = Some((n, stop.n_looks(), stops(&call, &inputs, stop.n_looks())));
            }
        }
    }
    best
}

#[test]
fn every_op_looks_while_it_runs_whether_its_run_should_stop() {
    limit_memory();
    std::panic::set_hook(Box::new(|_| {}));
    let listed = listed("ops_that_never_take_long.txt");
    let (sized, steep) = (SIZED.iter().map(|(op, _)| *op), STEEP.iter().map(|(op, ..)| *op));
    let direct: BTreeSet<&str> = DIRECT.iter().copied().chain(sized).chain(steep).collect();
    let (mut unseen, mut faults) = (BTreeSet::new(), Vec::new());
    let progress = Path::new(env!("CARGO_TARGET_TMPDIR")).join("stopping_op.txt");
    for (op, cases) in cases().iter().filter(|(op, _)| !listed.contains(*op)) {
        std::fs::write(&progress, op).unwrap();
        let fine = || if direct.contains(&**op) { None } else { try_op(cases, FINE) };
        let tried = try_op(cases, DOUBLED).or_else(fine);
        let Some((n, n_looks, stopped)) = tried else {
            unseen.insert(op.clone());
            continue;
        };
        if n_looks < (n / ELEMENTS_A_LOOK).max(1) {
            faults.push(format!("{op}: {n_looks} looks for {n} elements"));
        }
        if let Err(text) = stopped {
            faults.push(format!("{op}: {text}"));
        }
    }
    drop(std::panic::take_hook());
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    unseen.retain(|op| !direct.contains(&**op));
    let listed = self::listed("ops_never_called_with_large_inputs.txt");
    assert_eq!(unseen, listed, "ops that did not run with large inputs");
}

#[test]
fn ops_whose_work_grows_faster_than_their_inputs_look_more_often() {
    limit_memory();
    let cases = cases();
    let mut faults = Vec::new();
    for (op, elements, least) in STEEP {
        let calls = cases[*op].iter().filter_map(Call::of).take(N_RUNS);
        let most = calls.filter_map(|call| {
            let growth = Growth { n_elements: *elements, ..DOUBLED };
            let inputs = call.grown(call.sizes().last()?, growth)?;
            let stop = Stop::at_look(usize::MAX);
            drop(call.run(&inputs, &stop)?);
            let stopped = stops(&call, &inputs, stop.n_looks());
            Some((stop.n_looks(), stopped))
        });
        let most = most.max_by_key(|(n_looks, _)| *n_looks);
        match most {
            Some((n_looks, Ok(()))) if n_looks >= *least => {}
            other => faults.push(format!("{op}: {other:?}, not {least}")),
        }
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

/// Calls that no repetition of a case makes: boxes apart, matrices with an inverse, and sizes that
/// are an input.
#[test]
fn boxes_inverses_and_transposed_convolutions_look_while_they_run() {
    let n = 256;
    let ones = (0..n * n).map(|i| if i % (n + 1) == 0 { 1f32 } else { 0. });
    let eye = Tensor::from_slice(Shape::of(&[n, n]), &ones.collect::<Vec<f32>>()).unwrap();
    let zeros = |dims: &[usize]| Tensor::zeros(DType::F32, Shape::of(dims)).unwrap();
    let sizes = Tensor::vector(&[1i32, 256, 256, 16]).unwrap();
    let images = vec![sizes, zeros(&[3, 3, 16, 16]), zeros(&[1, 128, 128, 16])];
    let n_boxes = 1 << 14;
    let corners = (0..n_boxes).flat_map(|i| [0., i as f32, 1., i as f32 + 0.5]);
    let boxes = Tensor::from_slice(Shape::of(&[n_boxes, 4]), &corners.collect::<Vec<f32>>());
    let scores: Vec<f32> = (0..n_boxes).map(|i| 1. + i as f32).collect();
    let scalar = |x: f32| Tensor::from_slice(Shape::scalar(), &[x]).unwrap();
    let most = Tensor::from_slice(Shape::scalar(), &[1i32 << 14]).unwrap();
    let nms = vec![boxes.unwrap(), Tensor::vector(&scores).unwrap(), most, scalar(0.5), scalar(0.)];
    let all = cases();
    for (op, inputs) in [
        ("NonMaxSuppressionV3", nms),
        ("MatrixInverse", vec![eye.clone()]),
        ("MatrixSolve", vec![eye.clone(), eye]),
        ("Conv2DBackpropInput", images),
    ] {
        let looks = all[op].iter().filter_map(Call::of).find_map(|call| {
            let stop = Stop::at_look(usize::MAX);
            drop(call.run(&inputs, &stop)?);
            Some((stop.n_looks(), stops(&call, &inputs, stop.n_looks())))
        });
        let Some((n_looks, Ok(()))) = looks else { panic!("{op}: {looks:?}") };
        assert!(n_looks >= 5, "{op}: {n_looks}");
    }
}

#[test]
fn ops_whose_results_are_as_large_as_an_input_says_look_while_they_run() {
    let all = cases();
    for (op, input) in SIZED {
        let looks = all[*op].iter().filter_map(Call::of).find_map(|call| {
            let inputs = call.sized(*input)?;
            let stop = Stop::at_look(usize::MAX);
            let n = n_elements(&call.run(&inputs, &stop)?);
            // A range in steps of 3 has a third of them.
            let is_large = n >= SIZED_ELEMENTS as usize / 4;
            is_large.then(|| (stop.n_looks(), stops(&call, &inputs, stop.n_looks())))
        });
        let Some((n_looks, Ok(()))) = looks else { panic!("{op}: {looks:?}") };
        assert!(n_looks >= 1, "{op} does not look");
    }
}

#[test]
fn decoders_of_images_look_while_they_run() {
    let all = cases();
    for bomb in bombs::large() {
        let looks = all[bomb.op].iter().filter_map(Call::of).find_map(|call| {
            let mut inputs = call.inputs.clone();
            inputs[0] = bomb.contents();
            let stop = Stop::at_look(usize::MAX);
            drop(call.run(&inputs, &stop)?);
            Some((stop.n_looks(), stops(&call, &inputs, stop.n_looks())))
        });
        let Some((n_looks, Ok(()))) = looks else { panic!("{}: {looks:?}", bomb.name) };
        assert!(n_looks >= 8, "{}: {n_looks}", bomb.name);
    }
}

#[test]
fn the_ops_that_never_take_long_are_ops() {
    for file in ["ops_that_never_take_long.txt", "ops_never_called_with_large_inputs.txt"] {
        for op in listed(file) {
            assert!(ops::find(&op).is_some(), "{op}");
        }
    }
}
