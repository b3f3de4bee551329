//! The calls that change the server: where they are taken, from whom, and what the log says.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::process::Command;

use crate::control::{Files, check_gone, reload};
use crate::support::{
    Server, ask, check_half_plus_two, half_plus_two, model_server, model_with_versions, tensord,
};

/// Every call that changes the server over REST.
const CHANGES: [(&str, &str); 4] = [
    ("PUT", "/v1/devices"),
    ("POST", "/v1/memory:trim"),
    ("POST", "/v1/models/b"),
    ("DELETE", "/v1/models/a"),
];

fn start(command: Command, files: &Files, args: &[&str]) -> Server {
    let roots = format!("--model_roots={}", files.path("models"));
    Server::start(command, &[&[&*files.list(&["a"]), &roots], args].concat())
}

/// Sends a change to a port as a program would.
fn change(port: u16, (method, path): (&str, &str)) -> (u16, String) {
    let head = [method, path, "Host: localhost", "Content-Type: application/json"];
    let (status, _, body) = ask(port, &head, "{}");
    (status, body)
}

#[test]
fn the_data_port_takes_no_change_and_says_where_it_is_taken() {
    let files = Files::new();
    for command in [tensord(), model_server()] {
        let server = start(command, &files, &[]);
        for call in CHANGES {
            let (status, body) = change(server.rest, call);
            assert_eq!(status, 403, "{call:?}: {body}");
            let address = format!("taken at 127.0.0.1:{}", server.management());
            assert!(body.contains(&address), "{body}");
        }
        check_half_plus_two(&server, "a");
        check_gone(&server, "b");
        // TensorFlow Serving takes this one there.
        let address = format!("http://127.0.0.1:{}", server.grpc);
        reload(address, &[("b", files.path("models/b"), &[])]).unwrap();
        check_half_plus_two(&server, "b");
    }
}

#[test]
fn a_server_without_a_management_address_says_how_to_have_one() {
    let files = Files::new();
    let server = start(model_server(), &files, &["--management_address=off"]);
    for call in CHANGES {
        let (status, body) = change(server.rest, call);
        assert_eq!(status, 403, "{call:?}: {body}");
        assert!(body.contains("--management_address=HOST:PORT"), "{body}");
    }
}

#[test]
fn the_data_port_takes_changes_if_it_is_told_to_and_not_even_a_reload_if_it_is_told_not_to() {
    let files = Files::new();
    let server = start(tensord(), &files, &["--management_on_data_port"]);
    assert_eq!(change(server.rest, ("POST", "/v1/memory:trim")).0, 200);
    assert_eq!(change(server.rest, ("DELETE", "/v1/models/a")).0, 200);
    check_gone(&server, "a");
    let server = start(tensord(), &files, &["--management_on_data_port=false"]);
    let model = [("b", files.path("models/b"), &[][..])];
    let refused = reload(format!("http://127.0.0.1:{}", server.grpc), &model).unwrap_err();
    assert_eq!(refused.code(), tonic::Code::Unimplemented);
    check_half_plus_two(&server, "a");
    reload(format!("http://127.0.0.1:{}", server.management()), &model).unwrap();
    check_half_plus_two(&server, "b");
}

