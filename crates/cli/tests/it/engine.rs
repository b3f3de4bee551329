//! The native engine on models of TensorFlow: assertions, deadlines, tables, state.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use device::Workspace;
use native::{Executor, Loaded, Options};
use pool::Pool;
use prost::Message;
use proto::tensorflow::NodeDef;
use proto::tensorflow::attr_value::Value;
use schedule::Lanes;
use session::Run;
use status::{Code, Status};
use tensor::{Shape, Strings, Tensor};

use crate::support::{copy, half_plus_two, root};

/// Loads the SavedModel in `dir` with this number of compute threads.
pub(crate) fn load(dir: &Path, n_threads: usize) -> Loaded {
    try_load(dir, n_threads).unwrap()
}

fn try_load(dir: &Path, n_threads: usize) -> Result<Loaded, Status> {
    let lanes =
        Lanes::start(schedule::Options { n_lanes: 1, inline_max: Duration::ZERO, run_max: None })
            .unwrap();
    let (lanes, pool) = (Arc::new(lanes), Arc::new(Pool::new(n_threads)));
    let executor = Executor { lanes, pool, device: "cpu:0".into(), pace: None };
    let options = Options { tags: vec!["serve".to_owned()], plans_max: 32 };
    native::load(&storage::open(&dir.to_string_lossy()).unwrap(), &options, &executor)
}

/// Runs a signature on its inputs, with a deadline.
pub(crate) fn run(
    loaded: &Loaded,
    signature: &str,
    inputs: Vec<Tensor>,
    deadline: Option<Instant>,
) -> Result<Vec<Tensor>, Status> {
    let n_outputs = loaded.servable.signatures[signature].outputs.len();
    let run = Run {
        signature: signature.to_owned(),
        inputs,
        outputs: (0..n_outputs).collect(),
        deadline,
        level: None,
        is_cancelled: Arc::default(),
    };
    loaded.engine.run(&run, &mut Workspace::allocate(0).unwrap())
}

fn checks() -> Loaded {
    load(&root().join("testdata/models/checks/1"), 1)
}

fn floats(values: &[f32]) -> Vec<Tensor> {
    vec![Tensor::vector(values).unwrap()]
}

#[test]
fn an_assertion_that_fails_fails_the_request_with_tensorflows_text() {
    let loaded = checks();
    let check = |signature: &str, x: &[f32], expected: &str| {
        let error = run(&loaded, signature, floats(x), None).unwrap_err();
        assert_eq!(error, Status::invalid(expected));
    };
    // The texts are TensorFlow's, but for the numbers that it adds to the names of functions.
    check(
        "positive",
        &[1.0, -2.0],
        "assertion failed: [x must be positive.  ] [Condition x > 0 did not hold element-wise:] \
         [x (x:0) = ] [1 -2]\n\t \
         [[{{function_node assert_positive_assert_less_Assert_AssertGuard_false_21}}\
         {{node assert_positive/assert_less/Assert/AssertGuard/Assert}}]]",
    );
    check(
        "nested",
        &[5.0, 200.0],
        "assertion failed: [x is large] [Condition x < y did not hold element-wise:] [x (x:0) = ] \
         [5 200] [y (assert_less/y:0) = ] [100]\n\t \
         [[{{function_node assert_less_Assert_AssertGuard_false_60}}\
         {{node assert_less/Assert/AssertGuard/Assert}}]]",
    );
    check(
        "branch",
        &[-6.0, 1.0],
        "assertion failed: [too small] [-6 1]\n\t \
         [[{{function_node cond_Assert_AssertGuard_false_110}}\
         {{node cond/Assert/AssertGuard/Assert}}]]",
    );
    assert!(
        run(&loaded, "branch", floats(&[-6.0, 10.0]), None).is_ok(),
        "it is not in that branch"
    );
}

#[test]
fn an_endless_loop_ends_with_its_deadline_and_when_nobody_waits() {
    let loaded = checks();
    let ends = run(&loaded, "count_down", floats(&[3.0]), None).unwrap();
    assert_eq!(ends[0].as_slice::<i32>(), [3]);
    let deadline = Instant::now() + Duration::from_millis(20);
    let error = run(&loaded, "count_down", floats(&[0.5]), Some(deadline)).unwrap_err();
    assert_eq!(error.code, Code::DeadlineExceeded, "{error}");
    let waits = Run {
        signature: "count_down".to_owned(),
        inputs: floats(&[0.5]),
        outputs: vec![0],
        deadline: None,
        level: None,
        is_cancelled: Arc::default(),
    };
    let flag = Arc::clone(&waits.is_cancelled);
    std::thread::scope(|scope| {
        let running =
            scope.spawn(|| loaded.engine.run(&waits, &mut Workspace::allocate(0).unwrap()));
        flag.store(true, std::sync::atomic::Ordering::Relaxed);
        let error = running.join().unwrap().unwrap_err();
        assert_eq!(error.code, Code::Cancelled, "{error}");
    });
}

#[test]
fn a_variable_is_read_before_and_after_it_changes() {
    let loaded = checks();
    for _ in 0..2 {
        let outputs = run(&loaded, "change", floats(&[1.0, 2.0]), None).unwrap();
        let (after, before) = (outputs[0].as_slice::<f32>(), outputs[1].as_slice::<f32>());
        assert_eq!((before, after), (&[10.0][..], &[13.0][..]));
    }
}

