//! Answers over HTTP.

use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::Full;
use json::write;
use status::Status;

use crate::budget::Budget;
use crate::hints::Hints;

/// An answer that is whole in memory.
pub type Reply = Response<Full<Bytes>>;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const HTML: HeaderValue = HeaderValue::from_static("text/html");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain");
const BEARER: HeaderValue = HeaderValue::from_static("Bearer realm=\"tensord\"");

/// Errors of no more bytes are not charged: a connection takes more itself.
const SHORT_BYTES: usize = 4 << 10;

/// JSON.
pub(crate) fn json(body: impl Into<Bytes>) -> Reply {
    page(StatusCode::OK, Some(JSON), body)
}

/// Plain text.
pub(crate) fn text(code: StatusCode, body: impl Into<Bytes>) -> Reply {
    page(code, Some(TEXT), body)
}

/// Nothing but a code.
pub(crate) fn empty(code: StatusCode) -> Reply {
    page(code, None, Vec::new())
}

/// A failed request: the reason, and HTTP's code for it.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: StatusCode,
    pub(crate) status: Status,
}

impl Failure {
    /// A failure that HTTP has a code of its own for.
    pub(crate) fn new(code: StatusCode, message: impl Into<String>) -> Self {
        Self { code, status: Status::invalid(message) }
    }
}

impl Failure {
    /// The same failure with a hint.
    pub(crate) fn with_hint(self, hint: &str) -> Self {
        Self { status: self.status.with_hint(hint), ..self }
    }

    /// The failure as clients are told of it.
    pub(crate) fn told(self, hints: Hints) -> Self {
        Self { status: hints.told(self.status), ..self }
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        let code = StatusCode::from_u16(status.code.to_http());
        Self { code: code.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), status }
    }
}

/// An error, with its message as JSON. A long one is charged until it is sent, and gives way to a
/// short one where there is no room.
pub(crate) fn error(failure: &Failure, budget: &Budget) -> Reply {
    let Status { message, hint, .. } = &failure.status;
    let text = write::error(message, hint.as_deref());
    let body = match text.len() {
        ..=SHORT_BYTES => Bytes::from(text),
        n_bytes => match budget.charged(n_bytes) {
            Ok(charge) => charge.onto(text),
            Err(_) => write::error(&failure.status.grpc_message(), None).into(),
        },
    };
    let mut reply = page(failure.code, Some(JSON), body);
    if let Some(seconds) = failure.status.retry_after_seconds() {
        reply.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    if failure.code == StatusCode::UNAUTHORIZED {
        reply.headers_mut().insert(header::WWW_AUTHENTICATE, BEARER);
    }
    reply
}

/// The page that libevent shows where there is nothing.
pub(crate) fn html_error(code: StatusCode) -> Reply {
    let reason = code.canonical_reason().unwrap_or_default();
    let body = format!(
        "<HTML><HEAD>\n<TITLE>{} {reason}</TITLE>\n</HEAD><BODY>\n<H1>{reason}</H1>\n\
         </BODY></HTML>\n",
        code.as_u16()
    );
    page(code, Some(HTML), body.into_bytes())
}

/// Adds the headers that allow pages of other sites to ask, with a key if the server wants one.
pub(crate) fn add_cors(reply: &mut Reply, wants_key: bool) {
    let sent = if wants_key { "Content-Type, Authorization, X-Api-Key" } else { "Content-Type" };
    let headers: [(HeaderName, &'static str); 3] = [
        (header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
        (header::ACCESS_CONTROL_ALLOW_METHODS, "POST, GET"),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, sent),
    ];
    for (name, value) in headers {
        reply.headers_mut().insert(name, HeaderValue::from_static(value));
    }
}

fn page(code: StatusCode, content_type: Option<HeaderValue>, body: impl Into<Bytes>) -> Reply {
    let mut reply = Response::new(Full::new(body.into()));
    *reply.status_mut() = code;
    if let Some(content_type) = content_type {
        reply.headers_mut().insert(header::CONTENT_TYPE, content_type);
    }
    reply
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    async fn bytes(reply: Reply) -> Bytes {
        let Ok(body) = reply.into_body().collect().await;
        body.to_bytes()
    }

    #[tokio::test]
    async fn a_long_error_is_charged_until_it_is_sent_and_short_where_there_is_no_room() {
        let failure = Status::invalid("a".repeat(10_000)).into();
        let budget = Budget::of_bytes(32 << 10);
        let first = bytes(error(&failure, &budget)).await;
        assert!(first.len() > 10_000 && budget.used() > 10_000);
        let second = bytes(error(&failure, &budget)).await;
        let third = bytes(error(&failure, &budget)).await;
        assert_eq!(second.len(), first.len());
        assert!(third.len() < 1100, "{}", third.len());
        drop((first, second, third));
        assert_eq!(budget.used(), 0);
        let short = Status::invalid("a".repeat(1000)).into();
        let _short = error(&short, &budget);
        assert_eq!(budget.used(), 0);
    }
}
