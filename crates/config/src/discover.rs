//! The kind of a folder on the command line: a SavedModel, a model with versions, or many models.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use savedmodel::foreign;
use storage::Storage;

use crate::misplaced;

/// A model found on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) name: String,
    pub(crate) base_path: PathBuf,
    /// The only version to be served, if the folder named it.
    pub(crate) version: Option<i64>,
}

/// The models in the folders, by name. Fails if there are none, or two of one name.
pub(crate) fn discover(dirs: &[PathBuf]) -> Result<Vec<Found>> {
    let mut all = BTreeMap::new();
    for dir in dirs {
        let models = look(dir)?;
        if models.is_empty() {
            if misplaced::too_shallow(dir).is_none()
                && let Some(advice) = other_format(dir)
            {
                bail!("{advice}");
            }
            bail!(
                "{} is no SavedModel, no model with versions and no folder of models: \
                 expected saved_model.pb in it, in a numbered folder, or one level deeper; {}",
                dir.display(),
                misplaced::remedy(dir)
            );
        }
        for model in models {
            let name = model.name.clone();
            if let Some(before) = all.insert(name.clone(), model) {
                let (a, b) = (before.base_path.display(), dir.display());
                bail!("two models are called {name}: {a} and one in {b}");
            }
        }
    }
    Ok(all.into_values().collect())
}

fn look(dir: &Path) -> Result<Vec<Found>> {
    let dir = found(dir)?;
    let cannot = || format!("cannot read the folder {}", dir.display());
    std::fs::read_dir(&dir).with_context(cannot)?;
    if is_saved_model(&dir) {
        return Ok(vec![saved_model(&dir)]);
    }
    if has_versions(&dir) {
        return Ok(vec![Found { name: name(&dir), base_path: dir, version: None }]);
    }
    let mut found = Vec::new();
    for child in children(&dir) {
        if is_saved_model(&child) || has_versions(&child) {
            found.push(Found { name: name(&child), base_path: child, version: None });
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// The folder that was named, also by the `saved_model.pb` in it.
///
/// # Errors
/// If it is not there; if it is a file of another format, with how to get a SavedModel.
fn found(path: &Path) -> Result<PathBuf> {
    let shown = path.display();
    let path = path.canonicalize().with_context(|| format!("cannot open {shown}"))?;
    if !path.is_file() {
        return Ok(path);
    }
    let parent = path.parent().unwrap_or(&path).to_path_buf();
    match other_format(&path) {
        None if is_saved_model(&parent) => Ok(parent),
        None => bail!("{shown} is a file: expected the folder that holds saved_model.pb"),
        Some(advice) => bail!("{advice}"),
    }
}

/// Says of a file, or of a folder, or of one with versions, which other format it has, and how to
/// get a SavedModel.
fn other_format(path: &Path) -> Option<String> {
    if path.is_file() {
        let dir = storage::open(path.parent()?.to_str()?).ok()?;
        return foreign::advice_on_file(&dir, path.file_name()?.to_str()?);
    }
    let in_folder = |dir: &Path| foreign::advice_on(&storage::open(dir.to_str()?).ok()?);
    let versions = || {
        let mut folders = children(path).into_iter();
        folders.find(|child| name(child).parse::<i64>().is_ok())
    };
    in_folder(path).or_else(|| in_folder(&versions()?))
}

/// A SavedModel by itself: in a numbered folder it is that version of the model around it.
fn saved_model(dir: &Path) -> Found {
    let version = name(dir).parse::<i64>().ok().filter(|version| *version >= 0);
    match (version, dir.parent()) {
        (Some(version), Some(parent)) if parent.file_name().is_some() => {
            Found { name: name(parent), base_path: parent.to_path_buf(), version: Some(version) }
        }
        _ => Found { name: name(dir), base_path: dir.to_path_buf(), version: None },
    }
}

pub(crate) fn has_versions(dir: &Path) -> bool {
    children(dir).iter().any(|child| name(child).parse::<i64>().is_ok() && is_saved_model(child))
}

pub(crate) fn children(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

pub(crate) fn name(dir: &Path) -> String {
    dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Returns whether a folder is a SavedModel.
pub fn is_saved_model(dir: &Path) -> bool {
    ["saved_model.pb", "saved_model.pbtxt"].iter().any(|name| dir.join(name).is_file())
}

/// Opens the SavedModel that a folder is or, if it is a model with versions, its newest one.
///
/// # Errors
/// If there is no such folder, or it cannot be opened.
pub fn open_model(dir: &Path) -> Result<Storage> {
    let mut dir = found(dir)?;
    if !is_saved_model(&dir) {
        let entries = std::fs::read_dir(&dir).into_iter().flatten().flatten();
        let version = |path: &Path| path.file_name()?.to_str()?.parse::<i64>().ok();
        let versions = entries.map(|entry| entry.path()).filter(|path| is_saved_model(path));
        if let Some(newest) = versions.max_by_key(|path| version(path)) {
            dir = newest;
        } else if let Some(advice) = other_format(&dir) {
            bail!("{advice}");
        }
    }
    Ok(storage::open(&dir.to_string_lossy())?)
}
