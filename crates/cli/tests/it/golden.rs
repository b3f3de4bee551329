//! `tensord predict` gives what TensorFlow gave, on every demo model and signature.

use std::path::{Path, PathBuf};

use cli::npz;
use tensor::{DType, Tensor};

use crate::support::{root, tensord};

/// The largest difference of floats, relative to the largest.
const TOLERANCE: f64 = 1e-5;

#[test]
fn predict_equals_tensorflow_on_every_model_version_and_signature() {
    let mut failures = Vec::new();
    let mut count = 0;
    for case in cases(&root().join("testdata/golden")) {
        count += 1;
        if let Err(why) = check(&case) {
            failures.push(format!("{}: {why}", case.display()));
        }
    }
    assert!(count > 40, "only {count} cases");
    assert!(failures.is_empty(), "{} of {count} failed:\n{}", failures.len(), failures.join("\n"));
}

/// All `<model>/<version>/<signature>/<case>.in.npz` below the golden folder.
pub(crate) fn cases(golden: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![golden.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && path.file_name().is_some_and(|name| name != "api") {
                folders.push(path);
            } else if path.to_string_lossy().ends_with(".in.npz") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn check(inputs: &Path) -> Result<(), String> {
    let text = |error: anyhow::Error| error.to_string();
    let signature = inputs.parent().unwrap();
    let version = signature.parent().unwrap();
    let model = version.parent().unwrap();
    let outputs = tempfile::NamedTempFile::new().unwrap();
    let run = tensord()
        .arg("predict")
        .arg(model_folder(&name(model), &name(version)))
        .arg("--signature")
        .arg(name(signature))
        .arg("--inputs")
        .arg(inputs)
        .arg("--outputs")
        .arg(outputs.path())
        .output()
        .unwrap();
    if !run.status.success() {
        return Err(String::from_utf8_lossy(&run.stderr).into_owned());
    }
    let expected = inputs.to_string_lossy().replace(".in.npz", ".out.npz");
    let expected = npz::read(Path::new(&expected)).map_err(text)?;
    let got = npz::read(outputs.path()).map_err(text)?;
    if expected.keys().ne(got.keys()) {
        return Err(format!("expected {:?} but got {:?}", expected.keys(), got.keys()));
    }
    for (alias, want) in &expected {
        same(want, &got[alias]).map_err(|why| format!("{alias}: {why}"))?;
    }
    Ok(())
}

/// The folder of a version: versions may have leading zeros.
fn model_folder(model: &str, version: &str) -> PathBuf {
    let version: i64 = version.parse().unwrap();
    let bases = [root().join("models"), root().join("testdata/models")];
    let base = bases.iter().map(|base| base.join(model)).find(|base| base.is_dir()).unwrap();
    let folders = std::fs::read_dir(base).unwrap().map(|entry| entry.unwrap().path());
    folders.into_iter().find(|path| name(path).parse() == Ok(version)).unwrap()
}

pub(crate) fn name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

pub(crate) fn same(want: &Tensor, got: &Tensor) -> Result<(), String> {
    if want.dtype() != got.dtype() || want.shape() != got.shape() {
        let like = |t: &Tensor| format!("{}{}", t.dtype(), t.shape());
        return Err(format!("expected {} but got {}", like(want), like(got)));
    }
    match want.dtype() {
        DType::String if want.strings() == got.strings() => Ok(()),
        DType::String => Err(format!("{:?} is not {:?}", got.strings(), want.strings())),
        DType::F32 => near(want.as_slice::<f32>(), got.as_slice::<f32>()),
        DType::F64 => near(want.as_slice::<f64>(), got.as_slice::<f64>()),
        _ if want.view().bytes() == got.view().bytes() => Ok(()),
        _ => Err("the bytes differ".to_owned()),
    }
}

fn near<T: Copy + Into<f64>>(want: &[T], got: &[T]) -> Result<(), String> {
    let sizes = want.iter().map(|x| (*x).into().abs()).filter(|x| x.is_finite());
    let largest = sizes.fold(0.0, f64::max);
    for (i, (x, y)) in want.iter().zip(got).enumerate() {
        let (x, y): (f64, f64) = ((*x).into(), (*y).into());
        let fine = x == y || (x.is_nan() && y.is_nan()) || (x - y).abs() <= TOLERANCE * largest;
        if !fine {
            return Err(format!("element {i}: expected {x} but got {y}"));
        }
    }
    Ok(())
}
