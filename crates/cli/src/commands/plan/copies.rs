//! The number of models that are alike but for their weights would fit on a device with nothing
//! else on it.

use super::needed::Needed;

/// The figures that a copy has to do with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    /// The bytes that all copies may hold on the device together.
    pub(super) free_bytes: u64,
    /// The number of runs that have room there at once.
    pub(super) n_lanes: usize,
    /// The bytes that each of them may hold there, if it has a limit of its own.
    pub(super) own_limit_bytes: Option<u64>,
    /// The part of that that is set aside for each.
    pub(super) reserved_bytes: Option<u64>,
    /// The same two of the host, if the device is another.
    pub(super) host: Option<(u64, Option<u64>)>,
}

impl Room {
    /// The number of copies that would fit. They share nothing but the workspaces of runs.
    pub(super) fn copies(&self, need: &Needed) -> u64 {
        let (total, resident) = (need.total(1), need.load.resident_bytes());
        let room = self.free_bytes.min(self.own_limit_bytes.unwrap_or(u64::MAX));
        let device = need.to_device();
        let taken = device.on(self.n_lanes, room);
        let on_device = match (self.own_limit_bytes, self.reserved_bytes) {
            (Some(limit), _) if limit < total => 0,
            // Each runs in what is its own, and grows beyond that if it has to.
            (_, Some(reserved)) => self.free_bytes / reserved.max(total).max(1),
            _ => {
                let first = taken.bytes + taken.runs + device.worker_bytes;
                fitting(self.free_bytes, first, resident.max(1))
            }
        };
        let on_host = self.host.map_or(u64::MAX, |(free_bytes, own_limit)| {
            let total = need.host_total(1);
            let is_allowed = own_limit.is_none_or(|limit| total <= limit);
            if is_allowed { fitting(free_bytes, total, need.load.host_bytes) } else { 0 }
        });
        on_device.min(on_host)
    }
}

/// The number that fit where each takes `total` bytes at most, and keeps `resident` of them.
fn fitting(free_bytes: u64, total: u64, resident: u64) -> u64 {
    match free_bytes.checked_sub(total) {
        None => 0,
        Some(rest) => rest.checked_div(resident).map_or(u64::MAX, |more| more.saturating_add(1)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::needed;
    use super::*;

    /// A model that keeps 100 bytes, runs in 10 more, and has 7 of the host, 17 with a run.
    #[track_caller]
    fn check(room: Room, expected: u64) {
        assert_eq!(room.copies(&needed(100)), expected, "{room:?}");
    }

    #[test]
    fn copies_keep_their_weights_and_share_what_a_run_takes() {
        let free = |free_bytes| Room {
            free_bytes,
            n_lanes: 1,
            own_limit_bytes: None,
            reserved_bytes: None,
            host: None,
        };
        for (bytes, n) in [(0, 0), (109, 0), (110, 1), (209, 1), (210, 2), (1010, 10)] {
            check(free(bytes), n);
        }
        // Runs on all lanes have room, unless a device is too small even for one such model.
        let lanes = |free_bytes, n_lanes| Room { n_lanes, ..free(free_bytes) };
        for (bytes, n) in [(129, 1), (130, 1), (229, 1), (230, 2)] {
            check(lanes(bytes, 3), n);
        }
        // A limit of its own is no more than a ceiling, unless it is set aside.
        let own = |limit: u64| Room { own_limit_bytes: Some(limit), ..free(1010) };
        check(own(500), 10);
        check(own(109), 0);
        let aside = |bytes: u64, limit: u64| Room { reserved_bytes: Some(bytes), ..own(limit) };
        check(aside(500, 500), 2);
        check(aside(109, 109), 0);
        check(aside(200, 500), 5);
        // It needs 110, whatever was set aside.
        check(aside(10, 500), 9);
        // The strings and tables of all of them are on one host.
        let host = |bytes: u64, own: Option<u64>| Room { host: Some((bytes, own)), ..free(1010) };
        check(host(17 + 2 * 7, None), 3);
        check(host(16, None), 0);
        check(host(1000, Some(17)), 10);
        check(host(1000, Some(16)), 0);
    }
}
