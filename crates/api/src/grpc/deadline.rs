//! The deadline of a gRPC client.

use std::time::{Duration, Instant};

use http::HeaderName;
use tonic::Request;

/// The header that holds a client's timeout.
const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// The `grpc-timeout` header, counted from now. None if there is none, or one so large that it
/// makes no difference.
pub(crate) fn deadline<T>(request: &Request<T>) -> Option<Instant> {
    let text = request.metadata().as_ref().get(GRPC_TIMEOUT)?.to_str().ok()?;
    Instant::now().checked_add(timeout(text)?)
}

/// A number of at most eight digits and a unit.
fn timeout(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let number: u64 = number.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(number.checked_mul(3600)?),
        "M" => Duration::from_secs(number.checked_mul(60)?),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_have_a_unit() {
        assert_eq!(timeout("5H"), Some(Duration::from_secs(18_000)));
        assert_eq!(timeout("2M"), Some(Duration::from_secs(120)));
        assert_eq!(timeout("3S"), Some(Duration::from_secs(3)));
        assert_eq!(timeout("7m"), Some(Duration::from_millis(7)));
        assert_eq!(timeout("7u"), Some(Duration::from_micros(7)));
        assert_eq!(timeout("0n"), Some(Duration::ZERO));
        for nonsense in ["", "S", "5", "5x", "-5S", "5ü", "99999999999999999999H"] {
            assert_eq!(timeout(nonsense), None, "{nonsense}");
        }
    }
}
