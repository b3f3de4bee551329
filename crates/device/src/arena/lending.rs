//! How an arena that does not grow lends memory: for as long as somebody else of the device holds
//! it, there is none behind some of its addresses.

use super::{Arena, Growth};
use crate::error::Result;

impl Arena {
    /// Gives `bytes` that nobody uses back, in whole granules, for somebody else to hold; returns
    /// how many went, fewer if not as many are free. Only an arena with [`Growth::Reserved`] lends,
    /// and only where a region can have parts without memory.
    ///
    /// # Errors
    /// If the driver refuses; what it took until then is gone.
    pub fn lend(&mut self, bytes: u64) -> Result<u64> {
        let before = self.held_bytes();
        if self.lends() {
            self.release_slabs();
            self.give_back(bytes, &(0..0))?;
        }
        self.debug_check();
        Ok(before - self.held_bytes())
    }

    /// Takes what was lent again, as far as the driver has it; returns how many bytes came.
    ///
    /// # Errors
    /// If the driver refuses; what came until then is there.
    pub fn take_lent(&mut self) -> Result<u64> {
        let before = self.held_bytes();
        while let Some((void, units)) = self.next_lent() {
            let start = self.records.get(void).start;
            self.fill(void, start..start + units)?;
        }
        self.debug_check();
        Ok(self.held_bytes() - before)
    }

    /// What is lent and could be had again.
    pub fn lent_bytes(&self) -> u64 {
        match self.growth {
            Growth::Reserved { bytes } if self.lends() && !self.regions.is_empty() => {
                bytes.saturating_sub(self.held_bytes())
            }
            Growth::Reserved { .. } | Growth::OnDemand { .. } => 0,
        }
    }

    /// A chunk without memory, and how much of it can have some now.
    fn next_lent(&self) -> Option<(u32, u32)> {
        let bytes = self.lent_bytes().min(self.driver.available_bytes());
        let granules = bytes / self.unit_bytes / u64::from(self.granule_units);
        let units = u32::try_from(granules * u64::from(self.granule_units)).unwrap_or(u32::MAX);
        let void = self.sides.iter().find_map(|side| side.voids.first().copied())?;
        (units > 0).then(|| (void, units.min(self.records.get(void).units)))
    }

    fn lends(&self) -> bool {
        let is_reserved = matches!(self.growth, Growth::Reserved { .. });
        is_reserved && self.driver.properties().grows_in_place
    }
}
