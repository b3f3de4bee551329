//! A directory of the local file system.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, statat};

use crate::confined;
use crate::error::{Error, Result};
use crate::file::File;

/// A directory and what is below it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Storage {
    root: Arc<OwnedFd>,
    path: PathBuf,
}

/// The kind of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A pipe, a socket, a device, or a link that leads nowhere.
    Other,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::File => "a file",
            Self::Dir => "a directory",
            Self::Other => "neither a file nor a directory",
        }
    }
}

/// One line of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The name within the directory.
    pub name: String,
    /// The kind of the entry, or of the target of its link.
    pub kind: Kind,
    /// `true` if the entry is a symbolic link.
    pub is_link: bool,
}

impl Entry {
    /// Returns whether the entry is a directory, or a link to one.
    pub fn is_dir(&self) -> bool {
        self.kind == Kind::Dir
    }
}

/// The facts about a file that are known without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// The kind of the file.
    pub kind: Kind,
    /// The file's length in bytes.
    pub len: u64,
    /// The time at which the file was last written.
    pub modified: SystemTime,
}

impl Storage {
    /// Opens a local directory.
    pub(crate) fn open(path: &str) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let opened = rustix::fs::open(path, flags, Mode::empty());
        let root = fs::File::from(opened.map_err(|err| Error::io(path, err))?);
        require(&root, path, Kind::Dir)?;
        Ok(Self { root: Arc::new(root.into()), path: PathBuf::from(path) })
    }

    /// The path it was opened by, for messages and for programs that take paths.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory at `path` as a storage of its own, confined to itself.
    ///
    /// # Errors
    /// If it is not there, is no directory, or is outside of this storage.
    pub fn dir(&self, path: &str) -> Result<Self> {
        let root = fs::File::from(confined::open(&self.root, path)?);
        require(&root, path, Kind::Dir)?;
        Ok(Self { root: Arc::new(root.into()), path: self.path.join(path) })
    }

    /// Lists the entries of a directory, sorted by name. Names that are not UTF-8 are left out: no
    /// path can name them. Costs one look at each entry.
    ///
    /// # Errors
    /// If it is not there, is no directory, or is outside of this storage.
    pub fn list(&self, path: &str) -> Result<Vec<Entry>> {
        let dir = fs::File::from(confined::open(&self.root, path)?);
        require(&dir, path, Kind::Dir)?;
        let mut entries = Vec::new();
        for entry in Dir::read_from(&dir).map_err(|err| Error::io(path, err))? {
            let entry = entry.map_err(|err| Error::io(path, err))?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            if name != "." && name != ".." {
                let kind = kind_in(&dir, name, AtFlags::empty()).unwrap_or(Kind::Other);
                let is_link = kind_in(&dir, name, AtFlags::SYMLINK_NOFOLLOW).is_none();
                entries.push(Entry { name: name.to_owned(), kind, is_link });
            }
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    /// Returns the facts about the file or directory at `path`.
    ///
    /// # Errors
    /// If it is not there, or is outside of this storage.
    pub fn stat(&self, path: &str) -> Result<Stat> {
        stat_of(&fs::File::from(confined::open(&self.root, path)?), path)
    }

    /// Returns whether there is a file or directory at `path`.
    ///
    /// # Errors
    /// If that cannot be told: the path is outside of this storage, or unreadable.
    pub fn exists(&self, path: &str) -> Result<bool> {
        match self.stat(path) {
            Ok(_) => Ok(true),
            Err(Error::NotFound { .. }) => Ok(false),
            Err(err) => Err(err),
        }
    }

    /// Opens a file to be read at positions.
    ///
    /// # Errors
    /// If it is not there, is no regular file, or is outside of this storage.
    pub fn open_file(&self, path: &str) -> Result<File> {
        let file = fs::File::from(confined::open(&self.root, path)?);
        let stat = require(&file, path, Kind::File)?;
        Ok(File::new(file, path, stat.len))
    }

    /// Reads a whole file.
    ///
    /// # Errors
    /// As [`Storage::open_file`]; [`Error::TooLarge`] if it is longer than `limit_bytes`, and then
    /// nothing is allocated.
    pub fn read(&self, path: &str, limit_bytes: u64) -> Result<Vec<u8>> {
        let file = self.open_file(path)?;
        let too_large =
            || Error::TooLarge { path: path.to_owned(), len: file.len(), limit: limit_bytes };
        let len = usize::try_from(file.len()).map_err(|_| too_large())?;
        if file.len() > limit_bytes {
            return Err(too_large());
        }
        let mut bytes = vec![0; len];
        file.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    }
}

fn stat_of(file: &fs::File, path: &str) -> Result<Stat> {
    let metadata = file.metadata().map_err(|err| Error::io(path, err))?;
    let modified = metadata.modified().map_err(|err| Error::io(path, err))?;
    Ok(Stat { kind: kind_of(metadata.file_type()), len: metadata.len(), modified })
}

fn kind_of(file_type: fs::FileType) -> Kind {
    if file_type.is_file() {
        Kind::File
    } else if file_type.is_dir() {
        Kind::Dir
    } else {
        Kind::Other
    }
}

/// Returns the kind of a name in a directory; `None` for a link, or if it is gone. A link that is
/// followed counts as what it leads to, even outside: a version directory may be a link.
fn kind_in(dir: &fs::File, name: &str, flags: AtFlags) -> Option<Kind> {
    match FileType::from_raw_mode(statat(dir, name, flags).ok()?.st_mode) {
        FileType::RegularFile => Some(Kind::File),
        FileType::Directory => Some(Kind::Dir),
        FileType::Symlink => None,
        FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => Some(Kind::Other),
    }
}

fn require(file: &fs::File, path: &str, kind: Kind) -> Result<Stat> {
    let stat = stat_of(file, path)?;
    if stat.kind != kind {
        let (expected, got) = (kind.name(), stat.kind.name());
        return Err(Error::Kind { path: path.to_owned(), expected, got });
    }
    Ok(stat)
}

#[cfg(test)]
mod tests;
