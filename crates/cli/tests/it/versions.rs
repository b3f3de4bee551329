//! Versions that come, go, are half there or do not load, as clients see it; warm-up and the
//! logging of requests.

use std::fs;
use std::path::{Path, PathBuf};

use prost::Message as _;
use proto::serving::prediction_log::LogType;
use proto::serving::{ModelSpec, PredictLog, PredictRequest, PredictStreamedLog, PredictionLog};

use crate::support::{
    Server, check_half_plus_two, copy, half_plus_two, model_server, model_with_versions, root,
    tensord,
};

pub(crate) const WARMUP: &str = "assets.extra/tf_serving_warmup_requests";

/// A folder with a model `m`, in which version 1 is.
struct Model {
    folder: tempfile::TempDir,
}

impl Model {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        model_with_versions(&folder.path().join("m"), &[1]);
        Self { folder }
    }

    fn base(&self) -> PathBuf {
        self.folder.path().join("m")
    }

    fn serve(&self, flags: &[&str]) -> Server {
        let base = self.base().to_string_lossy().into_owned();
        Server::start(tensord(), &[flags, &[&base]].concat())
    }

    /// Puts a version into its place, complete, with a warm-up file.
    fn put(&self, version: i64, warmup: &[u8]) {
        let new = self.folder.path().join("new");
        copy(&half_plus_two(), &new);
        fs::create_dir_all(new.join("assets.extra")).unwrap();
        fs::write(new.join(WARMUP), warmup).unwrap();
        fs::rename(new, self.base().join(version.to_string())).unwrap();
    }
}

/// A record of a predict request to a signature, with nothing in it if that is empty.
pub(crate) fn record(signature: &str) -> Vec<u8> {
    record_of(signature, &[1.0, 2.0])
}

/// A record of a predict request with these numbers.
pub(crate) fn record_of(signature: &str, values: &[f32]) -> Vec<u8> {
    let spec = ModelSpec {
        name: "another model".to_owned(),
        signature_name: signature.to_owned(),
        ..ModelSpec::default()
    };
    let mut request = PredictRequest { model_spec: Some(spec), ..PredictRequest::default() };
    let listed: String = values.iter().map(|value| format!(" float_val: {value}")).collect();
    let shape = format!("tensor_shape {{ dim {{ size: {} }} }}", values.len());
    let x = proto::text::parse(&format!("dtype: DT_FLOAT {shape}{listed}"));
    request.inputs.insert("x".to_owned(), x.unwrap());
    let log = PredictLog { request: Some(request), ..PredictLog::default() };
    framed(Some(LogType::PredictLog(log)))
}

fn framed(log_type: Option<LogType>) -> Vec<u8> {
    let log = PredictionLog { log_type, ..PredictionLog::default() };
    savedmodel::tfrecord(&log.encode_to_vec())
}

#[test]
fn a_version_is_warmed_up_before_it_is_served() {
    let model = Model::new();
    let server = model.serve(&["--num_request_iterations_for_warmup=3"]);
    // The model's name in a record does not count, and a record without a request is skipped.
    model.put(2, &[record(""), framed(None), record("serving_default")].concat());
    let line = server.logs("warmed up");
    assert!(line.contains("n_requests=2") && line.contains("version=2"), "{line}");
    server.rest_until("/v1/models/m/versions/2", "AVAILABLE");
    check_half_plus_two(&server, "m");
    let labels = format!("{{model_path=\"{}/2\",status=\"OK\"}}", model.base().display());
    let page = server.rest("GET", "/metrics", "").1;
    for line in [
        format!(":tensorflow:serving:model_warmup_records_read{labels} 3"),
        format!(":tensorflow:serving:model_warmup_latency_count{labels} 1"),
    ] {
        assert!(page.contains(&line), "{line} is not in {page}");
    }
}

