//! Models of TensorFlow from which files are taken, as while they are copied.

use std::fs;
use std::path::Path;

use status::Code;

use super::*;

/// A copy of a model of the test data.
fn copy(of: &str) -> tempfile::TempDir {
    fn copy_dir(from: &Path, to: &Path) {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
            let to = to.join(entry.file_name());
            match entry.path().is_dir() {
                true => copy_dir(&entry.path(), &to),
                false => drop(fs::copy(entry.path(), to).unwrap()),
            }
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/models");
    copy_dir(&root.join(of).join("1"), dir.path());
    dir
}

fn open(dir: &Path) -> SavedModel {
    SavedModel::open(&storage::open(dir.to_str().unwrap()).unwrap(), &["serve"]).unwrap()
}

/// Checks the index and all files once `damage` was done to a model: complete, or the code of the
/// error.
#[track_caller]
fn check(of: &str, damage: impl Fn(&Path), index: Option<Code>, files: Option<Code>) {
    let dir = copy(of);
    damage(dir.path());
    let model = open(dir.path());
    assert_eq!(model.check_index().err().map(|error| error.code()), index, "index of {of}");
    assert_eq!(model.check_files().err().map(|error| error.code()), files, "files of {of}");
}

fn without(file: &str) -> impl Fn(&Path) {
    move |dir| fs::remove_file(dir.join(file)).unwrap()
}

const INDEX: &str = "variables/variables.index";
const DATA: &str = "variables/variables.data-00000-of-00001";

/// Models of TensorFlow 1 and 2, with variables of each kind, read in functions and in slices.
const WITH_VARIABLES: [&str; 7] = [
    "tf1_variables",
    "tf1_resource",
    "tf1_partitioned",
    "tf1_control_flow",
    "tf2_nested",
    "tf2_many",
    "pbtxt",
];

#[test]
fn a_model_that_reads_variables_needs_an_index() {
    for model in WITH_VARIABLES {
        check(model, |_| {}, None, None);
        let missing = Some(Code::NotFound);
        check(model, without(INDEX), missing, missing);
        let none = |dir: &Path| fs::remove_dir_all(dir.join("variables")).unwrap();
        check(model, none, missing, missing);
    }
    let dir = copy("tf2_nested");
    fs::remove_file(dir.path().join(INDEX)).unwrap();
    let text = open(dir.path()).check_index().unwrap_err().to_string();
    let (first, last) = ("variables/variables.index is missing", "the version is not complete");
    assert!(text.starts_with(first) && text.ends_with(last), "{text}");
    assert!(text.contains("signature \"serving_default\" reads \"w"), "{text}");
}

#[test]
fn a_data_file_must_be_there_and_long_enough() {
    for model in WITH_VARIABLES.iter().filter(|model| **model != "tf1_partitioned") {
        check(model, without(DATA), None, Some(Code::NotFound));
        let cut = |dir: &Path| {
            let bytes = fs::read(dir.join(DATA)).unwrap();
            fs::write(dir.join(DATA), &bytes[..1]).unwrap();
        };
        check(model, cut, None, Some(Code::DataLoss));
    }
    check("tf1_sharded", without("variables/variables.data-00001-of-00002"), None, {
        Some(Code::NotFound)
    });
}

#[test]
fn a_model_that_reads_no_variables_needs_no_files_of_them() {
    check("tf1_assets", |_| {}, None, None);
    let none = |dir: &Path| fs::remove_dir_all(dir.join("variables")).unwrap();
    check("tf1_composite", |_| {}, None, None);
    // TensorFlow 2 writes an index even if there is nothing in it that a signature reads.
    check("identity_dtypes", none, None, None);
    check("tf2_assets", none, None, None);
}

#[test]
fn a_table_that_is_restored_counts_as_a_variable() {
    check("tf2_table", |_| {}, None, None);
    check("tf2_table", without(INDEX), Some(Code::NotFound), Some(Code::NotFound));
}

/// A graph with a variable that is restored, and maybe set by an init op.
fn with_init_op(init_op: Option<&str>) -> SavedModel {
    let text = "
        node { name: 'v' op: 'VariableV2' }
        node { name: 'y' op: 'Identity' input: 'v' }
        node { name: 'zero' op: 'Const' }
        node { name: 'init' op: 'Assign' input: 'v' input: 'zero' }
        node { name: 'key' op: 'Const' attr { key: 'value' value { tensor {
          dtype: DT_STRING tensor_shape { dim { size: 1 } } string_val: 'v' } } } }
        node { name: 'part' op: 'Const' attr { key: 'value' value { tensor {
          dtype: DT_STRING tensor_shape { dim { size: 1 } } string_val: '' } } } }
        node { name: 'file' op: 'Const' }
        node { name: 'read' op: 'RestoreV2' input: 'file' input: 'key' input: 'part'
          attr { key: 'dtypes' value { list { type: DT_FLOAT } } } }
        node { name: 'restore' op: 'Assign' input: 'v' input: 'read' }";
    let dir = copy("tf1_variables");
    fs::remove_file(dir.path().join(INDEX)).unwrap();
    let mut model = open(dir.path());
    model.graph = proto::text::parse(text).unwrap();
    model.saver.as_mut().unwrap().restore_op_name = "restore".to_owned();
    model.init_op = init_op.map(str::to_owned);
    model
}

#[test]
fn a_variable_that_the_init_op_sets_needs_no_checkpoint() {
    assert_eq!(with_init_op(None).check_index().unwrap_err().code(), Code::NotFound);
    with_init_op(Some("init")).check_index().unwrap();
    // One that nothing restores has its value from elsewhere, or none as in TensorFlow.
    let mut model = with_init_op(None);
    model.saver = None;
    model.check_index().unwrap();
}

#[test]
fn a_model_whose_restore_op_cannot_be_followed_needs_an_index_if_it_reads_a_variable() {
    let unfollowed = |init_op: Option<&str>| {
        let mut model = with_init_op(init_op);
        // As for checkpoints of version 1.
        for node in model.graph.node.iter_mut().filter(|node| node.op == "RestoreV2") {
            node.op = "RestoreSlice".to_owned();
        }
        assert!(model.restore().is_err(), "it cannot be followed");
        model
    };
    let error = unfollowed(None).check_index().unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
    assert!(error.to_string().contains("reads \"v\""), "{error}");
    assert_eq!(unfollowed(None).check_files().unwrap_err().code(), Code::NotFound);
    unfollowed(Some("init")).check_index().unwrap();
    let mut model = unfollowed(None);
    model.graph.node.iter_mut().filter(|node| node.name == "y").for_each(|y| y.input.clear());
    model.check_index().unwrap();
    let mut model = unfollowed(None);
    model.saver.as_mut().unwrap().restore_op_name = "nowhere".to_owned();
    assert_eq!(model.check_index().unwrap_err().code(), Code::NotFound);
}
