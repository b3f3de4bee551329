//! Small models that other people published give what TensorFlow gives.

use testkit::zoo::{cache, small_real};

use crate::support::{copy, python, root};

/// One of the small models.
const MODEL: &str = "cvlab_mnist";

#[test]
fn small_models_that_others_published_equal_tensorflow() {
    let mut compare = small_real();
    compare.args(["--small", "--no-speed"]).arg(env!("CARGO_BIN_EXE_tensord"));
    let done = compare.output().unwrap();
    let table = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{table}{}", String::from_utf8_lossy(&done.stderr));
    let n_good = table.lines().filter(|line| line.starts_with("ok ")).count();
    assert!(n_good >= 12, "too few models were compared:\n{table}");
}

#[test]
fn a_model_that_answers_otherwise_than_tensorflow_fails_the_comparison() {
    let mut compare = small_real();
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("models").join(MODEL);
    copy(&cache().join("real").join("models").join(MODEL), &model);
    // The answers with and without oneDNN, so that they are not asked for again.
    let code = "import sys, arrays, pathlib\n\
                path = pathlib.Path(sys.argv[1])\n\
                changed = {k: a * 1.001 for k, a in arrays.load(path / 'batch1.out.npz').items()}\n\
                arrays.save(path / 'batch1.out.npz', changed)\n\
                arrays.save(path / 'batch1.alt.npz', changed)";
    let mut change = python();
    change.current_dir(root().join("tools")).args(["-c", code]);
    change.arg(model.join("golden/serving_default"));
    assert!(change.status().unwrap().success());
    compare.args([env!("CARGO_BIN_EXE_tensord"), MODEL, "--no-speed", "--folder"]);
    compare.arg(folder.path());
    let done = compare.output().unwrap();
    let table = String::from_utf8_lossy(&done.stdout);
    assert!(!done.status.success() && table.starts_with("FAILED"), "{table}");
    assert!(table.contains("batch1: ") && table.contains("differs by 0.001"), "{table}");
}

/// Each row: the boxes that were got, where TensorFlow gave 10, 20 and 30 with scores of 0.9, 0.5
/// and 0.5, and what the comparison says.
const TIES: &[([f64; 3], &str)] = &[
    ([10.0, 20.0, 30.0], "None"),
    ([10.0, 30.0, 20.0], "None"),
    ([20.0, 10.0, 30.0], "a row that TensorFlow lists is not there"),
    ([10.0, 20.0, 20.0], "a row that TensorFlow lists is not there"),
];

#[test]
fn only_rows_of_equal_scores_may_be_listed_in_another_order() {
    for (boxes, expected) in TIES {
        let code = format!(
            "import numpy as np\n\
             from zoo.verdict import moved_ties\n\
             scores = np.array([[0.9, 0.5, 0.5]])\n\
             want, got = ({{'scores': scores, 'boxes': np.array([b])}}\n\
                          for b in ([10, 20, 30], {boxes:?}))\n\
             print(moved_ties(got, want, {{'by': 'scores', 'items': ['boxes']}}))"
        );
        let mut judge = python();
        let done = judge.current_dir(root().join("tools")).args(["-c", &code]).output().unwrap();
        let said = String::from_utf8_lossy(&done.stdout);
        let problem = String::from_utf8_lossy(&done.stderr);
        assert_eq!(said.trim(), *expected, "{boxes:?} {problem}");
    }
}
