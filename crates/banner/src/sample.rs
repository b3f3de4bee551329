//! Request bodies made from signatures, and the files that hold the long ones.

use std::path::PathBuf;
use std::sync::OnceLock;

use serde_json::{Map, Value, json};
use session::{DEFAULT_SIGNATURE, Endpoint, Servable, Signature};
use tempfile::TempDir;
use tensor::DType;

/// The most elements that an input of a sample may have.
const ELEMENTS_MAX: usize = 1 << 22;

/// A JSON body that a model accepts: for its default signature, unless that takes strings, which
/// may have to be of a kind that the signature does not tell, and another does not. `None` if it
/// would be too long, a dtype has no JSON, or all take protos.
pub(crate) fn body(servable: &Servable) -> Option<String> {
    let default = servable.signatures.get(DEFAULT_SIGNATURE).into_iter();
    let others = servable.signatures.iter().filter(|(name, _)| *name != DEFAULT_SIGNATURE);
    let all: Vec<&Signature> =
        default.chain(others.map(|(_, signature)| signature)).map(|one| &**one).collect();
    let numbers = all.iter().filter(|signature| !takes_strings(signature));
    // Where one signature takes `Example`s, strings of the others are the same.
    let takes_protos = all.iter().any(|signature| takes_protos(signature));
    let strings = all.iter().filter(|one| takes_strings(one) && !takes_protos);
    numbers.chain(strings).find_map(|signature| of_signature(signature))
}

fn takes_strings(signature: &Signature) -> bool {
    signature.inputs.values().any(|input| input.spec.dtype == DType::String)
}

/// Returns whether the strings are `Example`s, by the method or by the names that exporters give
/// them.
fn takes_protos(signature: &Signature) -> bool {
    let is_example = |name: &str| name.contains("example");
    signature.method.ends_with("/classify")
        || signature.method.ends_with("/regress")
        || signature.inputs.iter().any(|(alias, input)| {
            input.spec.dtype == DType::String && (is_example(alias) || is_example(&input.tensor))
        })
}

fn of_signature(signature: &Signature) -> Option<String> {
    if signature.inputs.is_empty() {
        return None;
    }
    let rows = signature.inputs.values().all(|input| input.spec.rank().is_none_or(|rank| rank > 0));
    let skipped = usize::from(rows);
    let mut values = Map::new();
    for (alias, endpoint) in &signature.inputs {
        values.insert(alias.clone(), value(endpoint, skipped)?);
    }
    let only = values.len() == 1;
    let one = if only { values.into_iter().next()?.1 } else { Value::Object(values) };
    let mut body = if rows { json!({"instances": [one]}) } else { json!({"inputs": one}) };
    if signature.name != DEFAULT_SIGNATURE {
        body["signature_name"] = json!(signature.name);
    }
    Some(body.to_string())
}

/// A value of an input, without its first `skipped` dimensions.
fn value(endpoint: &Endpoint, skipped: usize) -> Option<Value> {
    let element = element(endpoint.spec.dtype)?;
    let dims = endpoint.spec.dims().unwrap_or_default();
    let sizes: Vec<usize> = dims.iter().skip(skipped).map(|dim| dim.size().unwrap_or(1)).collect();
    let n_elements = sizes.iter().try_fold(1usize, |n, size| n.checked_mul(*size))?;
    if n_elements > ELEMENTS_MAX {
        return None;
    }
    let nest = |inner: Value, size: &usize| Value::Array(vec![inner; *size]);
    Some(sizes.iter().rev().fold(element, nest))
}

fn element(dtype: DType) -> Option<Value> {
    match dtype {
        DType::F32 | DType::F64 => Some(json!(1.0)),
        DType::Bool => Some(json!(true)),
        DType::String => Some(json!("a good example")),
        _ if dtype.is_integer() && dtype != DType::U16 => Some(json!(1)),
        _ => None,
    }
}

/// Files of sample input in a folder of their own, which nobody else can write and which goes with
/// the server.
#[derive(Debug, Default)]
pub struct Samples {
    /// Made for the first file; nothing where none can be made.
    folder: OnceLock<Option<TempDir>>,
}

impl Samples {
    /// Writes a file, and gives its path; nothing where that cannot be done.
    pub fn save(&self, name: &str, body: &str) -> Option<String> {
        let make = || tempfile::Builder::new().prefix("tensord-").tempdir().ok();
        let path: PathBuf = self.folder.get_or_init(make).as_ref()?.path().join(name);
        std::fs::write(&path, body).ok()?;
        path.to_str().map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use tensor::{Dim, Spec};

    use super::*;

    fn signature(name: &str, method: &str, inputs: &[(&str, DType, &[i64])]) -> Signature {
        let endpoint = |(alias, dtype, dims): &(&str, DType, &[i64])| {
            let dim = |dim: &i64| if *dim < 0 { Dim::Unknown } else { Dim::Known(*dim) };
            let spec = Spec::new(*dtype, dims.iter().map(dim));
            ((*alias).to_owned(), Endpoint::new(format!("{alias}:0"), spec))
        };
        Signature {
            name: name.to_owned(),
            method: format!("tensorflow/serving/{method}"),
            inputs: inputs.iter().map(endpoint).collect(),
            outputs: [].into(),
            defaults: [].into(),
        }
    }

    #[track_caller]
    fn check(signature: &Signature, expected: Option<&str>) {
        let body = of_signature(signature).filter(|_| !takes_protos(signature));
        assert_eq!(body.as_deref(), expected);
    }

    #[test]
    fn a_body_has_a_row_of_each_input() {
        let one = signature("serving_default", "predict", &[("x", DType::F32, &[-1, 2])]);
        check(&one, Some(r#"{"instances":[[1.0,1.0]]}"#));
        let inputs = [("n", DType::I64, &[-1][..]), ("s", DType::String, &[-1][..])];
        let two = signature("other", "predict", &inputs);
        let expected = r#"{"instances":[{"n":1,"s":"a good example"}],"signature_name":"other"}"#;
        check(&two, Some(expected));
        let scalar = signature("serving_default", "predict", &[("x", DType::Bool, &[])]);
        check(&scalar, Some(r#"{"inputs":true}"#));
    }

    #[test]
    fn there_is_no_body_for_what_cannot_be_made_up() {
        let large = [("x", DType::F32, &[-1, 1 << 40, 1 << 40][..])];
        check(&signature("serving_default", "predict", &large), None);
        let protos = [("inputs", DType::String, &[-1][..])];
        check(&signature("serving_default", "classify", &protos), None);
        let protos = [("examples", DType::String, &[-1][..])];
        check(&signature("serving_default", "predict", &protos), None);
    }

    #[test]
    fn samples_go_with_the_server() {
        let samples = Samples::default();
        let path = samples.save("m.json", "{}").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{}");
        drop(samples);
        assert!(!std::path::Path::new(&path).exists());
    }
}
