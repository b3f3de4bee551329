//! API keys: over REST and gRPC, made by `tensord keys new`, and followed in their file.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use proto::serving::model_service_client::ModelServiceClient;
use proto::serving::prediction_service_client::PredictionServiceClient;
use proto::serving::{GetModelStatusRequest, PredictRequest, ReloadConfigRequest};
use tonic::Code;
use tonic::metadata::{AsciiMetadataKey, MetadataValue};

use crate::support::{Server, ask, model_with_versions, python, root, tensord};

/// The longest time that anything may take before a test gives up.
const PATIENCE: Duration = Duration::from_secs(120);

const PREDICT: &str = r#"{"instances": [1.0]}"#;

/// Makes a key as a person would; gives the key and its entry.
fn new_key(args: &[&str]) -> (String, String) {
    let run = tensord().args(["keys", "new"]).args(args).output().unwrap();
    let said = String::from_utf8(run.stderr).unwrap();
    assert!(run.status.success(), "{said}");
    let key = said.split_whitespace().find(|word| word.starts_with("tensord_"));
    (key.unwrap_or_else(|| panic!("{said}")).to_owned(), String::from_utf8(run.stdout).unwrap())
}

/// A server with models `a` and `b`, and keys.
struct Guarded {
    server: Server,
    file: PathBuf,
    folder: tempfile::TempDir,
}

impl Guarded {
    fn start(entries: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("keys.config");
        fs::write(&file, entries.join("\n")).unwrap();
        for model in ["a", "b"] {
            model_with_versions(&folder.path().join("models").join(model), &[1]);
        }
        let models = folder.path().join("models");
        let args = [
            format!("--api_keys_file={}", file.display()),
            format!("--model_roots={}", models.display()),
            "--enable_grpc_healthcheck_service".to_owned(),
            models.to_string_lossy().into_owned(),
        ];
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        Self { server: Server::start(tensord(), &args), file, folder }
    }

    /// Asks the REST port with a key; gives the status, the head and the body.
    fn ask(&self, call: (&str, &str), header: &str, body: &str) -> (u16, String, String) {
        let json = "Content-Type: application/json";
        let mut head = vec![call.0, call.1, "Host: models.example", json];
        head.extend((!header.is_empty()).then_some(header));
        ask(self.server.rest, &head, body)
    }

    #[track_caller]
    fn check(&self, call: (&str, &str), key: &str, expected: u16) {
        let header = if key.is_empty() { String::new() } else { format!("x-api-key: {key}") };
        let body = if call.1.ends_with(":predict") { PREDICT } else { "" };
        let (status, head, answer) = self.ask(call, &header, body);
        assert_eq!(status, expected, "{call:?}: {answer}");
        if status == 401 {
            assert!(head.to_lowercase().contains("www-authenticate: bearer"), "{head}");
        }
        if status >= 400 {
            assert!(answer.contains("\"error\""), "{answer}");
        }
    }
}

