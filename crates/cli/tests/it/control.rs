//! Changes of the list of models while the server runs: by file, by signal, by API.

use std::fs;
use std::path::Path;

use proto::serving::model_server_config::Config;
use proto::serving::model_service_client::ModelServiceClient;
use proto::serving::{ModelConfig, ModelConfigList, ModelServerConfig, ReloadConfigRequest};

use crate::support::{Server, check_half_plus_two, model_server, model_with_versions, tensord};

/// A folder with models `a` and `b`, and a config file that lists some.
pub(crate) struct Files {
    pub(crate) folder: tempfile::TempDir,
}

impl Files {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for model in ["a", "b"] {
            model_with_versions(&folder.path().join("models").join(model), &[1]);
        }
        Self { folder }
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_string_lossy().into_owned()
    }

    /// Writes the config file, at once, and gives the flag that names it.
    pub(crate) fn list(&self, models: &[&str]) -> String {
        let model = |name: &&str| {
            let path = self.path(&format!("models/{name}"));
            format!("config {{ name: '{name}' base_path: '{path}' model_platform: 'tensorflow' }}")
        };
        let models: Vec<String> = models.iter().map(model).collect();
        self.write(&format!("model_config_list {{\n{}\n}}", models.join("\n")))
    }

    fn write(&self, text: &str) -> String {
        let new = self.folder.path().join("new");
        fs::write(&new, text).unwrap();
        fs::rename(new, self.folder.path().join("models.config")).unwrap();
        format!("--model_config_file={}", self.path("models.config"))
    }
}

#[track_caller]
pub(crate) fn check_gone(server: &Server, model: &str) {
    let path = format!("/v1/models/{model}:predict");
    let (status, body) = server.rest("POST", &path, r#"{"instances": [1.0]}"#);
    assert_eq!(status, 404, "{body}");
}

#[test]
fn a_config_file_that_changes_is_read_again_and_a_bad_one_is_not_taken() {
    let files = Files::new();
    let server = Server::start(tensord(), &[&files.list(&["a"])]);
    check_half_plus_two(&server, "a");
    check_gone(&server, "b");
    files.write("model_config_list {\n  config { nane: 'x' }\n}");
    let line = server.logs("the last good model config stays");
    assert!(line.contains("models.config:2:12: field 'nane' not found"), "{line}");
    check_half_plus_two(&server, "a");
    files.list(&["a", "a"]);
    server.logs("Illegal to list model a multiple times in config list");
    check_half_plus_two(&server, "a");
    files.list(&["b"]);
    server.rest_until("/v1/models/b", "AVAILABLE");
    server.rest_until("/v1/models/a", "END");
    check_half_plus_two(&server, "b");
    check_gone(&server, "a");
}

/// The loads of a model's version that the server counts.
fn n_loads(server: &Server, path: &str) -> String {
    let page = server.rest("GET", "/metrics", "").1;
    let is_it = |line: &&str| line.contains("load_attempt_count") && line.contains(path);
    let line = page.lines().find(is_it).unwrap_or_else(|| panic!("no loads of {path}"));
    line.rsplit(' ').next().unwrap().to_owned()
}

#[test]
fn the_states_of_a_model_are_answered_when_the_state_that_is_waited_for_is_there() {
    let files = Files::new();
    let server = Server::start(tensord(), &[&files.list(&["a"])]);
    // Any other query is a part of the name, as in TensorFlow Serving.
    assert_eq!(server.rest("GET", "/v1/models/a?wait=1", "").0, 404);
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| server.rest("GET", "/v1/models/b?wait=AVAILABLE", ""));
        files.list(&["a", "b"]);
        let (status, body) = asked.join().unwrap();
        assert_eq!(status, 200, "{body}");
        assert!(body.contains("\"state\": \"AVAILABLE\""), "{body}");
    });
}

