//! Where models are found: folders of versions, or a SavedModel by itself.

use std::path::Path;

use lifecycle::{Child, Folders, LoadError, Source, Tree};

/// The version of a SavedModel that stands by itself, without a folder for its versions.
pub(crate) const ONLY_VERSION: i64 = 1;

/// Folders of versions; a folder that is itself a SavedModel is version 1 of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Models;

impl Source for Models {
    fn list(&self, base_path: &str) -> Result<Vec<Child>, LoadError> {
        if is_saved_model(Path::new(base_path)) {
            return Ok(vec![Child { name: ONLY_VERSION.to_string(), is_folder: true }]);
        }
        Folders.list(base_path)
    }

    fn tree(&self, path: &str) -> Result<Tree, LoadError> {
        Folders.tree(&folder(path))
    }
}

/// The folder that holds a version: its own, or the model's if that is a SavedModel itself.
pub(crate) fn folder(path: &str) -> String {
    let path = path.trim_end_matches('/');
    match path.rsplit_once('/') {
        Some((base, version))
            if version == ONLY_VERSION.to_string() && is_saved_model(Path::new(base)) =>
        {
            base.to_owned()
        }
        _ => path.to_owned(),
    }
}

/// Whether a folder is a SavedModel.
pub(crate) fn is_saved_model(dir: &Path) -> bool {
    ["saved_model.pb", "saved_model.pbtxt"].iter().any(|name| dir.join(name).is_file())
}
