//! Tells whether a tree of files is still changing.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::SystemTime;

use crate::error::{Error, Result};
use crate::local::{Kind, Storage};

/// A digest of names, lengths and times of all files below a directory. An upload has ended when
/// two of them, taken some time apart, are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    /// The number of files.
    pub n_files: u64,
    /// The sum of their lengths.
    pub n_bytes: u64,
    /// The time at which the newest file or directory changed, the one looked at included.
    pub newest: SystemTime,
    digest: u64,
}

impl Storage {
    /// Looks at every file and directory below `path`. A link to a directory is not entered.
    ///
    /// # Errors
    /// If a directory cannot be listed. A file that vanishes meanwhile is no error: the next
    /// fingerprint will differ.
    pub fn fingerprint(&self, path: &str) -> Result<Fingerprint> {
        let root = path.trim_end_matches('/').to_owned();
        let newest = self.stat(&root)?.modified;
        let mut seen = Fingerprint { n_files: 0, n_bytes: 0, newest, digest: 0 };
        let mut hasher = DefaultHasher::new();
        let mut dirs = vec![root];
        while let Some(dir) = dirs.pop() {
            for entry in self.list(&dir)? {
                let path = if dir.is_empty() {
                    entry.name.clone()
                } else {
                    format!("{dir}/{}", entry.name)
                };
                path.hash(&mut hasher);
                let stat = match self.stat(&path) {
                    Ok(stat) => stat,
                    // A link that leads outside, a pipe without reader, or a file just deleted.
                    Err(Error::NotFound { .. } | Error::Escapes { .. } | Error::Io { .. }) => {
                        continue;
                    }
                    Err(err) => return Err(err),
                };
                (stat.len, stat.modified).hash(&mut hasher);
                seen.newest = seen.newest.max(stat.modified);
                match stat.kind {
                    Kind::Dir if !entry.is_link => dirs.push(path),
                    Kind::Dir | Kind::Other => {}
                    Kind::File => {
                        seen.n_files += 1;
                        seen.n_bytes = seen.n_bytes.saturating_add(stat.len);
                    }
                }
            }
        }
        seen.digest = hasher.finish();
        Ok(seen)
    }
}