#[test]
fn a_config_file_that_is_emptied_and_written_in_place_unloads_nothing() {
    let files = Files::new();
    let server = Server::start(tensord(), &[&files.list(&["a"])]);
    let path = files.path("models.config");
    let whole = fs::read_to_string(&path).unwrap();
    // Each state is there until the server has seen it.
    fs::write(&path, "").unwrap();
    server.logs("models.config lists nothing; to serve no models, say model_config_list {}");
    check_half_plus_two(&server, "a");
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    server.logs("the last good model config stays");
    check_half_plus_two(&server, "a");
    fs::write(&path, "# to be written\n").unwrap();
    server.logs("lists nothing");
    check_half_plus_two(&server, "a");
    files.list(&["a", "b"]);
    server.rest_until("/v1/models/b", "AVAILABLE");
    check_half_plus_two(&server, "a");
    assert_eq!(n_loads(&server, "models/a/1"), "1", "a was never unloaded");
    files.write("model_config_list {}");
    server.rest_until("/v1/models/a", "END");
    server.rest_until("/v1/models/b", "END");
}

#[test]
fn an_empty_config_file_unloads_nothing_at_a_hangup_and_over_grpc_all_may_go() {
    let files = Files::new();
    let server = Server::start(model_server(), &[&files.list(&["a"])]);
    fs::write(files.path("models.config"), "").unwrap();
    server.signal("HUP");
    server.logs("lists nothing");
    check_half_plus_two(&server, "a");
    reload(format!("http://127.0.0.1:{}", server.grpc), &[]).unwrap();
    server.rest_until("/v1/models/a", "END");
}

#[test]
fn a_config_file_behind_a_link_is_read_again_when_the_link_is_swapped() {
    let files = Files::new();
    // As the volumes of config maps are: the file is a link into a folder that is itself a link.
    let put = |revision: &str, models: &[&str]| {
        let dir = files.folder.path().join(revision);
        fs::create_dir(&dir).unwrap();
        files.list(models);
        fs::rename(files.path("models.config"), dir.join("models.config")).unwrap();
        let new = files.folder.path().join("..data_tmp");
        std::os::unix::fs::symlink(revision, &new).unwrap();
        fs::rename(new, files.folder.path().join("..data")).unwrap();
    };
    put("..1", &["a"]);
    let volume = tempfile::tempdir().unwrap();
    let link = volume.path().join("list");
    std::os::unix::fs::symlink(files.folder.path().join("..data/models.config"), &link).unwrap();
    let flag = format!("--model_config_file={}", link.display());
    let server = Server::start(tensord(), &[&flag]);
    check_half_plus_two(&server, "a");
    put("..2", &["a", "b"]);
    fs::remove_dir_all(files.folder.path().join("..1")).unwrap();
    server.rest_until("/v1/models/b", "AVAILABLE");
    check_half_plus_two(&server, "a");
    assert_eq!(n_loads(&server, "models/a/1"), "1", "a was never unloaded");
}

