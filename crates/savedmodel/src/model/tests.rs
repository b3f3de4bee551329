//! Models written by TensorFlow 2.21 (`tools/fixtures/savedmodel.py`), and damaged ones.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use status::Code;

use super::*;

fn testdata(path: &str) -> Storage {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/models");
    storage::open(&format!("{root}/{path}/1")).unwrap()
}

fn open(path: &str) -> SavedModel {
    SavedModel::open(&testdata(path), &["serve"]).unwrap()
}

/// A copy of a fixture that may be damaged.
fn copy(of: &str) -> tempfile::TempDir {
    fn copy_dir(from: &Path, to: &Path) {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let (path, to) = (entry.as_ref().unwrap().path(), to.join(entry.unwrap().file_name()));
            if path.is_dir() {
                copy_dir(&path, &to);
            } else {
                fs::copy(path, to).unwrap();
            }
        }
    }
    let dir = tempfile::tempdir().unwrap();
    copy_dir(testdata(of).path(), dir.path());
    dir
}

fn reopen(dir: &Path) -> Result<SavedModel> {
    SavedModel::open(&storage::open(dir.to_str().unwrap()).unwrap(), &["serve"])
}

/// Opens a directory of one file.
fn open_file(name: &str, bytes: &[u8]) -> Result<SavedModel> {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(name), bytes).unwrap();
    reopen(dir.path())
}

fn shown(endpoints: &BTreeMap<String, crate::Endpoint>) -> Vec<String> {
    endpoints.iter().map(|(alias, e)| format!("{alias} {} {}", e.tensor, e.spec)).collect()
}

#[test]
fn a_model_of_tf1_is_read() {
    let model = open("tf1_variables");
    assert_eq!(model.tensorflow_version, "2.21.0");
    assert_eq!(model.tags, BTreeSet::from(["serve".to_owned()]));
    let signature = &model.signatures["serving_default"];
    assert_eq!(signature.method, "tensorflow/serving/predict");
    assert_eq!(shown(&signature.inputs), ["x x:0 float[?,2]"]);
    assert_eq!(shown(&signature.outputs), ["y y:0 float[?,3]"]);
    assert_eq!(model.saver.as_ref().unwrap().restore_op_name, "save/restore_all");
    assert!(model.collections.contains_key("trainable_variables"));
    assert_eq!((model.init_op, model.assets), (None, vec![]));
    assert!(model.graph.node.iter().any(|node| node.op == "VariableV2"));
}

#[test]
fn a_model_of_tf2_is_read() {
    let model = open("tf2_nested");
    let names: Vec<_> = model.signatures.keys().collect();
    assert_eq!(names, ["serving_default"]);
    assert!(model.signature_defs.contains_key("__saved_model_init_op"));
    assert_eq!(model.init_op.as_deref(), Some("NoOp"));
    let signature = &model.signatures["serving_default"];
    assert_eq!(shown(&signature.inputs), ["x serving_default_x:0 float[?,2]"]);
    assert_eq!(shown(&signature.outputs), ["y StatefulPartitionedCall:0 float[?,2]"]);
    assert!(!model.graph.library.unwrap().function.is_empty());
}

#[test]
fn a_model_in_text_form_is_read() {
    let model = open("pbtxt");
    let note = model.graph.node.iter().find(|node| node.name == "note").unwrap();
    let Some(tf::attr_value::Value::Tensor(value)) = &note.attr["value"].value else { panic!() };
    assert_eq!(value.string_val, [&b"\x00\xff'\"\n"[..]]);
    assert_eq!(model.restore().unwrap().assignments.len(), 1);
}

#[test]
fn assets_of_tf1_and_tf2_are_found() {
    for (name, tensor) in [("tf1_assets", "Const:0"), ("tf2_assets", "asset_path_initializer:0")] {
        let model = open(name);
        let path = "assets/words.txt".to_owned();
        assert_eq!(model.assets, [Asset { tensor: tensor.to_owned(), path }], "{name}");
        assert!(model.init_op.is_some(), "{name}");
        let words = model.dir().read(&model.assets[0].path, 100).unwrap();
        assert_eq!(words, b"red\ngreen\nblue\n");
    }
}