#[test]
fn each_call_over_rest_needs_a_key_with_its_right() {
    let (infer, infer_entry) = new_key(&["alice", "--rights", "infer", "--models", "a"]);
    let (read, read_entry) = new_key(&["bob", "--rights", "read", "--models", "b*"]);
    let (watch, watch_entry) = new_key(&["prometheus", "--rights", "read"]);
    let (manage, manage_entry) = new_key(&["carol", "--rights", "manage"]);
    let expired = ["dora", "--expires", "2020-01-01T00:00:00Z"];
    let (expired, expired_entry) = new_key(&expired);
    let guarded =
        Guarded::start(&[&infer_entry, &read_entry, &watch_entry, &manage_entry, &expired_entry]);
    let (a, b) = (("POST", "/v1/models/a:predict"), ("POST", "/v1/models/b:predict"));
    for (call, key, expected) in [
        (a, "", 401),
        (a, "tensord_wrong", 401),
        (a, &*expired, 401),
        (a, &infer, 200),
        (b, &infer, 403),
        (a, &read, 403),
        (a, &manage, 403),
        (("GET", "/v1/models/b"), "", 401),
        (("GET", "/v1/models/b"), &read, 200),
        (("GET", "/v1/models/a"), &read, 403),
        (("GET", "/v1/models/a"), &infer, 403),
        (("GET", "/v1/models/b/metadata"), &read, 200),
        (("GET", "/V1/MODELS/a/metadata"), &read, 403),
        (("GET", "/v1/nonsense"), "", 401),
        (("GET", "/v1/nonsense"), &infer, 400),
        (("GET", "/metrics"), "", 401),
        (("GET", "/metrics"), &read, 403),
        (("GET", "/metrics"), &watch, 200),
        (("GET", "/v1/memory"), &infer, 403),
        (("GET", "/v1/memory"), &watch, 200),
        (("GET", "/v1/devices"), "", 401),
        (("GET", "/v1/scheduler"), "", 401),
        (("GET", "/v1/scheduler"), &watch, 200),
        (("GET", "/healthz"), "", 200),
        (("GET", "/readyz"), "", 200),
        (("POST", "/v1/memory:trim"), "", 401),
        (("POST", "/v1/memory:trim"), &watch, 403),
        (("POST", "/v1/memory:trim"), &manage, 200),
        (("DELETE", "/v1/models/b"), &watch, 403),
        (("DELETE", "/v1/models/b"), &manage, 200),
    ] {
        guarded.check(call, key, expected);
    }
    // Who took the model away is in the log, and who tried to.
    let line = guarded.server.logs("who=127.0.0.1");
    assert!(line.contains("result=\"UNAUTHENTICATED\""), "{line}");
    let line = guarded.server.logs("who=key carol at 127.0.0.1");
    assert!(line.contains("result=\"OK\""), "{line}");
    // The list shows what a key is for; the management address wants a key too.
    let (_, _, list) = guarded.ask(("GET", "/v1/models"), &format!("x-api-key: {read}"), "");
    assert!(!list.contains("\"a\""), "{list}");
    assert_eq!(guarded.server.manage("POST", "/v1/memory:trim", "").0, 401);
    // The other header.
    let bearer = format!("Authorization: Bearer {infer}");
    assert_eq!(guarded.ask(a, &bearer, PREDICT).0, 200);
    let top = ["memory", &format!("localhost:{}", guarded.server.rest)];
    assert!(!tensord().args(top).output().unwrap().status.success());
    let run = tensord().args(top).env("TENSORD_API_KEY", &watch).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
}

fn predict(model: &str) -> PredictRequest {
    let text = format!(
        "model_spec {{ name: '{model}' }} inputs {{ key: 'x' value {{ dtype: DT_FLOAT \
         tensor_shape {{ dim {{ size: 1 }} }} float_val: 2 }} }}"
    );
    proto::text::parse(&text).unwrap()
}

/// A request with a key in a header.
fn with<T>(message: T, header: &'static str, value: &str) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    if !value.is_empty() {
        let value: MetadataValue<_> = value.parse().unwrap();
        request.metadata_mut().insert(AsciiMetadataKey::from_static(header), value);
    }
    request
}

