//! The file of `--api_keys_file`: the keys that calls need.

use std::path::Path;
use std::str::FromStr as _;
use std::time::SystemTime;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use api::{Digest, Key, Right};
use prost_types::Timestamp;
use proto::serving::{ApiKey, ApiKeyList};

/// The keys that a text from a file lists.
///
/// # Errors
/// If it makes no sense or has no key: nobody could ask anything.
pub fn keys(text: &str, path: &Path) -> Result<Vec<Key>> {
    let list: ApiKeyList = if text.trim_start().starts_with('{') {
        proto::json::parse(text).map_err(|error| anyhow!("{}: {error}", path.display()))?
    } else {
        proto::text::parse(text).map_err(|error| anyhow!("{}:{error}", path.display()))?
    };
    ensure!(!list.keys.is_empty(), "{}: there is no key in it", path.display());
    let mut keys: Vec<Key> = Vec::new();
    for key in list.keys {
        let name = key.name.clone();
        let key = read(key).with_context(|| format!("{}: key {name:?}", path.display()))?;
        let is_twice = keys.iter().any(|other| other.name == name || other.digest == key.digest);
        ensure!(!is_twice, "{}: key {name:?} is there twice", path.display());
        keys.push(key);
    }
    Ok(keys)
}

fn read(key: ApiKey) -> Result<Key> {
    ensure!(!key.name.is_empty(), "it has no name");
    let digest = Digest::parse(&key.sha256);
    let digest =
        digest.context("sha256: expected 64 hexadecimals, as `tensord keys new` prints")?;
    ensure!(!key.rights.is_empty(), "it has no rights: expected infer, read or manage");
    ensure!(!key.models.is_empty(), "it is for no models: write models: \"*\" for all of them");
    let rights: Result<Vec<Right>> = key.rights.iter().map(|word| right(word)).collect();
    let expires = if key.expires.is_empty() { None } else { Some(time(&key.expires)?) };
    Ok(Key { name: key.name, digest, rights: rights?, models: key.models, expires })
}

/// The right that a word names.
///
/// # Errors
/// If it names none.
pub fn right(word: &str) -> Result<Right> {
    match Right::parse(word) {
        Some(right) => Ok(right),
        None => bail!("{word:?} is no right: expected infer, read or manage"),
    }
}

/// A time as RFC 3339 writes it.
///
/// # Errors
/// If it is none.
pub fn time(text: &str) -> Result<SystemTime> {
    let wrong = || format!("expires: {text:?}: expected a time as 2026-12-31T23:59:59Z");
    let stamp = Timestamp::from_str(text).ok().with_context(wrong)?;
    SystemTime::try_from(stamp).ok().with_context(wrong)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SHA: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn read_all(text: &str) -> Result<Vec<Key>> {
        keys(&text.replace("SHA", SHA), Path::new("keys.txt"))
    }

    #[test]
    fn keys_are_read_from_text_and_json() {
        let text = r#"keys { name: "a" sha256: "SHA" rights: ["infer", "read"] models: "*" }"#;
        let json = r#"{"keys": [{"name": "a", "sha256": "SHA", "rights": ["infer", "read"],
                       "models": ["*"], "expires": "1970-01-01T00:01:00+00:00"}]}"#;
        let mut expected = Key {
            name: "a".to_owned(),
            digest: Digest::of(b"abc"),
            rights: vec![Right::Infer, Right::Read],
            models: vec!["*".to_owned()],
            expires: None,
        };
        assert_eq!(read_all(text).unwrap(), [expected.clone()]);
        expected.expires = Some(SystemTime::UNIX_EPOCH + Duration::from_secs(60));
        assert_eq!(read_all(json).unwrap(), [expected]);
    }

    #[track_caller]
    fn check_wrong(text: &str, expected: &str) {
        let error = format!("{:#}", read_all(text).unwrap_err());
        assert!(error.contains(expected), "{text}: {error}");
    }

    #[test]
    fn what_is_wrong_with_a_key_is_said() {
        let key = |fields: &str| format!("keys {{ name: 'a' sha256: 'SHA' {fields} }}");
        check_wrong("", "there is no key in it");
        check_wrong("{}", "there is no key in it");
        check_wrong("keys { nane: 'a' }", "keys.txt:1:8");
        check_wrong(
            "keys { name: 'a' sha256: 'abc' }",
            "key \"a\": sha256: expected 64 hexadecimals",
        );
        check_wrong("keys { sha256: 'SHA' rights: 'infer' models: '*' }", "it has no name");
        check_wrong(&key("models: '*'"), "it has no rights");
        check_wrong(&key("rights: 'infer'"), "it is for no models");
        check_wrong(&key("rights: 'write' models: '*'"), "\"write\" is no right");
        check_wrong(&key("rights: 'read' models: '*' expires: 'soon'"), "expected a time as");
        let twice = key("rights: 'read' models: '*'");
        check_wrong(&format!("{twice} {twice}"), "is there twice");
    }
}
