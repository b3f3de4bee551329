use std::time::Duration;

use super::*;

/// Keys as `NAME RIGHTS MODELS END`; the key of each is its name. `END` is in seconds after 1970.
fn keys() -> Vec<Arc<Key>> {
    let lines =
        ["alice infer *  -", "bob infer,read a*,b -", "carol manage * 100", "dora read * -"];
    let key = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, rights, models, end] = words[..] else { panic!("{line}") };
        let end = end.parse().ok().map(Duration::from_secs);
        Arc::new(Key {
            name: name.to_owned(),
            digest: Digest::of(name.as_bytes()),
            rights: rights.split(',').map(|word| Right::parse(word).unwrap()).collect(),
            models: models.split(',').map(str::to_owned).collect(),
            expires: end.map(|end| SystemTime::UNIX_EPOCH + end),
        })
    };
    lines.into_iter().map(key).collect()
}

#[track_caller]
fn check_at(seconds: u64, key: &str, call: (Right, Scope<'_>), expected: Result<(), Code>) {
    let presented = (!key.is_empty()).then(|| Digest::of(key.as_bytes()));
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    let call = Call { right: call.0, scope: call.1 };
    let verdict = judge(&keys(), presented.as_ref(), &call, now);
    assert_eq!(verdict.map(drop).map_err(|status| status.code), expected, "{key}");
}

#[track_caller]
fn check(key: &str, call: (Right, Scope<'_>), expected: Result<(), Code>) {
    check_at(50, key, call, expected);
}

const DENIED: Result<(), Code> = Err(Code::PermissionDenied);
const UNKNOWN: Result<(), Code> = Err(Code::Unauthenticated);

#[test]
fn a_key_must_be_known() {
    let call = (Right::Infer, Scope::Model("a"));
    check("alice", call, Ok(()));
    check("", call, UNKNOWN);
    check("Alice", call, UNKNOWN);
    check("alice ", call, UNKNOWN);
}

#[test]
fn a_key_gives_the_rights_that_it_has_and_no_others() {
    check("alice", (Right::Read, Scope::Model("a")), DENIED);
    check("alice", (Right::Manage, Scope::Model("a")), DENIED);
    check("bob", (Right::Read, Scope::Model("a")), Ok(()));
    check("carol", (Right::Manage, Scope::Server), Ok(()));
    // The highest right is not all of them.
    check("carol", (Right::Infer, Scope::Model("a")), DENIED);
}

#[test]
fn a_key_is_for_some_models() {
    for (model, expected) in [("a", Ok(())), ("ab", Ok(())), ("b", Ok(())), ("ba", DENIED)] {
        check("bob", (Right::Infer, Scope::Model(model)), expected);
    }
    check("bob", (Right::Infer, Scope::Model("")), DENIED);
    check("bob", (Right::Infer, Scope::Unread), Ok(()));
    check("bob", (Right::Read, Scope::Server), DENIED);
    check("dora", (Right::Read, Scope::Server), Ok(()));
}

#[test]
fn a_key_ends_when_it_says() {
    let call = (Right::Manage, Scope::Server);
    check_at(99, "carol", call, Ok(()));
    check_at(100, "carol", call, UNKNOWN);
}

#[test]
fn a_star_stands_for_any_characters() {
    let check = |pattern: &str, fits: &[&str], fails: &[&str]| {
        fits.iter().for_each(|name| assert!(matches(pattern, name), "{pattern} {name}"));
        fails.iter().for_each(|name| assert!(!matches(pattern, name), "{pattern} {name}"));
    };
    check("*", &["", "a", "a*b"], &[]);
    check("a", &["a"], &["", "aa", "A"]);
    check("a*", &["a", "ab"], &["ba", ""]);
    check("*a", &["a", "ba"], &["ab"]);
    check("a*a", &["aa", "aba"], &["a", "ab"]);
    check("a*b*c", &["abc", "axbxc", "abbcc"], &["ac", "acb", "abcd"]);
}

#[test]
fn a_key_comes_in_either_header() {
    let check = |headers: &[(&'static str, &str)], expected: Option<&str>| {
        let headers: HeaderMap = headers
            .iter()
            .map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap()))
            .fold(HeaderMap::new(), |mut all, (name, value)| {
                all.append(name, value);
                all
            });
        let expected = expected.map(|key| Digest::of(key.as_bytes()));
        assert_eq!(presented(&headers), expected, "{headers:?}");
    };
    check(&[], None);
    check(&[("authorization", "Bearer k")], Some("k"));
    check(&[("authorization", "bearer  k ")], Some("k"));
    check(&[("x-api-key", "k")], Some("k"));
    check(&[("authorization", "Basic xyz"), ("x-api-key", "k")], Some("k"));
    check(&[("authorization", "Bearer"), ("x-api-key", "k")], Some("k"));
    check(&[("authorization", "Bearer a"), ("x-api-key", "k")], Some("a"));
    // A digest of nothing may stand in a file by mistake: it opens no door.
    check(&[("x-api-key", "")], None);
    check(&[("x-api-key", " ")], None);
    check(&[("authorization", "Bearer  ")], None);
    // Of two keys nobody knows which was looked at before.
    check(&[("x-api-key", "a"), ("x-api-key", "k")], None);
    check(&[("authorization", "Bearer a"), ("authorization", "Bearer k")], None);
    check(&[("authorization", "Basic xyz"), ("authorization", "Bearer k")], Some("k"));
}

#[test]
fn each_call_over_grpc_has_its_right() {
    let right = |path: &str| Action::of_grpc(path).right();
    let serving = |call: &str| right(&format!("/tensorflow.serving.{call}"));
    for method in ["Predict", "PredictStreamed", "Classify", "Regress", "MultiInference"] {
        assert_eq!(serving(&format!("PredictionService/{method}")), Some(Right::Infer));
    }
    assert_eq!(serving("PredictionService/GetModelMetadata"), Some(Right::Read));
    assert_eq!(serving("ModelService/GetModelStatus"), Some(Right::Read));
    assert_eq!(serving("ModelService/HandleReloadConfigRequest"), Some(Right::Manage));
    assert_eq!(right("/tensorflow.ProfilerService/Profile"), Some(Right::Read));
    assert_eq!(right("/tensord.Pages/GetPage"), Some(Right::Read));
    assert_eq!(right("/grpc.health.v1.Health/Check"), None);
    for unlisted in ["", "/", "/other.Service/Method", "/grpc.health.v1.Healthy/Check"] {
        assert_eq!(right(unlisted), Some(Right::Manage), "{unlisted}");
    }
}
