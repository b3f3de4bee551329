//! Counts of one signature of one version, by what was called.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use metrics::{Histogram, LATENCY_LIMITS};

use super::{APIS, Api, N_CODES};

/// The number of signatures of versions that are counted for one model; beyond that, those of the
/// lowest version are forgotten.
const CELLS_MAX: usize = 64;

/// The counts of a model's signatures. Reading takes no lock.
#[derive(Debug, Default)]
pub(crate) struct Cells {
    cells: ArcSwap<Vec<Arc<Cell>>>,
}

/// The counts of one signature of one version.
#[derive(Debug)]
pub(crate) struct Cell {
    pub(crate) version: i64,
    pub(crate) signature: Box<str>,
    latency: [Histogram; APIS.len()],
    /// By code, once there is one: most calls never fail, and what is counted stays for ever.
    failures: [OnceLock<Box<[AtomicU64; N_CODES]>>; APIS.len()],
}

impl Cells {
    /// The counts of a signature.
    pub(crate) fn cell(&self, version: i64, signature: &str) -> Arc<Cell> {
        let find = |cells: &[Arc<Cell>]| {
            let is_it =
                |cell: &&Arc<Cell>| cell.version == version && *cell.signature == *signature;
            cells.iter().find(is_it).cloned()
        };
        if let Some(cell) = find(&self.cells.load()) {
            return cell;
        }
        let new = Arc::new(Cell::new(version, signature));
        self.cells.rcu(|cells| {
            let mut cells = Vec::clone(cells);
            if find(&cells).is_none() {
                cells.push(Arc::clone(&new));
                cells.sort_by(|a, b| (a.version, &a.signature).cmp(&(b.version, &b.signature)));
                if cells.len() > CELLS_MAX {
                    cells.remove(0);
                }
            }
            cells
        });
        find(&self.cells.load()).unwrap_or(new)
    }

    /// All of them.
    pub(crate) fn all(&self) -> Arc<Vec<Arc<Cell>>> {
        self.cells.load_full()
    }
}

impl Cell {
    fn new(version: i64, signature: &str) -> Self {
        Self {
            version,
            signature: signature.into(),
            latency: std::array::from_fn(|_| Histogram::new(&LATENCY_LIMITS)),
            failures: std::array::from_fn(|_| OnceLock::new()),
        }
    }

    /// A run ended well, in so many microseconds.
    pub(crate) fn succeeded(&self, api: Api, micros: f64) {
        self.latency[api as usize].add(micros);
    }

    /// A run failed with a code.
    pub(crate) fn failed(&self, api: Api, code: i32) {
        let code = usize::try_from(code).unwrap_or(0).min(N_CODES - 1);
        let none = || Box::new(std::array::from_fn(|_| AtomicU64::new(0)));
        self.failures[api as usize].get_or_init(none)[code].fetch_add(1, Ordering::Relaxed);
    }

    /// The time of runs that ended well.
    pub(crate) fn latency(&self) -> impl Iterator<Item = (Api, &Histogram)> {
        APIS.into_iter().zip(&self.latency)
    }

    /// Returns the number of failed requests, by the numbers of their codes.
    pub(crate) fn failures(&self) -> impl Iterator<Item = (Api, i32, u64)> {
        APIS.into_iter().zip(&self.failures).flat_map(|(api, counts)| {
            let count =
                move |(code, count): (i32, &AtomicU64)| (api, code, count.load(Ordering::Relaxed));
            let counts = counts.get().map_or(&[][..], |counts| &counts[..]);
            (0..).zip(counts).map(count).filter(|(_, _, count)| *count > 0)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_are_long_gone_are_forgotten() {
        let cells = Cells::default();
        for version in 0..200 {
            cells.cell(version, "serving_default").succeeded(Api::Predict, 1.0);
        }
        let versions: Vec<i64> = cells.all().iter().map(|cell| cell.version).collect();
        assert_eq!(versions, (136..200).collect::<Vec<_>>());
        // One that comes back is counted from the start, while there is room only for newer ones.
        assert_eq!(cells.cell(0, "serving_default").version, 0);
        assert_eq!(cells.all().len(), CELLS_MAX);
    }

    #[test]
    fn failures_are_counted_by_code() {
        let cells = Cells::default();
        cells.cell(1, "a").failed(Api::Predict, 3);
        cells.cell(1, "a").failed(Api::Predict, 3);
        cells.cell(1, "a").failed(Api::Regress, 99);
        let cell = cells.cell(1, "a");
        let failures: Vec<_> = cell.failures().collect();
        assert_eq!(failures, [(Api::Predict, 3, 2), (Api::Regress, 16, 1)]);
    }
}
