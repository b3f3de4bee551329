//! The source that reads storage: a folder for a model, a folder in it for each version.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use status::Code;
use storage::Storage;

use crate::error::LoadError;
use crate::look::{Source, Tree};
use crate::versions::Child;

/// Finds versions in folders at any URL that `storage` can open.
#[derive(Debug, Clone, Copy, Default)]
pub struct Folders;

impl Source for Folders {
    fn list(&self, base_path: &str) -> Result<Vec<Child>, LoadError> {
        children(storage::open(base_path), base_path)
    }

    fn tree(&self, path: &str) -> Result<Tree, LoadError> {
        tree(storage::open(path))
    }

    fn check(&self, _path: &str) -> Result<(), LoadError> {
        // Which files a version needs is known to those who load it.
        Ok(())
    }
}

/// The entries of the folder of a model, for a source that opens it in its own way.
///
/// # Errors
/// If it could not be opened, or cannot be listed.
pub fn children(
    folder: storage::Result<Storage>,
    base_path: &str,
) -> Result<Vec<Child>, LoadError> {
    let entries = folder.and_then(|folder| folder.list("")).map_err(|error| {
        let message = format!("Could not find base path {base_path}: {error}");
        LoadError::new(code(&error), message)
    })?;
    let child = |entry: storage::Entry| {
        let is_folder = entry.is_dir();
        Child { name: entry.name, is_folder }
    };
    Ok(entries.into_iter().map(child).collect())
}

/// The contents of the folder of a version, for a source that opens it in its own way.
///
/// # Errors
/// If it could not be opened, or cannot be looked through.
pub fn tree(folder: storage::Result<Storage>) -> Result<Tree, LoadError> {
    let look = || {
        let folder = folder?;
        Ok((folder.fingerprint("")?, folder.list("")?))
    };
    let (fingerprint, entries) =
        look().map_err(|error| LoadError::new(code(&error), error.to_string()))?;
    let mut hasher = DefaultHasher::new();
    fingerprint.hash(&mut hasher);
    let names = entries.into_iter().map(|entry| entry.name).collect();
    Ok(Tree { fingerprint: hasher.finish(), modified: fingerprint.newest, names })
}

fn code(error: &storage::Error) -> Code {
    match error {
        storage::Error::Scheme { .. } => Code::Unimplemented,
        storage::Error::NotFound { .. } => Code::NotFound,
        storage::Error::Denied { .. } => Code::PermissionDenied,
        storage::Error::Escapes { .. } | storage::Error::Kind { .. } => Code::InvalidArgument,
        storage::Error::TooLarge { .. } => Code::ResourceExhausted,
        storage::Error::Truncated { .. } => Code::DataLoss,
        storage::Error::Io { .. } => Code::Unavailable,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn text(path: &Path) -> &str {
        path.to_str().expect("the temporary folder has a readable name")
    }

    #[test]
    fn folders_and_files_are_told_apart() {
        let base = tempfile::tempdir().unwrap();
        fs::create_dir(base.path().join("1")).unwrap();
        fs::write(base.path().join("2"), "").unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), base.path().join("3")).unwrap();
        let mut found = Folders.list(text(base.path())).unwrap();
        found.sort_by(|a, b| a.name.cmp(&b.name));
        let found: Vec<(&str, bool)> =
            found.iter().map(|child| (child.name.as_str(), child.is_folder)).collect();
        assert_eq!(found, [("1", true), ("2", false), ("3", true)]);
    }

    #[test]
    fn a_fingerprint_changes_with_the_files() {
        let version = tempfile::tempdir().unwrap();
        let tree = || Folders.tree(text(version.path())).unwrap();
        let empty = tree();
        assert_eq!(empty, tree());
        fs::create_dir(version.path().join("variables")).unwrap();
        fs::write(version.path().join("variables/a"), "1").unwrap();
        let filled = tree();
        assert_ne!(empty.fingerprint, filled.fingerprint);
        assert_eq!(filled.names, ["variables"]);
        assert!(filled.modified >= empty.modified);
        fs::write(version.path().join("variables/a"), "12").unwrap();
        assert_ne!(filled.fingerprint, tree().fingerprint);
    }

    #[track_caller]
    fn check(base_path: &str, code: Code) {
        assert_eq!(Folders.list(base_path).unwrap_err().status.code, code, "{base_path}");
    }

    #[test]
    fn what_cannot_be_listed_says_why() {
        let base = tempfile::tempdir().unwrap();
        fs::write(base.path().join("file"), "").unwrap();
        check(text(&base.path().join("none")), Code::NotFound);
        check(text(&base.path().join("file")), Code::InvalidArgument);
        check("s3://bucket/model", Code::Unimplemented);
    }
}
