//! Batches of rows that are proved to be independent: each row gets the result that it gets alone,
//! bit for bit; and batched tasks go through the lanes as they should.
#![allow(
    clippy::cast_precision_loss,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::wildcard_enum_match_arm,
    reason = "made-up inputs"
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use device::Workspace;
use native::{Executor, Loaded, Options};
use pool::Pool;
use schedule::Lanes;
use session::{Batching, Engine, Run, Signature};
use tensor::{DType, Shape, Strings, Tensor};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn load(dir: &Path) -> Option<Loaded> {
    let lanes =
        Lanes::start(schedule::Options { n_lanes: 1, inline_max: Duration::ZERO, run_max: None })
            .unwrap();
    let (lanes, pool) = (Arc::new(lanes), Arc::new(Pool::new(2)));
    let executor = Executor { lanes, pool, device: "cpu:0".into(), pace: None };
    let options = Options { tags: vec!["serve".to_owned()], plans_max: 8 };
    native::load(&storage::open(&dir.to_string_lossy()).unwrap(), &options, &executor).ok()
}

/// Every version of every small model in the project.
fn versions() -> Vec<PathBuf> {
    let children = |dir: &Path| {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        paths.sort();
        paths
    };
    let models = ["models", "testdata/models"].iter().flat_map(|dir| children(&root().join(dir)));
    let dirs = models.flat_map(|model| std::iter::once(model.clone()).chain(children(&model)));
    dirs.filter(|dir| dir.join("saved_model.pb").is_file()).collect()
}

/// Inputs of `n_rows` rows, the unknown dimensions 3.
fn inputs(signature: &Signature, n_rows: usize) -> Option<Vec<Tensor>> {
    let mut state = 7u64;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 40
    };
    let mut made = Vec::new();
    for endpoint in signature.inputs.values() {
        let dims = endpoint.spec.dims()?;
        let rest = dims.iter().skip(1).map(|dim| dim.size().unwrap_or(3));
        let shape: Shape = std::iter::once(n_rows).chain(rest).collect();
        let n = shape.n_elements();
        made.push(match endpoint.spec.dtype {
            DType::F32 => {
                let values: Vec<f32> = (0..n).map(|_| next() as f32 / 8_388_608.0 - 1.0).collect();
                Tensor::from_slice(shape, &values).unwrap()
            }
            DType::I64 => {
                let values: Vec<i64> = (0..n).map(|_| (next() % 5) as i64).collect();
                Tensor::from_slice(shape, &values).unwrap()
            }
            DType::I32 => {
                let values: Vec<i32> = (0..n).map(|_| (next() % 5) as i32).collect();
                Tensor::from_slice(shape, &values).unwrap()
            }
            DType::String => {
                const WORDS: [&str; 4] = ["a good film", "bad", "", "what a long, long sentence!"];
                let strings =
                    Strings::collect((0..n).map(|_| WORDS[(next() % 4) as usize])).unwrap();
                Tensor::from_strings(shape, strings).unwrap()
            }
            _ => return None,
        });
    }
    Some(made)
}

fn run_of(signature: &Signature, inputs: Vec<Tensor>) -> Run {
    Run {
        signature: signature.name.clone(),
        inputs,
        outputs: (0..signature.outputs.len()).collect(),
        deadline: None,
        level: None,
        is_cancelled: Arc::default(),
    }
}

#[track_caller]
fn same(one: &Tensor, other: &Tensor, what: &str) {
    assert_eq!((one.dtype(), one.shape()), (other.dtype(), other.shape()), "{what}");
    if one.dtype() == DType::String {
        assert_eq!(one.strings(), other.strings(), "{what}");
    } else {
        assert_eq!(one.view().bytes(), other.view().bytes(), "{what}");
    }
}

#[test]
fn where_rows_are_independent_a_batch_is_its_rows_bit_for_bit() {
    let mut proved = Vec::new();
    for dir in versions() {
        let Some(Loaded { servable, engine }) = load(&dir) else { continue };
        for (name, signature) in &servable.signatures {
            let what = format!("{} {name}", dir.display());
            if engine.rows(name).is_none_or(Result::is_err) {
                continue;
            }
            let Some(inputs) = inputs(signature, 7) else { continue };
            let mut workspace = Workspace::allocate(0).unwrap();
            let together = engine.run(&run_of(signature, inputs.clone()), &mut workspace);
            let Ok(together) = together else { continue };
            for row in 0..7 {
                let slice = |tensor: &Tensor| batch::slice(tensor, row..row + 1).unwrap();
                let alone = run_of(signature, inputs.iter().map(slice).collect());
                let alone = engine.run(&alone, &mut workspace).unwrap();
                for (whole, alone) in together.iter().zip(&alone) {
                    same(&slice(whole), alone, &what);
                }
            }
            proved.push(what);
        }
    }
    for model in ["digits/1", "digits/2", "half_plus_two/", "half_plus_two_tf2"] {
        assert!(proved.iter().any(|what| what.contains(model)), "{model}: {proved:?}");
    }
}

