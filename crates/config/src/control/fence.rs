//! `Fence`: holds the folders of models that clients named to `--model_roots`.
//!
//! The base path was checked when a client named it. Whoever may write below a root could put a
//! link in its place later, or make a version a link to another folder. So each folder is opened
//! from its root, without a way out of it. Folders that the operator named may be links to
//! anywhere, as in TensorFlow Serving: volumes of Kubernetes are made of them.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;

use arc_swap::ArcSwap;
use storage::{Error, Result, Storage};

use super::Roots;

/// Opens the folders of models.
#[derive(Debug, Default)]
pub struct Fence {
    roots: Roots,
    /// The base paths that clients named.
    fenced: ArcSwap<BTreeSet<String>>,
}

impl Fence {
    /// With these roots, and nothing that is held to them yet.
    pub fn new(roots: Roots) -> Self {
        Self { roots, fenced: ArcSwap::default() }
    }

    /// Holds these base paths, and no others, to the roots. Without roots, none is held.
    pub fn hold(&self, base_paths: BTreeSet<String>) {
        self.fenced.store(base_paths.into());
    }

    /// Opens a base path, or the folder of a version.
    ///
    /// # Errors
    /// If it is not there, or leads out of the roots that it is held to.
    pub fn open(&self, path: &str) -> Result<Storage> {
        if self.roots.is_empty() || !self.is_fenced(path) {
            return storage::open(path);
        }
        let real = local(path).canonicalize().map_err(|error| cannot(path, error))?;
        let escapes =
            || Error::Escapes { path: path.to_owned(), reason: "not below --model_roots" };
        let root = self.roots.root_of(&real).ok_or_else(escapes)?;
        let below = real.strip_prefix(root).ok().and_then(Path::to_str).ok_or_else(escapes)?;
        // A link that was put there just now leads nowhere else either.
        storage::open(&root.to_string_lossy())?.dir(below)
    }

    fn is_fenced(&self, path: &str) -> bool {
        let is_at_or_below = |base: &String| {
            let rest = path.strip_prefix(base.trim_end_matches('/'));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.fenced.load().iter().any(is_at_or_below)
    }
}

fn local(path: &str) -> &Path {
    Path::new(path.strip_prefix("file://").unwrap_or(path))
}

fn cannot(path: &str, source: std::io::Error) -> Error {
    let path = path.to_owned();
    match source.kind() {
        ErrorKind::NotFound => Error::NotFound { path },
        ErrorKind::PermissionDenied => Error::Denied { path },
        _ => Error::Io { path, source },
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn no_link_leads_out_of_the_roots() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
        for dir in ["root/a/1", "root/other", "outside/1", "root-two/1"] {
            fs::create_dir_all(path(dir)).unwrap();
        }
        symlink(path("outside/1"), path("root/a/2")).unwrap();
        symlink("../../outside/1", path("root/a/3")).unwrap();
        symlink(path("root/other"), path("root/a/4")).unwrap();
        symlink("../other", path("root/a/5")).unwrap();
        symlink(path("root-two"), path("root/b")).unwrap();
        let fence = Fence::new(Roots::new(&[folder.path().join("root")]).unwrap());
        let opens = |name: &str| fence.open(&path(name)).is_ok();
        let all = ["a", "a/1", "a/2", "a/3", "a/4", "a/5", "b", "b/1"];
        // The operator may have links as he likes.
        assert!(all.iter().all(|name| opens(&format!("root/{name}"))));
        fence.hold([path("root/a"), path("root/b")].into());
        for (name, expected) in all.iter().zip([true, true, false, false, true, true, false, false])
        {
            assert_eq!(opens(&format!("root/{name}")), expected, "{name}");
        }
        // A folder with a name that begins so is another.
        assert!(opens("root-two/1"));
        let refused = fence.open(&path("root/a/2")).unwrap_err().to_string();
        assert!(refused.contains("not below --model_roots"), "{refused}");
        // A base path that becomes a link after it was checked.
        fs::rename(path("root/a"), path("root/was")).unwrap();
        symlink(path("outside"), path("root/a")).unwrap();
        assert!(!opens("root/a") && !opens("root/a/1"));
    }
}