/// A version with a bad warm-up file never becomes available, and the old one serves on.
#[track_caller]
fn check_bad_warmup(warmup: &[u8], code: &str, expected: &str) {
    let model = Model::new();
    let server = model.serve(&["--max_num_load_retries=0"]);
    model.put(2, warmup);
    let body = server.rest_until("/v1/models/m/versions/2", "\"END\"");
    assert!(body.contains(code) && body.contains(expected), "{body}");
    check_half_plus_two(&server, "m");
    let (_, body) = server.rest("GET", "/v1/models/m/versions/1", "");
    assert!(body.contains("AVAILABLE"), "{body}");
    let page = server.rest("GET", "/metrics", "").1;
    let ended = format!("/2\",status=\"{code}\"}} 1");
    let has_line =
        |line: &str| line.contains("model_warmup_latency_count") && line.ends_with(&ended);
    assert!(page.lines().any(has_line), "{page}");
}

#[test]
fn a_version_that_fails_its_warm_up_is_not_served() {
    check_bad_warmup(&record("none"), "FAILED_PRECONDITION", "not found");
}

#[test]
fn a_damaged_warm_up_file_fails_the_load() {
    check_bad_warmup(b"no records", "DATA_LOSS", "is in TFRecord format");
    let no_log = savedmodel::tfrecord(b"\xff");
    check_bad_warmup(&no_log, "INVALID_ARGUMENT", "Failed to parse warmup record");
}

#[test]
fn too_many_warm_up_records_fail_the_load() {
    let text = "Number of warmup records exceeds the maximum (1000)";
    check_bad_warmup(&framed(None).repeat(1001), "INVALID_ARGUMENT", text);
}

#[test]
fn a_kind_of_record_that_is_not_replayed_fails_the_load() {
    let streamed = framed(Some(LogType::PredictStreamedLog(PredictStreamedLog::default())));
    check_bad_warmup(&streamed, "UNIMPLEMENTED", "Unsupported log_type for warmup: 7");
}

#[test]
fn warm_up_can_be_turned_off() {
    let model = Model::new();
    let server = model.serve(&["--enable_model_warmup=false"]);
    model.put(2, b"no records");
    server.rest_until("/v1/models/m/versions/2", "AVAILABLE");
}

#[test]
fn logged_requests_serve_as_a_warm_up_file() {
    let model = Model::new();
    let config = model.folder.path().join("models.config");
    let prefix = model.folder.path().join("requests").to_string_lossy().into_owned();
    let text = format!(
        "model_config_list {{ config {{ name: 'm' base_path: '{}' model_platform: 'tensorflow'
           logging_config {{ log_collector_config {{ filename_prefix: '{prefix}' }}
             sampling_config {{ sampling_rate: 1.0 }} }} }} }}",
        model.base().display()
    );
    fs::write(&config, text).unwrap();
    let flag = format!("--model_config_file={}", config.display());
    let mut server = Server::start(model_server(), &[&flag]);
    for _ in 0..3 {
        check_half_plus_two(&server, "m");
    }
    let examples = r#"{"signature_name": "classify_x_to_y", "examples": [{"x": 1.0}, {"x": 2.0}]}"#;
    let (status, body) = server.rest("POST", "/v1/models/m:classify", examples);
    assert_eq!(status, 200, "{body}");
    let examples = r#"{"signature_name": "regress_x_to_y", "examples": [{"x": 1.0}]}"#;
    let (status, body) = server.rest("POST", "/v1/models/m:regress", examples);
    assert_eq!(status, 200, "{body}");
    server.rest_until("/metrics", "request_log_count{model_name=\"m\",status_code=\"OK\"} 5");
    // A request that fails is no good warm-up.
    assert_eq!(server.rest("POST", "/v1/models/m:predict", "{}").0, 400);
    server.signal("TERM");
    assert!(server.wait().success());
    let written: Vec<PathBuf> = files_with_prefix(&prefix);
    assert_eq!(written.len(), 1, "{written:?}");
    let bytes = fs::read(&written[0]).unwrap();
    let server = model.serve(&[]);
    model.put(2, &bytes);
    let line = server.logs("warmed up");
    assert!(line.contains("n_requests=5"), "{line}");
    server.rest_until("/v1/models/m/versions/2", "AVAILABLE");
}

fn files_with_prefix(prefix: &str) -> Vec<PathBuf> {
    let folder = Path::new(prefix).parent().unwrap();
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.to_string_lossy().starts_with(&format!("{prefix}-"))).collect()
}

