//! Lending of memory by an arena that does not grow. While another space of the device holds the
//! memory, some addresses of the arena have none behind them.

use super::{Arena, Growth, LARGE, SMALL};
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
            self.map.give_back(bytes, &(0..0))?;
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
            let start = self.map.chunks().get(void).start;
            self.map.fill(void, &(start..start + units))?;
        }
        self.debug_check();
        Ok(self.held_bytes() - before)
    }

    /// The bytes that are lent and can be taken back.
    pub fn lent_bytes(&self) -> u64 {
        match self.growth {
            Growth::Reserved { bytes } if self.lends() && !self.map.is_empty() => {
                bytes.saturating_sub(self.held_bytes())
            }
            Growth::Reserved { .. } | Growth::OnDemand { .. } => 0,
        }
    }

    /// A chunk without memory, and how much of it can have some now.
    fn next_lent(&self) -> Option<(u32, u32)> {
        let bytes = self.lent_bytes().min(self.driver().available_bytes());
        let units = self.map.units().granules_within(bytes);
        let chunks = self.map.chunks();
        let void = [SMALL, LARGE].iter().find_map(|side| chunks.voids(*side).first().copied())?;
        (units > 0).then(|| (void, units.min(chunks.get(void).units)))
    }

    fn lends(&self) -> bool {
        let is_reserved = matches!(self.growth, Growth::Reserved { .. });
        is_reserved && self.driver().properties().grows_in_place
    }
}
