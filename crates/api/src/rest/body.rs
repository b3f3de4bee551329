//! Bodies of requests: read within limits, and unfolded if they are compressed.

use std::io::Read as _;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::CONTENT_ENCODING;
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Body;

use super::RestOptions;
use super::reply::Failure;
use crate::budget::Charge;

/// How a body is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    None,
    Gzip,
}

/// Reads the body of a request, and charges its bytes.
pub(crate) async fn read<B>(
    headers: &HeaderMap,
    body: B,
    options: &RestOptions,
    charge: &mut Charge,
) -> Result<Bytes, Failure>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let encoding = encoding(headers)?;
    let body = collect(body, options, charge).await?;
    match encoding {
        Encoding::None => Ok(body),
        Encoding::Gzip => {
            let body = inflate(&body, options.inflated_bytes_max);
            charge.grow(body.len())?;
            Ok(body)
        }
    }
}

async fn collect<B>(
    mut body: B,
    options: &RestOptions,
    charge: &mut Charge,
) -> Result<Bytes, Failure>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let max = options.body_bytes_max;
    let too_large = || {
        let text = format!("the body is larger than {max} bytes");
        Failure::new(StatusCode::PAYLOAD_TOO_LARGE, text)
    };
    if body.size_hint().lower() > max as u64 {
        return Err(too_large());
    }
    let mut first: Option<Bytes> = None;
    let mut all = BytesMut::new();
    while let Some(data) = frame(&mut body, options.body_timeout).await? {
        let n_before = first.as_ref().map_or(0, Bytes::len) + all.len();
        if n_before + data.len() > max {
            return Err(too_large());
        }
        charge.grow(data.len())?;
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

/// The next bytes of a body; none at its end.
async fn frame<B>(body: &mut B, timeout: Duration) -> Result<Option<Bytes>, Failure>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    loop {
        let late = |_| Failure::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time");
        let frame = tokio::time::timeout(timeout, body.frame()).await.map_err(late)?;
        let Some(frame) = frame else { return Ok(None) };
        let broken = |error: B::Error| {
            Failure::new(StatusCode::BAD_REQUEST, format!("the body is broken: {error}"))
        };
        if let Ok(data) = frame.map_err(broken)?.into_data() {
            return Ok(Some(data));
        }
    }
}

fn encoding(headers: &HeaderMap) -> Result<Encoding, Failure> {
    let Some(value) = headers.get(CONTENT_ENCODING) else { return Ok(Encoding::None) };
    let value = value.to_str().unwrap_or("?").trim();
    if value.contains("gzip") {
        return Ok(Encoding::Gzip); // As upstream: the word anywhere in the header.
    }
    if value.is_empty() || value.eq_ignore_ascii_case("identity") {
        return Ok(Encoding::None);
    }
    let text = format!("bodies may be packed with gzip, but not with {value}");
    Err(Failure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, text))
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
