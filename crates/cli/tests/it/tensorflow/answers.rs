//! The answers are TensorFlow's.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use cli::npz;
use serde_json::{Value, json};
use tensor::{DType, Tensor};

use super::{fallback, predict, spec, with_tensorflow};
use crate::golden::{cases, name, same};
use crate::support::{Server, root, tensord};

/// Models of which TensorFlow alone has an op.
const MODELS: &[&str] =
    &["eigen", "fractional", "keeper", "sparse_matrix", "spin", "summary", "writer"];

/// A golden case: the model, the version if it is not the only one, and the signature.
struct Case {
    model: String,
    version: Option<i64>,
    signature: String,
    inputs: PathBuf,
}

impl Case {
    fn check(&self, server: &Server) -> Result<(), String> {
        let text = |error: anyhow::Error| error.to_string();
        let inputs = npz::read(&self.inputs).map_err(text)?;
        let expected = self.inputs.to_string_lossy().replace(".in.npz", ".out.npz");
        let expected = npz::read(Path::new(&expected)).map_err(text)?;
        self.check_grpc(server, &inputs, &expected).map_err(|why| format!("gRPC: {why}"))?;
        self.check_rest(server, &inputs, &expected).map_err(|why| format!("REST: {why}"))
    }

    fn check_grpc(
        &self,
        server: &Server,
        inputs: &BTreeMap<String, Tensor>,
        expected: &BTreeMap<String, Tensor>,
    ) -> Result<(), String> {
        use proto::serving::model_spec::VersionChoice;
        let mut spec = spec(&self.model, &self.signature);
        spec.version_choice = self.version.map(VersionChoice::Version);
        let inputs: Vec<(&str, Tensor)> =
            inputs.iter().map(|(alias, tensor)| (alias.as_str(), tensor.clone())).collect();
        let got = predict(server, spec, &inputs).map_err(|error| format!("{error:?}"))?;
        if expected.keys().ne(got.keys()) {
            return Err(format!("expected {:?} but got {:?}", expected.keys(), got.keys()));
        }
        for (alias, want) in expected {
            same(want, &got[alias]).map_err(|why| format!("{alias}: {why}"))?;
        }
        Ok(())
    }

    fn check_rest(
        &self,
        server: &Server,
        inputs: &BTreeMap<String, Tensor>,
        expected: &BTreeMap<String, Tensor>,
    ) -> Result<(), String> {
        // Over REST a request without inputs is refused, as TensorFlow Serving does.
        if inputs.is_empty() || !inputs.values().chain(expected.values()).all(has_json) {
            return Ok(());
        }
        let version = self.version.map(|version| format!("/versions/{version}"));
        let path = format!("/v1/models/{}{}:predict", self.model, version.unwrap_or_default());
        let inputs: BTreeMap<&String, Value> =
            inputs.iter().map(|(alias, tensor)| (alias, to_json(tensor))).collect();
        let body = json!({"signature_name": self.signature, "inputs": inputs}).to_string();
        let (status, body) = server.rest("POST", &path, &body);
        if status != 200 {
            return Err(body);
        }
        let got: Value = serde_json::from_str(&body).map_err(|error| error.to_string())?;
        for (alias, want) in expected {
            let got = if expected.len() == 1 { &got["outputs"] } else { &got["outputs"][alias] };
            near(&to_json(want), got).map_err(|why| format!("{alias}: {why}"))?;
        }
        Ok(())
    }
}

/// Returns whether a tensor can be written in JSON so that it comes back as it was.
fn has_json(tensor: &Tensor) -> bool {
    let is_text = |bytes: &[u8]| std::str::from_utf8(bytes).is_ok();
    tensor.n_elements() > 0
        && match tensor.dtype() {
            DType::F32 => tensor.as_slice::<f32>().iter().all(|x| x.is_finite()),
            DType::F64 => tensor.as_slice::<f64>().iter().all(|x| x.is_finite()),
            DType::String => tensor.strings().iter().all(is_text),
            DType::I32 | DType::I64 => true,
            _ => false,
        }
}

/// A tensor as nested lists.
fn to_json(tensor: &Tensor) -> Value {
    let flat: Vec<Value> = match tensor.dtype() {
        DType::F32 => tensor.as_slice::<f32>().iter().map(|x| json!(x)).collect(),
        DType::F64 => tensor.as_slice::<f64>().iter().map(|x| json!(x)).collect(),
        DType::I32 => tensor.as_slice::<i32>().iter().map(|x| json!(x)).collect(),
        DType::I64 => tensor.as_slice::<i64>().iter().map(|x| json!(x)).collect(),
        DType::String => tensor
            .strings()
            .iter()
            .map(|bytes| json!(std::str::from_utf8(bytes).unwrap()))
            .collect(),
        other => panic!("no JSON for {other}"),
    };
    let mut values = flat;
    for dim in tensor.shape().dims().iter().skip(1).rev() {
        values = values.chunks((*dim).max(1)).map(|row| json!(row)).collect();
    }
    if tensor.shape().rank() == 0 { values.remove(0) } else { json!(values) }
}

