//! Every case of `testdata/ops` and `testdata/grid` on the CPU kernels: with planned outputs, with
//! open ones, with outputs in the memory of an input where the op allows it, and with packed inputs
//! and scratch memory.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};

use ops::{Attrs, Cancel, Ctx, Env, Error, Files, NoFunctions, Op, Output, Resources};
use pool::Pool;
use tensor::{DType, Dim, Shape, Spec, Symbol, Tensor, View, ViewMut};
use testkit::opcases::{self, Case, Node};

/// The best set is `every_case_gives_what_tensorflow_gives` itself.
#[test]
fn every_case_gives_the_same_with_the_other_instruction_sets() {
    testkit::sets::run_again(
        ops::instruction_sets().into_iter().skip(1),
        &["suite::every_case_gives_what_tensorflow_gives"],
    );
}

#[test]
fn every_case_gives_what_tensorflow_gives() {
    testkit::sets::use_asked(ops::use_instruction_set);
    // Another folder of cases, to try something out.
    let folders = std::env::var_os("OPS_FOLDER").map_or_else(
        || ["ops", "grid"].map(testdata).to_vec(),
        |folder| vec![PathBuf::from(folder)],
    );
    let only = std::env::var_os("OPS").map(|ops| ops.to_string_lossy().into_owned());
    let mut failures = Vec::new();
    let mut count = 0;
    for case in folders.iter().flat_map(|folder| opcases::read_all(folder)) {
        let op = case.name.split(':').next().unwrap_or_default();
        if only.as_ref().is_some_and(|only| !only.split(',').any(|name| name == op)) {
            continue;
        }
        for memory in [Memory::Planned, Memory::Open, Memory::InPlace, Memory::Packed] {
            count += 1;
            // A panic is one failure among others: a folder of random cases tells all it has.
            let checked = std::panic::catch_unwind(AssertUnwindSafe(|| check(&case, memory)));
            if let Err(why) = checked.unwrap_or_else(|_| Err("panicked".to_owned())) {
                failures.push(format!("{} ({memory:?}): {why}", case.name));
            }
        }
    }
    assert!(count > 0, "no cases");
    assert!(failures.is_empty(), "{} of {count} failed:\n{}", failures.len(), failures.join("\n"));
}

fn testdata(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(folder)
}

/// The memory that outputs of known shape go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Memory {
    Planned,
    Open,
    InPlace,
    Packed,
}

/// The files of the repository: cases name them from its root.
struct RootFiles;

impl Files for RootFiles {
    fn read(&self, name: &[u8]) -> Result<Vec<u8>, Error> {
        let name = String::from_utf8_lossy(name).into_owned();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        std::fs::read(root.join(&name)).map_err(|_| Error::NotFound(format!("no file {name}")))
    }
}

fn check(case: &Case, memory: Memory) -> Result<(), String> {
    let pool = Pool::new(2);
    let resources = Resources::default();
    let env = Env {
        pool: &pool,
        functions: &NoFunctions,
        files: &RootFiles,
        resources: &resources,
        cancel: &Cancel::default(),
    };
    let mut values: HashMap<String, Tensor> = HashMap::new();
    for (i, input) in case.inputs.iter().enumerate() {
        values.insert(format!("in{i}:0"), input.clone());
    }
    for node in &case.nodes {
        match run(node, &values, memory, &env) {
            Ok(outputs) => {
                for (i, output) in outputs.into_iter().enumerate() {
                    values.insert(format!("{}:{i}", node.name), output);
                }
            }
            Err(error) => return expect_error(case, &error),
        }
    }
    if let Some((code, _)) = &case.error {
        return Err(format!("expected {code} but it ran"));
    }
    let made = case.nodes.last().map_or(0, |node| {
        (0..).take_while(|i| values.contains_key(&format!("{}:{i}", node.name))).count()
    });
    // A case without fetches is one of a single op, all of whose outputs are compared.
    if case.outputs.len() != case.fetches.len() || (case.fetches.is_empty() && made > 0) {
        return Err(format!("{} values for {} outputs", case.outputs.len(), case.fetches.len()));
    }
    for (fetch, expected) in case.fetches.iter().zip(&case.outputs) {
        let got = values.get(&reference(fetch)).ok_or(format!("no output {fetch}"))?;
        opcases::compare(case, expected, got).map_err(|why| format!("{fetch}: {why}"))?;
    }
    Ok(())
}

