//! Bodies of requests: read within limits, and unfolded if they are compressed.

use std::io::Read as _;
use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_ENCODING;
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Body;
use status::Status;
use tokio::time::Instant;

use super::reply::Failure;
use super::{RestOptions, Shared};
use crate::arrival::Arrival;
use crate::budget::Charge;
use crate::held::HeldBytes;
use crate::listen::OpenCall;

/// A hint for a request that is too large.
const TOO_LARGE: &str =
    "send fewer instances in a request, or use gRPC, which packs numbers tighter";

/// A hint about a body whose compression and header do not fit each other.
pub(super) fn hint(headers: &HeaderMap, body: &[u8]) -> Option<&'static str> {
    let is_said = matches!(encoding(headers), Ok(Encoding::Gzip));
    if is_said && body.is_empty() {
        return Some(
            "Content-Encoding says gzip, but the body is not packed with it, was cut, or unfolds \
             to more than this server takes",
        );
    }
    let is_packed = body.starts_with(&[0x1f, 0x8b]);
    (is_packed && !is_said).then_some("the body is packed: send Content-Encoding: gzip with it")
}

/// So many bytes are unfolded before there must be room for more.
const STEP: usize = 64 << 10;

/// The compression of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    None,
    Gzip,
}

/// Reads the body of a request, and charges its bytes.
pub(super) async fn read<B>(
    parts: &Parts,
    body: B,
    shared: &Shared,
    mut charge: Charge,
) -> Result<(Bytes, Charge), Failure>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let encoding = encoding(&parts.headers)?;
    let held = collect(body, &shared.options, &mut charge).await?;
    if let Some(open) = parts.extensions.get::<Arc<OpenCall>>() {
        open.has_come();
    }
    let max = shared.options.inflated_bytes_max;
    // A short body may unfold to a long one.
    let n_bytes = if encoding == Encoding::None { held.len() } else { usize::MAX };
    let unpack = move || {
        let body = joined(held, &mut charge)?;
        let body = match encoding {
            Encoding::None => body,
            Encoding::Gzip => inflate(&body, max, &mut charge)?,
        };
        Ok::<_, Status>((body, charge))
    };
    Ok(shared.context.codec.run(n_bytes, unpack).await??)
}

async fn collect<B>(
    mut body: B,
    options: &RestOptions,
    charge: &mut Charge,
) -> Result<HeldBytes, Failure>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let max = options.body_bytes_max;
    let too_large = || {
        let text = format!("the body is larger than {max} bytes");
        Failure::new(StatusCode::PAYLOAD_TOO_LARGE, text).with_hint(TOO_LARGE)
    };
    if body.size_hint().lower() > max as u64 {
        return Err(too_large());
    }
    let mut held = HeldBytes::default();
    let mut arrival = Arrival::new(options.arrival, Instant::now());
    while let Some(data) = frame(&mut body, &mut arrival).await? {
        if held.len() + data.len() > max {
            return Err(too_large());
        }
        charge.grow(data.len())?;
        if held.is_empty() {
            held = HeldBytes::first(data);
        } else {
            held.push(data);
        }
    }
    Ok(held)
}

/// The bytes of a body in one piece. One that came so is not copied.
fn joined(held: HeldBytes, charge: &mut Charge) -> Result<Bytes, Status> {
    // There are twice as many for a moment.
    let n_copied = if held.is_one_piece() { 0 } else { held.len() };
    charge.grow(n_copied)?;
    let all = held.into_bytes();
    charge.shrink_by(n_copied);
    Ok(all)
}

/// The next bytes of a body; none at its end.
async fn frame<B>(body: &mut B, arrival: &mut Arrival) -> Result<Option<Bytes>, Failure>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    loop {
        let (end, too_slow) = arrival.end();
        let late = |_| Failure::new(StatusCode::REQUEST_TIMEOUT, too_slow.to_string());
        let frame = tokio::time::timeout_at(end, body.frame()).await.map_err(late)?;
        let Some(frame) = frame else { return Ok(None) };
        let broken = |error: B::Error| {
            Failure::new(StatusCode::BAD_REQUEST, format!("the body is broken: {error}"))
        };
        if let Ok(data) = frame.map_err(broken)?.into_data() {
            arrival.came(data.len(), Instant::now());
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

/// Unfolds a body, for which there is room before it is taken. One that is broken or too large
/// becomes empty, as upstream.
fn inflate(body: &[u8], max: usize, charge: &mut Charge) -> Result<Bytes, Status> {
    let mut inflated = Vec::new();
    let mut decoder = flate2::read::MultiGzDecoder::new(body);
    loop {
        // A vector grows to twice its size beside what it was.
        charge.grow(3 * STEP)?;
        let before = inflated.len();
        let read = decoder.by_ref().take(STEP as u64).read_to_end(&mut inflated);
        if read.is_err() || inflated.len() > max {
            return Ok(Bytes::new());
        }
        if inflated.len() == before {
            return Ok(inflated.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::budget::Budget;
    use std::io::Write as _;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn what_unfolds_to_more_than_there_is_room_for_is_refused() {
        let bomb = gzip(&vec![0; 8 << 20]);
        let budget = Budget::of_bytes(4 << 20);
        let refused = super::inflate(&bomb, 100 << 20, &mut budget.charge()).unwrap_err();
        assert_eq!(refused.code, status::Code::ResourceExhausted);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn what_unfolds_to_more_than_the_limit_is_empty() {
        let inflate = |bytes: &[u8], max| {
            let budget = Budget::of_bytes(100 << 20);
            super::inflate(bytes, max, &mut budget.charge()).unwrap()
        };
        let bomb = gzip(&vec![0; 1 << 20]);
        assert!(bomb.len() < 10_000);
        assert_eq!(inflate(&bomb, 1 << 20).len(), 1 << 20);
        assert!(inflate(&bomb, (1 << 20) - 1).is_empty());
        assert!(inflate(&bomb[..bomb.len() - 9], 1 << 20).is_empty());
        assert!(inflate(b"plain", 100).is_empty());
    }
}
