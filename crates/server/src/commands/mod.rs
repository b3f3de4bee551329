//! The subcommands, one file each.

pub(crate) mod bench;
pub(crate) mod devices;
mod drive;
mod inputs;
pub(crate) mod inspect;
pub(crate) mod keys;
pub(crate) mod memory;
pub(crate) mod plan;
pub(crate) mod predict;
pub(crate) mod profile;
pub(crate) mod selftest;
pub(crate) mod serve;
mod top;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use native::{Executor, Loaded};
use pool::Pool;
use schedule::Lanes;
use storage::Storage;

use crate::source::is_saved_model;

/// How many plans a signature keeps.
pub(crate) const PLANS_MAX: usize = 32;

/// Opens the SavedModel that a folder is or, if it is a model with versions, its newest one.
fn open(dir: &Path) -> Result<Storage> {
    let mut dir = dir.canonicalize().with_context(|| format!("cannot open {}", dir.display()))?;
    if !is_saved_model(&dir) {
        let entries = std::fs::read_dir(&dir).into_iter().flatten().flatten();
        let version = |path: &Path| path.file_name()?.to_str()?.parse::<i64>().ok();
        let versions = entries.map(|entry| entry.path()).filter(|path| is_saved_model(path));
        if let Some(newest) = versions.max_by_key(|path| version(path)) {
            dir = newest;
        }
    }
    Ok(storage::open(&dir.to_string_lossy())?)
}

/// Loads a model to run it here, with one lane and `n_threads` compute threads.
fn load(dir: &Path, tags: &str, n_threads: usize) -> Result<Loaded> {
    load_for(dir, tags, n_threads, None)
}

/// The same in the memory of `owner`, who pays for it.
fn load_for(
    dir: &Path,
    tags: &str,
    n_threads: usize,
    owner: Option<Arc<device::Owner>>,
) -> Result<Loaded> {
    let lanes =
        Lanes::start(schedule::Options { n_lanes: 1, inline_max: Duration::ZERO, run_max: None })?;
    let (lanes, pool) = (Arc::new(lanes), Arc::new(Pool::new(n_threads)));
    let executor = Executor { lanes, pool, device: "cpu:0".into(), pace: None };
    let options = native::Options { tags: split_tags(tags), plans_max: PLANS_MAX };
    Ok(native::Opened::open(&open(dir)?, &options)?.load(&options, &executor, owner)?)
}

/// The tags between the commas.
pub(crate) fn split_tags(tags: &str) -> Vec<String> {
    tags.split(',').filter(|tag| !tag.is_empty()).map(str::to_owned).collect()
}

/// The number of CPUs that this process may use.
pub(crate) fn n_cpus() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
