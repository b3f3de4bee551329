//! Bodies of requests: read within limits, and unfolded if they are compressed.

use std::io::Read as _;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::CONTENT_ENCODING;
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Body;

use super::RestOptions;
use super::reply::{self, Reply};
use crate::status::Status;

/// How a body is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    None,
    Gzip,
}

/// Reads the body of a request. Fails with what the client is to be told.
pub(crate) async fn read<B>(
    headers: &HeaderMap,
    body: B,
    options: &RestOptions,
) -> Result<Bytes, Box<Reply>>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let encoding = encoding(headers)?;
    let body = collect(body, options.body_bytes_max, options.body_timeout).await?;
    match encoding {
        Encoding::None => Ok(body),
        Encoding::Gzip => Ok(inflate(&body, options.inflated_bytes_max)),
    }
}

async fn collect<B>(mut body: B, max: usize, timeout: Duration) -> Result<Bytes, Box<Reply>>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let too_large = || {
        let status = Status::invalid(format!("the body is larger than {max} bytes"));
        Box::new(reply::error_with(StatusCode::PAYLOAD_TOO_LARGE, &status))
    };
    if body.size_hint().lower() > max as u64 {
        return Err(too_large());
    }
    let mut first: Option<Bytes> = None;
    let mut all = BytesMut::new();
    loop {
        let frame = tokio::time::timeout(timeout, body.frame()).await.map_err(|_| {
            let status = Status::invalid("the body did not arrive in time");
            Box::new(reply::error_with(StatusCode::REQUEST_TIMEOUT, &status))
        })?;
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|error| {
            let status = Status::invalid(format!("the body is broken: {error}"));
            Box::new(reply::error_with(StatusCode::BAD_REQUEST, &status))
        })?;
        let Ok(data) = frame.into_data() else { continue };
        let n_before = first.as_ref().map_or(0, Bytes::len) + all.len();
        if n_before + data.len() > max {
            return Err(too_large());
        }
        // A body that comes in one piece is not copied.
        if n_before == 0 {
            first = Some(data);
            continue;
        }
        if let Some(first) = first.take() {
            all.extend_from_slice(&first);
        }
        all.extend_from_slice(&data);
    }
    Ok(first.unwrap_or_else(|| all.freeze()))
}

fn encoding(headers: &HeaderMap) -> Result<Encoding, Box<Reply>> {
    let Some(value) = headers.get(CONTENT_ENCODING) else { return Ok(Encoding::None) };
    let value = value.to_str().unwrap_or("?").trim();
    if value.contains("gzip") {
        return Ok(Encoding::Gzip); // As upstream: the word anywhere in the header.
    }
    if value.is_empty() || value.eq_ignore_ascii_case("identity") {
        return Ok(Encoding::None);
    }
    let status = Status::invalid(format!("bodies may be packed with gzip, but not with {value}"));
    Err(Box::new(reply::error_with(StatusCode::UNSUPPORTED_MEDIA_TYPE, &status)))
}

/// Unfolds a body. One that is broken or too large becomes empty, as upstream.
fn inflate(body: &[u8], max: usize) -> Bytes {
    let mut inflated = Vec::new();
    let mut decoder = flate2::read::MultiGzDecoder::new(body).take(max as u64 + 1);
    match decoder.read_to_end(&mut inflated) {
        Ok(length) if length <= max => inflated.into(),
        Ok(_) | Err(_) => Bytes::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn what_unfolds_to_more_than_the_limit_is_empty() {
        let bomb = gzip(&vec![0; 1 << 20]);
        assert!(bomb.len() < 10_000);
        assert_eq!(inflate(&bomb, 1 << 20).len(), 1 << 20);
        assert!(inflate(&bomb, (1 << 20) - 1).is_empty());
        assert!(inflate(&bomb[..bomb.len() - 9], 1 << 20).is_empty());
        assert!(inflate(b"plain", 100).is_empty());
    }
}
