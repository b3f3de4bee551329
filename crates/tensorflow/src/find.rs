//! The search for TensorFlow's library.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Advice for users without the library.
pub const HOW_TO_INSTALL: &str = "install TensorFlow (`pip install tensorflow-cpu`, or \
     `tensorflow[and-cuda]` for NVIDIA GPUs) into the active Python, or name its library with \
     --tensorflow_library or TENSORD_TENSORFLOW";

/// The names of the library, those of Python's packages first.
const NAMES: &[&str] =
    &["libtensorflow_cc.so.2", "libtensorflow.so.2", "libtensorflow_cc.so", "libtensorflow.so"];

/// The folders of packages below the folder of a Python.
const PACKAGES: &[&str] = &["site-packages", "dist-packages"];

/// The places to search.
#[derive(Debug, Clone, Default)]
pub struct Places {
    /// The path that the user named: the library, its folder, or a folder of Python packages.
    pub given: Option<PathBuf>,
    /// The folders that Pythons are installed in, such as `/usr`; the active one first.
    pub python_prefixes: Vec<PathBuf>,
}

/// Finds the library. `None` if there is none; the Pythons are not run.
///
/// # Errors
/// If the user named something that is not there.
pub fn find(places: &Places) -> Result<Option<PathBuf>> {
    if let Some(given) = &places.given {
        let missing = || Error::Library {
            path: given.clone(),
            reason: format!("neither this nor a {} in it is there", NAMES[0]),
        };
        return Ok(Some(given_library(given).ok_or_else(missing)?));
    }
    Ok(places.python_prefixes.iter().find_map(|prefix| in_python(prefix)))
}

fn given_library(given: &Path) -> Option<PathBuf> {
    if given.is_file() {
        return Some(given.to_owned());
    }
    [given.to_owned(), given.join("tensorflow"), given.join("lib")]
        .iter()
        .find_map(|folder| in_folder(folder))
        .or_else(|| in_python(given))
}

fn in_folder(folder: &Path) -> Option<PathBuf> {
    NAMES.iter().map(|name| folder.join(name)).find(|path| path.is_file())
}

/// The library in the packages of a Python, of the newest if several versions share a folder.
fn in_python(prefix: &Path) -> Option<PathBuf> {
    let mut found: Vec<(u32, PathBuf)> = Vec::new();
    for lib in ["lib", "lib64", "local/lib"] {
        let entries = std::fs::read_dir(prefix.join(lib)).into_iter().flatten().flatten();
        for entry in entries {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Some(version) = name.strip_prefix("python3") else { continue };
            let minor = version.trim_start_matches('.').parse().unwrap_or(0);
            for packages in PACKAGES {
                let folder = entry.path().join(packages).join("tensorflow");
                found.extend(in_folder(&folder).map(|library| (minor, library)));
            }
        }
    }
    found.sort();
    found.pop().map(|(_, library)| library)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(path: &Path) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "").unwrap();
    }

    #[test]
    fn the_newest_python_of_the_first_prefix_that_has_it_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        let library = |python: &str| {
            folder.path().join(python).join("site-packages/tensorflow/libtensorflow_cc.so.2")
        };
        let prefixes =
            vec![folder.path().join("none"), folder.path().join("a"), folder.path().join("b")];
        let places = Places { given: None, python_prefixes: prefixes };
        assert_eq!(find(&places).unwrap(), None);
        touch(&library("b/lib/python3.12"));
        assert_eq!(find(&places).unwrap(), Some(library("b/lib/python3.12")));
        touch(&library("a/lib/python3.9"));
        touch(&library("a/lib/python3.11"));
        assert_eq!(find(&places).unwrap(), Some(library("a/lib/python3.11")));
    }

    #[test]
    fn what_the_user_named_may_be_a_file_or_a_folder_around_it() {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("lib/python3.11/site-packages/tensorflow");
        let library = library.join("libtensorflow_cc.so.2");
        touch(&library);
        for given in ["", "lib/python3.11/site-packages", "lib/python3.11/site-packages/tensorflow"]
        {
            let places = Places { given: Some(folder.path().join(given)), ..Places::default() };
            assert_eq!(find(&places).unwrap(), Some(library.clone()), "{given}");
        }
        let places = Places { given: Some(library.clone()), ..Places::default() };
        assert_eq!(find(&places).unwrap(), Some(library));
        let places = Places { given: Some(folder.path().join("no")), ..Places::default() };
        assert!(find(&places).is_err());
    }
}
