//! The target of a REST request, by its method and path. The rules are those of TensorFlow
//! Serving's `http_rest_api_util.cc`: patterns match the whole path with its query, in any case,
//! and names are decoded after that.

use lifecycle::{Choice, Target};
use status::Status;

use crate::hints;

/// The target and the method of a request below `/v1/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) target: Target,
}

/// The action on the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    Predict,
    Classify,
    Regress,
    Status,
    Metadata,
}

const MODELS: &str = "/v1/models";

/// Returns whether a path is TensorFlow Serving's at all; for others there is no page.
pub(crate) fn is_api(path: &str) -> bool {
    strip(path, "/v1/").is_some()
}

/// Parses the route of a request. `path` is the whole of it, with the query.
pub(crate) fn parse(http_method: &str, path: &str) -> Result<Route, Status> {
    let found = match http_method {
        "POST" => parse_post(path),
        "GET" => parse_get(path),
        _ => None,
    };
    let malformed = || {
        Status::invalid(format!("Malformed request: {http_method} {path}"))
            .with_hint(hints::of_path(http_method, path))
    };
    let Parts { name, version, label, verb } = found.ok_or_else(malformed)?;
    // Upstream sends no body with this one; a message does no harm.
    let number = |text: &str| {
        let failed = |_| Status::invalid(format!("Failed to convert version: {text} to numeric."));
        text.parse().map_err(failed)
    };
    let choice = match (version, label) {
        (Some(version), _) => Choice::Version(number(version)?),
        (None, Some(label)) => Choice::Label(decode(label)),
        (None, None) => Choice::Latest,
    };
    let method = match (http_method, verb) {
        ("GET", "metadata") => Method::Metadata,
        ("GET", _) => Method::Status,
        (_, "predict") => Method::Predict,
        (_, "classify") => Method::Classify,
        (_, "regress") => Method::Regress,
        // The pattern ignores case, but what is done with the verb does not.
        _ => return Err(malformed()),
    };
    if name.is_empty() {
        return Err(Status::invalid("Missing model name in request."));
    }
    Ok(Route { method, target: Target { model: decode(name), choice } })
}

/// The model of `/v1/models/NAME`, if the path is nothing else.
pub(crate) fn bare_model(path: &str) -> Option<String> {
    let name = strip(path, MODELS)?.strip_prefix('/')?;
    (is_name(name) && !name.contains(['/', '?'])).then(|| decode(name))
}

/// The parts of a path as they are written.
struct Parts<'a> {
    name: &'a str,
    version: Option<&'a str>,
    label: Option<&'a str>,
    verb: &'a str,
}

/// `/v1/models/NAME[/versions/DIGITS|/labels/LABEL]:VERB`
fn parse_post(path: &str) -> Option<Parts<'_>> {
    let (target, verb) = strip(path, MODELS)?.strip_prefix('/')?.split_once(':')?;
    if !["classify", "regress", "predict"].iter().any(|known| verb.eq_ignore_ascii_case(known)) {
        return None;
    }
    let segments: Vec<&str> = target.split('/').collect();
    let (name, rest) = segments.split_first().filter(|(name, _)| is_name(name))?;
    let (version, label, rest) = choice(rest);
    rest.is_empty().then_some(Parts { name, version, label, verb })
}

/// `/v1/models[/NAME][/versions/DIGITS|/labels/LABEL][/metadata]`
fn parse_get(path: &str) -> Option<Parts<'_>> {
    let rest = strip(path, MODELS)?;
    if rest.is_empty() {
        return Some(Parts { name: "", version: None, label: None, verb: "" });
    }
    let segments: Vec<&str> = rest.strip_prefix('/')?.split('/').collect();
    if !segments.iter().all(|segment| is_name(segment)) {
        return None;
    }
    // A name is looked for first; `/v1/models/versions/1` has none.
    let (name, tail) = segments.split_first()?;
    let with_name = parse_tail(tail).map(|parts| Parts { name, ..parts });
    with_name.or_else(|| parse_tail(&segments))
}

fn parse_tail<'a>(segments: &[&'a str]) -> Option<Parts<'a>> {
    let (version, label, rest) = choice(segments);
    match rest {
        [] => Some(Parts { name: "", version, label, verb: "" }),
        [verb] if verb.eq_ignore_ascii_case("metadata") => {
            Some(Parts { name: "", version, label, verb })
        }
        _ => None,
    }
}

