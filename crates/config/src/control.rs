//! Changes of the list of models: the settings, the list, the changes that clients made and the
//! file that keeps them, and the folders that clients may name.

mod fence;
mod listed;
pub mod roots;
mod store;

use std::path::{Path, PathBuf};

use crate::model_config::Rules;
pub use fence::Fence;
pub use listed::{Changes, Listed, NamedBy};
pub use store::Store;

/// The settings for changes of the list of models.
#[derive(Debug, Clone)]
pub struct Options {
    /// The defaults of values that the configs of models may leave open.
    pub rules: Rules,
    /// The folders from which clients may add models.
    pub roots: Roots,
    /// The folder in which changes are kept over a restart.
    pub state_dir: Option<PathBuf>,
}

/// The folders below which models may be that clients add. Without any, clients add none.
#[derive(Debug, Clone, Default)]
pub struct Roots(Vec<PathBuf>);

impl Roots {
    /// Makes roots of these folders, which must be there.
    pub fn new(dirs: &[PathBuf]) -> anyhow::Result<Self> {
        let canonical = |dir: &PathBuf| {
            let open = |error| anyhow::anyhow!("--model_roots={}: {error}", dir.display());
            dir.canonicalize().map_err(open)
        };
        dirs.iter().map(canonical).collect::<anyhow::Result<_>>().map(Self)
    }

    /// Returns whether there are no roots.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The root that a path without links is below.
    pub fn root_of(&self, real: &Path) -> Option<&Path> {
        self.0.iter().map(PathBuf::as_path).find(|root| real.starts_with(root))
    }
}
