//! Lists and reads files at a URL.
//!
//! A [`Storage`] is a directory. Paths are relative to it and cannot leave it: not by `..`, not by
//! being absolute, not through a symbolic link. What a model names (assets, shards) is opened only
//! through the storage of that model.
#![forbid(unsafe_code)]

mod confined;
mod error;
mod file;
mod fingerprint;
mod local;
mod url;

pub use error::{Error, Result};
pub use file::File;
pub use fingerprint::Fingerprint;
pub use local::{Entry, Kind, Stat, Storage};

/// Opens the directory at a URL: a local path or `file://`.
///
/// The directory itself may be reached through symbolic links; only what is below is confined.
///
/// # Errors
/// [`Error::Scheme`] for `s3://` and other schemes that are not built in; else if it is not there
/// or is no directory.
pub fn open(url: &str) -> Result<Storage> {
    match url::scheme(url) {
        None => Storage::open(url),
        Some(("file", rest)) => Storage::open(url::path_after_host(rest)),
        Some((scheme, _)) => {
            Err(Error::Scheme { scheme: scheme.to_owned(), url: url::without_secrets(url) })
        }
    }
}