#[tokio::test]
async fn each_call_over_grpc_needs_a_key_with_its_right() {
    let (infer, infer_entry) = new_key(&["alice", "--rights", "infer", "--models", "a"]);
    let (all, all_entry) = new_key(&["carol", "--rights", "infer,read,manage"]);
    let guarded = Guarded::start(&[&infer_entry, &all_entry]);
    let address = format!("http://127.0.0.1:{}", guarded.server.grpc);
    let mut predictions = PredictionServiceClient::connect(address.clone()).await.unwrap();
    let bearer = format!("Bearer {infer}");
    for (model, header, key, expected) in [
        ("a", "x-api-key", "", Err(Code::Unauthenticated)),
        ("a", "x-api-key", "wrong", Err(Code::Unauthenticated)),
        ("a", "x-api-key", &*infer, Ok(())),
        ("a", "authorization", &bearer, Ok(())),
        ("b", "x-api-key", &infer, Err(Code::PermissionDenied)),
        ("b", "x-api-key", &all, Ok(())),
    ] {
        let answer = predictions.predict(with(predict(model), header, key)).await;
        assert_eq!(answer.map(drop).map_err(|status| status.code()), expected, "{model} {key}");
    }
    // Each message of a stream is for a model.
    let messages = tokio_stream::iter([predict("a"), predict("b")]);
    let stream = predictions.predict_streamed(with(messages, "x-api-key", &infer)).await.unwrap();
    let mut stream = stream.into_inner();
    assert!(stream.message().await.unwrap().is_some());
    assert_eq!(stream.message().await.unwrap_err().code(), Code::PermissionDenied);
    let mut models = ModelServiceClient::connect(address.clone()).await.unwrap();
    let status: GetModelStatusRequest = proto::text::parse("model_spec { name: 'a' }").unwrap();
    let refused = models.get_model_status(with(status.clone(), "x-api-key", &infer)).await;
    assert_eq!(refused.unwrap_err().code(), Code::PermissionDenied);
    models.get_model_status(with(status, "x-api-key", &all)).await.unwrap();
    let empty = ReloadConfigRequest::default;
    for (key, expected) in [
        ("", Code::Unauthenticated),
        (&infer, Code::PermissionDenied),
        // The request itself is wrong, as somebody who may ask is told.
        (&all, Code::InvalidArgument),
    ] {
        let refused = models.handle_reload_config_request(with(empty(), "x-api-key", key)).await;
        assert_eq!(refused.unwrap_err().code(), expected, "{key}");
    }
}

/// Waits until a key is let in, or is not.
fn wait_for(guarded: &Guarded, key: &str, expected: u16) {
    let end = Instant::now() + PATIENCE;
    let call = ("POST", "/v1/models/a:predict");
    while guarded.ask(call, &format!("x-api-key: {key}"), PREDICT).0 != expected {
        assert!(Instant::now() < end, "the file is never followed");
        std::thread::yield_now();
    }
}

#[test]
fn keys_follow_their_file_and_a_damaged_one_changes_nothing() {
    let (old, old_entry) = new_key(&["old"]);
    let (new, new_entry) = new_key(&["new"]);
    let guarded = Guarded::start(&[&old_entry]);
    guarded.check(("POST", "/v1/models/a:predict"), &new, 401);
    for damaged in ["", &old_entry[..old_entry.len() - 3], "nonsense"] {
        fs::write(&guarded.file, damaged).unwrap();
        guarded.server.logs("the API keys in use are kept");
        guarded.check(("POST", "/v1/models/a:predict"), &old, 200);
    }
    fs::write(&guarded.file, new_entry).unwrap();
    wait_for(&guarded, &new, 200);
    guarded.check(("POST", "/v1/models/a:predict"), &old, 401);
    // A file that is gone changes nothing either.
    fs::remove_file(&guarded.file).unwrap();
    guarded.check(("POST", "/v1/models/a:predict"), &new, 200);
    assert!(guarded.folder.path().exists());
}

#[test]
fn a_file_of_keys_that_makes_no_sense_is_refused_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys");
    let check = |text: &str, expected: &str| {
        fs::write(&file, text).unwrap();
        let flag = format!("--api_keys_file={}", file.display());
        let run = tensord().arg(flag).arg(root().join("models/half_plus_two")).output().unwrap();
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        assert!(!run.status.success() && said.contains(expected), "{said}");
    };
    check("", "there is no key in it");
    check("keys { name: 'a' }", "sha256: expected 64 hexadecimals");
}

#[test]
fn the_python_client_of_grpc_sends_keys_as_metadata() {
    let (key, entry) = new_key(&["bob", "--rights", "read", "--models", "a"]);
    let guarded = Guarded::start(&[&entry]);
    let address = format!("localhost:{}", guarded.server.grpc);
    let script = root().join("tools/clients/keys.py");
    let run = python().arg(script).args([&address, &key]).output().unwrap();
    let errors = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{errors}");
}

#[test]
fn a_key_is_told_to_programs_with_its_entry() {
    let run = tensord().args(["keys", "new", "ada", "--json"]).output().unwrap();
    let made: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    let (key, entry) = (made["key"].as_str().unwrap(), made["entry"].as_str().unwrap());
    assert!(entry.contains("name: \"ada\"") && !entry.contains(key), "{made}");
    assert!(run.stderr.is_empty(), "{}", String::from_utf8_lossy(&run.stderr));
}
