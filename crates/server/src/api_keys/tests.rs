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
    check_wrong("keys { name: 'a' sha256: 'abc' }", "key \"a\": sha256: expected 64 hexadecimals");
    check_wrong("keys { sha256: 'SHA' rights: 'infer' models: '*' }", "it has no name");
    check_wrong(&key("models: '*'"), "it has no rights");
    check_wrong(&key("rights: 'infer'"), "it is for no models");
    check_wrong(&key("rights: 'write' models: '*'"), "\"write\" is no right");
    check_wrong(&key("rights: 'read' models: '*' expires: 'soon'"), "expected a time as");
    let twice = key("rights: 'read' models: '*'");
    check_wrong(&format!("{twice} {twice}"), "is there twice");
}

#[test]
fn a_text_is_taken_when_it_rests_and_a_wrong_one_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys");
    let key = |name: &str| {
        let sha = Digest::of(name.as_bytes());
        format!("keys {{ name: '{name}' sha256: '{sha}' rights: 'read' models: '*' }}\n")
    };
    let both = format!("{}{}", key("a"), key("b"));
    std::fs::write(&path, &both).unwrap();
    let mut file = ApiKeysFile::open(&path).unwrap();
    let look = |file: &mut ApiKeysFile, text: &str| {
        file.look(text.to_owned());
        format!("{:?}", file.access).matches("name: ").count()
    };
    // Half of the file, between two keys, makes sense, and is not taken at once.
    assert_eq!(look(&mut file, &key("a")), 2);
    assert_eq!(look(&mut file, &both), 2);
    assert_eq!(look(&mut file, &key("a")), 2);
    assert_eq!(look(&mut file, &key("a")), 1);
    for wrong in ["", "keys {", &key("a").replace("read", "rread")] {
        for _ in 0..3 {
            assert_eq!(look(&mut file, wrong), 1, "{wrong}");
        }
    }
    assert_eq!(look(&mut file, &both), 1);
    assert_eq!(look(&mut file, &both), 2);
}
