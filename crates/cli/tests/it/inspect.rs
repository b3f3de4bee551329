//! `tensord inspect`.

use serde_json::Value;

use crate::support::{root, tensord};

fn inspect(model: &str) -> Value {
    inspect_with(model, &[])
}

fn inspect_with(model: &str, args: &[&str]) -> Value {
    let mut command = tensord();
    let command = command.arg("inspect").arg(root().join(model)).arg("--json").args(args);
    let run = command.output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    serde_json::from_slice(&run.stdout).unwrap()
}

#[test]
fn json_tells_tags_signatures_ops_and_weights() {
    let report = inspect("models/half_plus_two");
    assert_eq!(report["tags"], serde_json::json!(["serve"]));
    let x = &report["signatures"]["serving_default"]["inputs"]["x"];
    assert_eq!((&x["dtype"], &x["tensor"]), (&"float".into(), &"x:0".into()));
    assert!(report["ops"]["Mul"].as_u64().unwrap() >= 1);
    assert_eq!(report["unsupported_ops"], serde_json::json!({}));
    assert!(report["weights_bytes"].as_u64().unwrap() >= 8);
}

#[test]
fn every_demo_model_can_be_run_altogether() {
    for model in ["half_plus_two", "half_plus_two_tf2", "digits", "sentiment", "clicks"] {
        let report = inspect(&format!("models/{model}"));
        assert_eq!(report["unsupported_ops"], serde_json::json!({}), "{model}");
    }
}

#[test]
fn a_folder_without_a_model_is_refused_with_what_was_expected() {
    let run = tensord().arg("inspect").arg(root().join("docs")).output().unwrap();
    assert!(!run.status.success());
    let text = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(text.contains("saved_model.pb"), "{text}");
}

#[test]
fn each_signature_says_whether_its_rows_are_independent_or_why_not() {
    let rows = |model: &str, signature: &str| {
        let report = inspect_with(model, &["--rows"]);
        let signature = &report["signatures"][signature];
        let why = signature["why_rows_are_mixed"].as_str().map(str::to_owned);
        assert_eq!(signature["rows_are_independent"], why.is_none(), "{report}");
        why
    };
    assert_eq!(rows("models/half_plus_two", "serving_default"), None);
    assert_eq!(rows("models/digits", "serving_default"), None);
    let why = rows("testdata/models/counter", "incr_counter").unwrap();
    assert!(why.contains("state") || why.contains("no inputs"), "{why}");
    let run =
        tensord().arg("inspect").arg(root().join("models/digits")).arg("--rows").output().unwrap();
    let text = String::from_utf8_lossy(&run.stdout).into_owned();
    assert!(text.contains("rows are independent: requests are batched"), "{text}");
}

#[test]
fn loops_of_tensorflow_1_are_no_ops_that_we_lack() {
    let report = inspect("testdata/models/tf1_control_flow");
    assert!(report["ops"]["NextIteration"].as_u64().unwrap() >= 1, "{report}");
    assert_eq!(report["unsupported_ops"], serde_json::json!({}));
    assert_eq!(report["engine"], "native");
}

#[test]
fn signatures_are_shown_as_saved_model_cli_shows_them() {
    let model = root().join("models/half_plus_two");
    let run = tensord().arg("inspect").arg(model).output().unwrap();
    let text = String::from_utf8_lossy(&run.stdout).into_owned();
    let expected = "signature_def['serving_default']:
  The given SavedModel SignatureDef contains the following input(s):
    inputs['x'] tensor_info:
        dtype: DT_FLOAT
        shape: (-1, 1)
        name: x:0
  The given SavedModel SignatureDef contains the following output(s):
    outputs['y'] tensor_info:
        dtype: DT_FLOAT
        shape: (-1, 1)
        name: y:0
  Method name is: tensorflow/serving/predict
";
    assert!(text.contains(expected), "{text}");
    assert!(text.contains("engine      native: it has every op"), "{text}");
}

#[test]
fn memory_is_predicted_for_those_who_ask() {
    assert_eq!(inspect("models/digits")["memory"], Value::Null);
    let memory = &inspect_with("models/digits", &["--memory"])["memory"];
    let bytes = |value: &Value| value.as_u64().unwrap();
    let plans = memory["plans"].as_array().unwrap();
    let total = |at: usize| bytes(&plans[at]["total_bytes"]);
    assert_eq!((bytes(&plans[0]["batch"]), bytes(&plans[6]["batch"])), (1, 64));
    assert!(bytes(&memory["weights_bytes"]) > 0 && total(0) > bytes(&memory["weights_bytes"]));
    assert!(total(6) > total(0), "{memory}");
}

#[test]
fn files_of_other_formats_are_answered_with_the_line_that_exports_them() {
    let dir = tempfile::tempdir().unwrap();
    let check = |file: &str, bytes: &[u8], line: &str| {
        let path = dir.path().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        let folder = path.parent().unwrap().to_path_buf();
        // The file itself, its folder, and the folder as something to be served.
        for (command, target) in [("inspect", &path), ("predict", &folder), ("serve", &folder)] {
            let run = tensord().arg(command).arg(target).output().unwrap();
            let text = String::from_utf8_lossy(&run.stderr).into_owned();
            assert!(!run.status.success() && text.contains(line), "{command}: {text}");
        }
    };
    check("a/model.h5", b"\x89HDF\r\n\x1a\n", "keras.models.load_model");
    check("b/model.tflite", b"\x1c\0\0\0TFL3", "TensorFlow Lite");
    check("c/1/model.onnx", b"\x08\x08\x12\x07pytorch", "onnx2tf -i");
}
