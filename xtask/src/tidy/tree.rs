//! The files of the workspace, read once.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::source::Source;

/// Folders that hold nothing of ours.
const SKIPPED: &[&str] = &[".git", "target", "__pycache__", "node_modules"];

/// Every text file of the workspace, by its path from the root, with `/` between the parts.
pub(super) struct Tree {
    files: Vec<(String, File)>,
    /// The paths of all files and folders, those without text included.
    paths: BTreeSet<String>,
}

/// A file's text; for Rust also what is code, comment and test in it.
enum File {
    Text(String),
    Rust(Source),
}

impl Tree {
    /// Reads all files below `root`; those that are not UTF-8 are left out.
    pub(super) fn open(root: &Path) -> Result<Tree> {
        let (mut files, mut paths) = (Vec::new(), BTreeSet::new());
        read_folder(root, "", &mut files, &mut paths)?;
        let mut tree = Tree::of(files);
        tree.paths.append(&mut paths);
        Ok(tree)
    }

    /// A tree of the given paths and texts.
    pub(super) fn of(texts: Vec<(String, String)>) -> Tree {
        let wrap = |path: &str, text| match path.ends_with(".rs") {
            true => File::Rust(Source::new(path, text)),
            false => File::Text(text),
        };
        let mut files: Vec<(String, File)> = texts
            .into_iter()
            .map(|(path, text)| {
                let file = wrap(&path, text);
                (path, file)
            })
            .collect();
        files.sort_by(|a, b| a.0.cmp(&b.0));
        let paths = files.iter().flat_map(|(path, _)| with_folders(path)).collect();
        Tree { files, paths }
    }

    /// Returns whether there is a file or a folder at this path.
    pub(super) fn has(&self, path: &str) -> bool {
        self.paths.contains(path)
    }

    /// Returns whether the path of some file or folder ends with these parts.
    pub(super) fn has_tail(&self, tail: &str) -> bool {
        self.paths
            .iter()
            .filter_map(|path| path.strip_suffix(tail))
            .any(|rest| rest.is_empty() || rest.ends_with('/'))
    }

    pub(super) fn len(&self) -> usize {
        self.files.len()
    }

    /// The text of one file.
    pub(super) fn text(&self, path: &str) -> Option<&str> {
        self.texts().find(|(found, _)| *found == path).map(|(_, text)| text)
    }

    /// All files and their texts.
    pub(super) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|(path, file)| match file {
            File::Text(text) => (path.as_str(), text.as_str()),
            File::Rust(source) => (path.as_str(), source.text()),
        })
    }

    /// All Rust files that people write.
    pub(super) fn sources(&self) -> impl Iterator<Item = (&str, &Source)> {
        self.files.iter().filter_map(|(path, file)| match file {
            File::Rust(source) if !source.is_generated() => Some((path.as_str(), source)),
            File::Rust(_) | File::Text(_) => None,
        })
    }
}

/// A path and the folders on the way to it.
fn with_folders(path: &str) -> impl Iterator<Item = String> {
    let folders = path.match_indices('/').map(|(at, _)| path[..at].to_owned());
    folders.chain([path.to_owned()])
}

fn read_folder(
    folder: &Path,
    prefix: &str,
    files: &mut Vec<(String, String)>,
    paths: &mut BTreeSet<String>,
) -> Result<()> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if SKIPPED.contains(&name.as_str()) {
            continue;
        }
        let path = format!("{prefix}{name}");
        let kind = entry.file_type()?;
        paths.insert(path.clone());
        if kind.is_dir() {
            read_folder(&entry.path(), &format!("{path}/"), files, paths)?;
        } else if kind.is_file()
            && let Ok(text) = String::from_utf8(fs::read(entry.path())?)
        {
            files.push((path, text));
        }
    }
    Ok(())
}
