//! Search for devices on which some copies of models fit all together: it tries all ways, those
//! that move the fewest copies first.

/// A copy of a model to be put on one device.
#[derive(Debug, Clone)]
pub(super) struct Item {
    /// The number of the model that it is a copy of: there is one on a device at most.
    pub(super) group: usize,
    /// The bytes that it takes of each device; nothing where it may not be.
    pub(super) bytes: Vec<Option<u64>>,
    /// The bytes that its runs take of each device: the most of all items on it is taken once.
    pub(super) runs: Vec<u64>,
    /// The device of the copy now.
    pub(super) now: Option<usize>,
}

/// A device that has room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Device {
    pub(super) free_bytes: u64,
    /// The bytes of that which runs of the copies that stay there take.
    pub(super) runs_bytes: u64,
}

/// The number of ways that the search looks at.
const N_NODES_MAX: u32 = 200_000;

/// More devices than this are not compared with each other.
const N_ALIKE_MAX: usize = 32;

/// A device for each item, if there is one for all of them and the search finds it.
pub(super) fn together(items: &[Item], devices: &[Device]) -> Option<Vec<usize>> {
    let mut order: Vec<usize> = (0..items.len()).collect();
    let most = |item: &Item| item.bytes.iter().flatten().max().copied().unwrap_or(0);
    // The largest first: small ones find gaps.
    order.sort_by_key(|at| (u64::MAX - most(&items[*at]), *at));
    let sorted: Vec<&Item> = order.iter().map(|at| &items[*at]).collect();
    let mut search = Search {
        rest: rest(&sorted),
        smallest: smallest(&sorted),
        alike: alike(&sorted, devices.len()),
        items: &sorted,
        devices: devices.to_vec(),
        chosen: Vec::with_capacity(items.len()),
        n_nodes: 0,
    };
    if !search.run() {
        return None;
    }
    let mut found = vec![0; items.len()];
    for (at, device) in order.into_iter().zip(search.chosen) {
        found[at] = device;
    }
    Some(found)
}

/// The least that an item takes anywhere.
fn least(item: &Item) -> u64 {
    item.bytes.iter().flatten().min().copied().unwrap_or(u64::MAX)
}

/// The least that each item and those behind it take together.
fn rest(items: &[&Item]) -> Vec<u64> {
    let mut rest = vec![0u64; items.len() + 1];
    for (at, item) in items.iter().enumerate().rev() {
        rest[at] = rest[at + 1].saturating_add(least(item));
    }
    rest
}

/// The least that any of each item and those behind it takes.
fn smallest(items: &[&Item]) -> Vec<u64> {
    let mut smallest = vec![u64::MAX; items.len() + 1];
    for (at, item) in items.iter().enumerate().rev() {
        smallest[at] = smallest[at + 1].min(least(item));
    }
    smallest
}

/// For each item, which devices are the same to it and all behind it: the number of the first such.
fn alike(items: &[&Item], n_devices: usize) -> Vec<Vec<usize>> {
    let mut all = vec![(0..n_devices).collect::<Vec<usize>>(); items.len()];
    if n_devices > N_ALIKE_MAX {
        return all;
    }
    let is_same = |item: &Item, a: usize, b: usize| {
        item.bytes[a] == item.bytes[b] && item.runs[a] == item.runs[b]
    };
    for (at, first) in all.iter_mut().enumerate() {
        for (device, first) in first.iter_mut().enumerate() {
            let same = |other: &usize| items[at..].iter().all(|one| is_same(one, *other, device));
            *first = (0..device).find(same).unwrap_or(device);
        }
    }
    all
}

struct Search<'a> {
    items: &'a [&'a Item],
    rest: Vec<u64>,
    smallest: Vec<u64>,
    alike: Vec<Vec<usize>>,
    devices: Vec<Device>,
    /// The devices of the first items.
    chosen: Vec<usize>,
    n_nodes: u32,
}