#[test]
fn the_meta_graph_is_chosen_by_exactly_its_tags() {
    let dir = testdata("two_meta_graphs");
    let factor = |tags: &[&str]| {
        let model = SavedModel::open(&dir, tags).unwrap();
        assert_eq!(model.tag_sets.len(), 2);
        let node = model.graph.node.iter().find(|node| node.name == "y/y").unwrap().clone();
        let Some(tf::attr_value::Value::Tensor(value)) = &node.attr["value"].value else {
            panic!()
        };
        value.float_val[0]
    };
    assert_eq!(factor(&["serve"]), 2.0);
    assert_eq!(factor(&["gpu", "serve"]), 3.0);
    let error = SavedModel::open(&dir, &["gpu"]).unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
    assert_eq!(
        error.to_string(),
        "Could not find meta graph def matching supplied tags: { gpu }. To inspect available \
         tag-sets in the SavedModel, please use the SavedModel CLI: `saved_model_cli`"
    );
}

#[test]
fn composite_inputs_are_kept_with_the_reason_why_they_cannot_be_fed() {
    let signature = &open("tf1_composite").signatures["serving_default"];
    assert_eq!(shown(&signature.inputs), ["plain plain:0 float[]"]);
    assert_eq!(shown(&signature.outputs), ["y add:0 float[]"]);
    let reasons = |reasons: &BTreeMap<String, String>| {
        reasons.iter().map(|(alias, reason)| format!("{alias}: {reason}")).collect::<Vec<_>>()
    };
    let expected = ["ragged: it is a composite tensor", "sparse: it is a sparse tensor"];
    assert_eq!(reasons(&signature.unusable_inputs), expected);
    assert_eq!(reasons(&signature.unusable_outputs), expected[1..]);
}

#[test]
fn a_directory_without_a_model_is_refused_as_tensorflow_serving_does() {
    let dir = tempfile::tempdir().unwrap();
    let error = reopen(dir.path()).unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
    assert_eq!(
        error.to_string(),
        format!(
            "Specified file path does not appear to contain a SavedModel bundle (should have a \
             file called `saved_model.pb`)\nSpecified file path: {}",
            dir.path().display()
        )
    );
    let bundle = open_file("export.meta", b"").unwrap_err();
    assert_eq!(bundle.code(), Code::Unimplemented);
    assert_eq!(bundle.to_string(), "Session Bundle is deprecated and removed.");
    assert_eq!(open_file("saved_model.cpb", b"").unwrap_err().code(), Code::Unimplemented);
}

#[test]
fn a_model_cut_off_anywhere_is_refused() {
    let whole = testdata("tf1_variables").read("saved_model.pb", 1 << 20).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("saved_model.pb");
    fs::write(&path, &whole).unwrap();
    assert!(reopen(dir.path()).is_ok());
    let file = fs::File::options().write(true).open(&path).unwrap();
    for len in (0..whole.len()).rev() {
        file.set_len(len as u64).unwrap();
        let error = reopen(dir.path()).unwrap_err();
        assert!(matches!(error.code(), Code::DataLoss | Code::NotFound), "{len}: {error}");
    }
}

#[test]
fn flipped_bits_do_no_harm() {
    for fixture in ["tf1_partitioned", "tf2_nested", "tf2_assets"] {
        let whole = testdata(fixture).read("saved_model.pb", 1 << 20).unwrap();
        let mut random = 1_u64;
        let mut n_opened = 0;
        for _ in 0..1000 {
            let mut damaged = whole.clone();
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let bit = usize::try_from(random >> 33).unwrap() % (whole.len() * 8);
            damaged[bit / 8] ^= 1 << (bit % 8);
            let model = read_binary("saved_model.pb", damaged)
                .and_then(|model| SavedModel::choose(&testdata(fixture), model, &["serve"]));
            if let Ok(model) = model {
                n_opened += 1;
                drop(model.restore());
                drop(model.checkpoint());
            }
        }
        assert!(n_opened > 0);
    }
}

#[test]
fn a_text_with_a_mistake_is_refused_with_its_place() {
    let error = open_file("saved_model.pbtxt", b"meta_graphs {\n  graph_deff {} }").unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    assert_eq!(
        error.to_string(),
        "saved_model.pbtxt:2:3: field 'graph_deff' not found for message \
         'tensorflow.MetaGraphDef'; did you mean 'graph_def'?"
    );
    let error = open_file("saved_model.pbtxt", b"\xff").unwrap_err();
    assert_eq!(error.code(), Code::DataLoss);
}

/// Opens a model written as text, with the tag `serve` and an asset folder.
fn open_text(meta_graph: &str) -> Result<SavedModel> {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("assets")).unwrap();
    fs::write(dir.path().join("assets/there.txt"), "").unwrap();
    symlink("../../secret", dir.path().join("assets/link.txt")).unwrap();
    let text = format!("meta_graphs {{ meta_info_def {{ tags: 'serve' }} {meta_graph} }}");
    fs::write(dir.path().join("saved_model.pbtxt"), text).unwrap();
    reopen(dir.path())
}