fn near(want: &Value, got: &Value) -> Result<(), String> {
    match (want, got) {
        (Value::Array(want), Value::Array(got)) if want.len() == got.len() => {
            want.iter().zip(got).try_for_each(|(want, got)| near(want, got))
        }
        (Value::Number(want), Value::Number(got)) => {
            let (want, got) = (want.as_f64().unwrap(), got.as_f64().unwrap());
            let fine = (want - got).abs() <= 2e-5 * want.abs().max(1.0);
            if fine { Ok(()) } else { Err(format!("expected {want} but got {got}")) }
        }
        (want, got) if want == got => Ok(()),
        (want, got) => Err(format!("expected {want} but got {got}")),
    }
}

#[track_caller]
fn check_all(server: &Server, cases: &[Case], n_least: usize) {
    assert!(cases.len() >= n_least, "only {} cases", cases.len());
    let failures: Vec<String> = cases
        .iter()
        .filter_map(|case| Some((case, case.check(server).err()?)))
        .map(|(case, why)| format!("{} {:?}: {why}", case.signature, case.inputs))
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn models_with_ops_that_only_tensorflow_has_are_served_equal_to_it() {
    let folder = fallback().to_string_lossy().into_owned();
    let server = Server::start(with_tensorflow(tensord()), &[&folder]);
    let case = |inputs: PathBuf| {
        let signature = inputs.parent().unwrap();
        let model = signature.ancestors().nth(2).unwrap();
        Case { model: name(model), version: None, signature: name(signature), inputs }
    };
    let cases: Vec<Case> = cases(&fallback()).into_iter().map(case).collect();
    check_all(&server, &cases, 10);
    let models: std::collections::BTreeSet<&str> =
        cases.iter().map(|case| case.model.as_str()).collect();
    assert!(models.len() >= 5, "{models:?}");
}

#[test]
fn every_demo_model_is_served_equal_to_tensorflow_on_tensorflow() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("models.config");
    let mut text = String::from("model_config_list {\n");
    let mut all = Vec::new();
    for inputs in cases(&root().join("testdata/golden")) {
        let signature = inputs.parent().unwrap();
        let version = signature.parent().unwrap();
        let model = name(version.parent().unwrap());
        if !root().join("models").join(&model).is_dir() {
            continue;
        }
        let line = format!(
            "config {{ name: '{model}' base_path: '{}' model_version_policy {{ all {{}} }} }}\n",
            root().join("models").join(&model).display()
        );
        if !text.contains(&line) {
            text += &line;
        }
        let (version, signature) = (name(version).parse().ok(), name(signature));
        all.push(Case { model, version, signature, inputs });
    }
    fs::write(&config, text + "}\n").unwrap();
    let flag = format!("--model_config_file={}", config.display());
    // On some processors TensorFlow's oneDNN kernels refuse batches without rows.
    let mut command = with_tensorflow(tensord());
    command.env("TF_ENABLE_ONEDNN_OPTS", "0");
    let server = Server::start(command, &[&flag, "--engine=tensorflow"]);
    check_all(&server, &all, 30);
}

#[test]
fn inspect_says_which_engine_would_serve_and_why() {
    for model in MODELS {
        let inspect = |command: std::process::Command| {
            let mut command = command;
            let output = command.arg("inspect").arg(fallback().join(model)).output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        let text = inspect(with_tensorflow(tensord()));
        assert!(text.contains("engine      tensorflow: native lacks"), "{model}: {text}");
        assert!(text.contains("surveyed public graphs"), "{model}: {text}");
    }
    let folder = tempfile::tempdir().unwrap();
    let mut without = tensord();
    // An empty folder has no Python, and so no TensorFlow.
    without.env("PATH", folder.path()).env("HOME", folder.path());
    without.env_remove("VIRTUAL_ENV").env_remove("CONDA_PREFIX").env_remove("TENSORD_TENSORFLOW");
    let output = without.arg("inspect").arg(fallback().join("eigen")).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("engine      none: native lacks"), "{text}");
    assert!(text.contains("pip install tensorflow-cpu"), "{text}");
}

#[test]
fn without_tensorflow_a_model_that_needs_it_is_refused_with_what_it_misses() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = tensord();
    command.env("PATH", folder.path()).env("HOME", folder.path());
    command.env_remove("VIRTUAL_ENV").env_remove("CONDA_PREFIX").env_remove("TENSORD_TENSORFLOW");
    command.args(["--port=0", "--rest_api_port=0", "--max_num_load_retries=0"]);
    let output = command.arg(fallback().join("eigen")).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(text.contains("Eig (×1, used by 0 of ") && text.contains("pip install"), "{text}");
}