#[test]
fn management_calls_have_an_address_of_their_own() {
    let files = Files::new();
    let socket = files.folder.path().join("management.sock");
    let address = format!("--management_address=unix:{}", socket.display());
    let server = start(tensord(), &files, &[&address]);
    let body = format!("{{\"base_path\": \"{}\"}}", files.path("models/b"));
    let mut stream = UnixStream::connect(&socket).unwrap();
    let head = "POST /v1/models/b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n";
    let length = format!("Content-Type: application/json\r\nContent-Length: {}", body.len());
    write!(stream, "{head}{length}\r\n\r\n{body}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    check_half_plus_two(&server, "b");
    let line = server.logs("tensord::audit");
    let who = format!("uid={}", rustix::process::getuid().as_raw());
    assert!(line.contains(&who) && line.contains("POST /v1/models/b"), "{line}");
    // Over gRPC on the same socket.
    let address = format!("unix:{}", socket.display());
    reload(address, &[("a", files.path("models/a"), &[])]).unwrap();
    check_gone(&server, "b");
    check_half_plus_two(&server, "a");
}

#[test]
fn a_port_that_nobody_asked_for_is_done_without_and_one_that_is_asked_for_is_not() {
    // Whoever has the port, this test or another server, it is not free.
    let _taken = TcpListener::bind("127.0.0.1:8502");
    let model = half_plus_two().to_string_lossy().into_owned();
    let mut command = tensord();
    command.arg("--management_address=127.0.0.1:8502");
    let run = command.args([&model, "--port=0", "--rest_api_port=0"]).output().unwrap();
    assert!(!run.status.success());
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(said.contains("choose another --management_address"), "{said}");
    let server = Server::spawn_as_it_is(tensord(), &[&model]);
    server.logs("cannot listen on 127.0.0.1:8502");
    server.logs("Exporting HTTP/REST API at");
    assert_eq!(server.rest("GET", "/healthz", "").0, 200);
}

#[test]
fn no_web_page_can_make_a_browser_change_the_server() {
    let files = Files::new();
    let server = start(tensord(), &files, &["--management_hosts=models.example"]);
    let json = "Content-Type: application/json";
    let check = |headers: &[&str], body: &str, expected: u16| {
        let head = [&["POST", "/v1/memory:trim"], headers].concat();
        let (status, _, answer) = ask(server.management(), &head, body);
        assert_eq!(status, expected, "{headers:?}: {answer}");
        if status != 200 {
            assert!(answer.contains("\"error\""), "{answer}");
        }
    };
    check(&["Host: localhost"], "", 200);
    check(&["Host: 127.0.0.1:8502", json], "{}", 200);
    check(&["Host: models.example", json], "{}", 200);
    check(&["Host: localhost", json, "Origin: http://localhost"], "{}", 200);
    // Forms, text, and bodies of no type: a browser sends them without asking.
    check(&["Host: localhost", "Content-Type: application/x-www-form-urlencoded"], "a=b", 415);
    check(&["Host: localhost", "Content-Type: multipart/form-data; boundary=x"], "--x--", 415);
    check(&["Host: localhost", "Content-Type: text/plain"], "{}", 415);
    check(&["Host: localhost"], "{}", 415);
    // A page of another site, and a name that was led to this machine.
    check(&["Host: localhost", json, "Origin: http://evil.example"], "{}", 403);
    check(&["Host: localhost", json, "Origin: null"], "{}", 403);
    check(&["Host: evil.example", json, "Origin: http://evil.example"], "{}", 403);
    // Such a name may not even look.
    let look = |host| ask(server.management(), &["GET", "/v1/memory", host], "").0;
    assert_eq!((look("Host: evil.example"), look("Host: localhost")), (403, 200));
}

/// Requests that say one thing to whoever looks first and another to who looks next, and paths that
/// are written in odd ways. None of them makes a change.
#[test]
fn no_odd_way_of_writing_a_request_changes_the_server() {
    let files = Files::new();
    let server = start(tensord(), &files, &[]);
    let json = "Content-Type: application/json";
    let check = |port: u16, head: &[&str], body: &str, expected: u16| {
        let (status, _, answer) = ask(port, head, body);
        assert_eq!(status, expected, "{head:?}: {answer}");
        check_half_plus_two(&server, "a");
    };
    let (door, data) = (server.management(), server.rest);
    let remove = ["DELETE", "/v1/models/a"];
    let refused: &[(&[&str], u16)] = &[
        (&["Host: localhost", "Host: evil.example", json], 400),
        (&["Host: evil.example", "Host: localhost", json], 400),
        (&["Host: localhost", json, "Content-Type: text/plain"], 400),
        (&["Host: localhost", json, "Origin: http://localhost", "Origin: http://evil"], 400),
        (&["Host: localhost", json, "Origin: null"], 403),
        (&["Host: localhost", json, "Origin: file://"], 403),
        (&["Host: localhost", json, "Origin: http://localhost@evil.example"], 403),
        (&["Host: localhost.", json], 403),
        (&["Host: localhost:80:80", json], 403),
        (&["Host: 127.0.0.1.evil.example", json], 403),
        (&["Host: 2130706433", json], 403),
        (&["Host:", json], 403),
        (&[json], 403),
    ];
    for (headers, expected) in refused {
        check(door, &[&remove, *headers].concat(), "{}", *expected);
    }
    let host = ["Host: localhost", json];
    for path in ["http://evil.example/v1/models/a", "http://127.0.0.1/v1/models/a"] {
        check(door, &[&["DELETE", path], &host[..]].concat(), "{}", 403);
    }
    let odd = [
        "//v1/models/a",
        "/v1//models/a",
        "/v1/models//a",
        "/v1/models/a/",
        "/v1/models/a/.",
        "/v1/models/b/../a",
        "/v1/models/b%2F..%2Fa",
        "/v1/models/a%00",
        "/%76%31/models/a",
        "/v1/./models/a",
    ];
    for path in odd {
        let (status, _, answer) = ask(door, &[&["DELETE", path], &host[..]].concat(), "{}");
        assert!(matches!(status, 400 | 403 | 404), "{path}: {status} {answer}");
        check_half_plus_two(&server, "a");
    }
    // The data port takes none of them, however they are written.
    for (method, path) in CHANGES {
        for path in [path.to_owned(), path.to_uppercase(), format!("{path}?"), format!("/{path}")] {
            let absolute = format!("http://localhost{path}");
            for path in [path, absolute] {
                let (status, _, answer) = ask(data, &[&[method, &path], &host[..]].concat(), "{}");
                assert!(matches!(status, 400 | 403 | 404), "{method} {path}: {status} {answer}");
            }
        }
        let verb = format!("X-HTTP-Method-Override: {method}");
        let (status, _, _) = ask(data, &["GET", path, "Host: localhost", &verb, json], "{}");
        assert_ne!((method, status), ("DELETE", 403), "a header is no method");
    }
    check_half_plus_two(&server, "a");
    check_gone(&server, "b");
}

/// Bodies in chunks are read as any other, and a form stays a form.
#[test]
fn a_form_in_chunks_is_a_form() {
    let files = Files::new();
    let server = start(tensord(), &files, &[]);
    let send = |kind: &str| {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", server.management())).unwrap();
        let head = "POST /v1/memory:trim HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";
        let body = "Transfer-Encoding: chunked\r\n\r\n3\r\na=b\r\n0\r\n\r\n";
        write!(stream, "{head}{kind}{body}").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split(' ').nth(1).unwrap().to_owned()
    };
    assert_eq!(send("Content-Type: application/x-www-form-urlencoded\r\n"), "415");
    assert_eq!(send(""), "415");
    assert_eq!(send("Content-Type: application/json\r\n"), "200");
}

#[test]
fn every_change_is_a_line_of_the_audit_log() {
    let files = Files::new();
    let server = start(tensord(), &files, &[]);
    let check = |what: &str, result: &str| {
        let line = server.logs("tensord::audit");
        let parts = ["who=127.0.0.1:", &format!("what={what}"), &format!("result=\"{result}\"")];
        assert!(parts.iter().all(|part| line.contains(part)), "{line}");
    };
    let body = format!("{{\"base_path\": \"{}\"}}", files.path("models/b"));
    assert_eq!(server.manage("POST", "/v1/models/b", &body).0, 200);
    check("POST /v1/models/b", "OK");
    assert_eq!(server.manage("POST", "/v1/models/c", "{\"base_path\": \"/etc\"}").0, 403);
    check("POST /v1/models/c", "PERMISSION_DENIED");
    assert_eq!(server.manage("DELETE", "/v1/models/b", "").0, 200);
    check("DELETE /v1/models/b", "OK");
    assert_eq!(server.manage("POST", "/v1/memory:trim", "").0, 200);
    check("POST /v1/memory:trim", "OK");
    assert_eq!(server.manage("PUT", "/v1/devices", "nonsense").0, 400);
    check("PUT /v1/devices", "INVALID_ARGUMENT");
    change(server.rest, ("PUT", "/v1/devices"));
    check("PUT /v1/devices", "PERMISSION_DENIED");
    let address = format!("http://127.0.0.1:{}", server.grpc);
    reload(address, &[("a", files.path("models/a"), &[])]).unwrap();
    check("HandleReloadConfigRequest", "OK");
}

#[test]
fn a_version_that_is_a_link_out_of_the_roots_is_refused() {
    let files = Files::new();
    let outside = tempfile::tempdir().unwrap();
    model_with_versions(outside.path(), &[1]);
    let link = |to: &str| {
        symlink(outside.path().join("1"), files.folder.path().join("models").join(to)).unwrap();
    };
    let server = start(tensord(), &files, &[]);
    // A client's model.
    let body = format!("{{\"base_path\": \"{}\"}}", files.path("models/b"));
    assert_eq!(server.manage("POST", "/v1/models/b", &body).0, 200);
    link("b/2");
    let line = server.logs("not below --model_roots");
    assert!(line.contains("models/b/2"), "{line}");
    assert_eq!(server.rest("GET", "/v1/models/b/versions/2", "").0, 404);
    check_half_plus_two(&server, "b/versions/1");
    // The operator's own model, as volumes of Kubernetes have it.
    fs::rename(files.folder.path().join("models/a/1"), files.folder.path().join("..data")).unwrap();
    symlink("../../..data", files.folder.path().join("models/a/2")).unwrap();
    link("a/3");
    server.rest_until("/v1/models/a/versions/3", "AVAILABLE");
    check_half_plus_two(&server, "a");
}

#[test]
fn the_server_listens_where_it_is_told_and_says_so() {
    let model = half_plus_two().to_string_lossy().into_owned();
    let server = Server::spawn(tensord(), &[&model, "--bind_address=127.0.0.1"]);
    server.logs(&format!("Running gRPC ModelServer at 127.0.0.1:{} ...", server.grpc));
    server.logs(&format!("Exporting HTTP/REST API at:127.0.0.1:{} ...", server.rest));
    server.says(&format!("http://127.0.0.1:{}/v1/models", server.rest));
    server.says(&format!("manage  127.0.0.1:{}", server.management()));
    let port = server.rest;
    // Other addresses of the machine have nothing there.
    std::net::TcpStream::connect(("127.0.0.2", port)).unwrap_err();
    std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    let server = Server::spawn(model_server(), &[&format!("--model_base_path={model}/..")]);
    server.logs(&format!("Running gRPC ModelServer at 0.0.0.0:{} ...", server.grpc));
    server.logs(&format!("Exporting HTTP/REST API at:localhost:{} ...", server.rest));
    let run = tensord().args(["--bind_address=nowhere", &model]).output().unwrap();
    assert!(!run.status.success());
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(said.contains("--bind_address=nowhere: expected an address"), "{said}");
}

#[test]
fn a_file_that_is_no_socket_stays_where_a_socket_is_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("precious");
    fs::write(&file, "data").unwrap();
    let model = half_plus_two().to_string_lossy().into_owned();
    for flag in ["--management_address=unix:", "--grpc_socket_path="] {
        let flag = format!("{flag}{}", file.display());
        let mut command = tensord();
        command.args(["--management_address=off", "--port=0", "--rest_api_port=0"]);
        let run = command.args([&flag, &model]).output().unwrap();
        assert!(!run.status.success());
        assert_eq!(fs::read_to_string(&file).unwrap(), "data", "{flag}");
    }
}