#[test]
fn a_model_that_can_never_be_served_is_refused_at_once_with_the_reason() {
    let files = Files::new();
    let devices = files.folder.path().join("devices");
    fs::write(&devices, "device { name: 'cpu:0' memory_limit: '64MiB' }").unwrap();
    let flags = [
        files.list(&["a"]),
        format!("--model_roots={}", files.path("models")),
        format!("--device_config_file={}", devices.display()),
        "--engine=native".to_owned(),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let server = Server::start(tensord(), &flags);
    let broken = files.folder.path().join("models/broken/1");
    fs::create_dir_all(&broken).unwrap();
    fs::write(broken.join("saved_model.pb"), "no model").unwrap();
    let check = |name: &str, more: &str, (status, text): (u16, &str)| {
        let path = files.path(&format!("models/{name}"));
        let body = format!("{{\"base_path\": \"{path}\"{more}}}");
        let (found, answer) = server.manage("POST", &format!("/v1/models/{name}"), &body);
        assert_eq!((found, answer.contains(text)), (status, true), "{answer}");
        // Not a second attempt is made.
        let states = server.rest("GET", &format!("/v1/models/{name}"), "").1;
        assert!(states.contains("\"END\""), "{states}");
        assert_eq!(n_loads(&server, &path), "1", "{name}");
    };
    check("broken", "", (400, "damaged, or truncated"));
    let limit = ", \"memory\": {\"limit\": \"1B\"}";
    check("b", limit, (429, "has no room"));
    check_half_plus_two(&server, "a");
}

#[test]
fn a_hangup_makes_the_config_file_be_read_again() {
    let files = Files::new();
    let server = Server::start(model_server(), &[&files.list(&["a"])]);
    files.write("{\"model_config_list\": [\n  {\"name\": 1}]}");
    server.signal("HUP");
    let line = server.logs("the last good model config stays");
    assert!(line.contains("models.config:2:"), "{line}");
    files.list(&["a", "b"]);
    server.signal("HUP");
    server.rest_until("/v1/models/b", "AVAILABLE");
    check_half_plus_two(&server, "a");
}

#[test]
fn a_config_that_cannot_be_read_at_the_start_ends_the_server_as_tensorflow_serving_does() {
    let files = Files::new();
    let flag = files.write("model_config_list {\n  config { nane: 'x' }\n}");
    let run = model_server().args([&flag, "--port=0", "--grpc_socket_path=x"]).output().unwrap();
    assert_eq!(run.status.code(), Some(255));
    let (said, log) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(said.contains("Failed to start server. Error: INVALID_ARGUMENT: Invalid protobuf"));
    let kind = "tensorflow.serving.ModelServerConfig";
    assert!(log.contains(&format!("Error parsing text-format {kind}: 2:12: ")), "{log}");
}

#[test]
fn one_model_is_added_and_removed_and_survives_a_poll_and_a_restart() {
    let files = Files::new();
    let flags = [
        files.list(&["a"]),
        format!("--model_roots={}", files.path("models")),
        format!("--state_dir={}", files.path("state")),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let server = Server::start(tensord(), &flags);
    let body = format!("{{\"base_path\": \"{}\"}}", files.path("models/b"));
    let (status, answer) = server.manage("POST", "/v1/models/b", &body);
    assert_eq!(status, 200, "{answer}");
    assert!(answer.contains("AVAILABLE"), "{answer}");
    check_half_plus_two(&server, "b");
    let (status, answer) = server.manage("DELETE", "/v1/models/a", "");
    assert_eq!(status, 200, "{answer}");
    check_gone(&server, "a");
    // Another text, the same models: what clients changed stays changed.
    files.write(&format!("# again\n{}", fs::read_to_string(files.path("models.config")).unwrap()));
    server.logs("again");
    check_half_plus_two(&server, "b");
    check_gone(&server, "a");
    drop(server);
    let server = Server::start(tensord(), &flags);
    check_half_plus_two(&server, "b");
    check_gone(&server, "a");
    let (status, _) = server.manage("DELETE", "/v1/models/a", "");
    assert_eq!(status, 404);
}

#[test]
fn clients_add_only_what_is_below_a_root_and_nothing_without_one() {
    let files = Files::new();
    let post = |server: &Server, name: &str, body: &str| {
        server.manage("POST", &format!("/v1/models/{name}"), body)
    };
    let body = format!("{{\"base_path\": \"{}\"}}", files.path("models/b"));
    let server = Server::start(tensord(), &[&files.list(&["a"])]);
    assert_eq!(post(&server, "b", &body).0, 403);
    assert_eq!(server.manage("DELETE", "/v1/models/a", "").0, 403);
    check_half_plus_two(&server, "a");
    let roots = format!("--model_roots={}", files.path("models/a"));
    let server = Server::start(tensord(), &[&files.list(&["a"]), &roots]);
    assert_eq!(post(&server, "b", &body).0, 403);
    assert_eq!(post(&server, "b", "{\"base_path\": \"/etc\"}").0, 403);
    assert_eq!(post(&server, "b", "{\"base_pat\": \"/etc\"}").0, 400);
    let logging = format!(
        "base_path: '{}' logging_config {{ log_collector_config {{ filename_prefix: '/x' }} }}",
        files.path("models/a")
    );
    assert_eq!(post(&server, "b", &logging).0, 403);
    assert_eq!(post(&server, "b", "{\"name\": \"c\", \"base_path\": \"/m\"}").0, 400);
    check_gone(&server, "b");
    // Under the other name there is no such thing unless it is asked for.
    let server = Server::start(model_server(), &[&files.list(&["a"])]);
    let (status, answer) = server.rest("POST", "/v1/models/b", &body);
    assert_eq!((status, answer.contains("Malformed request")), (400, true), "{answer}");
}

#[test]
fn paths_on_other_machines_are_refused_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    for scheme in ["s3", "gs", "https", "az"] {
        let flag = format!("--model_base_path={scheme}://bucket/model");
        let run = model_server().arg(flag).current_dir(folder.path()).output().unwrap();
        assert_eq!(run.status.code(), Some(255));
        let said = String::from_utf8_lossy(&run.stdout);
        assert!(said.contains(&format!("{scheme}:// are not supported; copy the model")), "{said}");
    }
    assert!(Path::new(folder.path()).read_dir().unwrap().next().is_none());
}

/// Name, base path and labels of a model.
pub(crate) type Listed<'a> = (&'a str, String, &'a [(&'a str, i64)]);