#[test]
fn a_mutable_table_has_the_entries_of_the_checkpoint() {
    let loaded = checks();
    let words = Strings::collect(["two", "none", "three"]).unwrap();
    let words = Tensor::from_strings(Shape::of(&[3]), words).unwrap();
    let outputs = run(&loaded, "lookup", vec![words], None).unwrap();
    assert_eq!(outputs[0].as_slice::<i64>(), [2, -1, 3]);
    assert_eq!(outputs[1].as_slice::<i64>(), [3]);
}

/// A copy of a SavedModel in which ops have other names.
pub(crate) fn renamed(model: &str, names: &[(&str, &str)]) -> tempfile::TempDir {
    let (from, to) = (root().join(model), tempfile::tempdir().unwrap());
    let bytes = std::fs::read(from.join("saved_model.pb")).unwrap();
    let mut saved = proto::tensorflow::SavedModel::decode(&bytes[..]).unwrap();
    let graph = saved.meta_graphs[0].graph_def.as_mut().unwrap();
    let functions = graph.library.iter_mut().flat_map(|library| &mut library.function);
    let inner = functions.flat_map(|function| &mut function.node_def);
    for node in graph.node.iter_mut().chain(inner) {
        if let Some((_, new)) = names.iter().find(|(old, _)| *old == node.op) {
            (*new).clone_into(&mut node.op);
        }
    }
    std::fs::write(to.path().join("saved_model.pb"), saved.encode_to_vec()).unwrap();
    let variables = to.path().join("variables");
    std::fs::create_dir(&variables).unwrap();
    for entry in std::fs::read_dir(from.join("variables")).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), variables.join(entry.file_name())).unwrap();
    }
    to
}

#[test]
fn a_signature_that_needs_missing_ops_is_refused_with_all_of_them_and_the_others_run() {
    let changes = [("LookupTableSizeV2", "OddSize"), ("LookupTableFindV2", "OddFind")];
    let dir = renamed("testdata/models/checks/1", &changes);
    let loaded = load(dir.path(), 1);
    let refused = &loaded.servable.refused["lookup"];
    let of = ops::usage("OddFind").n_surveyed;
    let usage = format!("used by 0 of {of} surveyed public graphs");
    let text = format!(
        "signature lookup needs ops that we do not have: OddFind (×1, {usage}), \
         OddSize (×1, {usage})"
    );
    assert_eq!(*refused, Status::unimplemented(text));
    assert!(run(&loaded, "positive", floats(&[1.0]), None).is_ok());
    assert!(loaded.servable.signature("lookup").unwrap().is_err());
}

/// A copy of `half_plus_two` that looks for some of its tensors under names that its index lacks.
fn lacking(tensors: &[&str]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    copy(&half_plus_two(), dir.path());
    let file = dir.path().join("saved_model.pb");
    let mut saved = proto::tensorflow::SavedModel::decode(&*std::fs::read(&file).unwrap()).unwrap();
    let nodes = &mut saved.meta_graphs[0].graph_def.as_mut().unwrap().node;
    let is_name = |node: &&mut NodeDef| node.name.ends_with("RestoreV2/tensor_names");
    for node in nodes.iter_mut().filter(is_name) {
        let value = node.attr.get_mut("value").and_then(|attr| attr.value.as_mut());
        let Some(Value::Tensor(names)) = value else { panic!("the names are constants") };
        for name in &mut names.string_val {
            if tensors.iter().any(|lacks| lacks.as_bytes() == &**name) {
                *name = "gone".into();
            }
        }
    }
    std::fs::write(file, saved.encode_to_vec()).unwrap();
    dir
}

#[test]
fn a_signature_whose_tensors_the_index_lacks_is_refused_and_the_others_run() {
    let loaded = load(lacking(&["c"]).path(), 1);
    assert!(run(&loaded, "serving_default", floats(&[1.0]), None).is_ok());
    let refused: Vec<&String> = loaded.servable.refused.keys().collect();
    assert_eq!(refused, ["classify_x2_to_y3", "regress_x2_to_y3", "regress_x_to_y2"]);
    let text = "signature regress_x2_to_y3: tensor \"gone\" is not in the checkpoint";
    let refused = &loaded.servable.refused["regress_x2_to_y3"];
    assert_eq!(*refused, Status::not_found(text));
    // All of them read `a`.
    let error = try_load(lacking(&["a"]).path(), 1).err().expect("it is refused");
    assert_eq!(error.code, Code::NotFound, "{error}");
    assert!(error.message.contains("serving_default"), "{error}");
}

#[test]
fn a_table_that_cannot_be_filled_from_the_checkpoint_is_refused() {
    let changes = [("MutableHashTableV2", "HashTableV2")];
    let dir = renamed("testdata/models/tables/1", &changes);
    let error = try_load(dir.path(), 1).err().expect("it is refused");
    let text = "table MutableHashTable: a HashTableV2 cannot be filled from the checkpoint";
    assert_eq!(error, Status::unimplemented(text));
}

#[test]
fn a_model_none_of_whose_signatures_can_run_is_refused_with_all_that_is_missing() {
    let changes = [("StatelessWhile", "OddWhile"), ("While", "OddWhile"), ("Const", "OddConst")];
    let dir = renamed("testdata/models/checks/1", &changes);
    let error = try_load(dir.path(), 1).err().expect("it is refused");
    assert_eq!(error.code, Code::Unimplemented, "{error}");
    let text = error.message;
    for name in ["positive", "nested", "branch", "count_down", "lookup"] {
        let wanted = format!("signature {name} needs ops that we do not have: OddConst (×");
        assert!(text.contains(&wanted), "{wanted} is not in {text}");
    }
    assert!(text.contains(", OddWhile (×1, used by 0 of "), "{text}");
}
