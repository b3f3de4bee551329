//! Finds room by searching for offsets where the server would.

use anyhow::Result;
use placement::Plan;

use super::needed::Needed;
use super::report::{BATCHES, Board, HostRoom, fit, own_limit};

impl Board<'_> {
    /// The places of models. For each that would have no place, or no room on the host, offsets are
    /// searched for with which it has: within what is left, as when it is loaded. Where a batch
    /// would not fit beside what is there, its offsets are searched for as when it runs.
    pub(super) fn search(&self, needs: &mut [(String, Result<Needed>)]) -> Plan {
        // Where the models are that could be measured.
        let at: Vec<usize> = (0..needs.len()).filter(|at| needs[*at].1.is_ok()).collect();
        let mut tried = vec![false; at.len()];
        let planned = loop {
            let fit = fit(needs);
            let planned = self.plan(&fit);
            let host_room = self.host_room(&fit, &planned);
            let lacks = |number: &usize| {
                let is_nowhere = planned.fleet.devices[*number].is_empty();
                is_nowhere || fit[*number].1.host_total(1) > host_room[*number]
            };
            let next = (0..at.len()).filter(|number| !tried[*number]).find(lacks);
            let Some(number) = next else { break planned };
            tried[number] = true;
            let host_bytes = host_room[number];
            let device_bytes = self.room(fit[number].0, &planned.open[number], &planned);
            let room = graph::Room { device_bytes, host_bytes };
            if let Ok(need) = &mut needs[at[number]].1 {
                need.fits_in(1, &room);
            }
        };
        for (number, at) in at.iter().enumerate() {
            let (name, need) = &mut needs[*at];
            if let Ok(need) = need {
                self.search_batches(name, need, &planned.fleet.devices[number], &planned);
            }
        }
        planned
    }

    /// Searches for offsets of batches with which they fit where the model is.
    fn search_batches(&self, name: &str, need: &mut Needed, on: &[usize], planned: &Plan) {
        let left = on.iter().map(|slot| planned.fleet.free_bytes[*slot]).min();
        let Some(left) = left else { return };
        let most = own_limit(self.devices, self.logical, name).unwrap_or(u64::MAX);
        let device_bytes = left.saturating_add(need.total(1)).min(most);
        let room = graph::Room { device_bytes, host_bytes: u64::MAX };
        // If one does not fit, no larger one does.
        BATCHES.into_iter().all(|batch| need.fits_in(batch, &room));
    }

    /// The most that a model could take on a device that it may be on.
    fn room(&self, name: &str, open: &[usize], planned: &Plan) -> u64 {
        let left = open.iter().map(|slot| planned.fleet.free_bytes[*slot]).max().unwrap_or(0);
        left.min(own_limit(self.devices, self.logical, name).unwrap_or(u64::MAX))
    }

    /// The bytes that each model may take of the host for each of its devices, where that is
    /// another: by its own limit, and beside those before it.
    fn host_room(&self, fit: &[(&String, &Needed)], planned: &Plan) -> Vec<u64> {
        let Some(host) = HostRoom::beside(self.devices, self.logical) else {
            return vec![u64::MAX; fit.len()];
        };
        let mut left = host.left_bytes;
        let mut rooms = Vec::with_capacity(fit.len());
        for ((name, need), on) in fit.iter().zip(&planned.fleet.devices) {
            let model = self.devices.models().get(name);
            let n_gpus = self.n_gpus(on, planned);
            let n_on = n_gpus.max(1) as u64;
            let own = self.devices.host().and_then(|host| host.amount(model.rule.limit));
            let room = left.min(own.unwrap_or(u64::MAX)) / n_on;
            rooms.push(room);
            let taken = need.host_total(1);
            if taken <= room && n_gpus > 0 {
                left -= taken * n_on;
            }
        }
        rooms
    }
}
