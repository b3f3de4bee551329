//! `Trace`: which request a log line is about.
//!
//! A client may name its request (`x-request-id`) and the trace it belongs to (`traceparent`, the
//! W3C's). Both stand in the log line of the request, and the first comes back with the answer.
//! What a client sends is looked at only when it is logged, and never trusted to be short or
//! printable.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderName, HeaderValue};
use status::Code;

/// The header that names a request.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Names of requests longer than this are not taken.
const ID_MAX: usize = 128;

/// The ids that a request was given.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trace {
    request_id: Option<HeaderValue>,
    parent: Option<HeaderValue>,
}

impl Trace {
    /// Reads the ids from the headers of a request.
    pub(crate) fn new(headers: &HeaderMap) -> Self {
        Self {
            request_id: headers.get(REQUEST_ID).filter(|id| is_id(id)).cloned(),
            parent: headers.get(TRACEPARENT).cloned(),
        }
    }

    /// The name that comes back with the answer.
    pub(crate) fn request_id(&self) -> Option<&HeaderValue> {
        self.request_id.as_ref()
    }

    /// Logs the end of a request: what went wrong here is a warning, what clients do wrong is for
    /// those who look for it.
    pub(crate) fn log(&self, ended: &Ended<'_>) {
        let Ended { model, api, entrypoint, took, failure } = ended;
        let (code, message) = failure.map_or(("OK", ""), |(code, text)| (code.name(), text));
        macro_rules! line {
            ($level:ident) => {
                tracing::$level!(
                    target: "tensord::request",
                    request_id = %self.id(),
                    trace_id = %Part(self.ids().map(|ids| ids.0)),
                    parent_id = %Part(self.ids().map(|ids| ids.1)),
                    model = %Short(model),
                    api,
                    entrypoint,
                    code,
                    micros = took.as_micros(),
                    "{}",
                    Short(message)
                )
            };
        }
        match failure {
            Some((Code::Internal | Code::Unknown | Code::DataLoss, _)) => line!(warn),
            _ => line!(debug),
        }
    }

    /// The name of the request: the client's, or a new one.
    fn id(&self) -> String {
        let given = self.request_id.as_ref().and_then(|id| id.to_str().ok());
        given.map_or_else(new_id, str::to_owned)
    }

    /// The trace, and the span that asks.
    fn ids(&self) -> Option<(&str, &str)> {
        trace_ids(self.parent.as_ref()?.to_str().ok()?)
    }
}

/// The end of a request, for the log.
pub(crate) struct Ended<'a> {
    pub(crate) model: &'a str,
    pub(crate) api: &'static str,
    pub(crate) entrypoint: &'static str,
    pub(crate) took: Duration,
    pub(crate) failure: Option<(Code, &'a str)>,
}

/// Text of a client, cut to what a log line can bear.
pub(crate) struct Short<'a>(pub(crate) &'a str);

impl fmt::Display for Short<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MAX: usize = 512;
        let cut = self.0.floor_char_boundary(MAX);
        write!(f, "{}", self.0[..cut].escape_debug())?;
        if cut < self.0.len() { f.write_str("…") } else { Ok(()) }
    }
}

/// A part of a trace, or nothing.
struct Part<'a>(Option<&'a str>);

impl fmt::Display for Part<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.unwrap_or(""))
    }
}

fn is_id(value: &HeaderValue) -> bool {
    let bytes = value.as_bytes();
    !bytes.is_empty() && bytes.len() <= ID_MAX && bytes.iter().all(u8::is_ascii_graphic)
}

/// The ids of a trace and of the span that asks, if the header is as the W3C wants it:
/// `version-trace-parent-flags`, all in lower-case hexadecimals, neither id zero.
fn trace_ids(text: &str) -> Option<(&str, &str)> {
    let mut parts = text.split('-');
    let (version, trace, parent, flags) =
        (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let is_hex = |text: &str, length: usize| {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        text.len() == length && text.bytes().all(is_digit)
    };
    let is_zero = |text: &str| text.bytes().all(|byte| byte == b'0');
    let is_well = is_hex(version, 2)
        && version != "ff"
        && is_hex(trace, 32)
        && is_hex(parent, 16)
        && is_hex(flags, 2)
        && !is_zero(trace)
        && !is_zero(parent)
        // Versions to come may add parts.
        && (version != "00" || parts.next().is_none());
    is_well.then_some((trace, parent))
}

/// A name that no other request of this process has, and hardly one of another process.
fn new_id() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    static START: std::sync::LazyLock<u64> = std::sync::LazyLock::new(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        since.as_secs() << 32 | u64::from(since.subsec_nanos()) ^ u64::from(std::process::id())
    });
    format!("{:016x}-{:08x}", *START, NEXT.fetch_add(1, Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_are_as_the_w3c_wants_them() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        let whole = format!("00-{trace}-00f067aa0ba902b7-01");
        assert_eq!(trace_ids(&whole), Some((trace, "00f067aa0ba902b7")));
        assert!(trace_ids(&format!("cc-{trace}-00f067aa0ba902b7-01-more")).is_some());
        for wrong in [
            "",
            "00",
            &format!("ff-{trace}-00f067aa0ba902b7-01"),
            &format!("00-{trace}-00f067aa0ba902b7-01-more"),
            &format!("00-{}-00f067aa0ba902b7-01", trace.to_uppercase()),
            &format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)),
            &format!("00-{trace}-0000000000000000-01"),
            &format!("00-{trace}-00f067aa0ba902b-01"),
        ] {
            assert_eq!(trace_ids(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn names_of_requests_are_short_and_printable() {
        let id = |value: &[u8]| {
            let value = HeaderValue::from_bytes(value).unwrap();
            let headers = [(REQUEST_ID, value)].into_iter().collect();
            Trace::new(&headers).request_id().is_some()
        };
        assert!(id(b"abc-123"));
        assert!(!id(b""));
        assert!(!id(b"two words"));
        assert!(!id("é".as_bytes()));
        assert!(!id(&[b'a'; 129]));
        assert_ne!(new_id(), new_id());
    }

    #[test]
    fn texts_of_clients_are_cut_and_escaped() {
        assert_eq!(Short("a\nb").to_string(), "a\\nb");
        assert_eq!(Short(&"é".repeat(1000)).to_string(), format!("{}…", "é".repeat(256)));
    }
}
