//! Errors of files.

use std::io;

/// The result of a storage operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason that a file could not be listed or read. Paths are as asked for, below the storage's
/// own.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The URL is of a kind that is not built in.
    #[error("{url}: {scheme}:// is not supported; give a local path or file://")]
    Scheme {
        /// The scheme.
        scheme: String,
        /// The URL, without user and query.
        url: String,
    },
    /// There is no such file.
    #[error("{path}: no such file or directory")]
    NotFound {
        /// The path.
        path: String,
    },
    /// We may not read it.
    #[error("{path}: permission denied")]
    Denied {
        /// The path.
        path: String,
    },
    /// The path leads out of the storage.
    #[error("{path}: {reason}")]
    Escapes {
        /// The path.
        path: String,
        /// The way by which the path would get out.
        reason: &'static str,
    },
    /// It is a file where a directory is needed, or the other way round, or neither.
    #[error("{path}: expected {expected}, got {got}")]
    Kind {
        /// The path.
        path: String,
        /// The kind that is needed.
        expected: &'static str,
        /// The kind that is there.
        got: &'static str,
    },
    /// The file is larger than the reader wants to take.
    #[error("{path}: {len} bytes, at most {limit} are taken")]
    TooLarge {
        /// The path.
        path: String,
        /// Its length.
        len: u64,
        /// The limit.
        limit: u64,
    },
    /// The file ends before the bytes that were asked for.
    #[error("{path}: truncated: {wanted} bytes at offset {offset} wanted, but it has {len} bytes")]
    Truncated {
        /// The path.
        path: String,
        /// The offset at which the read started.
        offset: u64,
        /// The number of bytes that were wanted.
        wanted: u64,
        /// The length of the file.
        len: u64,
    },
    /// Anything else the system reports.
    #[error("{path}: {source}")]
    Io {
        /// The path.
        path: String,
        /// The system's error.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn io(path: &str, source: impl Into<io::Error>) -> Self {
        let (path, source) = (path.to_owned(), source.into());
        let kind = source.kind();
        if kind == io::ErrorKind::NotFound {
            Self::NotFound { path }
        } else if kind == io::ErrorKind::PermissionDenied {
            Self::Denied { path }
        } else if kind == io::ErrorKind::NotADirectory {
            Self::Kind { path, expected: "a directory", got: "a file on the way" }
        } else {
            Self::Io { path, source }
        }
    }
}
