//! Items to devices, as many bytes as possible: the multiple subset sum problem.
//!
//! Two ways to fill the devices, then better and better by a search with a limit; with few items
//! that finds the best there is, and with many the first ways are close to it.

use super::subset::fullest;

/// Something to be put on one device.
#[derive(Debug, Clone)]
pub(super) struct Item {
    pub(super) bytes: u64,
    /// Where it may be; empty for anywhere.
    pub(super) pins: Vec<usize>,
}

impl Item {
    fn may(&self, device: usize) -> bool {
        self.pins.is_empty() || self.pins.contains(&device)
    }
}

/// Where each item goes, if anywhere. The items are sorted, the largest first.
pub(super) fn assign(items: &[Item], free: &[u64]) -> Vec<Option<usize>> {
    assert!(items.is_sorted_by(|a, b| a.bytes >= b.bytes));
    let mut best = tightest(items, free);
    let other = by_subsets(items, free);
    if placed_bytes(items, &other) > placed_bytes(items, &best) {
        best = other;
    }
    if best.iter().all(Option::is_some) || items.len() > N_ITEMS_MAX {
        return best;
    }
    let mut search = Search {
        items,
        rest: rest(items),
        free: free.to_vec(),
        chosen: vec![None; items.len()],
        best_bytes: placed_bytes(items, &best),
        best,
        n_nodes: 0,
    };
    search.run(0, 0);
    search.best
}

fn placed_bytes(items: &[Item], chosen: &[Option<usize>]) -> u64 {
    let placed = items.iter().zip(chosen).filter(|(_, device)| device.is_some());
    placed.map(|(item, _)| item.bytes).sum()
}

/// Each item where it leaves the least.
fn tightest(items: &[Item], free: &[u64]) -> Vec<Option<usize>> {
    let mut free = free.to_vec();
    let mut chosen = Vec::new();
    for item in items {
        let fits = |device: &usize| item.may(*device) && item.bytes <= free[*device];
        let device = (0..free.len()).filter(fits).min_by_key(|device| (free[*device], *device));
        if let Some(device) = device {
            free[device] -= item.bytes;
        }
        chosen.push(device);
    }
    chosen
}

/// Each device as full as possible, the smallest first; then what still fits somewhere.
fn by_subsets(items: &[Item], free: &[u64]) -> Vec<Option<usize>> {
    let mut free = free.to_vec();
    let mut chosen: Vec<Option<usize>> = vec![None; items.len()];
    let mut order: Vec<usize> = (0..free.len()).collect();
    order.sort_by_key(|device| free[*device]);
    for device in order {
        let is_open = |i: &usize| chosen[*i].is_none() && items[*i].may(device);
        let open: Vec<usize> = (0..items.len()).filter(is_open).collect();
        let sizes: Vec<u64> = open.iter().map(|i| items[*i].bytes).collect();
        for at in fullest(&sizes, free[device]) {
            chosen[open[at]] = Some(device);
            free[device] -= sizes[at];
        }
    }
    for (item, chosen) in items.iter().zip(&mut chosen).filter(|(_, chosen)| chosen.is_none()) {
        let fits = |device: &usize| item.may(*device) && item.bytes <= free[*device];
        *chosen = (0..free.len()).filter(fits).min_by_key(|device| free[*device]);
        if let Some(device) = *chosen {
            free[device] -= item.bytes;
        }
    }
    chosen
}

/// The bytes of each item and those behind it together.
fn rest(items: &[Item]) -> Vec<u64> {
    let mut rest = vec![0u64; items.len() + 1];
    for (i, item) in items.iter().enumerate().rev() {
        rest[i] = rest[i + 1].saturating_add(item.bytes);
    }
    rest
}

/// The search goes as deep as there are items; with more than this it would find nothing anyway.
const N_ITEMS_MAX: usize = 256;

/// How many ways the search looks at.
const N_NODES_MAX: u32 = 50_000;

struct Search<'a> {
    items: &'a [Item],
    rest: Vec<u64>,
    free: Vec<u64>,
    chosen: Vec<Option<usize>>,
    best: Vec<Option<usize>>,
    best_bytes: u64,
    n_nodes: u32,
}

impl Search<'_> {
    /// Tries every place for the items from `i` on, when `placed` bytes are placed.
    fn run(&mut self, i: usize, placed: u64) {
        self.n_nodes += 1;
        if placed > self.best_bytes {
            self.best_bytes = placed;
            self.best.clone_from(&self.chosen);
        }
        let room: u64 = self.free.iter().fold(0, |sum, free| sum.saturating_add(*free));
        let bound = placed.saturating_add(room.min(self.rest[i]));
        if i == self.items.len() || bound <= self.best_bytes || self.n_nodes > N_NODES_MAX {
            return;
        }
        let bytes = self.items[i].bytes;
        let mut tried: Vec<u64> = Vec::new();
        for device in 0..self.free.len() {
            let free = self.free[device];
            let is_same = self.items[i].pins.is_empty() && tried.contains(&free);
            if bytes > free || !self.items[i].may(device) || is_same {
                continue;
            }
            tried.push(free);
            self.free[device] -= bytes;
            self.chosen[i] = Some(device);
            self.run(i + 1, placed + bytes);
            self.chosen[i] = None;
            self.free[device] += bytes;
        }
        self.run(i + 1, placed);
    }
}
