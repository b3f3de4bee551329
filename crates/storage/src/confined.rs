//! Opens a path below a directory without ever leaving it.
//!
//! This is Linux's `RESOLVE_BENEATH`, done by hand so that it works on every kernel: each component
//! is opened relative to the one before without following links, and a link's target is walked like
//! the rest of the path. The check and the opening are one, so nobody can swap a directory for a
//! link between them.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags, openat, readlinkat};
use rustix::io::Errno;

use crate::error::{Error, Result};

/// As many as Linux follows.
const LINKS_MAX: usize = 40;

/// Opens `path` below `root` for reading.
pub(crate) fn open(root: impl AsFd, path: &str) -> Result<OwnedFd> {
    let escapes = |reason| Error::Escapes { path: path.to_owned(), reason };
    check(path)?;
    let mut todo: VecDeque<String> = components(path).map(str::to_owned).collect();
    // The directories on the way, so that `..` in a link leads back; the root is below them all.
    let mut way: Vec<OwnedFd> = Vec::new();
    let mut n_links = 0;
    while let Some(name) = todo.pop_front() {
        if name == ".." {
            way.pop().ok_or_else(|| escapes("a link leads out of the directory"))?;
            continue;
        }
        let dir = way.last().map_or(root.as_fd(), AsFd::as_fd);
        match openat(dir, &name, FLAGS, Mode::empty()) {
            Ok(opened) => way.push(opened),
            Err(Errno::LOOP) => {
                n_links += 1;
                if n_links > LINKS_MAX {
                    return Err(Error::io(path, Errno::LOOP));
                }
                let target = readlinkat(dir, &name, Vec::new()).map_err(|e| Error::io(path, e))?;
                let target = target.into_string().map_err(|_| Error::io(path, Errno::ILSEQ))?;
                if target.starts_with('/') {
                    return Err(escapes("a link leads out of the directory"));
                }
                for name in components(&target).rev() {
                    todo.push_front(name.to_owned());
                }
            }
            Err(errno) => return Err(Error::io(path, errno)),
        }
    }
    match way.pop() {
        Some(opened) => Ok(opened),
        None => openat(root, ".", FLAGS, Mode::empty()).map_err(|e| Error::io(path, e)),
    }
}

/// Not blocking, so that a pipe by the name of a file does not hang us.
const FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::NONBLOCK);

/// Refuses paths that are not plainly below: they are a mistake or an attack.
fn check(path: &str) -> Result<()> {
    let escapes = |reason| Err(Error::Escapes { path: path.to_owned(), reason });
    if path.starts_with('/') {
        return escapes("absolute paths are not allowed");
    }
    if path.split('/').any(|name| name == "..") {
        return escapes("`..` is not allowed in paths");
    }
    if path.contains('\0') {
        return escapes("zero bytes are not allowed in paths");
    }
    Ok(())
}

fn components(path: &str) -> impl DoubleEndedIterator<Item = &str> {
    path.split('/').filter(|name| !name.is_empty() && *name != ".")
}