#[test]
fn a_version_that_is_uploaded_slowly_is_taken_when_it_is_complete() {
    let model = Model::new();
    let server = model.serve(&["--max_num_load_retries=0"]);
    let version = model.base().join("2");
    fs::create_dir(&version).unwrap();
    // Looks go by while it is empty and while it is half there.
    copy(&half_plus_two().join("variables"), &version.join("variables"));
    fs::write(version.join("saved_model.pb.part"), "half").unwrap();
    check_half_plus_two(&server, "m");
    fs::remove_file(version.join("saved_model.pb.part")).unwrap();
    fs::copy(half_plus_two().join("saved_model.pb"), version.join("saved_model.pb")).unwrap();
    server.rest_until("/v1/models/m/versions/2", "AVAILABLE");
    check_half_plus_two(&server, "m");
}

#[test]
fn a_base_path_that_vanishes_unloads_nothing_and_a_version_that_vanishes_does() {
    let model = Model::new();
    let server = model.serve(&[]);
    fs::rename(model.base(), model.folder.path().join("elsewhere")).unwrap();
    server.logs("no versions found");
    check_half_plus_two(&server, "m");
    fs::rename(model.folder.path().join("elsewhere"), model.base()).unwrap();
    fs::remove_dir_all(model.base().join("1")).unwrap();
    server.rest_until("/v1/models/m", "\"END\"");
    let (status, body) = server.rest("POST", "/v1/models/m:predict", r#"{"instances": [1.0]}"#);
    assert_eq!(status, 404, "{body}");
    assert!(body.contains("Servable not found for request: Latest(m)"), "{body}");
    // A version that comes back is loaded again.
    model_with_versions(&model.base(), &[1]);
    server.rest_until("/v1/models/m", "AVAILABLE");
    check_half_plus_two(&server, "m");
}

#[test]
fn a_version_that_vanishes_while_it_is_looked_at_leaves_the_old_one_alone() {
    let model = Model::new();
    let server = model.serve(&["--max_num_load_retries=0"]);
    // Complete by its names, but its variables are gone.
    let new = model.folder.path().join("new");
    copy(&half_plus_two(), &new);
    fs::remove_dir_all(new.join("variables")).unwrap();
    fs::create_dir(new.join("variables")).unwrap();
    let index = half_plus_two().join("variables/variables.index");
    fs::copy(index, new.join("variables/variables.index")).unwrap();
    fs::rename(new, model.base().join("2")).unwrap();
    server.rest_until("/v1/models/m/versions/2", "\"END\"");
    check_half_plus_two(&server, "m");
}

/// A version of a model of which some files are missing or cut is not served while they are, the
/// old one is, and the new one is served once they are there.
#[track_caller]
fn check_half(saved_model: &Path, damage: impl Fn(&Path), expected: &str) {
    let start = |base: &str| Server::start(tensord(), &[base, "--engine=native"]);
    check_half_with(start, saved_model, damage, expected);
}

/// The same for a server that `start` starts with the model's folder.
#[track_caller]
pub(crate) fn check_half_with(
    start: impl Fn(&str) -> Server,
    saved_model: &Path,
    damage: impl Fn(&Path),
    expected: &str,
) {
    let folder = tempfile::tempdir().unwrap();
    let (base, new) = (folder.path().join("m"), folder.path().join("new"));
    copy(saved_model, &base.join("1"));
    let server = start(&base.to_string_lossy());
    copy(saved_model, &new);
    damage(&new);
    fs::rename(new, base.join("2")).unwrap();
    server.rest_until("/v1/models/m/versions/2", expected);
    let (_, body) = server.rest("GET", "/v1/models/m/versions/1", "");
    assert!(body.contains("AVAILABLE"), "{body}");
    let (status, body) = server.rest("GET", "/v1/models/m/metadata", "");
    assert!(status == 200 && body.contains("\"version\": \"1\""), "{body}");
    copy(saved_model, &base.join("2"));
    server.rest_until("/v1/models/m/versions/2", "AVAILABLE");
    server.rest_until("/v1/models/m/versions/1", "END");
}

/// Takes a file or a folder out of a version.
pub(crate) fn remove(path: &str) -> impl Fn(&Path) {
    let path = path.to_owned();
    move |dir| match dir.join(&path).is_dir() {
        true => fs::remove_dir_all(dir.join(&path)).unwrap(),
        false => fs::remove_file(dir.join(&path)).unwrap(),
    }
}

#[test]
fn a_half_uploaded_version_leaves_the_old_one_alone_and_is_served_when_its_files_are_there() {
    let no_index = "variables/variables.index is missing";
    let data = "variables/variables.data-00000-of-00001";
    for model in [half_plus_two(), root().join("models/half_plus_two_tf2/1")] {
        check_half(&model, remove("variables"), no_index);
        check_half(&model, remove("variables/variables.index"), no_index);
        check_half(&model, remove(data), "no such file");
        let cut = |file: &'static str| {
            move |dir: &Path| {
                let bytes = fs::read(dir.join(file)).unwrap();
                fs::write(dir.join(file), &bytes[..bytes.len() / 2]).unwrap();
            }
        };
        check_half(&model, cut("saved_model.pb"), "damaged, or truncated");
        check_half(&model, cut("variables/variables.index"), "DATA_LOSS");
    }
}