fn run(
    node: &Node,
    values: &HashMap<String, Tensor>,
    kind: Memory,
    env: &Env<'_>,
) -> Result<Vec<Tensor>, Error> {
    let missing = |what: &str| Error::NotFound(format!("{what} is not there"));
    let def = ops::find(&node.op).ok_or_else(|| missing(&node.op))?;
    let op = (def.build)(&Attrs::new(&node.attrs))?;
    let find =
        |input: &String| values.get(&reference(input)).cloned().ok_or_else(|| missing(input));
    let inputs: Vec<Tensor> = node.inputs.iter().map(find).collect::<Result<_, _>>()?;
    let specs: Vec<Spec> = inputs.iter().cloned().map(Spec::constant).collect();
    let input_specs = specs;
    let specs = op.infer_with(&input_specs, env.functions)?;
    let mut memory: Vec<Option<Tensor>> = specs
        .iter()
        .map(|spec| match spec.shape() {
            Some(shape) if kind != Memory::Open && spec.dtype.is_plain() => {
                Tensor::zeros(spec.dtype, shape).map(Some)
            }
            _ => Ok(None),
        })
        .collect::<Result<_, _>>()?;
    // What is packed is all that a kernel may read of its input.
    let given =
        if kind == Memory::Packed { without_packed(op.as_ref(), &inputs)? } else { inputs.clone() };
    let mut views: Vec<View<'_>> = given.iter().map(Tensor::view).collect();
    let nothing = Shape::of(&[0]);
    let taken = op.in_place().filter(|_| kind == Memory::InPlace);
    let in_place = taken.is_some_and(|at| take_over(&mut views[at], &nothing, &mut memory));
    let outputs: Vec<Output<'_>> = memory
        .iter_mut()
        .map(|tensor| tensor.as_mut().and_then(Tensor::view_mut))
        .map(|view: Option<ViewMut<'_>>| view.map_or(Output::Open(None), Output::Planned))
        .collect();
    let mut packed = Vec::new();
    let mut scratch = Vec::new();
    if kind == Memory::Packed {
        let pack = |(i, input)| op.pack(i, input);
        packed = inputs.iter().enumerate().map(pack).collect::<Result<_, _>>()?;
        // Four bytes at a time, which aligns it for floats as a plan would.
        scratch = vec![u32::MAX; op.scratch_bytes(&input_specs, &specs).div_ceil(4)];
    }
    let mut ctx = Ctx::new(views, outputs, env);
    ctx.set_packed(&packed);
    ctx.set_scratch(bytemuck::cast_slice_mut(&mut scratch));
    ctx.set_in_place(in_place);
    op.run(&mut ctx)?;
    let open = ctx.finish()?;
    drop(ctx);
    for (number, tensor) in open {
        memory[number] = Some(tensor);
    }
    let made: Vec<Tensor> = memory.into_iter().flatten().collect();
    for (spec, tensor) in specs.iter().zip(&made) {
        agrees(spec, tensor)?;
    }
    check_without_values(op.as_ref(), &inputs, &made, env)?;
    Ok(made)
}

/// The inputs, without the elements of those that the op packs.
fn without_packed(op: &dyn Op, inputs: &[Tensor]) -> Result<Vec<Tensor>, ops::Error> {
    let without = |(i, input): (usize, &Tensor)| match op.pack(i, input)? {
        Some(_) => Ok(Tensor::vacant(input.dtype(), input.shape().clone())?),
        None => Ok(input.clone()),
    };
    inputs.iter().enumerate().map(without).collect()
}

/// Moves an input into the output's memory, if that is planned and alike.
fn take_over<'a>(input: &mut View<'a>, nothing: &'a Shape, outputs: &mut [Option<Tensor>]) -> bool {
    let Some(Some(output)) = outputs.first_mut() else { return false };
    if output.dtype() != input.dtype() || output.shape() != input.shape() {
        return false;
    }
    let mut view = output.view_mut().expect("its own memory");
    view.bytes().copy_from_slice(input.bytes());
    *input = View::plain(input.dtype(), nothing, &[]);
    true
}

