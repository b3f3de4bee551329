//! The likely mistake behind a folder that has no model: another level, or another name.

use std::path::{Path, PathBuf};

use crate::discover::{children, has_versions, is_saved_model, name};

/// The remedy where a folder has no model.
pub fn remedy(dir: &Path) -> String {
    let inner = children(dir);
    let renamed = || misnamed(&inner).map(|version| version.remedy());
    too_shallow(dir).or_else(renamed).or_else(|| too_deep(&inner)).unwrap_or_else(|| {
        match std::fs::read_dir(dir).is_ok_and(|mut all| all.next().is_none()) {
            true => "the folder is empty".to_owned(),
            false => "give another folder".to_owned(),
        }
    })
}

/// A folder within a SavedModel was given.
pub(crate) fn too_shallow(dir: &Path) -> Option<String> {
    let dir = dir.canonicalize().ok()?;
    let above = dir.parent().filter(|above| is_saved_model(above))?;
    Some(format!("it is a part of a SavedModel: give {}", above.display()))
}

/// A version whose folder is no number.
struct Misnamed {
    folder: PathBuf,
    number: i64,
}

impl Misnamed {
    fn remedy(&self) -> String {
        let folder = self.folder.display();
        format!("the folder of a version is a number: rename {folder} to {}", self.number)
    }
}

/// The first SavedModel, two levels down, that is called as `v1` is.
fn misnamed(inner: &[PathBuf]) -> Option<Misnamed> {
    let below = inner.iter().flat_map(|child| children(child));
    let mut models = below.filter(|folder| is_saved_model(folder));
    models.find_map(|folder| {
        let digits = name(&folder);
        let number = digits.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().ok()?;
        Some(Misnamed { folder, number })
    })
}

/// Models are there, one level below.
fn too_deep(inner: &[PathBuf]) -> Option<String> {
    let is_model = |folder: &PathBuf| is_saved_model(folder) || has_versions(folder);
    let model = inner.iter().find(|child| children(child).iter().any(is_model))?;
    Some(format!("models are one level deeper: give {}", model.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_without_models_says_what_is_likely_wrong() {
        let check = |files: &[&str], given: &str, expected: &str| {
            let folder = tempfile::tempdir().unwrap();
            for file in files {
                let path = folder.path().join(file);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, "").unwrap();
            }
            let text = remedy(&folder.path().join(given));
            assert!(text.contains(expected), "{files:?}: {text}");
        };
        check(&[], "", "the folder is empty");
        check(&["m/v1/saved_model.pb"], "", "m/v1 to 1");
        check(&["a/b/1/saved_model.pb"], "", "models are one level deeper: give ");
        check(&["saved_model.pb", "variables/v.index"], "variables", "a part of a SavedModel");
        check(&["weights.txt"], "", "give another folder");
    }
}