/// The reason why rows of a signature are not proved to be independent; none if they are.
fn why_not(dir: &Path, signature: &str) -> Option<String> {
    let loaded = load(dir).unwrap_or_else(|| panic!("{} is not there", dir.display()));
    let rows = loaded.engine.rows(signature).expect("there is such a signature");
    rows.as_ref().err().map(ToString::to_string)
}

#[test]
fn embeddings_and_sparse_features_are_proved_and_what_shares_a_padding_is_not() {
    for signature in ["serving_default", "classify", "regress"] {
        assert_eq!(why_not(&root().join("models/clicks/1"), signature), None);
    }
    // Its sentences are filled up to the longest of the batch.
    let why = why_not(&root().join("models/sentiment/1"), "serving_default").unwrap();
    assert!(why.contains("gives as many pieces as all rows have together"), "{why}");
}

#[test]
fn a_call_that_tensorflow_batches_is_in_the_graph_like_any_other() {
    let dir = root().join("testdata/models/batch_function/1");
    let Loaded { servable, engine } = load(&dir).unwrap();
    let ops = |name: &str| {
        assert_eq!(why_not(&dir, name), None);
        let signature = &servable.signatures[name];
        let plan = engine.plan(&run_of(signature, inputs(signature, 2).unwrap())).unwrap();
        let mut ops: Vec<&str> = plan.snapshot().iter().map(|step| step.op).collect();
        ops.sort_unstable();
        ops
    };
    // Its weights are constants, and what follows the product is part of it.
    assert_eq!(ops("batched"), ["Mul", "_FusedMatMul"]);
    assert_eq!(ops("plain"), ops("batched"));
}

#[test]
fn a_model_with_state_is_never_batched() {
    for model in ["counter", "counter_tf2"] {
        let dirs: Vec<PathBuf> = versions()
            .into_iter()
            .filter(|dir| dir.to_string_lossy().contains(&format!("models/{model}/")))
            .collect();
        assert!(!dirs.is_empty());
        for dir in dirs {
            let Loaded { servable, engine } = load(&dir).unwrap();
            engine.set_batching(&Batching::Asked(options())).unwrap();
            let writers = engine.queues().into_iter().filter(|queue| queue.why_single.is_some());
            assert!(writers.count() > 0, "{:?}", servable.signatures.keys());
        }
    }
}

fn options() -> batch::Options {
    let base = batch::Options::unbatched(1);
    batch::Options { task_rows_max: 4, batch_rows_max: 4, ..base }
}

#[test]
fn batching_is_switched_while_serving() {
    let Loaded { servable, engine } = load(&root().join("models/half_plus_two/00000123")).unwrap();
    let signature = &servable.signatures["serving_default"];
    let ask = |values: &[f32]| {
        let (send, receive) = mpsc::channel();
        let input = Tensor::from_slice(Shape::of(&[values.len(), 1]), values).unwrap();
        let reply = Box::new(move |answer| drop(send.send(answer)));
        engine.start(run_of(signature, vec![input]), reply);
        let answer: status::Result<Vec<Tensor>> = receive.recv().unwrap();
        answer.map(|outputs| outputs[0].as_slice::<f32>().to_vec())
    };
    assert_eq!(ask(&[2.0, 4.0]), Ok(vec![3.0, 4.0]));
    engine.set_batching(&Batching::Asked(options())).unwrap();
    assert_eq!(ask(&[2.0, 4.0]), Ok(vec![3.0, 4.0]));
    let text = "Task size 5 is larger than maximum input batch size 4".to_owned();
    assert_eq!(ask(&[0.0; 5]), Err(status::Status::invalid(text)));
    engine.set_batching(&Batching::Proved(options())).unwrap();
    assert_eq!(ask(&[0.0; 5]), Ok(vec![2.0; 5]), "what is too large runs alone");
    let wrong = batch::Options { allowed_sizes: vec![3], ..options() };
    assert!(engine.set_batching(&Batching::Asked(wrong)).is_err());
    engine.set_batching(&Batching::Off).unwrap();
    assert_eq!(ask(&[0.0; 5]), Ok(vec![2.0; 5]));
}
