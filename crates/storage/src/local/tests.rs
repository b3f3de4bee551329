use std::fs;
use std::os::unix::fs::symlink;

use super::*;

/// A directory `root` with a few files, beside a file `secret` that must stay out of reach.
fn tree() -> (tempfile::TempDir, Storage) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    fs::create_dir_all(root.join("a/b")).unwrap();
    fs::write(dir.path().join("secret"), "secret").unwrap();
    fs::write(root.join("top"), "0123456789").unwrap();
    fs::write(root.join("a/b/deep"), "deep").unwrap();
    symlink("b/deep", root.join("a/inside")).unwrap();
    symlink("../top", root.join("a/up")).unwrap();
    symlink("../../secret", root.join("a/out")).unwrap();
    symlink(dir.path().join("secret"), root.join("absolute")).unwrap();
    symlink("..", root.join("parent")).unwrap();
    symlink("loop", root.join("loop")).unwrap();
    symlink("missing", root.join("dangling")).unwrap();
    let storage = crate::open(root.to_str().unwrap()).unwrap();
    (dir, storage)
}

#[track_caller]
fn check(path: &str, expected: Result<&str, &str>) {
    let (_dir, storage) = tree();
    let got = storage.read(path, 100).map_err(|err| err.to_string());
    assert_eq!(got, expected.map(Vec::from).map_err(str::to_owned));
}

#[test]
fn reads_what_is_below() {
    check("top", Ok("0123456789"));
    check("a/b/deep", Ok("deep"));
    check("./a//b/deep", Ok("deep"));
}

#[test]
fn follows_links_that_stay_below() {
    check("a/inside", Ok("deep"));
    check("a/up", Ok("0123456789"));
}

#[test]
fn refuses_every_way_out() {
    check("../secret", Err("../secret: `..` is not allowed in paths"));
    check("a/../top", Err("a/../top: `..` is not allowed in paths"));
    check("/etc/passwd", Err("/etc/passwd: absolute paths are not allowed"));
    check("a/out", Err("a/out: a link leads out of the directory"));
    check("absolute", Err("absolute: a link leads out of the directory"));
    check("parent/secret", Err("parent/secret: a link leads out of the directory"));
    check("a\0b", Err("a\0b: zero bytes are not allowed in paths"));
    let (_dir, storage) = tree();
    let below = storage.dir("a").unwrap();
    assert!(matches!(below.read("up", 100), Err(Error::Escapes { .. })));
    assert!(matches!(storage.dir("parent"), Err(Error::Escapes { .. })));
}

#[test]
fn tells_what_is_missing_or_of_the_wrong_kind() {
    check("none", Err("none: no such file or directory"));
    check("dangling", Err("dangling: no such file or directory"));
    check("a", Err("a: expected a file, got a directory"));
    check("top/x", Err("top/x: expected a directory, got a file on the way"));
    let (_dir, storage) = tree();
    assert!(matches!(storage.read("loop", 100), Err(Error::Io { .. })));
    assert!(matches!(storage.list("top"), Err(Error::Kind { .. })));
    assert!(matches!(crate::open("/no/such/dir"), Err(Error::NotFound { .. })));
    let top = storage.path().join("top");
    assert!(matches!(crate::open(top.to_str().unwrap()), Err(Error::Kind { .. })));
}

#[test]
fn a_pipe_is_refused_and_does_not_hang() {
    let (_dir, storage) = tree();
    let pipe = storage.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
    assert!(matches!(storage.read("pipe", 100), Err(Error::Kind { .. })));
}

#[test]
fn reads_at_positions_and_no_further_than_the_end() {
    let (_dir, storage) = tree();
    let file = storage.open_file("top").unwrap();
    let mut bytes = [0; 4];
    file.read_exact_at(&mut bytes, 6).unwrap();
    assert_eq!(&bytes, b"6789");
    let error = file.read_exact_at(&mut bytes, 7).unwrap_err();
    assert_eq!(
        error.to_string(),
        "top: truncated: 4 bytes at offset 7 wanted, but it has 10 bytes"
    );
    assert!(file.read_exact_at(&mut bytes, u64::MAX).is_err());
    assert!(file.check_range(u64::MAX, u64::MAX).is_err());
}

#[test]
fn a_file_over_the_limit_is_not_read() {
    let (_dir, storage) = tree();
    let sparse = fs::File::create(storage.path().join("sparse")).unwrap();
    sparse.set_len(1 << 40).unwrap();
    assert!(matches!(storage.read("sparse", 1 << 30), Err(Error::TooLarge { .. })));
    assert!(matches!(storage.read("top", 9), Err(Error::TooLarge { .. })));
    assert!(storage.read("top", 10).is_ok());
}

#[test]
fn lists_names_in_order_and_what_they_are() {
    let (_dir, storage) = tree();
    let listed: Vec<_> = storage
        .list("")
        .unwrap()
        .into_iter()
        .map(|entry| (entry.name, entry.kind, entry.is_link))
        .collect();
    let expected = [
        ("a", Kind::Dir, false),
        ("absolute", Kind::File, true),
        ("dangling", Kind::Other, true),
        ("loop", Kind::Other, true),
        ("parent", Kind::Dir, true),
        ("top", Kind::File, false),
    ];
    assert_eq!(listed, expected.map(|(name, kind, link)| (name.to_owned(), kind, link)));
}

#[test]
fn a_fingerprint_changes_with_any_file_below() {
    let (_dir, storage) = tree();
    let before = storage.fingerprint("").unwrap();
    assert_eq!(storage.fingerprint("").unwrap(), before);
    assert_eq!((before.n_files, before.n_bytes), (4, 28));
    fs::write(storage.path().join("a/b/more"), "").unwrap();
    let grown = storage.fingerprint("").unwrap();
    assert_ne!(grown, before);
    let file = fs::File::options().write(true).open(storage.path().join("a/b/deep")).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    assert_ne!(storage.fingerprint("").unwrap(), grown);
}

#[test]
fn file_urls_are_local_paths_and_other_schemes_are_refused() {
    let (_dir, storage) = tree();
    let path = storage.path().to_str().unwrap();
    assert_eq!(crate::open(&format!("file://{path}")).unwrap().path(), storage.path());
    assert_eq!(crate::open(&format!("file://localhost{path}")).unwrap().path(), storage.path());
    for scheme in ["s3", "gs", "az", "https", "hdfs"] {
        let error = crate::open(&format!("{scheme}://bucket/model")).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "{scheme}://bucket/model: {scheme}:// is not supported; give a local path or file://"
            )
        );
    }
}
