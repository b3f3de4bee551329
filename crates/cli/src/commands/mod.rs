//! The subcommands, one file each.

pub(crate) mod bench;
pub(crate) mod completions;
pub(crate) mod devices;
pub(crate) mod doctor;
mod drive;
mod inputs;
pub(crate) mod inspect;
pub(crate) mod keys;
pub(crate) mod memory;
pub(crate) mod migrate;
pub(crate) mod plan;
pub(crate) mod predict;
pub(crate) mod profile;
mod remote;
pub(crate) mod selftest;
pub(crate) mod serve;
pub(crate) mod top;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use config::{PLANS_MAX, open_model, split_tags};
use native::{Executor, Loaded};
use pool::Pool;
use schedule::Lanes;

/// Loads a model to run it here, with one lane and `n_threads` compute threads. It runs in an arena
/// without a limit, as in a server: buffers whose sizes no plan knows are recycled there.
fn load(dir: &Path, tags: &str, n_threads: usize) -> Result<Loaded> {
    load_for(dir, tags, n_threads, native::measure::owner_alone(device::Kind::Cpu)?)
}

/// The same in the memory of `owner`, who pays for it.
fn load_for(dir: &Path, tags: &str, n_threads: usize, owner: Arc<device::Owner>) -> Result<Loaded> {
    let lanes =
        Lanes::start(schedule::Options { n_lanes: 1, inline_max: Duration::ZERO, run_max: None })?;
    let (lanes, pool) = (Arc::new(lanes), Arc::new(Pool::new(n_threads)));
    let executor = Executor { lanes, pool, device: "cpu:0".into(), pace: None };
    let options = native::Options { tags: split_tags(tags), plans_max: PLANS_MAX };
    Ok(native::Opened::open(&open_model(dir)?, &options)?.load(&options, &executor, Some(owner))?)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use device::Workspace;
    use session::Run;
    use tensor::Tensor;

    use super::*;

    /// Returns the number of pages that the system has mapped for this thread.
    fn n_page_faults() -> u64 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let (_, fields) = stat.rsplit_once(") ").unwrap();
        fields.split(' ').nth(7).unwrap().parse().unwrap()
    }

    #[test]
    fn buffers_of_sizes_that_no_plan_knows_are_recycled() {
        let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/hostile/giants");
        let loaded = load(&model, "serve", 1).unwrap();
        let run = Run {
            signature: "sequence".to_owned(),
            inputs: vec![Tensor::scalar(2 << 20).unwrap()],
            outputs: vec![0],
            deadline: None,
            level: None,
            is_cancelled: Arc::default(),
        };
        let mut workspace = Workspace::allocate(0).unwrap();
        let mut answer = || loaded.engine.run(&run, &mut workspace).unwrap().remove(0);
        let n_pages = u64::try_from(answer().n_bytes()).unwrap() / 4096;
        let before = n_page_faults();
        (0..8).for_each(|_| drop(answer()));
        let n_mapped = n_page_faults() - before;
        assert!(n_mapped < n_pages, "{n_mapped} pages for 8 results of {n_pages}");
    }
}
