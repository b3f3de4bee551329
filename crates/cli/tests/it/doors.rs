//! Both doors from outside: TLS, the UNIX socket, settings of gRPC, metrics.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use proto::serving::PredictRequest;
use proto::serving::prediction_service_client::PredictionServiceClient;
use rcgen::{CertificateParams, KeyPair};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};
use tonic::transport::Endpoint;

use crate::support::{Server, block_on, model_server, root, tensord};

/// The longest time that anything may take before a test gives up.
const PATIENCE: Duration = Duration::from_secs(120);

fn half_plus_two() -> String {
    root().join("models/half_plus_two").to_string_lossy().into_owned()
}
fn request() -> PredictRequest {
    proto::text::parse(
        "model_spec { name: 'half_plus_two' }
         inputs { key: 'x' value { dtype: DT_FLOAT tensor_shape { dim { size: 1 } } \
         float_val: 2 } }",
    )
    .unwrap()
}

#[test]
fn predicts_over_a_unix_socket_that_another_server_left_behind() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("grpc.sock");
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let args = [
        "--model_name=half_plus_two".to_owned(),
        format!("--model_base_path={}", half_plus_two()),
        format!("--grpc_socket_path={}", socket.display()),
        "--grpc_channel_arguments=grpc.max_connection_age_ms=2000,grpc.lb_policy_name=grpclb"
            .to_owned(),
    ];
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let _server = Server::start(model_server(), &args);
    let answer = block_on(async {
        let channel = Endpoint::from_static("http://localhost")
            .connect_with_connector(tower::service_fn(move |_| {
                let socket = socket.clone();
                async move { UnixStream::connect(socket).await.map(hyper_util::rt::TokioIo::new) }
            }))
            .await
            .unwrap();
        PredictionServiceClient::new(channel).predict(request()).await.unwrap().into_inner()
    });
    assert_eq!(answer.outputs["y"].float_val, [3.0]);
}

/// Writes an `SSLConfig` with a new key, and gives its certificate.
pub(crate) fn write_keys(file: &Path) -> CertificateDer<'static> {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let quoted = |pem: &str| format!("\"{}\"", pem.replace("\r\n", "\\n").replace('\n', "\\n"));
    let text = format!(
        "server_key: {}\nserver_cert: {}\nclient_verify: false\n",
        quoted(&key.serialize_pem()),
        quoted(&certificate.pem())
    );
    fs::write(file, text).unwrap();
    CertificateDer::from_pem_slice(certificate.pem().as_bytes()).unwrap()
}

/// Asks over TLS, trusting one certificate.
async fn ask(port: u16, certificate: CertificateDer<'static>) -> std::io::Result<String> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

#[test]
fn speaks_tls_with_the_keys_of_a_file_and_follows_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ssl.config");
    let old = write_keys(&file);
    let flag = format!("--ssl_config_file={}", file.display());
    let server = Server::start(tensord(), &[&flag, &half_plus_two()]);
    block_on(async {
        let answer = ask(server.rest, old.clone()).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        // A file that makes no sense changes nothing.
        fs::write(&file, "server_key: 'nonsense'").unwrap();
        let new = write_keys(&file);
        let end = Instant::now() + PATIENCE;
        while ask(server.rest, new.clone()).await.is_err() {
            assert!(Instant::now() < end, "the new keys are never used");
            tokio::task::yield_now().await;
        }
        ask(server.rest, old).await.unwrap_err();
    });
}

#[test]
fn a_file_of_keys_that_makes_no_sense_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ssl.config");
    for text in ["server_key: 'x'", "nonsense {", "client_verify: true"] {
        fs::write(&file, text).unwrap();
        let flag = format!("--ssl_config_file={}", file.display());
        let run = tensord().arg(flag).arg(half_plus_two()).output().unwrap();
        assert!(!run.status.success());
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        assert!(said.contains("Invalid protobuf file"), "{said}");
    }
}

/// A metrics page: the type of each metric, and its lines by name.
struct Page {
    types: BTreeMap<String, String>,
    /// The names that have a help text.
    helped: BTreeSet<String>,
    lines: Vec<(String, BTreeMap<String, String>, f64)>,
}

