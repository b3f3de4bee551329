//! The few words of HTTP that tests need.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::PATIENCE;

/// Asks a port over HTTP: a method, a path and headers; gives the status, the head and the body.
///
/// # Panics
/// If nobody listens there, or the answer is no HTTP.
pub fn ask(port: u16, head: &[&str], body: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
    let [method, path, headers @ ..] = head else { panic!("a method and a path") };
    let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    let head = format!("{method} {path} HTTP/1.1\r\n{headers}Connection: close\r\n");
    let request = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers in UTF-8");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    (status.expect("a status"), head.to_owned(), body.to_owned())
}
