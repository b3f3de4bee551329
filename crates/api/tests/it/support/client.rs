//! The few words of HTTP that tests need.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{PATIENCE, Server};

/// An answer over HTTP.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    /// The headers, with names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|header| header.0 == name).map(|header| &*header.1)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Server {
    /// Asks over REST.
    pub(crate) async fn ask(&self, method: &str, path: &str, body: &[u8]) -> Answer {
        self.ask_with(method, path, &[], body).await
    }

    /// Asks over REST, with headers such as `Origin: http://x`.
    pub(crate) async fn ask_with(
        &self,
        method: &str,
        path: &str,
        headers: &[&str],
        body: &[u8],
    ) -> Answer {
        let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\
             {headers}\r\n",
            body.len()
        );
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(body);
        parse(&exchange(self.rest, &bytes).await)
    }
}

/// Sends bytes, and reads until the other side is done.
pub(crate) async fn exchange(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let (mut read, mut write) = stream.split();
        let mut answer = Vec::new();
        // A server that has heard enough may close before all is sent.
        let send = async { drop(write.write_all(bytes).await) };
        let receive = async { drop(read.read_to_end(&mut answer).await) };
        tokio::join!(send, receive);
        answer
    };
    tokio::time::timeout(PATIENCE, exchange).await.expect("the server answers and closes")
}

/// Takes the last answer apart.
fn parse(bytes: &[u8]) -> Answer {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("the head has an end");
    let head = std::str::from_utf8(&bytes[..end]).unwrap();
    let mut lines = head.split("\r\n");
    let code = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let header = |line: &str| {
        let (name, value) = line.split_once(": ").unwrap();
        (name.to_ascii_lowercase(), value.to_owned())
    };
    Answer { code, headers: lines.map(header).collect(), body: bytes[end + 4..].to_vec() }
}
