//! `tensord predict`.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::{Server, root, tensord};

/// Runs the command with these words, in a folder; gives what it prints to both.
fn predict_in(folder: &Path, args: &[&str]) -> (bool, String, String) {
    let run = tensord().arg("predict").args(args).current_dir(folder).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (run.status.success(), text(&run.stdout), text(&run.stderr))
}

#[track_caller]
fn check(args: &[&str], expected: &str) {
    let (is_well, out, err) = predict_in(&root(), args);
    assert!(is_well && out == expected, "{args:?}: {out}{err}");
}

const HALF: &str = "models/half_plus_two";

#[test]
fn values_on_the_command_line_are_answered_on_the_screen() {
    check(&[HALF, "--input", "x=1.0,2.0"], "y  float[2,1]\n  [[2.5],\n   [3.0]]\n");
    check(&[HALF, "--input=x=[[5]]"], "y  float[1,1]\n  [[4.5]]\n");
    let json = "{\n    \"predictions\": [[2.5], [3.0]\n    ]\n}\n";
    check(&[HALF, "--json", "--input", "x=1.0,2.0"], json);
}

#[test]
fn values_and_bodies_come_from_files_too() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let model = root().join(HALF).to_string_lossy().into_owned();
    let answer = |args: &[&str]| {
        let (is_well, out, err) = predict_in(folder.path(), &[&[&*model, "--json"], args].concat());
        assert!(is_well, "{err}");
        serde_json::from_str::<Value>(&out).unwrap()
    };
    write("x.txt", "1.0, 2.0\n");
    assert_eq!(answer(&["--input", "x=@x.txt"]), json!({"predictions": [[2.5], [3.0]]}));
    write("rows.json", r#"{"instances": [{"x": [1.0]}]}"#);
    assert_eq!(answer(&["--inputs", "rows.json"]), json!({"predictions": [[2.5]]}));
    write("columns", r#"{"inputs": {"x": [[1.0]]}}"#);
    assert_eq!(answer(&["--json_inputs", "columns"]), json!({"outputs": [[2.5]]}));
    let (is_well, _, err) = predict_in(folder.path(), &[&*model, "--outputs", "y.npz"]);
    assert!(is_well && folder.path().join("y.npz").exists(), "{err}");
}

#[test]
fn inputs_are_made_up_from_the_signature_and_told() {
    let (is_well, out, err) = predict_in(&root(), &[HALF]);
    assert!(is_well && out.starts_with("y  float[1,1]\n"), "{out}{err}");
    assert!(err.contains("input x is made up: float[1,1]"), "{err}");
}

#[test]
fn what_is_wrong_with_an_input_is_told_with_what_there_is() {
    let fails = |args: &[&str], expected: &str| {
        let (is_well, _, err) = predict_in(&root(), &[&[HALF], args].concat());
        assert!(!is_well && err.contains(expected), "{args:?}: {err}");
    };
    fails(&["--input", "z=1"], "z is no input; the inputs are x");
    fails(&["--input", "x"], "expected NAME=VALUES");
    fails(&["--input", "x=one"], "input x");
    fails(&["--signature", "no"], "no signature is called no; there are");
    fails(&["--target", "localhost:1"], "--target");
}

#[test]
fn a_running_server_answers_the_same() {
    let server = Server::start(tensord(), &[&root().join("models").to_string_lossy()]);
    let target = format!("--target=localhost:{}", server.grpc);
    let args = [&*target, "--model=half_plus_two", "--input", "x=1.0,2.0"];
    check(&args, "y  float[2,1]\n  [[2.5],\n   [3.0]]\n");
    let (is_well, _, err) = predict_in(&root(), &[&*target, "--model=none"]);
    assert!(!is_well && err.contains("none"), "{err}");
}
