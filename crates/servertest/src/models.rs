//! The demo models, and folders made of them.

use std::path::{Path, PathBuf};

use crate::Server;

/// The root of the repository.
///
/// # Panics
/// If it is gone.
pub fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().expect("the repository is there")
}

/// Copies a folder with all that is in it.
///
/// # Panics
/// If a file cannot be read or written.
pub fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder can be made");
    for entry in std::fs::read_dir(from).expect("the folder is there") {
        let entry = entry.expect("it can be listed");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("a file can be copied");
        }
    }
}

/// The demo model that needs least.
pub fn half_plus_two() -> PathBuf {
    root().join("models/half_plus_two/00000123")
}

/// Makes a folder with versions of the demo model.
pub fn model_with_versions(folder: &Path, versions: &[i64]) {
    for version in versions {
        copy(&half_plus_two(), &folder.join(version.to_string()));
    }
}

/// Asks a model for half of three numbers, plus two.
///
/// # Panics
/// If it answers anything else.
#[track_caller]
pub fn check_half_plus_two(server: &Server, model: &str) {
    let path = format!("/v1/models/{model}:predict");
    let (status, body) = server.rest("POST", &path, r#"{"instances": [1.0, 2.0, 5.0]}"#);
    assert_eq!(status, 200, "{body}");
    assert_eq!(body, "{\n    \"predictions\": [2.5, 3.0, 4.5\n    ]\n}");
}