#[track_caller]
fn check(meta_graph: &str, code: Code, expected: &str) {
    let error = open_text(meta_graph).unwrap_err();
    assert!(error.to_string().contains(expected), "{error}");
    assert_eq!(error.code(), code);
}

#[test]
fn an_asset_must_be_in_the_asset_folder() {
    let asset = |name: &str| {
        format!("asset_file_def {{ tensor_info {{ name: 'a:0' }} filename: '{name}' }}")
    };
    assert_eq!(open_text(&asset("there.txt")).unwrap().assets.len(), 1);
    let escapes = Code::InvalidArgument;
    check(&asset("../saved_model.pbtxt"), escapes, "asset of tensor \"a:0\": ../saved_model.pbtxt");
    check(&asset("../../etc/passwd"), escapes, "`..` is not allowed");
    check(&asset("/etc/passwd"), escapes, "absolute paths are not allowed");
    check(&asset("link.txt"), escapes, "link.txt: a link leads out of the directory");
    check(&asset("missing.txt"), Code::NotFound, "missing.txt: no such file");
    check("asset_file_def { filename: 'there.txt' }", escapes, "\"there.txt\": it has no tensor");
    let dir = copy("tf1_assets");
    fs::remove_file(dir.path().join("assets/words.txt")).unwrap();
    assert_eq!(reopen(dir.path()).unwrap_err().code(), Code::NotFound);
}

#[test]
fn signatures_are_checked_and_reference_dtypes_are_those_of_values() {
    let signature = |info: &str| {
        format!(
            "signature_def {{ key: 's' value {{ outputs {{ key: 'y' value {{ {info} }} }} }} }}"
        )
    };
    let output = |info: &str| open_text(&signature(info)).unwrap().signatures["s"].clone();
    let shown = |info: &str| shown(&output(info).outputs);
    assert_eq!(shown("name: 'v:0' dtype: DT_FLOAT_REF"), ["y v:0 float[]"]);
    let unknown = "name: 'v:0' dtype: DT_STRING tensor_shape { unknown_rank: true }";
    assert_eq!(shown(unknown), ["y v:0 string<unknown>"]);
    let reason = |info: &str| output(info).unusable_outputs["y"].clone();
    assert_eq!(reason("name: 'v:0' dtype: DT_RESOURCE"), "it is a resource");
    assert_eq!(reason("name: 'v:0'"), "it has the unknown dtype 0");
    assert_eq!(reason("name: 'v:0' dtype: 77"), "it has the unknown dtype 77");
    assert_eq!(reason("dtype: DT_FLOAT"), "it names no tensor");
    assert_eq!(reason("coo_sparse {} dtype: DT_FLOAT"), "it is a sparse tensor");
    check(
        &signature("name: 'v:0' dtype: DT_FLOAT tensor_shape { dim { size: -2 } }"),
        Code::InvalidArgument,
        "signature \"s\", \"y\": expected dimensions of -1 or more, got -2",
    );
    // Whether the tensor is there is for the graph to say.
    assert_eq!(shown("name: 'missing:7' dtype: DT_FLOAT"), ["y missing:7 float[]"]);
    assert!(open_text("").unwrap().signatures.is_empty());
}

#[test]
fn the_init_op_is_found_by_tensorflows_rules() {
    let list = |name: &str, nodes: &str| {
        format!("collection_def {{ key: '{name}' value {{ node_list {{ value: [{nodes}] }} }} }}")
    };
    let op = |text: &str| open_text(text).unwrap().init_op;
    assert_eq!(op(""), None);
    assert_eq!(op(&list("legacy_init_op", "'a'")).as_deref(), Some("a"));
    let both = list("legacy_init_op", "'a'") + &list("saved_model_main_op", "'b'");
    assert_eq!(op(&both).as_deref(), Some("b"));
    let signature = "signature_def { key: '__saved_model_init_op' value {
        outputs { key: '__saved_model_init_op' value { name: 'c' } } } }";
    assert_eq!(op(&format!("{both} {signature}")).as_deref(), Some("c"));
    let failed = Code::FailedPrecondition;
    check(&list("saved_model_main_op", "'a', 'b'"), failed, "Expected exactly one main op in");
    check(&list("saved_model_main_op", ""), failed, "Expected exactly one main op in");
    let empty = "signature_def { key: '__saved_model_init_op' value {} }";
    check(empty, failed, "Could not find output __saved_model_init_op");
}

#[test]
fn a_model_without_variables_has_no_checkpoint() {
    let model = open("tf1_assets");
    assert!(model.checkpoint().unwrap().is_none());
    assert!(open("tf1_variables").checkpoint().unwrap().is_some());
}
