//! Serving: which models, under which names, and what happens while they change.

use std::fs;
use std::path::Path;
use std::process::Command;

use pages::{DeviceKind, DeviceMemory, MemoryPage};
use proto::serving::{ModelSpec, PredictRequest};
use tensor::{Shape, Strings, Tensor};

use crate::page::Shown as _;
use crate::support::{Server, block_on, check_half_plus_two, copy, model_server, root, tensord};
use crate::tensorflow::{predict, spec};

fn models(name: &str) -> String {
    root().join("models").join(name).to_string_lossy().into_owned()
}

#[test]
fn serves_a_folder_of_models() {
    let server = Server::start(tensord(), &[&root().join("models").to_string_lossy()]);
    check_half_plus_two(&server, "half_plus_two");
    let (status, body) = server.rest("GET", "/v1/models/digits", "");
    assert_eq!(status, 200);
    assert!(body.contains("\"version\": \"2\"") && body.contains("AVAILABLE"), "{body}");
}

#[test]
fn serves_a_saved_model_by_itself() {
    let dir = models("half_plus_two/00000123");
    let server = Server::start(tensord(), &[&dir]);
    check_half_plus_two(&server, "half_plus_two");
    let folder = tempfile::tempdir().unwrap();
    copy(Path::new(&dir), &folder.path().join("mine"));
    let server = Server::start(tensord(), &[&folder.path().join("mine").to_string_lossy()]);
    check_half_plus_two(&server, "mine");
}

#[test]
fn takes_the_command_line_of_tensorflow_serving() {
    let args = [
        "--model_name=a".to_owned(),
        format!("--model_base_path={}", models("half_plus_two")),
        "--no_such_flag=1".to_owned(),
        "--enable_profiler=true".to_owned(),
    ];
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    check_half_plus_two(&Server::start(model_server(), &args), "a");
}

#[test]
fn names_and_base_paths_may_be_repeated() {
    let args = [
        "--model_name=a".to_owned(),
        format!("--model_base_path={}", models("half_plus_two")),
        "--model_name=b".to_owned(),
        format!("--model_base_path={}", models("half_plus_two")),
    ];
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let server = Server::start(model_server(), &args);
    check_half_plus_two(&server, "a");
    check_half_plus_two(&server, "b");
}

#[test]
fn a_model_config_file_may_be_text_or_json() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("models.config");
    let path = models("half_plus_two");
    let text = format!(
        "model_config_list: {{ config: {{ name: 'a', base_path: '{path}', model_platform: \
         \"tensorflow\" }} # one\n config {{ name: \"b\" base_path: \"{path}\" \
         model_version_policy {{ specific {{ versions: 123 }} }} }} }}"
    );
    let json = format!(
        r#"{{"model_config_list": [{{"name": "a", "base_path": "{path}"}},
            {{"name": "b", "base_path": "{path}", "model_platform": "tensorflow"}}]}}"#
    );
    for config in [text, json] {
        fs::write(&file, config).unwrap();
        let flag = format!("--model_config_file={}", file.display());
        let server = Server::start(tensord(), &[&flag]);
        check_half_plus_two(&server, "a");
        check_half_plus_two(&server, "b");
    }
}

#[test]
fn a_new_version_is_picked_up_and_the_old_one_ends() {
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().join("m");
    copy(Path::new(&models("half_plus_two/00000123")), &base.join("1"));
    let server = Server::start(tensord(), &[&base.to_string_lossy()]);
    server.rest_until("/v1/models/m", "\"version\": \"1\"");
    // As uploads should be: complete, and then under its name at once.
    copy(Path::new(&models("half_plus_two/00000123")), &folder.path().join("new"));
    fs::rename(folder.path().join("new"), base.join("2")).unwrap();
    let body = server.rest_until("/v1/models/m", "\"END\"");
    assert!(body.find("\"2\"") < body.find("\"1\""), "highest first: {body}");
    check_half_plus_two(&server, "m");
}

#[test]
fn a_damaged_new_version_leaves_the_old_one_serving() {
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().join("m");
    copy(Path::new(&models("half_plus_two/00000123")), &base.join("1"));
    let flags = ["--max_num_load_retries=0", &base.to_string_lossy()].map(str::to_owned);
    let server = Server::start(tensord(), &[&flags[0], &flags[1]]);
    copy(Path::new(&models("half_plus_two/00000123")), &folder.path().join("new"));
    let file = folder.path().join("new/saved_model.pb");
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    fs::rename(folder.path().join("new"), base.join("2")).unwrap();
    let body = server.rest_until("/v1/models/m/versions/2", "\"END\"");
    assert!(body.contains("saved_model.pb"), "{body}");
    check_half_plus_two(&server, "m");
}

#[test]
fn sigterm_ends_the_server_cleanly() {
    let mut server = Server::start(tensord(), &[&models("half_plus_two")]);
    check_half_plus_two(&server, "half_plus_two");
    server.signal("TERM");
    assert!(server.wait().success());
}

