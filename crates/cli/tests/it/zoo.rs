//! Models of every common kind, in small, give what TensorFlow gives.

use std::process::Command;

use cli::npz;
pub(crate) use testkit::zoo::small_zoo;

use crate::engine::{load, run};
use crate::support::{python, root};

#[test]
fn small_models_of_every_kind_equal_tensorflow_in_batches_of_one_three_and_eight() {
    let zoo = small_zoo();
    let mut compare = python();
    compare.arg(root().join("tools/zoo/compare.py")).arg(env!("CARGO_BIN_EXE_tensord")).arg(zoo);
    let table = compare.output().unwrap();
    let table = String::from_utf8_lossy(&table.stdout);
    let rows = |verdict: &str| table.lines().filter(|line| line.starts_with(verdict)).count();
    assert_eq!(rows("FAILED"), 0, "{table}");
    assert!(rows("ok ") >= 40, "too few signatures were compared:\n{table}");
    for model in NAMED {
        let of = format!("{model}/");
        let is_there = |line: &str| line.split_whitespace().any(|word| word.starts_with(&of));
        assert!(table.lines().any(is_there), "{model} was not compared:\n{table}");
    }
}

/// Each row: what TensorFlow gave, what was got, and what the comparison says, at a tolerance of
/// 1e-4 of the largest value, which is 1.
const ARGMAX: &[([f64; 3], [f64; 3], &str)] = &[
    ([1.0, 0.5, 0.0], [1.0, 0.5, 0.0], "None"),
    // Two that are as good as equal may change places.
    ([1.0, 0.99995, 0.0], [0.99996, 0.99998, 0.0], "None"),
    ([1.0, 0.99985, 0.0], [0.99992, 0.99993, 0.0], "another argmax"),
    ([1.0, 0.5, 0.0], [0.5, 1.0, 0.0], "differs by 0.5"),
];

#[test]
fn the_largest_value_may_only_move_to_one_that_tensorflow_can_hardly_tell_from_it() {
    for (want, got, expected) in ARGMAX {
        let mut judge = python();
        let code = format!(
            "import numpy as np\nfrom zoo import compare\n\
             want, got = (np.array([x], np.float32) for x in ({want:?}, {got:?}))\n\
             print(compare.judge(('a', 'b', 'c'), got, want, 1e-4)[0])"
        );
        judge.current_dir(root().join("tools")).arg("-c").arg(code);
        assert_eq!(succeed(&mut judge).trim(), *expected, "{want:?} {got:?}");
    }
}

/// The models that must match TensorFlow, whatever else does.
const NAMED: &[&str] = &[
    "mobilenet_v2",
    "mobilenet_v3_small",
    "resnet50",
    "resnet50_v2",
    "efficientnet_b0",
    "efficientnet_v2_b0",
    "inception_v3",
    "xception",
    "densenet121",
    "nasnet_mobile",
    "vgg16",
    "convnext_tiny",
    "bert_base",
    "bert_base_plain",
    "minilm",
    "minilm_plain",
    "decoder",
    "lstm",
    "gru",
    "bidirectional",
    "masked",
    "wide_and_deep",
    "unet",
    "conv1d",
    "conv3d",
    "separable",
    "ssd",
    "jpeg",
    "tfexample",
    "preprocessing",
    "keras_layers",
    "strings",
    "mixed_float16",
    "mixed_bfloat16",
    "tf1_frozen",
    "tf1_variables",
    "tf1_loops",
];

/// Small models of many kinds whose answers are floats.
const KINDS: &[&str] = &[
    "bert_base",
    "conv1d",
    "conv3d",
    "convnext_tiny",
    "densenet121",
    "efficientnet_b0",
    "gru",
    "lstm",
    "masked",
    "minilm_plain",
    "mobilenet_v2",
    "mobilenet_v3_small",
    "resnet50",
    "unet",
    "wide_and_deep",
    "xception",
];

#[test]
fn small_models_equal_tensorflow_with_the_best_instruction_set() {
    testkit::sets::use_asked(ops::use_instruction_set);
    let zoo = small_zoo();
    for model in KINDS {
        let golden = zoo.join(model).join("golden/serving_default");
        let [given, wanted] =
            ["in", "out"].map(|name| npz::read(&golden.join(format!("batch3.{name}.npz"))));
        let (given, wanted) = (given.unwrap(), wanted.unwrap());
        let loaded = load(&zoo.join(model).join("1"), 2);
        let signature = &loaded.servable.signatures["serving_default"];
        let inputs = signature.inputs.keys().map(|name| given[name].clone()).collect();
        let outputs = run(&loaded, "serving_default", inputs, None).unwrap();
        for (name, got) in signature.outputs.keys().zip(&outputs) {
            let (got, want) = (got.as_slice::<f32>(), wanted[name].as_slice::<f32>());
            let largest = want.iter().fold(0f32, |max, x| max.max(x.abs()));
            let gap = got.iter().zip(want).fold(0f32, |max, (x, y)| max.max((x - y).abs()));
            let is_right = got.len() == want.len() && gap <= 1e-4 * largest;
            assert!(is_right, "{model} {name}: {gap} apart of {largest}");
        }
    }
}

#[test]
fn small_models_equal_tensorflow_with_the_other_instruction_sets() {
    let _ = small_zoo();
    testkit::sets::run_again(
        ops::instruction_sets().into_iter().skip(1),
        &["zoo::small_models_equal_tensorflow_with_the_best_instruction_set"],
    );
}

/// Runs a command to its end, and gives its output.
fn succeed(command: &mut Command) -> String {
    let run = command.output().expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(run.status.success(), "{command:?}:\n{}{}", text(&run.stdout), text(&run.stderr));
    text(&run.stdout)
}
