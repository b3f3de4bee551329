//! A row's answer does not depend on the batch it rides in, nor on the number of threads: bit for
//! bit, over random batches of rows of many models.

use std::collections::BTreeMap;
use std::path::Path;

use cli::npz;
use native::Loaded;
use tensor::{DType, Shape, Strings, Tensor};

use crate::engine::{load, run};
use crate::support::root;
use crate::zoo::small_zoo;

/// The number of random batches that each model gets.
const N_BATCHES: usize = 6;

/// The models of the zoo whose rows do not share a padding.
const ZOO: &[&str] = &[
    "bert_base",
    "bert_base_plain",
    "bidirectional",
    "conv1d",
    "conv3d",
    "convnext_tiny",
    "decoder",
    "densenet121",
    "efficientnet_b0",
    "efficientnet_v2_b0",
    "embeddings",
    "gru",
    "inception_v3",
    "jpeg",
    "lstm",
    "masked",
    "minilm",
    "minilm_plain",
    "mixed_bfloat16",
    "mixed_float16",
    "mobilenet_v2",
    "mobilenet_v3_small",
    "nasnet_mobile",
    "preprocessing",
    "resnet50",
    "resnet50_v2",
    "separable",
    "ssd",
    "tf1_frozen",
    "tf1_variables",
    "unet",
    "vgg16",
    "wide_and_deep",
    "xception",
];

/// Models of the zoo whose rows are compared but not proved to be independent, so that they are not
/// batched by default, and others; with a part of the reason.
const MIXED: &[(&str, &str)] = &[
    ("control_flow", "input steps is a scalar"),
    ("jpeg", "runs for as long as its rows say"),
    ("sequence_example", "has a width that depends on the other rows"),
    ("strings", "gives as many pieces as all rows have together"),
    ("tf1_loops", "TensorArray"),
    ("tfexample", "gives as many pieces as all rows have together"),
];

#[test]
fn models_of_all_kinds_are_proved_and_what_mixes_rows_is_refused() {
    let zoo = small_zoo();
    let why_not = |model: &str| {
        let loaded = load(&zoo.join(model).join("1"), 1);
        let rows = loaded.engine.rows("serving_default").expect("it has that signature");
        rows.as_ref().err().map(ToString::to_string)
    };
    let is_mixed = |model: &str| MIXED.iter().any(|(mixed, _)| *mixed == model);
    for model in ZOO.iter().filter(|model| !is_mixed(model)) {
        assert_eq!(why_not(model), None, "{model}");
    }
    for (model, reason) in MIXED {
        let why = why_not(model).unwrap_or_else(|| panic!("{model} is proved"));
        assert!(why.contains(reason), "{model}: {why}");
    }
}

#[test]
fn a_row_of_a_demo_model_does_not_depend_on_its_company() {
    let check_demo = |model: &str, signature: &str| {
        let golden = root().join("testdata/golden").join(model).join("1").join(signature);
        check(&root().join("models").join(model).join("1"), signature, &golden);
    };
    check_demo("digits", "serving_default");
    check_demo("clicks", "serving_default");
}

#[test]
fn a_row_of_a_small_model_of_any_kind_does_not_depend_on_its_company() {
    let zoo = small_zoo();
    for model in ZOO {
        let folder = zoo.join(model);
        check(&folder.join("1"), "serving_default", &folder.join("golden/serving_default"));
    }
}

#[track_caller]
fn check(dir: &Path, signature: &str, golden: &Path) {
    let model = Model::load(dir, signature, &golden.join("batch8.in.npz"));
    let alone: Vec<Vec<Vec<u8>>> = (0..8).map(|row| model.answers(0, &[row]).remove(0)).collect();
    assert!(alone.iter().all(|row| !row.is_empty()), "{}: no output has rows", dir.display());
    let mut random = Random(17);
    for _ in 0..N_BATCHES {
        let n_rows = 1 + random.below(12);
        let rows: Vec<usize> = (0..n_rows).map(|_| random.below(8)).collect();
        for threads in 0..model.loaded.len() {
            let answers = model.answers(threads, &rows);
            for (place, (row, answer)) in rows.iter().zip(answers).enumerate() {
                let place = format!("row {row} at {place} of {rows:?}, threads {threads}");
                assert!(answer == alone[*row], "{}: {place} differs", dir.display());
            }
        }
    }
}

/// A model with one thread and with three, and eight rows of inputs.
struct Model {
    loaded: [Loaded; 2],
    signature: String,
    inputs: BTreeMap<String, Tensor>,
}

impl Model {
    fn load(dir: &Path, signature: &str, inputs: &Path) -> Self {
        let inputs = npz::read(inputs).unwrap();
        Self { loaded: [load(dir, 1), load(dir, 3)], signature: signature.to_owned(), inputs }
    }

    /// For each of these rows, the bytes of all outputs.
    fn answers(&self, threads: usize, rows: &[usize]) -> Vec<Vec<Vec<u8>>> {
        let loaded = &self.loaded[threads];
        let names = loaded.servable.signatures[&self.signature].inputs.keys();
        let inputs = names.map(|name| pick(&self.inputs[name], rows)).collect();
        let outputs = run(loaded, &self.signature, inputs, None).unwrap();
        let of_row = |row| outputs.iter().filter_map(|out| bytes(out, row, rows.len())).collect();
        (0..rows.len()).map(of_row).collect()
    }
}

/// A tensor of some rows of another.
fn pick(tensor: &Tensor, rows: &[usize]) -> Tensor {
    let mut dims = tensor.shape().to_vec();
    let n_each = tensor.n_elements() / dims[0];
    dims[0] = rows.len();
    if tensor.dtype() == DType::String {
        let all = tensor.strings();
        let each = |row: &usize| (row * n_each..(row + 1) * n_each).map(|i| all.get(i));
        let strings = Strings::collect(rows.iter().flat_map(each)).unwrap();
        return Tensor::from_strings(Shape::of(&dims), strings).unwrap();
    }
    let width = n_each * tensor.dtype().size();
    let bytes: Vec<u8> = rows
        .iter()
        .flat_map(|row| &tensor.view().bytes()[row * width..][..width])
        .copied()
        .collect();
    Tensor::from_bytes(tensor.dtype(), Shape::of(&dims), &bytes).unwrap()
}

/// The bytes of a row of an output; nothing if the output has no rows.
fn bytes(output: &Tensor, row: usize, n_rows: usize) -> Option<Vec<u8>> {
    if output.shape().first() != Some(&n_rows) {
        return None;
    }
    let n_each = output.n_elements() / n_rows;
    if output.dtype() == DType::String {
        let strings = (row * n_each..(row + 1) * n_each).map(|i| output.strings().get(i));
        return Some(strings.collect::<Vec<_>>().join(&0));
    }
    let width = n_each * output.dtype().size();
    Some(output.view().bytes()[row * width..][..width].to_vec())
}

/// A linear congruential generator.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % n
    }
}
