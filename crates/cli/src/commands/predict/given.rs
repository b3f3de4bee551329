//! The inputs of a run, as a person gives them: in a file, on the command line, or not at all.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail, ensure};
use json::{Format, Input, Inputs, Request};
use serde_json::{Value, json};
use session::Endpoint;
use status::Status;
use tensor::{DType, Shape, Spec, Tensor};

use super::Predict;
use crate::commands::inputs;
use crate::npz;

/// The inputs that a signature wants.
pub(super) struct Wanted<'a> {
    pub(super) inputs: &'a BTreeMap<String, Endpoint>,
    /// Values of inputs that may be left out.
    pub(super) defaults: &'a BTreeMap<String, Tensor>,
}

/// All inputs of a run.
pub(super) struct Given {
    /// The format of JSON that they came in, or would have.
    pub(super) format: Format,
    pub(super) inputs: BTreeMap<String, Tensor>,
}

/// Puts the inputs together. Without any, all are made up.
pub(super) fn gather(args: &Predict, wanted: &Wanted<'_>) -> Result<Given> {
    let (format, mut given) = file(args, wanted)?;
    for word in &args.values {
        let (name, text) = word.split_once('=').with_context(|| {
            format!("--input {word}: expected NAME=VALUES, as in --input x=1.0,2.0")
        })?;
        let endpoint = wanted.endpoint(name)?;
        given.insert(name.to_owned(), parse(name, endpoint, text)?);
    }
    let has_file = args.inputs.is_some() || args.json_inputs.is_some();
    let is_made_up = !has_file && args.values.is_empty();
    let mut all = BTreeMap::new();
    for (name, endpoint) in wanted.inputs {
        let value = given.remove(name).or_else(|| wanted.defaults.get(name).cloned());
        let value = match value {
            Some(value) => value,
            None if is_made_up => made_up(name, endpoint)?,
            None => {
                bail!("there are no values for input {name}: give them with --input {name}=VALUES")
            }
        };
        let dtype = endpoint.spec.dtype;
        ensure!(value.dtype() == dtype, "input {name} is {dtype}, not {}", value.dtype());
        all.insert(name.clone(), value);
    }
    if let Some(extra) = given.keys().next() {
        bail!("{extra} is no input; the inputs are {}", wanted.names());
    }
    Ok(Given { format, inputs: all })
}

impl Wanted<'_> {
    fn endpoint(&self, name: &str) -> Result<&Endpoint> {
        let known = || format!("{name} is no input; the inputs are {}", self.names());
        self.inputs.get(name).with_context(known)
    }

    fn names(&self) -> String {
        self.inputs.keys().cloned().collect::<Vec<_>>().join(", ")
    }

    /// The inputs, as JSON is read for them.
    fn to_json(&self) -> Inputs<'_> {
        Inputs::new(self.inputs.iter().map(|(name, endpoint)| Input {
            name,
            tensor: &endpoint.tensor,
            spec: &endpoint.spec,
        }))
    }
}

/// The inputs of the file, if there is one.
fn file(args: &Predict, wanted: &Wanted<'_>) -> Result<(Format, BTreeMap<String, Tensor>)> {
    let is_json = |path: &Path| path.extension().is_some_and(|extension| extension == "json");
    match (&args.json_inputs, &args.inputs) {
        (Some(path), _) => body(path, &args.signature, wanted),
        (None, Some(path)) if is_json(path) => body(path, &args.signature, wanted),
        (None, Some(path)) => Ok((Format::Columnar, npz::read(path)?)),
        (None, None) => Ok((Format::Row, BTreeMap::new())),
    }
}

/// The inputs of a request's body in a file.
fn body(
    path: &Path,
    signature: &str,
    wanted: &Wanted<'_>,
) -> Result<(Format, BTreeMap<String, Tensor>)> {
    let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let find = |name: &str| -> Result<((), Inputs<'_>), Status> {
        if !name.is_empty() && name != signature {
            let text = format!("the body is for signature {name}: give --signature {name}");
            return Err(Status::invalid(text));
        }
        Ok(((), wanted.to_json()))
    };
    let request = Request::read(&text, find)
        .map_err(|status: Status| anyhow!("{}: {}", path.display(), status.message))?;
    Ok((request.format, request.inputs))
}