#[test]
fn a_version_without_the_assets_of_its_tables_leaves_the_old_one_alone() {
    for model in ["tf1_assets", "tf2_assets"] {
        let model = root().join("testdata/models").join(model).join("1");
        check_half(&model, remove("assets"), "no such");
    }
}

#[test]
fn a_version_without_variables_needs_no_files_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().join("m");
    copy(&root().join("testdata/models/identity_dtypes/1"), &base.join("1"));
    fs::remove_dir_all(base.join("1/variables")).unwrap();
    let base = base.to_string_lossy().into_owned();
    let server = Server::start(tensord(), &[&base, "--engine=native"]);
    server.rest_until("/v1/models/m", "AVAILABLE");
}

#[test]
fn the_old_version_is_not_given_up_first_for_a_half_uploaded_one() {
    let model = Model::new();
    let server = model.serve(&["--aspired_version_policy=resource_preserving"]);
    let new = model.folder.path().join("new");
    copy(&half_plus_two(), &new);
    fs::remove_file(new.join("variables/variables.index")).unwrap();
    fs::rename(&new, model.base().join("2")).unwrap();
    server.logs("variables.index is missing");
    check_half_plus_two(&server, "m");
    let (_, body) = server.rest("GET", "/v1/models/m/versions/1", "");
    assert!(body.contains("AVAILABLE"), "{body}");
    copy(&half_plus_two(), &model.base().join("2"));
    server.rest_until("/v1/models/m/versions/2", "AVAILABLE");
    check_half_plus_two(&server, "m");
}

#[test]
fn a_load_that_is_tried_again_says_why_and_when() {
    let model = Model::new();
    fs::remove_file(model.base().join("1/variables/variables.index")).unwrap();
    let base = model.base().to_string_lossy().into_owned();
    let flags = ["--max_num_load_retries=1000", "--start_when=any", &base];
    let server = Server::spawn(tensord(), &flags);
    server.logs("Exporting HTTP/REST API at");
    let body = server.rest_until("/v1/models/m/versions/1", "variables.index is missing");
    assert!(body.contains("LOADING") && body.contains("NOT_FOUND"), "{body}");
    let (status, body) = server.rest("POST", "/v1/models/m:predict", r#"{"instances": [1.0]}"#);
    assert_eq!(status, 404, "{body}");
    for text in [
        "Servable not found for request: Latest(m)",
        "version 1 failed to load and is ",
        "tried again",
        "variables.index is missing",
    ] {
        assert!(body.contains(text), "{text} is not in {body}");
    }
    let list = server.rest("GET", "/v1/models:list", "").1;
    assert!(list.contains("variables.index is missing"), "{list}");
}

#[test]
fn strange_names_among_the_versions_are_ignored() {
    let model = Model::new();
    for name in ["1.0", "-1", "99999999999999999999", "latest", ".tmp"] {
        fs::create_dir(model.base().join(name)).unwrap();
    }
    fs::write(model.base().join("3"), "a file").unwrap();
    model_with_versions(&model.base().join("../n"), &[7]);
    fs::rename(model.base().join("../n/7"), model.base().join("007")).unwrap();
    let server = model.serve(&[]);
    let (_, body) = server.rest("GET", "/v1/models/m", "");
    assert!(body.contains("\"version\": \"7\"") && body.matches("version\":").count() == 1);
    check_half_plus_two(&server, "m");
}
