//! HTTP as hostile or careless clients speak it: every answer is a defined one, and never a 500.

use std::time::Duration;

use api::{ArrivalLimits, Budget};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::{PATIENCE, Server, Setup, exchange};

/// The code of the first answer to bytes.
async fn code(server: &Server, bytes: &[u8]) -> u16 {
    let answer = exchange(server.rest, bytes).await;
    let text = String::from_utf8_lossy(&answer).into_owned();
    text.split(' ').nth(1).unwrap_or_else(|| panic!("{text}")).parse().unwrap()
}

#[tokio::test]
async fn methods_that_mean_nothing_here_have_defined_answers() {
    let server = Server::start().await;
    for (method, path, expected) in [
        ("HEAD", "/v1/models/m", 400),
        ("DELETE", "/v1/models/m", 400),
        ("PATCH", "/v1/models/m", 400),
        ("FROB", "/v1/models/m", 400),
        ("TRACE", "/v1/models/m", 501),
        ("HEAD", "/healthz", 200),
        ("HEAD", "/nothing", 404),
        ("GET", "/", 404),
        ("GET", "/v1", 404),
        ("GET", "/V1/models/m", 200),
        ("GET", "*", 404),
    ] {
        let answer = server.ask(method, path, b"").await;
        assert_eq!(answer.code, expected, "{method} {path}");
        if method == "HEAD" {
            assert!(answer.body.is_empty());
        }
    }
}