impl Page {
    /// Reads a page, and fails on any line that is not as it should be.
    fn read(text: &str) -> Self {
        assert!(text.ends_with('\n') && !text.ends_with("\n\n"));
        let mut page = Self { types: BTreeMap::new(), helped: BTreeSet::new(), lines: Vec::new() };
        let (mut helped, mut metric, mut kind_now) = ("", "", "");
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').unwrap();
                assert!(!help.is_empty() && page.helped.insert(name.to_owned()), "{line}");
                helped = name;
                continue;
            }
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                let earlier = page.types.insert(name.to_owned(), kind.to_owned());
                assert_eq!(earlier, None, "{line}");
                assert_eq!(page.helped.contains(name), helped == name, "{line}");
                (metric, kind_now) = (name, kind);
                continue;
            }
            let (name, rest) = line.split_once('{').unwrap_or_else(|| panic!("{line}"));
            let (labels, value) = rest.rsplit_once("} ").unwrap_or_else(|| panic!("{line}"));
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
            assert!(name.chars().all(is_name), "{line}");
            let part = name.strip_prefix(metric).unwrap_or_else(|| panic!("{line} in {metric}"));
            let parts: &[&str] =
                if kind_now == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
            assert!(parts.contains(&part), "{line} in {metric}");
            page.lines.push((name.to_owned(), parse_labels(labels), value.parse().unwrap()));
        }
        page
    }

    /// The value of a line with these labels among its own.
    fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let is_it = |(n, l, _): &&(String, BTreeMap<String, String>, f64)| {
            n == name && labels.iter().all(|(k, v)| l.get(*k).is_some_and(|value| value == v))
        };
        self.lines.iter().find(is_it).unwrap_or_else(|| panic!("no {name} {labels:?}")).2
    }
}

fn parse_labels(text: &str) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (name, after) = rest.split_once("=\"").unwrap_or_else(|| panic!("{text}"));
        let mut value = String::new();
        let mut chars = after.char_indices();
        let end = loop {
            match chars.next().unwrap_or_else(|| panic!("{text}")) {
                (_, '\\') => value.push(match chars.next().unwrap().1 {
                    'n' => '\n',
                    c => c,
                }),
                (at, '"') => break at,
                (_, c) => value.push(c),
            }
        };
        labels.insert(name.trim_start_matches(',').to_owned(), value);
        rest = &after[end + 1..];
    }
    labels
}