impl Search<'_> {
    /// Finds a device for each of the items that have none yet; whether there is one.
    fn run(&mut self) -> bool {
        let at = self.chosen.len();
        let Some(item) = self.items.get(at).copied() else { return true };
        self.n_nodes += 1;
        if self.n_nodes > N_NODES_MAX || !self.may_fit(at) {
            return false;
        }
        let mut tried: Vec<usize> = Vec::new();
        for device in self.order(item) {
            let Some(after) = self.with(item, device) else { continue };
            let is_twice = |other: &usize| {
                self.devices[*other] == self.devices[device]
                    && self.alike[at][*other] == self.alike[at][device]
                    && self.is_untouched(*other)
                    && self.is_untouched(device)
            };
            if tried.iter().any(is_twice) {
                continue;
            }
            tried.push(device);
            let before = std::mem::replace(&mut self.devices[device], after);
            self.chosen.push(device);
            if self.run() {
                return true;
            }
            self.chosen.pop();
            self.devices[device] = before;
        }
        false
    }

    /// Returns whether no copy is on a device of which there are others to come: else it is not the
    /// same to them as one without.
    fn is_untouched(&self, device: usize) -> bool {
        let at = self.chosen.len();
        let is_open = |group: usize| self.items[at..].iter().any(|item| item.group == group);
        let there = self.chosen.iter().zip(self.items).filter(|(on, _)| **on == device);
        !there.into_iter().any(|(_, item)| is_open(item.group))
    }

    /// Returns whether the rest may be enough for the items that have no device yet: room in which
    /// not even the smallest fits is of no use.
    fn may_fit(&self, at: usize) -> bool {
        let room = |device: &Device| device.free_bytes.saturating_sub(device.runs_bytes);
        let rooms = self.devices.iter().map(room).filter(|room| *room >= self.smallest[at]);
        rooms.fold(0, u64::saturating_add) >= self.rest[at]
    }

    /// The devices for an item: where it is, then the fullest first.
    fn order(&self, item: &Item) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.devices.len()).collect();
        order.sort_by_key(|device| {
            (Some(*device) != item.now, self.devices[*device].free_bytes, *device)
        });
        order
    }

    /// A device with an item on it, if it fits there.
    fn with(&self, item: &Item, device: usize) -> Option<Device> {
        let there = self.chosen.iter().zip(self.items).filter(|(on, _)| **on == device);
        if there.into_iter().any(|(_, other)| other.group == item.group) {
            return None;
        }
        let Device { free_bytes, runs_bytes } = self.devices[device];
        let free_bytes = free_bytes.checked_sub(item.bytes[device]?)?;
        let runs_bytes = runs_bytes.max(item.runs[device]);
        (runs_bytes <= free_bytes).then_some(Device { free_bytes, runs_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn item(group: usize, bytes: &[Option<u64>]) -> Item {
        Item { group, bytes: bytes.to_vec(), runs: vec![0; bytes.len()], now: None }
    }

    fn devices(free: &[u64]) -> Vec<Device> {
        free.iter().map(|bytes| Device { free_bytes: *bytes, runs_bytes: 0 }).collect()
    }

    /// Checks whether items of these sizes, which may be anywhere, fit together.
    #[track_caller]
    fn check(free: &[u64], sizes: &[u64], expected: bool) {
        let of = |(group, bytes): (usize, &u64)| item(group, &vec![Some(*bytes); free.len()]);
        let items: Vec<Item> = sizes.iter().enumerate().map(of).collect();
        let found = together(&items, &devices(free));
        assert_eq!(found.is_some(), expected, "{sizes:?} on {free:?}");
        let mut left = free.to_vec();
        for (bytes, device) in sizes.iter().zip(found.unwrap_or_default()) {
            left[device] = left[device].checked_sub(*bytes).expect("within what is free");
        }
    }

    #[test]
    fn all_fit_if_there_is_a_way() {
        check(&[60, 60], &[30, 30, 20, 20, 20], true);
        check(&[60, 60], &[20, 30, 20, 30, 20], true);
        check(&[60, 59], &[30, 30, 20, 20, 20], false);
        check(&[], &[], true);
        check(&[], &[1], false);
        check(&[10, 5, 1], &[5, 5, 5, 1], true);
        check(&[7, 7, 7], &[4, 4, 4, 4], false);
    }

    #[test]
    fn copies_of_a_model_are_on_different_devices() {
        let both = [Some(5), Some(5)];
        let found = together(&[item(0, &both), item(0, &both)], &devices(&[10, 10]));
        assert!(found.is_some_and(|on| on[0] != on[1]));
        let three = [item(0, &both), item(0, &both), item(0, &both)];
        assert_eq!(together(&three, &devices(&[10, 10])), None);
    }

    #[test]
    fn pins_are_kept_and_what_runs_take_is_shared() {
        let pinned = item(0, &[None, Some(5)]);
        assert_eq!(
            together(&[pinned.clone(), item(1, &[Some(5); 2])], &devices(&[5, 5])),
            Some(vec![1, 0])
        );
        assert_eq!(together(&[pinned.clone(), pinned], &devices(&[9, 9])), None);
        let running = |group, runs| Item { runs: vec![runs], ..item(group, &[Some(4)]) };
        assert!(together(&[running(0, 2), running(1, 2)], &devices(&[10])).is_some());
        assert!(together(&[running(0, 2), running(1, 3)], &devices(&[10])).is_none());
    }

    #[test]
    fn random_items_fit_whenever_they_were_cut_from_the_devices() {
        let mut random = Random(3);
        for _ in 0..500 {
            let n_devices = 1 + usize::try_from(random.below(5)).unwrap();
            let mut free = vec![0; n_devices];
            let mut sizes = Vec::new();
            for _ in 0..random.below(13) {
                let device = usize::try_from(random.below(n_devices as u64)).unwrap();
                let bytes = 1 + random.below(40);
                free[device] += bytes;
                sizes.push(bytes);
            }
            check(&free, &sizes, true);
        }
    }
}
