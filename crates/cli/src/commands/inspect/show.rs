//! The report as people read it: signatures as `saved_model_cli show --all` has them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use proto::tensorflow::DataType;
use savedmodel::{Endpoint, Signature};

use super::Report;
use super::memory::Memory;
use pages::human_bytes;

/// The number of weights that are listed.
const WEIGHTS_MAX: usize = 10;

/// The number of ops that are listed.
const OPS_MAX: usize = 12;

/// The whole report.
pub(super) fn report(report: &Report) -> String {
    let mut text = String::new();
    let model = &report.model;
    let tags: Vec<&str> = model.tags.iter().map(String::as_str).collect();
    let _ = writeln!(text, "folder      {}", model.dir().path().display());
    let _ = writeln!(text, "tags        {}", tags.join(", "));
    let _ = writeln!(text, "written by  TensorFlow {}", model.tensorflow_version);
    let _ = writeln!(text, "engine      {}: {}", report.engine.name, report.engine.why);
    for (name, one) in &model.signatures {
        let _ = write!(text, "\n{}", signature(one));
        match report.rows.get(name) {
            Some(Ok(())) => text += "  rows are independent: requests are batched\n",
            Some(Err(why)) => {
                let _ = writeln!(text, "  rows are not known to be independent: {why}");
            }
            None => {}
        }
        if let Some(missing) = report.unsupported.get(name) {
            let _ = writeln!(text, "  cannot run: {}", super::lacking(missing));
        }
    }
    let _ = writeln!(text, "\nops         {}", ops(&report.ops));
    text += &weights(report);
    match &report.memory {
        Some(memory) => text += &memory_table(memory),
        None => text += "\n--memory predicts the memory of batches; --rows says what is batched\n",
    }
    text
}

/// A signature, as people know it from `saved_model_cli`.
fn signature(signature: &Signature) -> String {
    let mut text = format!("signature_def['{}']:\n", signature.name);
    let sides = [("inputs", "input", &signature.inputs), ("outputs", "output", &signature.outputs)];
    for (side, one, endpoints) in sides {
        let lead = "  The given SavedModel SignatureDef contains the following";
        let _ = writeln!(text, "{lead} {one}(s):");
        for (alias, endpoint) in endpoints {
            let _ = writeln!(text, "    {side}['{alias}'] tensor_info:");
            let _ = writeln!(text, "        dtype: {}", dtype(endpoint));
            let _ = writeln!(text, "        shape: {}", shape(endpoint));
            let _ = writeln!(text, "        name: {}", endpoint.tensor);
        }
    }
    let _ = writeln!(text, "  Method name is: {}", signature.method);
    text
}

fn dtype(endpoint: &Endpoint) -> &'static str {
    let number = endpoint.spec.dtype.number();
    DataType::try_from(number).unwrap_or(DataType::DtInvalid).as_str_name()
}

fn shape(endpoint: &Endpoint) -> String {
    let Some(dims) = endpoint.spec.dims() else { return "unknown_rank".to_owned() };
    let dims = dims.iter().map(|dim| dim.known().unwrap_or(-1).to_string());
    format!("({})", dims.collect::<Vec<_>>().join(", "))
}

/// The ops that are there most often.
fn ops(ops: &BTreeMap<String, usize>) -> String {
    let mut all: Vec<_> = ops.iter().collect();
    all.sort_by(|a, b| b.1.cmp(a.1).then_with(|| a.0.cmp(b.0)));
    let shown = all.iter().take(OPS_MAX).map(|(op, count)| format!("{op} ×{count}"));
    let mut text = shown.collect::<Vec<_>>().join(", ");
    if all.len() > OPS_MAX {
        let _ = write!(text, ", and {} others (--json lists all)", all.len() - OPS_MAX);
    }
    text
}

fn weights(report: &Report) -> String {
    let (bytes, n) = (human_bytes(report.weights_bytes()), report.weights.len());
    let mut text = format!("\nweights     {bytes} in {n} variables\n");
    for (name, kind, size) in report.weights.iter().take(WEIGHTS_MAX) {
        let _ = writeln!(text, "  {:>10}  {kind:<24} {name}", human_bytes(*size));
    }
    if n > WEIGHTS_MAX {
        let _ = writeln!(text, "  and {} smaller ones (--json lists all)", n - WEIGHTS_MAX);
    }
    text
}

fn memory_table(memory: &Memory) -> String {
    let mut text = String::from("\nmemory on a device of its own\n");
    let rows = [
        ("weights", memory.weights_bytes),
        ("packed for their kernels", memory.packed_weights_bytes),
        ("everything else that stays", memory.other_bytes),
        ("most while loading", memory.load_peak_bytes),
    ];
    for (what, bytes) in rows {
        let _ = writeln!(text, "  {:>10}  {what}", human_bytes(bytes));
    }
    for plan in &memory.plans {
        let exact = if plan.is_static { "" } else { " or more" };
        let total = human_bytes(plan.total_bytes);
        let _ = writeln!(text, "  {total:>10}  altogether with batches of {}{exact}", plan.batch);
    }
    text
}
