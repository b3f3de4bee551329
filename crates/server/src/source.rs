//! The places of models: folders of versions, or a SavedModel by itself.

use std::path::Path;
use std::sync::Arc;

use config::control::Fence;
use config::{Config, is_saved_model};
use lifecycle::{Child, LoadError, Source, Tree, children, tree};
use savedmodel::SavedModel;
use storage::Storage;

use crate::warmup::read_error;

/// The version of a SavedModel that stands by itself, without a folder for its versions.
pub(crate) const ONLY_VERSION: i64 = 1;

/// Folders of versions; a folder that is itself a SavedModel is version 1 of it.
#[derive(Debug, Clone)]
pub(crate) struct Models {
    pub(crate) fence: Arc<Fence>,
    /// The tags of the meta graph that is served.
    pub(crate) tags: Vec<String>,
}

impl Models {
    /// The folders that a config allows.
    pub(crate) fn new(config: &Config) -> Self {
        let fence = Arc::new(Fence::new(config.control.roots.clone()));
        Self { fence, tags: config.tags.clone() }
    }

    /// Opens the folder of a version.
    ///
    /// # Errors
    /// If it is not there, or leads where it may not.
    pub(crate) fn open(&self, path: &str) -> storage::Result<Storage> {
        self.fence.open(&folder(path))
    }
}

impl Source for Models {
    fn list(&self, base_path: &str) -> Result<Vec<Child>, LoadError> {
        if is_saved_model(Path::new(base_path)) {
            return Ok(vec![Child { name: ONLY_VERSION.to_string(), is_folder: true }]);
        }
        children(self.fence.open(base_path), base_path)
    }

    fn tree(&self, path: &str) -> Result<Tree, LoadError> {
        tree(self.open(path))
    }

    fn check(&self, path: &str) -> Result<(), LoadError> {
        let dir = self.open(path).map_err(savedmodel::Error::from);
        let model = dir.and_then(|dir| SavedModel::open(&dir, &self.tags));
        model.and_then(|model| model.check_files()).map_err(|error| read_error(&error))
    }
}

/// The folder that holds a version: its own, or the model's if that is a SavedModel itself.
fn folder(path: &str) -> String {
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