/// Replaces the list of models over gRPC; the code and text if it is refused.
pub(crate) fn reload(address: String, models: &[Listed<'_>]) -> Result<(), tonic::Status> {
    let config = models.iter().map(|(name, base_path, labels)| ModelConfig {
        name: (*name).to_owned(),
        base_path: base_path.clone(),
        model_platform: "tensorflow".to_owned(),
        version_labels: labels.iter().map(|(label, n)| ((*label).to_owned(), *n)).collect(),
        ..ModelConfig::default()
    });
    let list = ModelConfigList { config: config.collect() };
    let config = Some(ModelServerConfig { config: Some(Config::ModelConfigList(list)) });
    let request = ReloadConfigRequest { config, metric_names: Vec::new() };
    crate::support::block_on(async {
        let mut client = ModelServiceClient::connect(address).await.unwrap();
        client.handle_reload_config_request(request).await.map(drop)
    })
}

#[test]
fn the_whole_list_is_replaced_over_grpc_and_refused_in_the_same_words() {
    let files = Files::new();
    let server = Server::start(model_server(), &[&files.list(&["a"])]);
    let address = || format!("http://127.0.0.1:{}", server.grpc);
    let model = |name: &'static str| (name, files.path(&format!("models/{name}")), &[][..]);
    let refused = reload(address(), &[model("b"), model("b")]).unwrap_err();
    assert_eq!(refused.code(), tonic::Code::InvalidArgument);
    assert_eq!(refused.message(), "Illegal to list model b multiple times in config list");
    check_half_plus_two(&server, "a");
    reload(address(), &[model("b")]).unwrap();
    check_half_plus_two(&server, "b");
    check_gone(&server, "a");
    reload(address(), &[]).unwrap();
    check_gone(&server, "b");
}

#[test]
fn a_label_to_a_version_that_is_not_available_is_refused_under_the_other_name() {
    let files = Files::new();
    model_with_versions(&files.folder.path().join("models/a"), &[1, 2]);
    let server = Server::start(model_server(), &[&files.list(&["a"])]);
    let address = || format!("http://127.0.0.1:{}", server.grpc);
    let labelled = |version| {
        let labels: &[(&str, i64)] = if version == 2 { &[("x", 2)] } else { &[("x", 1)] };
        reload(address(), &[("a", files.path("models/a"), labels)])
    };
    let refused = labelled(1).unwrap_err();
    assert_eq!(refused.code(), tonic::Code::FailedPrecondition);
    let text = "Request to assign label to version 1 of model a, which is not currently";
    assert!(refused.message().starts_with(text), "{}", refused.message());
    check_half_plus_two(&server, "a");
    labelled(2).unwrap();
    check_half_plus_two(&server, "a/labels/x");
}

#[test]
fn a_label_may_wait_for_its_version_under_our_own_name() {
    let files = Files::new();
    let path = files.path("models/a");
    let labelled = |version: i64| {
        let labels = format!("version_labels {{ key: 'x' value: {version} }}");
        let all = "model_version_policy { all {} }";
        let model = format!("name: 'a' base_path: '{path}' {all} {labels}");
        files.write(&format!("model_config_list {{ config {{ {model} }} }}"))
    };
    let server = Server::start(tensord(), &[&labelled(1)]);
    check_half_plus_two(&server, "a/labels/x");
    labelled(2);
    server.logs("again");
    // It stays where it was until its version is there.
    check_half_plus_two(&server, "a/labels/x");
    model_with_versions(Path::new(&path), &[2]);
    server.rest_until("/v1/models/a/versions/2", "AVAILABLE");
    check_half_plus_two(&server, "a/labels/x");
    fs::remove_dir_all(Path::new(&path).join("1")).unwrap();
    server.rest_until("/v1/models/a/versions/1", "END");
    check_half_plus_two(&server, "a/labels/x");
}
