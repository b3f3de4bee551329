//! `tensord inspect`.

use serde_json::Value;

use crate::support::{root, tensord};

fn inspect(model: &str) -> Value {
    let run = tensord().arg("inspect").arg(root().join(model)).arg("--json").output().unwrap();
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
        let report = inspect(model);
        let signature = &report["signatures"][signature];
        let why = signature["why_rows_are_mixed"].as_str().map(str::to_owned);
        assert_eq!(signature["rows_are_independent"], why.is_none(), "{report}");
        why
    };
    assert_eq!(rows("models/half_plus_two", "serving_default"), None);
    assert_eq!(rows("models/digits", "serving_default"), None);
    let why = rows("testdata/models/counter", "incr_counter").unwrap();
    assert!(why.contains("state") || why.contains("no inputs"), "{why}");
    let run = tensord().arg("inspect").arg(root().join("models/digits")).output().unwrap();
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
