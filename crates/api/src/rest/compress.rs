//! Answers in compressed form, for clients that ask for it.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use http::HeaderMap;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, HeaderValue, VARY};

use super::reply::Reply;

/// Shorter answers are sent as they are: they fit into a packet or two.
const BYTES_MIN: usize = 4 << 10;

/// Returns whether an answer of this size is to be compressed.
pub(crate) fn is_wanted(headers: &HeaderMap, n_bytes: usize) -> bool {
    n_bytes >= BYTES_MIN && headers.get_all(ACCEPT_ENCODING).iter().any(accepts_gzip)
}

/// Packs an answer with gzip.
pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 3), Compression::fast());
    encoder.write_all(bytes).expect("writing to memory does not fail");
    encoder.finish().expect("writing to memory does not fail")
}

/// Says how an answer is packed.
pub(crate) fn mark(reply: &mut Reply) {
    reply.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    reply.headers_mut().insert(VARY, HeaderValue::from_static("accept-encoding"));
}

/// Returns whether a header allows gzip: by name or `*`, and not with a quality of 0.
fn accepts_gzip(header: &HeaderValue) -> bool {
    let codings = header.to_str().unwrap_or_default().split(',');
    codings.map(str::trim).any(|coding| {
        let (name, quality) = coding.split_once(';').unwrap_or((coding, "q=1"));
        let quality = quality.trim().trim_start_matches("q=").parse().unwrap_or(1.0);
        let name = name.trim();
        (name.eq_ignore_ascii_case("gzip") || name == "*") && quality > 0.0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(header: &'static str, expected: bool) {
        let headers = [(ACCEPT_ENCODING, HeaderValue::from_static(header))];
        let headers = headers.into_iter().collect();
        assert_eq!(is_wanted(&headers, 10_000), expected, "{header}");
        assert!(!is_wanted(&headers, 100));
    }

    #[test]
    fn clients_ask_for_gzip_by_name() {
        check("gzip", true);
        check("deflate, GZIP;q=0.5", true);
        check("*", true);
        check("gzip;q=0", false);
        check("gzip; q=0.0, br", false);
        check("identity", false);
        check("", false);
    }
}