#[test]
fn metrics_have_the_names_types_and_labels_of_tensorflow_serving() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("monitoring.config");
    fs::write(&file, "prometheus_config { enable: true, path: '/watch/me' }").unwrap();
    let flag = format!("--monitoring_config_file={}", file.display());
    let server = Server::start(tensord(), &[&flag, &half_plus_two()]);
    let predict = "/v1/models/half_plus_two:predict";
    server.rest("POST", predict, r#"{"instances": [1]}"#);
    server.rest("POST", "/v1/models/odd%22%5C%0Aone:predict", r#"{"instances": [1]}"#);
    block_on(async {
        let address = format!("http://127.0.0.1:{}", server.grpc);
        let mut client = PredictionServiceClient::connect(address).await.unwrap();
        client.predict(request()).await.unwrap();
        let mut wrong = request();
        // It has the right dtype, and fails in the run.
        wrong.model_spec.as_mut().unwrap().signature_name = "regress_x_to_y".to_owned();
        let mut example = wrong.inputs.remove("x").unwrap();
        (example.dtype, example.string_val) = (7, vec!["no example".into()]);
        wrong.inputs.insert("inputs".to_owned(), example);
        client.predict(wrong).await.unwrap_err();
    });
    let (status, text) = server.rest("GET", "/watch/me", "");
    assert_eq!(status, 200);
    check_types(&Page::read(&text));
    check_counts(&Page::read(&text));
    assert_eq!(server.rest("GET", "/metrics", "").0, 200);
    let (status, text) = server.rest("GET", "/watch/me?x=1", "");
    assert_eq!(
        (status, text.as_str()),
        (400, "Unexpected path: /watch/me?x=1. Should be /watch/me")
    );
}

#[test]
fn a_page_without_traffic_is_small_and_says_what_our_metrics_are() {
    let server = Server::start(tensord(), &[&root().join("models").to_string_lossy()]);
    let (_, text) = server.rest("GET", "/metrics", "");
    let page = Page::read(&text);
    assert!(text.len() < PAGE_BYTES_MAX, "{} bytes", text.len());
    for name in page.types.keys() {
        let is_ours = name.starts_with("tensord_");
        assert!(is_ours || name.starts_with(":tensorflow:"), "{name}");
        assert_eq!(page.helped.contains(name), is_ours, "{name}");
    }
    let queues = page.lines.iter().filter(|(name, ..)| name == "tensord_queue_tasks_total");
    let models: BTreeSet<&String> = queues.map(|(_, labels, _)| &labels["model_name"]).collect();
    assert_eq!(models.len(), N_DEMO_MODELS, "{models:?}");
    let empty = page.lines.iter().find(|(name, _, n)| name.ends_with("_count") && *n == 0.0);
    assert_eq!(empty.filter(|(name, ..)| !page.types.contains_key(name)), None);
}

/// The models in `models/`, and the most that their page takes before anybody asks them.
const N_DEMO_MODELS: usize = 5;
const PAGE_BYTES_MAX: usize = 40_000;

fn check_types(page: &Page) {
    for (name, kind) in [
        (":tensorflow:serving:request_count", "counter"),
        (":tensorflow:serving:request_latency", "histogram"),
        (":tensorflow:serving:runtime_latency", "histogram"),
        (":tensorflow:serving:request_example_counts", "histogram"),
        (":tensorflow:serving:request_example_count_total", "counter"),
        (":tensorflow:serving:model_warmup_latency", "histogram"),
        (":tensorflow:serving:model_warmup_records_read", "counter"),
        (":tensorflow:serving:request_log_count", "counter"),
        (":tensorflow:cc:saved_model:load_attempt_count", "counter"),
        (":tensorflow:cc:saved_model:load_latency", "counter"),
        ("tensord_run_seconds", "histogram"),
        ("tensord_run_failures_total", "counter"),
        ("tensord_in_flight_requests", "gauge"),
        ("tensord_in_flight_bytes", "gauge"),
        ("tensord_model_versions", "gauge"),
    ] {
        assert_eq!(page.types.get(name).map(String::as_str), Some(kind), "{name}");
    }
}

/// Checks the counts of two requests that went well, one that was wrong, and one for no model.
fn check_counts(page: &Page) {
    let model = ("model_name", "half_plus_two");
    let counts = [
        (":tensorflow:serving:request_count", vec![model, ("status", "OK")], 2.0),
        (":tensorflow:serving:request_count", vec![model, ("status", "INVALID_ARGUMENT")], 1.0),
        (
            ":tensorflow:serving:request_count",
            vec![("model_name", "odd\"\\\none"), ("status", "NOT_FOUND")],
            1.0,
        ),
        (
            ":tensorflow:serving:request_latency_count",
            vec![model, ("API", "Predict"), ("entrypoint", "GRPC")],
            1.0,
        ),
        (
            ":tensorflow:serving:request_latency_bucket",
            vec![model, ("API", "predict"), ("entrypoint", "REST"), ("le", "+Inf")],
            1.0,
        ),
        (":tensorflow:serving:runtime_latency_count", vec![model, ("runtime", "TF1")], 2.0),
        (
            "tensord_run_seconds_count",
            vec![model, ("version", "123"), ("signature", "serving_default")],
            2.0,
        ),
        ("tensord_run_failures_total", vec![model, ("code", "INVALID_ARGUMENT")], 1.0),
        ("tensord_in_flight_requests", vec![model], 0.0),
        ("tensord_model_versions", vec![model, ("state", "AVAILABLE")], 1.0),
        (":tensorflow:cc:saved_model:load_attempt_count", vec![("status", "success")], 1.0),
    ];
    for (name, labels, expected) in counts {
        assert!((page.value(name, &labels) - expected).abs() < 1e-9, "{name} {labels:?}");
    }
}
