//! Inference from less than everything: what an op says of its outputs when it knows only a part of
//! its inputs must hold for what it makes of them. The cases are those of `testdata/ops`.

use std::collections::HashMap;
use std::path::Path;

use ops::{Attrs, Cancel, Ctx, Env, Error, NoFiles, NoFunctions, Op, Output, Resources};
use pool::Pool;
use tensor::{Dim, Spec, Symbol, Tensor};
use testkit::opcases::{self, Case, Node};

#[test]
fn what_is_inferred_from_less_holds() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/ops");
    let only = std::env::var_os("OPS").map(|ops| ops.to_string_lossy().into_owned());
    let mut failures = Vec::new();
    for case in opcases::read_all(&folder) {
        let op = case.name.split(':').next().unwrap_or_default();
        if only.as_ref().is_some_and(|only| !only.split(',').any(|name| name == op)) {
            continue;
        }
        check(&case, &mut failures);
    }
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
}

/// Runs the nodes of a case as far as they run, and infers each again from less.
fn check(case: &Case, failures: &mut Vec<String>) {
    let pool = Pool::new(1);
    let resources = Resources::default();
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
        let Some((op, inputs)) = build(node, &values) else { return };
        let Ok(outputs) = run(&*op, &inputs, &env) else { return };
        for (what, specs) in Knowledge::ALL.map(|known| (known, known.of(&inputs))) {
            if let Err(why) = compare(&*op, &specs, &inputs, &outputs) {
                failures.push(format!("{} ({what:?}): {why}", case.name));
            }
        }
        for (i, output) in outputs.into_iter().enumerate() {
            values.insert(format!("{}:{i}", node.name), output);
        }
    }
}

/// The facts that are known of the inputs.
#[derive(Debug, Clone, Copy)]
enum Knowledge {
    Dtypes,
    Ranks,
    Shapes,
    /// Each dimension is a symbol of its own.
    Symbols,
    /// The same, and so is each element of a small integer tensor.
    Sizes,
}

impl Knowledge {
    const ALL: [Self; 5] = [Self::Dtypes, Self::Ranks, Self::Shapes, Self::Symbols, Self::Sizes];

    fn of(self, inputs: &[Tensor]) -> Vec<Spec> {
        inputs.iter().enumerate().map(|(i, input)| self.spec(i, input)).collect()
    }

    fn spec(self, i: usize, input: &Tensor) -> Spec {
        let (dtype, shape) = (input.dtype(), input.shape());
        let symbols = Spec::new(dtype, (0..shape.rank()).map(|axis| Dim::symbol(dim(i, axis))));
        match self {
            Self::Dtypes => Spec::unknown(dtype),
            Self::Ranks => Spec::new(dtype, vec![Dim::Unknown; shape.rank()]),
            Self::Shapes => Spec::concrete(dtype, shape),
            Self::Symbols => symbols,
            Self::Sizes => match input.view().to_i64() {
                // Sizes that are inferred (-1) or count from the end are never symbols.
                Some(elements)
                    if shape.rank() <= 1
                        && elements.len() < 500
                        && elements.iter().all(|x| *x >= 0) =>
                {
                    let sizes = (0..elements.len()).map(|at| Dim::symbol(element(i, at)));
                    Spec::concrete(dtype, shape).with_sizes(sizes)
                }
                _ => symbols,
            },
        }
    }
}

fn dim(input: usize, axis: usize) -> Symbol {
    symbol(input * 1000 + axis)
}

fn element(input: usize, at: usize) -> Symbol {
    symbol(input * 1000 + 500 + at)
}

fn symbol(number: usize) -> Symbol {
    Symbol(u32::try_from(number).expect("inputs are few and small"))
}

/// The size that a symbol stands for.
fn size_of(symbol: Symbol, inputs: &[Tensor]) -> Option<i64> {
    let (input, at) = (symbol.0 as usize / 1000, symbol.0 as usize % 1000);
    match at.checked_sub(500) {
        Some(at) => inputs.get(input)?.view().to_i64()?.get(at).copied(),
        None => inputs.get(input)?.shape().to_i64().get(at).copied(),
    }
}

fn build(node: &Node, values: &HashMap<String, Tensor>) -> Option<(Box<dyn Op>, Vec<Tensor>)> {
    let op = (ops::find(&node.op)?.build)(&Attrs::new(&node.attrs)).ok()?;
    let inputs = node.inputs.iter().map(|input| {
        let name = if input.contains(':') { input.clone() } else { format!("{input}:0") };
        values.get(&name).cloned()
    });
    Some((op, inputs.collect::<Option<_>>()?))
}

fn run(op: &dyn Op, inputs: &[Tensor], env: &Env<'_>) -> Result<Vec<Tensor>, Error> {
    let specs: Vec<Spec> = inputs.iter().cloned().map(Spec::constant).collect();
    let n_outputs = op.infer_with(&specs, env.functions)?.len();
    let outputs = (0..n_outputs).map(|_| Output::Open(None));
    let mut ctx = Ctx::new(inputs.iter().map(Tensor::view), outputs, env);
    op.run(&mut ctx)?;
    Ok(ctx.finish()?.into_iter().map(|(_, tensor)| tensor).collect())
}

fn compare(
    op: &dyn Op,
    specs: &[Spec],
    inputs: &[Tensor],
    outputs: &[Tensor],
) -> Result<(), String> {
    let inferred = op.infer_with(specs, &NoFunctions).map_err(|error| error.to_string())?;
    if inferred.len() != outputs.len() {
        return Err(format!("inferred {} outputs of {}", inferred.len(), outputs.len()));
    }
    for (i, (spec, output)) in inferred.iter().zip(outputs).enumerate() {
        let made = format!("{}{}", output.dtype(), output.shape());
        let wrong = || Err(format!("output {i} was inferred as {spec} but is {made}"));
        if spec.dtype != output.dtype() || spec.rank().is_some_and(|r| r != output.shape().rank()) {
            return wrong();
        }
        let value = |dim: &Dim| dim.evaluate(|symbol| size_of(symbol, inputs));
        let dims = spec.dims().into_iter().flatten();
        if dims
            .zip(output.shape().to_i64())
            .any(|(dim, size)| value(dim).is_some_and(|d| d != size))
        {
            return wrong();
        }
        let elements = spec.sizes().unwrap_or_default();
        let made = output.view().to_i64().unwrap_or_default();
        if elements.iter().zip(&made).any(|(dim, made)| value(dim).is_some_and(|d| d != *made)) {
            return Err(format!("output {i} was inferred to hold {elements:?} but holds {made:?}"));
        }
    }
    Ok(())
}