/// Checks that the specs inferred when only the shapes of the inputs are known, and when their
/// dimensions are symbols, hold as well.
fn check_without_values(
    op: &dyn Op,
    inputs: &[Tensor],
    made: &[Tensor],
    env: &Env<'_>,
) -> Result<(), Error> {
    let is_handle = |t: &Tensor| !t.dtype().is_plain() && t.dtype() != DType::String;
    let mut sizes = Vec::new();
    let mut symbol = |size: &usize| {
        sizes.push(i64::try_from(*size).expect("a small size"));
        Dim::symbol(Symbol(u32::try_from(sizes.len() - 1).expect("few dimensions")))
    };
    let mut symbolic = |t: &Tensor| match is_handle(t) {
        true => Spec::constant(t.clone()),
        false => Spec::new(t.dtype(), t.shape().iter().map(&mut symbol)),
    };
    let symbols: Vec<Spec> = inputs.iter().map(&mut symbolic).collect();
    let plain = |t: &Tensor| match is_handle(t) {
        true => Spec::constant(t.clone()),
        false => Spec::concrete(t.dtype(), t.shape()),
    };
    let shapes: Vec<Spec> = inputs.iter().map(plain).collect();
    for (what, specs) in [("symbols", symbols), ("shapes", shapes)] {
        let failed =
            |error: Error| Error::Internal(format!("of {what} nothing is inferred: {error}"));
        for (spec, tensor) in op.infer_with(&specs, env.functions).map_err(failed)?.iter().zip(made)
        {
            let mut spec = spec.clone();
            for dim in spec.dims.iter_mut().flatten() {
                let at = |s: Symbol| sizes.get(s.0 as usize).copied();
                *dim = dim.evaluate(at).map_or(Dim::Unknown, Dim::Known);
            }
            agrees(&spec, tensor).map_err(|error| Error::Internal(format!("of {what} {error}")))?;
        }
    }
    Ok(())
}

/// Checks that the inferred spec holds for the tensor that was made.
fn agrees(spec: &Spec, tensor: &Tensor) -> Result<(), Error> {
    let same_rank = spec.rank().is_none_or(|rank| rank == tensor.shape().rank());
    let same_dims = spec.dims().into_iter().flatten().zip(tensor.shape().iter());
    let same = same_rank && same_dims.into_iter().all(|(d, s)| d.size().is_none_or(|d| d == *s));
    if spec.dtype == tensor.dtype() && same {
        return Ok(());
    }
    let made = format!("{}{}", tensor.dtype(), tensor.shape());
    Err(Error::Internal(format!("inferred {spec} but made {made}")))
}

fn expect_error(case: &Case, error: &Error) -> Result<(), String> {
    let Some((code, text)) = &case.error else { return Err(format!("failed: {error:?}")) };
    let got = code_of(error);
    if got != code || !error.to_string().contains(text.as_str()) {
        return Err(format!("expected {code} {text:?} but got {got} {:?}", error.to_string()));
    }
    Ok(())
}

fn code_of(error: &Error) -> &'static str {
    match error {
        Error::InvalidArgument(_) => "INVALID_ARGUMENT",
        Error::Unimplemented(_) => "UNIMPLEMENTED",
        Error::OutOfRange(_) => "OUT_OF_RANGE",
        Error::NotFound(_) => "NOT_FOUND",
        Error::FailedPrecondition(_) => "FAILED_PRECONDITION",
        Error::ResourceExhausted(_) => "RESOURCE_EXHAUSTED",
        Error::DataLoss(_) => "DATA_LOSS",
        Error::Cancelled => "CANCELLED",
        Error::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Error::Internal(_) => "INTERNAL",
    }
}

fn reference(name: &str) -> String {
    if name.contains(':') { name.to_owned() } else { format!("{name}:0") }
}
