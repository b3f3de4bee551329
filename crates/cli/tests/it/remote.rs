//! `tensord memory` and `tensord top` ask a server over REST and gRPC, plain and over TLS, with
//! keys; and what they answer where they cannot.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use rcgen::{CertificateParams, KeyPair};

use crate::support::{Server, half_plus_two, root, tensord};

fn run(args: &[&str]) -> Output {
    tensord().args(args).env_remove("TENSORD_API_KEY").output().unwrap()
}

/// Asserts that a command prints a text.
#[track_caller]
fn check(args: &[&str], expected: &str) -> String {
    let output = run(args);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {said}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains(expected), "{expected} in {text}");
    text
}

/// Asserts that a command fails with a text.
#[track_caller]
fn check_failed(args: &[&str], expected: &str) {
    let output = run(args);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains(expected), "{args:?}: {said}");
}

fn model() -> String {
    half_plus_two().parent().unwrap().to_string_lossy().into_owned()
}

#[test]
fn memory_and_top_are_asked_over_rest_and_grpc_as_the_address_says() {
    let server = Server::start(tensord(), &[&model()]);
    let (rest, grpc) = (format!("127.0.0.1:{}", server.rest), format!("127.0.0.1:{}", server.grpc));
    let links = [rest.clone(), grpc.clone(), format!("http://{rest}"), format!("grpc://{grpc}")];
    for link in &links {
        let text = check(&["memory", link], "half_plus_two:123");
        assert!(text.contains("Why it is held") && text.contains("curl -X "), "{text}");
        assert!(text.contains(&format!("http://127.0.0.1:{}/", server.management())), "{text}");
        check(&["top", link, "--times=1"], "half_plus_two:123 serving_default");
        let json = check(&["top", link, "--times=2", "--every=0.1", "--json"], "\"scheduler\":");
        let looks: Vec<serde_json::Value> =
            json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(looks.len(), 2, "{json}");
        assert_eq!(looks[1]["models"]["models"][0]["name"], "half_plus_two");
    }
    check(&["memory", &grpc, "--json"], "\"devices\"");
    check_failed(&["memory", &format!("http://{grpc}")], &format!("write grpc://{grpc}"));
    check_failed(&["memory", &format!("grpc://{rest}")], &format!("write http://{rest}"));
    check_failed(&["memory", &format!("https://{rest}")], &format!("write http://{rest}"));
    check_failed(&["memory", &format!("grpcs://{grpc}")], &format!("write grpc://{grpc}"));
    check_failed(&["memory", "ftp://localhost"], "write http, https, grpc or grpcs");
}

/// The commands that a text names, as a shell runs them.
fn run_lines(text: &str, call: &str) -> Vec<String> {
    let lines = text.lines().map(str::trim).filter(|line| line.starts_with("curl"));
    let lines = lines.filter(|line| line.contains(call));
    let run = |line: &str| {
        let line = line.replacen("curl", "curl -sS", 1);
        let output = Command::new("bash").args(["-c", &line]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr)
    };
    lines.map(run).collect()
}

#[test]
fn the_lines_that_memory_ends_with_change_what_they_say() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("devices");
    let rules = "device { name: 'gpu:0' lanes: 1 logical_device { memory_limit: '24MiB' } \
                 logical_device { memory_limit: '16MiB' } }";
    fs::write(&config, rules).unwrap();
    let config = format!("--device_config_file={}", config.display());
    let server = Server::start(tensord(), &["--simulated_gpus=64MiB,64MiB", &config, &model()]);
    let link = format!("grpc://127.0.0.1:{}", server.grpc);
    let limits = || -> Vec<(String, u64)> {
        let (_, page) = server.rest("GET", "/v1/devices", "");
        let page: pages::DevicesPage = serde_json::from_str(&page).unwrap();
        let gpus = page.logical.into_iter().filter(|one| one.name != "cpu:0");
        gpus.map(|one| (one.name, one.limit_bytes >> 20)).collect()
    };
    let named = |mib: [u64; 3]| -> Vec<(String, u64)> {
        (0..3).map(|n| format!("gpu:{n}")).zip(mib).collect()
    };
    assert_eq!(limits(), named([24, 16, 64]));
    let text = check(&["memory", &link], "limit of gpu:2");
    let (block, _) = text.rsplit_once("\nlimit of gpu:2").unwrap();
    let answers = run_lines(&text[block.len()..], "/v1/devices");
    assert_eq!(answers.len(), 1, "{text}");
    assert_eq!(limits(), named([24, 16, 32]), "{answers:?}");
    for answer in run_lines(&text, "memory:trim") {
        assert!(answer.contains("released_bytes"), "{answer}");
    }
}

