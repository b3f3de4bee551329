//! The changes of clients, kept in a file over a restart.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;

use anyhow::{Context, Result};
use proto::serving::ModelConfigList;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::listed::Changes;

/// The file in the folder.
const FILE: &str = "models.json";

/// Keeps changes in a folder. A file is either the old one or the new one, never half of it.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
}

impl Store {
    /// In this folder, which is made when it is needed.
    pub fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// The text that was written last; nothing if there is no file.
    pub fn read(&self) -> Result<Changes> {
        let path = self.dir.join(FILE);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Changes::default()),
            Err(error) => return Err(error).context(format!("cannot read {}", path.display())),
        };
        let damaged = || {
            let path = path.display();
            format!("{path} is damaged; remove it to start without what clients added")
        };
        parse(&text).with_context(damaged)
    }

    /// Replaces what was written last.
    pub fn write(&self, changes: &Changes) -> Result<()> {
        let added = ModelConfigList { config: changes.added.values().cloned().collect() };
        let saved = SavedChanges {
            added: proto::json::to_value(&added)?,
            removed: changes.removed.clone(),
        };
        let text = serde_json::to_string(&saved)?;
        let write = || -> std::io::Result<()> {
            fs::create_dir_all(&self.dir)?;
            let new = self.dir.join(format!("{FILE}.new"));
            let mut file = File::create(&new)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(new, self.dir.join(FILE))
        };
        write().with_context(|| format!("cannot write to {}", self.dir.display()))
    }
}

/// The content of the file.
#[derive(Serialize, Deserialize)]
struct SavedChanges {
    /// A `ModelConfigList`, as the JSON of protobuf has it.
    added: Value,
    /// The names of models.
    #[serde(default)]
    removed: BTreeSet<String>,
}

fn parse(text: &str) -> Result<Changes> {
    let SavedChanges { added, removed } = serde_json::from_str(text)?;
    let added: ModelConfigList = proto::json::parse(&added.to_string())?;
    let added = added.config.into_iter().map(|model| (model.name.clone(), model)).collect();
    Ok(Changes { added, removed })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path().join("deep/state"));
        assert_eq!(store.read().unwrap(), Changes::default());
        let mut model = crate::model_config::model("a".to_owned(), "/a".to_owned());
        model.version_labels.insert("x".to_owned(), 3);
        let added = [("a".to_owned(), model)].into();
        let changes = Changes { added, removed: ["b".to_owned()].into() };
        store.write(&changes).unwrap();
        assert_eq!(store.read().unwrap(), changes);
        fs::write(folder.path().join("deep/state").join(FILE), "{\"added\": ").unwrap();
        assert!(format!("{:#}", store.read().unwrap_err()).contains("is damaged"));
    }
}
