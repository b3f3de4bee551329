//! The priority that a request names: the metadata or header `tensord-priority`.

use http::{HeaderMap, HeaderName};
use session::LEVEL_MAX;
use status::Status;

const NAME: HeaderName = HeaderName::from_static("tensord-priority");

/// The level of a request, 0 being the most urgent; none if it names none. Fails if it is no
/// number, or one beyond the lowest.
pub(crate) fn read(headers: &HeaderMap) -> Result<Option<usize>, Status> {
    let Some(value) = headers.get(NAME) else { return Ok(None) };
    let text = value.to_str().unwrap_or("?").trim();
    match text.parse::<usize>() {
        Ok(level) if level <= LEVEL_MAX => Ok(Some(level)),
        Ok(_) | Err(_) => Err(Status::invalid(format!(
            "{NAME} is a number from 0, the most urgent, to {LEVEL_MAX}; got {text:?}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[track_caller]
    fn check(value: &str, expected: Option<Option<usize>>) {
        let mut headers = HeaderMap::new();
        headers.insert(NAME, HeaderValue::from_str(value).unwrap());
        assert_eq!(read(&headers).ok(), expected, "{value}");
    }

    #[test]
    fn a_priority_is_a_small_number() {
        assert!(read(&HeaderMap::new()).unwrap().is_none());
        check("0", Some(Some(0)));
        check(" 15 ", Some(Some(15)));
        for bad in ["16", "-1", "high", "", "99999999999999999999"] {
            check(bad, None);
        }
    }
}
