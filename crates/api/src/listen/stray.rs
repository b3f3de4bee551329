//! Clients that speak another protocol than the port they called: each is answered in its own
//! protocol, with where to go instead.

use std::convert::Infallible;
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use status::Status;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tonic::body::Body;

use super::Transport;
use super::rewound::Rewound;
use crate::grpc::to_tonic;
use crate::tls::Protocol;

/// The longest time that a stray client is listened to.
const PATIENCE: Duration = Duration::from_secs(5);

/// The most bytes of a request over HTTP/1 that are read so that its answer is not lost.
const BYTES_MAX: u64 = 64 << 10;

/// The first bytes of HTTP/2, and enough of them to tell.
const PREFACE: &[u8] = b"PRI * HTTP/2.0";

/// The methods of HTTP/1 as a request begins with them.
const METHODS: [&[u8]; 7] =
    [b"GET ", b"POST ", b"PUT ", b"HEAD ", b"DELETE ", b"OPTIONS ", b"PATCH "];

/// The protocol that the first bytes of a connection are of, if it is HTTP without TLS.
pub(super) fn spoken(first: &[u8]) -> Option<Protocol> {
    if first.len() >= 4 && PREFACE.starts_with(&first[..first.len().min(PREFACE.len())]) {
        return Some(Protocol::Http2);
    }
    METHODS.iter().any(|method| first.starts_with(method)).then_some(Protocol::Http1)
}

/// Answers a client in the protocol that it speaks, and closes the connection. `first` was read.
pub(super) async fn answer(
    spoken: Protocol,
    first: Vec<u8>,
    stream: Box<dyn Transport>,
    text: String,
) {
    let answered = async {
        match spoken {
            Protocol::Http1 | Protocol::Either => answer_http1(stream, &text).await,
            Protocol::Http2 => answer_http2(Rewound::new(first, stream), text).await,
        }
    };
    drop(tokio::time::timeout(PATIENCE, answered).await);
}

async fn answer_http1(mut stream: Box<dyn Transport>, text: &str) {
    let reply = format!(
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{text}\n",
        text.len() + 1
    );
    if stream.write_all(reply.as_bytes()).await.is_err() || stream.shutdown().await.is_err() {
        return;
    }
    // Bytes that nobody has read would make the system throw the answer away.
    drop(tokio::io::copy(&mut stream.take(BYTES_MAX), &mut tokio::io::sink()).await);
}

async fn answer_http2(stream: Rewound, text: String) {
    let service = service_fn(|request: Request<Incoming>| {
        let kind = request.headers().get(CONTENT_TYPE);
        let is_grpc = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
        let reply = if is_grpc {
            to_tonic(&Status::unimplemented(text.clone())).into_http()
        } else {
            let mut reply = Response::new(Body::new(text.clone() + "\n"));
            *reply.status_mut() = StatusCode::BAD_REQUEST;
            reply
        };
        async move { Ok::<_, Infallible>(reply) }
    });
    let builder = http2::Builder::new(TokioExecutor::new());
    drop(builder.serve_connection(TokioIo::new(stream), service).await);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bytes_tell_the_protocol() {
        let check = |first: &[u8], expected| assert_eq!(spoken(first), expected, "{first:?}");
        check(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Some(Protocol::Http2));
        check(b"PRI *", Some(Protocol::Http2));
        check(b"GET / HTTP/1.1\r\n", Some(Protocol::Http1));
        check(b"POST /v1/models/m:predict HTTP/1.1", Some(Protocol::Http1));
        check(b"\x16\x03\x01\x02\x00", None);
        check(b"GETTING", None);
        check(b"P", None);
        check(b"", None);
    }
}
