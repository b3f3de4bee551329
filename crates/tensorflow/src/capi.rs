//! TensorFlow's C API, found in a library at run time: nothing is linked.

mod functions;
mod session;
mod status;
mod tensor;

use std::ffi::CStr;
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::error::{Error, Result};
use functions::Functions;

pub(crate) use session::{Endpoints, Loading, Session, SessionRun};
pub(crate) use tensor::{Keep, TfTensor};

/// The oldest version whose C API has all that we call.
const OLDEST: (u32, u32) = (2, 8);

/// A loaded libtensorflow.
pub(crate) struct Api {
    functions: Functions,
    path: PathBuf,
    // Last, so that nothing of the library outlives it.
    _library: Library,
}

impl Api {
    /// Loads the library. Its own search path leads to the libraries beside it.
    pub(crate) fn load(path: &Path) -> Result<Self> {
        let bad = |error: libloading::Error| Error::Library {
            path: path.to_owned(),
            reason: error.to_string(),
        };
        // SAFETY: the library runs its initialisers, which is what its user asked for when they
        // named it.
        let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map_err(bad)?;
        // SAFETY: a library with all of these names is TensorFlow's, whose types they are.
        let functions = unsafe { Functions::of(&library) }.map_err(bad)?;
        let api = Self { functions, path: path.to_owned(), _library: library };
        api.check_version()?;
        Ok(api)
    }

    /// Its version, such as `2.21.0`.
    pub(crate) fn version(&self) -> String {
        // SAFETY: takes no argument.
        let version = unsafe { (self.functions.TF_Version)() };
        text(version)
    }

    fn check_version(&self) -> Result<()> {
        let version = self.version();
        if is_supported(&version) {
            return Ok(());
        }
        let (major, minor) = OLDEST;
        let reason =
            format!("it is TensorFlow {version}; needed is {major}.{minor} or later, below 3");
        Err(Error::Library { path: self.path.clone(), reason })
    }
}

/// Returns whether the C API of a version is the one we know.
pub(crate) fn is_supported(version: &str) -> bool {
    let mut parts = version.split(['.', '-']).map(|part| part.parse::<u32>().ok());
    let (Some(Some(major)), Some(Some(minor))) = (parts.next(), parts.next()) else { return false };
    major == OLDEST.0 && minor >= OLDEST.1
}

/// A text that the library gave; empty if it gave none.
fn text(start: *const std::ffi::c_char) -> String {
    if start.is_null() {
        return String::new();
    }
    // SAFETY: it is not null, and the library's texts end with a zero.
    let text = unsafe { CStr::from_ptr(start) };
    text.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_with_our_c_api_are_taken() {
        for (version, expected) in [
            ("2.21.0", true),
            ("2.8.4", true),
            ("2.23.0-dev20261026", true),
            ("2.7.0", false),
            ("1.15.5", false),
            ("3.0.0", false),
            ("", false),
            ("unknown", false),
        ] {
            assert_eq!(is_supported(version), expected, "{version}");
        }
    }

    #[test]
    fn a_library_that_is_not_there_is_an_error() {
        let error = Api::load(Path::new("no/such/libtensorflow.so")).err().unwrap();
        assert!(error.to_string().starts_with("cannot use no/such/libtensorflow.so"), "{error}");
    }
}