#[tokio::test]
async fn paths_of_any_length_and_spelling_have_defined_answers() {
    let server = Server::start().await;
    let long = format!("/v1/models/{}", "a".repeat(60 << 10));
    assert_eq!(server.ask("GET", &long, b"").await.code, 404);
    let too_long = format!("GET /v1/models/{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(1 << 20));
    assert!(matches!(code(&server, too_long.as_bytes()).await, 414 | 431));
    for path in ["/v1/models/%2e%2e%2fm", "/v1/models/%", "/v1/models/%00", "/v1/models/%ff%fe"] {
        assert_eq!(server.ask("GET", path, b"").await.code, 404, "{path}");
    }
    assert_eq!(server.ask("GET", "/v1/models/../m", b"").await.code, 400);
}

#[tokio::test]
async fn bodies_in_many_small_chunks_are_read() {
    let server = Server::start().await;
    let mut bytes = b"POST /v1/models/m:predict HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
                      Transfer-Encoding: chunked\r\n\r\n"
        .to_vec();
    let body = format!("{{\"instances\": [{}2]}}", " ".repeat(100_000));
    for byte in body.bytes() {
        bytes.extend_from_slice(&[b'1', b'\r', b'\n', byte, b'\r', b'\n']);
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
    assert_eq!(code(&server, &bytes).await, 200);
}

#[tokio::test]
async fn broken_framing_is_refused() {
    let server = Server::start().await;
    let head = "POST /v1/models/m:predict HTTP/1.1\r\nHost: x\r\nConnection: close\r\n";
    for rest in [
        "Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
        "Content-Length: -1\r\n\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n\r\n{}",
        "Content-Length: 99999999999999999999999\r\n\r\n",
        "Transfer-Encoding: gzip\r\n\r\n",
        "Folded: a\r\n b: c\r\nContent-Length: 2\r\n\r\n{}",
    ] {
        assert_eq!(code(&server, format!("{head}{rest}").as_bytes()).await, 400, "{rest}");
    }
    // Both lengths at once: the chunks count, and nothing behind them is taken for a request.
    let both = format!(
        "{head}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n\
         GET /healthz HTTP/1.1\r\n\r\n"
    );
    let answer = exchange(server.rest, both.as_bytes()).await;
    assert_eq!(answer.windows(8).filter(|eight| eight == b"HTTP/1.1").count(), 1);
}

#[tokio::test]
async fn bodies_beyond_the_limit_are_refused_before_they_are_read() {
    let server = Setup { message_bytes_max: 1000, ..Setup::new() }.start().await;
    let head = "POST /v1/models/m:predict HTTP/1.1\r\nHost: x\r\nConnection: close\r\n";
    let declared = format!("{head}Content-Length: 1001\r\n\r\n");
    assert_eq!(code(&server, declared.as_bytes()).await, 413);
    let chunk = format!("3e9\r\n{}\r\n", " ".repeat(1001));
    let chunked = format!("{head}Transfer-Encoding: chunked\r\n\r\n{chunk}0\r\n\r\n");
    assert_eq!(code(&server, chunked.as_bytes()).await, 413);
}

#[tokio::test]
async fn a_refused_body_is_read_on_so_that_its_answer_is_seen() {
    let server = Server::start().await;
    let part = vec![b' '; 1 << 20];
    for path in ["/v1/models/m:predict", "/v1/models/nobody:predict", "/nothing"] {
        let mut stream = TcpStream::connect(server.rest).await.unwrap();
        let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n");
        let head = format!("{head}Content-Length: {}\r\n\r\n", 64 << 20);
        stream.write_all(head.as_bytes()).await.unwrap();
        for _ in 0..64 {
            // It fails here if the server hangs up.
            stream.write_all(&part).await.unwrap();
        }
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with("HTTP/1.1 4"), "{path}: {answer}");
    }
}

#[tokio::test]
async fn bytes_in_flight_are_limited_over_all_requests() {
    let server = Setup { budget: Budget::of_bytes(100_000), ..Setup::new() }.start().await;
    let body = format!("{{\"instances\": [1{}]}}", " ".repeat(100_000));
    let answer = server.ask("POST", "/v1/models/m:predict", body.as_bytes()).await;
    assert_eq!(answer.code, 429);
    assert_eq!(server.ask("POST", "/v1/models/m:predict", br#"{"instances":[1]}"#).await.code, 200);
    assert_eq!(server.context.budget.used(), 0);
}

#[tokio::test]
async fn errors_hold_no_more_of_a_name_than_their_bound() {
    let server = Server::start().await;
    for (verb, rest) in [("predict", "\"instances\": [1]"), ("classify", "\"examples\": [{}]")] {
        let name = "x".repeat(10 << 20);
        let body = format!("{{\"signature_name\": \"{name}\", {rest}}}");
        let path = format!("/v1/models/m:{verb}");
        let answer = server.ask("POST", &path, body.as_bytes()).await;
        assert_eq!(answer.code, 400);
        let text = answer.text();
        assert!(text.len() < 5000 && text.contains("xxx...TRUNCATED"), "{verb}: {}", text.len());
    }
    assert_eq!(server.context.budget.used(), 0);
}

#[tokio::test]
async fn clients_that_dawdle_are_sent_away() {
    let patience = Duration::from_millis(100);
    let arrival = ArrivalLimits { idle_max: patience, total_max: None, bytes_per_second_min: 0 };
    let server = Setup { patience, arrival, ..Setup::new() }.start().await;
    let dawdle = async |bytes: &[u8]| {
        let mut stream = TcpStream::connect(server.rest).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut answer = String::new();
        drop(stream.read_to_string(&mut answer).await);
        answer
    };
    let head = dawdle(b"GET /v1/models/m HTTP/1.1\r\nHost").await;
    assert!(head.is_empty() || head.starts_with("HTTP/1.1 408"), "{head}");
    let body =
        dawdle(b"POST /v1/models/m:predict HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")
            .await;
    assert!(body.starts_with("HTTP/1.1 408"), "{body}");
}

/// A body of which a byte comes now and then.
async fn drip(stream: &mut TcpStream) {
    let head = "POST /v1/models/m:predict HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    while stream.write_all(b" ").await.is_ok() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn bodies_that_drip_are_given_up() {
    let base = ArrivalLimits {
        idle_max: Duration::from_millis(200),
        total_max: None,
        bytes_per_second_min: 0,
    };
    let total = Some(Duration::from_millis(300));
    for (arrival, text) in [
        (ArrivalLimits { bytes_per_second_min: 100_000, ..base }, "100000 bytes a second"),
        (ArrivalLimits { total_max: total, ..base }, "more than 0.3 s"),
    ] {
        let server = Setup { arrival, ..Setup::new() }.start().await;
        let mut stream = TcpStream::connect(server.rest).await.unwrap();
        drip(&mut stream).await;
        let mut answer = String::new();
        drop(stream.read_to_string(&mut answer).await);
        assert!(answer.starts_with("HTTP/1.1 408") && answer.contains(text), "{answer}");
    }
}

/// As many bodies drip as there may be connections: the next client is served, and a connection
/// with a request under way is not closed for it.
#[tokio::test]
async fn bodies_that_drip_give_way_to_the_next_connection() {
    let server = Setup { connections_max: 8, ..Setup::new() }.start().await;
    let mut drips = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let mut stream = TcpStream::connect(server.rest).await.unwrap();
        drips.spawn(async move { drip(&mut stream).await });
    }
    for _ in 0..10 {
        let answer = server.ask("POST", "/v1/models/m:predict", br#"{"instances":[1]}"#).await;
        assert_eq!(answer.code, 200);
    }
    assert!(!drips.is_empty());
}

/// A client that reads slowly is not idle: idle ones give way to the next connection.
#[tokio::test]
async fn a_connection_with_an_answer_under_way_is_not_given_up() {
    let budget = Budget::of_bytes(2 << 30);
    let server = Setup { connections_max: 3, budget, ..Setup::new() }.start().await;
    // The system holds a part of the answer, and the server the rest.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(64 << 10).unwrap();
    let mut reader = socket.connect(server.rest).await.unwrap();
    let body = format!("{{\"instances\": [{}1]}}", "1,".repeat(4_000_000));
    let length = body.len();
    let head = format!("POST /v1/models/m:predict HTTP/1.1\r\nHost: x\r\nContent-Length: {length}");
    reader.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).await.unwrap();
    reader.peek(&mut [0]).await.unwrap();
    let mut idle = Vec::new();
    for _ in 0..4 {
        let mut next = TcpStream::connect(server.rest).await.unwrap();
        next.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        let answered = tokio::time::timeout(PATIENCE, next.peek(&mut [0])).await;
        assert_eq!(answered.expect("an idle one gives way").unwrap(), 1);
        idle.push(next);
    }
    let mut n_bytes = 0;
    let mut bytes = vec![0; 1 << 20];
    reader.peek(&mut bytes).await.unwrap();
    assert!(bytes.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&bytes[..500]));
    while n_bytes < 5 * 4_000_000 {
        let n_read = reader.read(&mut bytes).await.unwrap();
        assert!(n_read > 0, "cut behind {n_bytes} bytes");
        n_bytes += n_read;
    }
}

#[tokio::test]
async fn heads_beyond_the_limit_are_refused() {
    let server = Server::start().await;
    let head = "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n";
    let large = format!("{head}X: {}\r\n\r\n", "a".repeat(70_000));
    assert_eq!(code(&server, large.as_bytes()).await, 431);
    let many = format!("{head}{}\r\n", "X: a\r\n".repeat(200));
    assert_eq!(code(&server, many.as_bytes()).await, 431);
}

#[tokio::test]
async fn connections_are_kept_for_more_requests() {
    let server = Server::start().await;
    let one = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
    let last = "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let answer = exchange(server.rest, format!("{one}{one}{last}").as_bytes()).await;
    assert_eq!(answer.windows(15).filter(|part| part == b"HTTP/1.1 200 OK").count(), 3);
}

#[tokio::test]
async fn a_request_in_flight_is_answered_after_the_server_was_told_to_stop() {
    let server = Server::start().await;
    let body = br#"{"signature_name": "gated", "instances": [2]}"#;
    let ask = server.ask("POST", "/v1/models/m:predict", body);
    let stop = async {
        let (run, reply) = server.gate.take().await;
        server.token.cancel();
        reply(crate::support::answer(&run));
    };
    let (answer, ()) = tokio::join!(ask, stop);
    assert_eq!(answer.code, 200);
}