/// Writes an `SSLConfig` for `localhost` with a new key, and gives the file of its certificate.
fn write_keys(folder: &Path) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let quoted = |pem: &str| format!("\"{}\"", pem.replace("\r\n", "\\n").replace('\n', "\\n"));
    let (key, pem) = (key.serialize_pem(), certificate.pem());
    let text = format!("server_key: {}\nserver_cert: {}\n", quoted(&key), quoted(&pem));
    let (config, authority) = (folder.join("ssl.config"), folder.join("ca.pem"));
    fs::write(&config, text).unwrap();
    fs::write(&authority, pem).unwrap();
    (config.display().to_string(), authority.display().to_string())
}

#[test]
fn a_server_with_tls_is_asked_with_its_authority_and_not_without() {
    let folder = tempfile::tempdir().unwrap();
    let (config, authority) = write_keys(folder.path());
    let flag = format!("--ssl_config_file={config}");
    let server = Server::start(tensord(), &[&flag, &model()]);
    let trusted = format!("--ca_cert={authority}");
    for (scheme, port) in [("https", server.rest), ("grpcs", server.grpc)] {
        let link = format!("{scheme}://localhost:{port}");
        check(&["memory", &link, &trusted], "half_plus_two:123");
        check(&["memory", &link, "--insecure"], "half_plus_two:123");
        check_failed(&["memory", &link], "--ca_cert=FILE");
        let other_name = format!("{scheme}://127.0.0.1:{port}");
        check_failed(&["memory", &other_name, &trusted], "a name that its certificate has");
        let plain = format!("{}://localhost:{port}", scheme.trim_end_matches('s'));
        check_failed(&["memory", &plain, &trusted], &format!("speaks TLS: write {link}"));
        check_failed(&["memory", &format!("localhost:{port}")], &format!("{scheme}://localhost"));
    }
    let wrong = format!("grpcs://localhost:{}", server.rest);
    check_failed(&["memory", &wrong, &trusted], &format!("https://localhost:{}", server.rest));
    let missing = format!("--ca_cert={}", root().join("README.md").display());
    check_failed(&["memory", "https://localhost", &missing], "has no certificates (PEM)");
}

/// Makes a key with a right; gives the key and its entry.
fn new_key(name: &str, rights: &str) -> (String, String) {
    let made = run(&["keys", "new", name, "--rights", rights]);
    let said = String::from_utf8(made.stderr).unwrap();
    let key = said.split_whitespace().find(|word| word.starts_with("tensord_")).unwrap();
    (key.to_owned(), String::from_utf8(made.stdout).unwrap())
}

#[test]
fn a_page_over_grpc_needs_the_same_right_as_over_rest() {
    let folder = tempfile::tempdir().unwrap();
    let (infer, first) = new_key("alice", "infer");
    let (read, second) = new_key("bob", "read");
    let file = folder.path().join("keys.config");
    fs::write(&file, format!("{first}\n{second}")).unwrap();
    let flag = format!("--api_keys_file={}", file.display());
    let server = Server::start(tensord(), &[&flag, &model()]);
    for port in [server.rest, server.grpc] {
        let link = format!("127.0.0.1:{port}");
        check_failed(&["memory", &link], "an API key is needed");
        check_failed(&["memory", &link], "--api_key or TENSORD_API_KEY");
        let weak = format!("--api_key={infer}");
        check_failed(&["memory", &link, &weak], "does not have the right \"read\"");
        let text = check(&["memory", &link, &format!("--api_key={read}")], "half_plus_two:123");
        // The lines take the key from the environment, and do not show it.
        assert!(text.contains("Bearer $TENSORD_API_KEY") && !text.contains(&read), "{text}");
    }
}