/// The version or label at the front of segments, and what follows.
fn choice<'a, 's>(segments: &'s [&'a str]) -> (Option<&'a str>, Option<&'a str>, &'s [&'a str]) {
    if let [kind, value, rest @ ..] = segments {
        let is_number = || value.bytes().all(|byte| byte.is_ascii_digit()) && !value.is_empty();
        if kind.eq_ignore_ascii_case("versions") && is_number() {
            return (Some(value), None, rest);
        }
        if kind.eq_ignore_ascii_case("labels") && is_name(value) {
            return (None, Some(value), rest);
        }
    }
    (None, None, segments)
}

fn is_name(segment: &str) -> bool {
    !segment.is_empty() && !segment.contains(':')
}

/// Returns the rest of a path after a prefix, in any case.
fn strip<'a>(path: &'a str, prefix: &str) -> Option<&'a str> {
    let (start, rest) = path.split_at_checked(prefix.len())?;
    start.eq_ignore_ascii_case(prefix).then_some(rest)
}

/// Replaces `%XX`. A `+` is itself, and what is no such sequence stays.
fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|d| u8::try_from(d).ok());
        if *first == b'%'
            && let [high, low, after @ ..] = after
            && let (Some(high), Some(low)) = (digit(*high), digit(*low))
        {
            bytes.push(high * 16 + low);
            rest = after;
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(http_method: &str, path: &str, method: Method, target: &Target) {
        let expected = Route { method, target: target.clone() };
        assert_eq!(parse(http_method, path), Ok(expected), "{path}");
    }

    #[track_caller]
    fn check_error(http_method: &str, path: &str, expected: &str) {
        let refused = parse(http_method, path).map_err(Status::without_hint);
        assert_eq!(refused, Err(Status::invalid(expected)), "{path}");
    }

    #[test]
    fn posts_name_a_model_and_a_verb() {
        check("POST", "/v1/models/m:predict", Method::Predict, &Target::latest("m"));
        check("POST", "/V1/Models/m:classify", Method::Classify, &Target::latest("m"));
        check(
            "POST",
            "/v1/models/m/versions/007:regress",
            Method::Regress,
            &Target::version("m", 7),
        );
        check(
            "POST",
            "/v1/models/m/LABELS/a b:predict",
            Method::Predict,
            &Target::label("m", "a b"),
        );
        check(
            "POST",
            "/v1/models/a%2Fb%3A+%zz:predict",
            Method::Predict,
            &Target::latest("a/b:+%zz"),
        );
    }

    #[test]
    fn gets_show_states_and_metadata() {
        check("GET", "/v1/models/m", Method::Status, &Target::latest("m"));
        check("GET", "/v1/models/m/metadata", Method::Metadata, &Target::latest("m"));
        check("GET", "/v1/models/m/METADATA", Method::Status, &Target::latest("m"));
        check("GET", "/v1/models/m/versions/1", Method::Status, &Target::version("m", 1));
        check("GET", "/v1/models/m/labels/l/metadata", Method::Metadata, &Target::label("m", "l"));
        check("GET", "/v1/models/metadata", Method::Status, &Target::latest("metadata"));
        check("GET", "/v1/models/m?x=1", Method::Status, &Target::latest("m?x=1"));
        check("GET", "/v1/models/labels/metadata", Method::Metadata, &Target::latest("labels"));
    }

    #[test]
    fn a_model_must_be_named() {
        for path in ["/v1/models", "/v1/models/versions/1", "/v1/models/labels/x/metadata"] {
            check_error("GET", path, "Missing model name in request.");
        }
    }

    #[test]
    fn anything_else_is_malformed() {
        for (method, path) in [
            ("GET", "/v1/models/m:predict"),
            ("GET", "/v1/models/"),
            ("GET", "/v1/models/m/"),
            ("GET", "/v1/models//metadata"),
            ("GET", "/v1/models/m/versions/x"),
            ("GET", "/v1/foo"),
            ("POST", "/v1/models/m"),
            ("POST", "/v1/models/m:predict?x=1"),
            ("POST", "/v1/models/m:PREDICT"),
            ("POST", "/v1/models/:predict"),
            ("POST", "/v1/models/m/versions/:predict"),
            ("POST", "/v1/models/m/versions/1/metadata:predict"),
            ("PUT", "/v1/models/m"),
            ("HEAD", "/v1/models/m"),
        ] {
            check_error(method, path, &format!("Malformed request: {method} {path}"));
        }
    }

    #[test]
    fn a_version_has_64_bits() {
        let text = "Failed to convert version: 9223372036854775808 to numeric.";
        check_error("GET", "/v1/models/m/versions/9223372036854775808", text);
        check_error("POST", "/v1/models/m/versions/9223372036854775808:predict", text);
    }
}