/// The values of an input, from the command line or from the file that it names.
fn parse(name: &str, endpoint: &Endpoint, text: &str) -> Result<Tensor> {
    let text = match text.strip_prefix('@') {
        Some(file) if file.ends_with(".npy") => {
            let bytes = std::fs::read(file).with_context(|| format!("cannot read {file}"))?;
            return npz::npy::decode(&bytes).with_context(|| file.to_owned());
        }
        Some(file) => {
            std::fs::read_to_string(file).with_context(|| format!("cannot read {file}"))?
        }
        None => text.to_owned(),
    };
    let text = text.trim();
    let is_json = text.starts_with(['[', '{', '"']);
    let spec = &endpoint.spec;
    let value = if is_json { text.to_owned() } else { listed(text, spec) };
    let spec = Spec::unknown(spec.dtype);
    let one = || Inputs::new([Input { name, tensor: &endpoint.tensor, spec: &spec }]);
    let body = format!("{{\"inputs\": {{{}: {value}}}}}", json!(name));
    let read = Request::read(body.as_bytes(), |_| Ok::<_, Status>(((), one())));
    let mut read = read.map_err(|status| anyhow!("input {name}: {}", status.message))?;
    let tensor = read.inputs.remove(name).context("there are values for it")?;
    if is_json { Ok(tensor) } else { fitted(name, &tensor, &endpoint.spec) }
}

/// A list of values with commas between them, as JSON; a scalar for a scalar.
fn listed(text: &str, spec: &Spec) -> String {
    let element = |word: &str| match spec.dtype {
        DType::String => Value::from(word).to_string(),
        _ => word.trim().to_owned(),
    };
    if spec.rank() == Some(0) {
        return element(text);
    }
    let elements: Vec<String> = text.split(',').map(element).collect();
    format!("[{}]", elements.join(", "))
}

/// A list in the shape of the signature, whose one open dimension takes what there is.
fn fitted(name: &str, tensor: &Tensor, spec: &Spec) -> Result<Tensor> {
    let Some(dims) = spec.dims().filter(|dims| dims.len() != tensor.shape().len()) else {
        return Ok(tensor.clone());
    };
    let known: usize = dims.iter().filter_map(tensor::Dim::size).product();
    let n_elements = tensor.n_elements();
    // The rows, if several are open; the others are 1.
    let open = n_elements.checked_div(known).unwrap_or(0);
    let mut rows = Some(open);
    let sizes = dims.iter().map(|dim| dim.size().unwrap_or_else(|| rows.take().unwrap_or(1)));
    let shape = Shape::of(&sizes.collect::<Vec<_>>());
    ensure!(
        shape.n_elements() == n_elements,
        "input {name} is {spec}: {n_elements} values do not fill it; JSON, as in \
         {name}=[[1.0],[2.0]], says the shape"
    );
    Ok(tensor.reshaped(shape)?)
}

/// A value that is made up, and told of.
fn made_up(name: &str, endpoint: &Endpoint) -> Result<Tensor> {
    let value = inputs::input(endpoint, 1)?;
    eprintln!("input {name} is made up: {}{}", value.dtype(), value.shape());
    Ok(value)
}

#[cfg(test)]
mod tests {
    use tensor::Dim;

    use super::*;

    #[track_caller]
    fn check(dims: &[i64], dtype: DType, text: &str, expected: Result<&[usize], &str>) {
        let dim = |dim: &i64| if *dim < 0 { Dim::Unknown } else { Dim::Known(*dim) };
        let endpoint = Endpoint::new("x:0", Spec::new(dtype, dims.iter().map(dim)));
        match (parse("x", &endpoint, text), expected) {
            (Ok(tensor), Ok(shape)) => assert_eq!(tensor.shape().to_vec(), shape, "{text}"),
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
            (found, _) => panic!("{text}: {found:?}"),
        }
    }

    #[test]
    fn values_take_the_shape_of_their_input() {
        check(&[-1], DType::F32, "1.0,2", Ok(&[2]));
        check(&[-1, 1], DType::F32, "1.0, 2.0", Ok(&[2, 1]));
        check(&[-1, -1, 2], DType::I64, "1,2,3,4", Ok(&[2, 1, 2]));
        check(&[], DType::Bool, "true", Ok(&[]));
        check(&[-1], DType::String, "a good, example", Ok(&[2]));
        check(&[], DType::String, "one, of all", Ok(&[]));
        check(&[-1, 2], DType::F32, "[[1, 2], [3, 4], [5, 6]]", Ok(&[3, 2]));
        check(&[-1, 2], DType::F32, "1,2,3", Err("3 values do not fill it"));
        check(&[-1], DType::F32, "one", Err("input x"));
    }
}