#[test]
fn nothing_to_serve_and_bad_flags_are_refused_with_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    let check = |mut command: Command, args: &[&str], expected: &str| {
        let run = command.args(args).current_dir(folder.path()).output().unwrap();
        assert!(!run.status.success());
        let text = [run.stdout, run.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        assert!(text.contains(expected), "{text}");
    };
    check(tensord(), &[], "nothing to serve");
    check(tensord(), &["--prot=1"], "--port");
    check(tensord(), &["no/such/folder"], "no/such/folder");
    check(model_server(), &[], "server_options.model_base_path");
    check(model_server(), &["--port=x"], "port");
}

#[test]
fn all_models_are_shown_with_their_states_though_only_one_can_serve() {
    let folder = tempfile::tempdir().unwrap();
    copy(Path::new(&models("half_plus_two")), &folder.path().join("good"));
    let broken = folder.path().join("broken/1");
    fs::create_dir_all(&broken).unwrap();
    fs::write(broken.join("saved_model.pb"), "not a model").unwrap();
    let folder = folder.path().to_string_lossy();
    let args = ["--max_num_load_retries=0", "--start_when=any", &folder];
    let server = Server::start(tensord(), &args);
    server.says("state");
    let shown = server.says("broken");
    let states = ["start", "loading", "failed", "waiting"];
    assert!(states.iter().any(|state| shown.contains(state)), "{shown}");
    let shown = server.says("good");
    assert!(shown.contains("123  available  ") && shown.contains("serving_default"), "{shown}");
    let line = server.says("curl -d '");
    assert!(line.contains("/v1/models/good:predict"), "{line}");
}

#[test]
fn a_counter_keeps_its_state_between_requests() {
    let folder = root().join("testdata/models/counter").to_string_lossy().into_owned();
    let server = Server::start(tensord(), &[&folder]);
    let count =
        ask_counter(&server, &["reset_counter", "incr_counter", "incr_counter", "get_counter"]);
    assert!((count - 2.0).abs() < f32::EPSILON, "{count}");
}

#[test]
fn a_counter_is_one_though_replicas_are_asked_for() {
    for model in ["counter", "counter_tf2"] {
        let base = root().join("testdata/models").join(model);
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("models.config");
        let text = format!(
            "model_config_list {{ config {{ name: 'counter' base_path: '{}' \
             memory {{ replicas: 'all' }} }} }}",
            base.display()
        );
        fs::write(&file, text).unwrap();
        let config = format!("--model_config_file={}", file.display());
        let server = Server::start(tensord(), &["--simulated_gpus=64MiB,64MiB,64MiB", &config]);
        // One after the other, and many at once.
        for _ in 0..3 {
            ask_counter(&server, &["incr_counter", "incr_counter"]);
        }
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| ask_counter(&server, &["incr_counter"; 6]));
            }
        });
        let count = ask_counter(&server, &["get_counter"]);
        assert!((count - 30.0).abs() < f32::EPSILON, "{model}: {count}");
    }
}

#[test]
fn a_table_is_one_though_replicas_are_asked_for() {
    let base = root().join("testdata/models/tables");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("models.config");
    let text = format!(
        "model_config_list {{ config {{ name: 'tables' base_path: '{}' \
         memory {{ replicas: 'all' }} }} }}",
        base.display()
    );
    fs::write(&file, text).unwrap();
    let config = format!("--model_config_file={}", file.display());
    let server = Server::start(tensord(), &["--simulated_gpus=64MiB,64MiB,64MiB", &config]);
    let ask = |signature: &str, words: &[&str]| {
        let words = Strings::collect(words).unwrap();
        let words = Tensor::from_strings(Shape::of(&[words.len()]), words).unwrap();
        let answer = predict(&server, spec("tables", signature), &[("words", words)]).unwrap();
        answer["counts"].as_slice::<i64>().to_vec()
    };
    // Each thread has a word of its own: two that count one may both read before either writes.
    let (words, ways) = (["a", "b", "c", "d"], ["count", "count_each", "count_case"]);
    std::thread::scope(|scope| {
        for word in words {
            scope.spawn(move || (0..6).for_each(|n| drop(ask(ways[n % 3], &[word]))));
        }
    });
    assert_eq!(ask("recall", &words), [6; 4]);
    let memory = MemoryPage::get(&server);
    let holds =
        |device: &&DeviceMemory| device.kind == DeviceKind::Gpu && !device.models.is_empty();
    let n_copies = memory.devices.iter().filter(holds).count();
    assert_eq!(n_copies, 1, "{memory:?}");
}

/// Asks for some signatures of the counter in turn; the last answer.
pub(crate) fn ask_counter(server: &Server, signatures: &[&str]) -> f32 {
    block_on(async {
        let mut client = server.prediction_client().await;
        let mut last = 0.0;
        for signature in signatures {
            let model_spec = Some(ModelSpec {
                name: "counter".to_owned(),
                signature_name: (*signature).to_owned(),
                ..ModelSpec::default()
            });
            let request = PredictRequest { model_spec, ..PredictRequest::default() };
            let answer = client.predict(request).await.unwrap().into_inner();
            let output = answer.outputs.values().next().unwrap();
            last = match &output.float_val[..] {
                [value] => *value,
                _ => f32::from_le_bytes(output.tensor_content[..4].try_into().unwrap()),
            };
        }
        last
    })
}
