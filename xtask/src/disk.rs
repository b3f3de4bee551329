//! The disk that `cargo xtask ci` needs: said before anything is built, not by a linker.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

const GIB: f64 = (1u64 << 30) as f64;

/// The size of `target` after all steps, without incremental files: 3.3 GiB on 2026-11-18.
const TARGET_BYTES: u64 = 5 << 30;

/// The size of the Python environment and the models in the cache folder: 2.1 GiB on 2026-11-18,
/// and pip unpacks beside it.
const CACHE_BYTES: u64 = 3 << 30;

/// A folder that will grow to some size.
struct Growth {
    folder: PathBuf,
    bytes_max: u64,
}

/// A file system: its name, and the bytes that are free on it.
type FileSystem = (String, u64);

/// Prints what is free, and fails if the steps need more.
pub(crate) fn check(target: PathBuf, cache: PathBuf) -> Result<()> {
    let growths = [
        Growth { folder: target, bytes_max: TARGET_BYTES },
        Growth { folder: cache, bytes_max: CACHE_BYTES },
    ];
    let mut needs: Vec<(FileSystem, u64)> = Vec::new();
    for growth in &growths {
        let need = growth.bytes_max.saturating_sub(size(&growth.folder));
        let found = file_system(existing(&growth.folder))?;
        match needs.iter_mut().find(|((name, _), _)| *name == found.0) {
            Some((_, sum)) => *sum += need,
            None => needs.push((found, need)),
        }
    }
    for ((name, free), need) in needs {
        let (free_gib, need_gib) = (free as f64 / GIB, need as f64 / GIB);
        println!(
            "disk: {free_gib:.1} GiB are free on {name}, at most {need_gib:.1} GiB are needed"
        );
        if free < need {
            bail!("{name} has {free_gib:.1} GiB free, and {need_gib:.1} GiB are needed: make room");
        }
    }
    Ok(())
}

/// The folder, or the nearest one above it that exists.
fn existing(folder: &Path) -> &Path {
    folder.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("/"))
}

/// The bytes of all files below a folder; what cannot be read counts as nothing.
fn size(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let sizes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(found) if found.is_dir() => size(&entry.path()),
        Ok(found) => found.len(),
        Err(_) => 0,
    });
    sizes.sum()
}

/// Asks `df` for the file system of a folder.
fn file_system(folder: &Path) -> Result<FileSystem> {
    let output = Command::new("df").arg("-Pk").arg(folder).output().context("cannot start df")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    parse(&text).with_context(|| format!("df says {text:?} of {}", folder.display()))
}

/// Reads POSIX' format of `df -Pk`: the place of the file system is the sixth word, and the fourth
/// the free blocks of 1024 bytes.
fn parse(text: &str) -> Option<FileSystem> {
    let words: Vec<&str> = text.lines().nth(1)?.split_whitespace().collect();
    let blocks: u64 = words.get(3)?.parse().ok()?;
    Some(((*words.get(5)?).to_owned(), blocks * 1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_of_df_is_read() {
        let text = "Filesystem 1024-blocks Used Available Capacity Mounted on\n\
                    /dev/vda 263948880 13000000 82837504 14% /\n";
        assert_eq!(parse(text), Some(("/".to_owned(), 82_837_504 * 1024)));
        assert_eq!(parse("Filesystem\n"), None);
    }

    #[test]
    fn a_folder_that_is_not_there_yet_is_on_the_disk_of_the_one_above() {
        let root = crate::root();
        assert_eq!(existing(&root.join("no/such/folder")), root);
        assert!(size(&root.join("xtask")) > 10_000);
        assert_eq!(size(&root.join("no/such/folder")), 0);
    }
}
