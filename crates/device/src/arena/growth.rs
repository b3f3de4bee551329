//! The rules by which an arena takes memory, moves it and gives it back.

use super::{Arena, Growth, LARGE, SMALL, bins};
use crate::error::{Error, Result};

/// The share of the bytes in use, one in so many, that may stay free in place when an arena grows,
/// beside `SLACK_BYTES`.
const SLACK_PARTS: u64 = 128;
const SLACK_BYTES: u64 = 1 << 20;

/// Small chunks need little memory, so that side grows in smaller steps.
const SMALL_STEP_BYTES: u64 = 64 << 10;

impl Arena {
    /// Gives back the granules that are free, until no more than `keep_bytes` are held; returns how
    /// many bytes went. An arena with [`Growth::Reserved`] keeps everything, others what
    /// [`Arena::keep`] was told.
    ///
    /// # Errors
    /// If the driver refuses; what it took until then is gone.
    pub fn trim(&mut self, keep_bytes: u64) -> Result<u64> {
        let before = self.held_bytes();
        let keep_bytes = keep_bytes.max(self.least_bytes);
        if matches!(self.growth, Growth::OnDemand { .. }) && before > keep_bytes {
            self.release_slabs();
            let outside = 0..0;
            // Where only whole regions go, none may go that is partly kept.
            match self.driver().properties().grows_in_place {
                true => self.map.give_back(before - keep_bytes, &outside)?,
                false => self.map.release_regions(before - keep_bytes, self.least_bytes),
            }
        }
        self.map.shrink();
        self.debug_check();
        Ok(before - self.held_bytes())
    }

    /// The bytes that [`Arena::trim`] could give back, or a few more: whole granules that are free,
    /// or whole regions where the driver knows no parts. Looks at each free chunk.
    pub fn returnable_bytes(&self) -> u64 {
        match self.growth {
            Growth::Reserved { .. } => 0,
            Growth::OnDemand { .. } => {
                let free = match self.driver().properties().grows_in_place {
                    true => self.map.recyclable_bytes(&(0..0)),
                    false => self.map.free_regions_bytes(),
                };
                free.min(self.held_bytes().saturating_sub(self.least_bytes))
            }
        }
    }

    /// Gives back all that an arena with [`Growth::Reserved`] holds; from then on it may hold
    /// nothing.
    ///
    /// # Panics
    /// If it grows, or something of it is in use.
    pub fn give_up(&mut self) {
        assert!(matches!(self.growth, Growth::Reserved { .. }), "others are trimmed");
        assert_eq!(self.in_use_bytes(), 0, "nobody uses what goes");
        self.growth = Growth::Reserved { bytes: 0 };
        self.release_slabs();
        // What was lent and did not come back has no memory behind it, and goes with the rest.
        self.map.clear();
        self.debug_check();
    }

    /// Takes `bytes` for an arena that gave up what it had.
    ///
    /// # Errors
    /// If that much cannot be had; it is then tried again when somebody asks for a chunk.
    ///
    /// # Panics
    /// If it holds something.
    pub fn take_again(&mut self, bytes: u64) -> Result<()> {
        assert!(self.map.is_empty(), "it gave up what it had");
        self.growth = Growth::Reserved { bytes };
        self.map.add_memory(LARGE, bytes)?;
        self.debug_check();
        Ok(())
    }

    /// Makes a free chunk of at least `units` units, and returns its place.
    pub(super) fn grow(&mut self, side: u8, units: u32) -> Result<bins::Place> {
        if let Growth::Reserved { bytes } = self.growth {
            if self.map.is_empty() && bytes > 0 {
                self.map.add_memory(LARGE, bytes)?;
            }
            self.take_lent()?;
            let place = self.map.chunks().find(side, units);
            return place.ok_or_else(|| self.exhausted(units));
        }
        if !self.driver().properties().grows_in_place {
            return self.grow_by_region(side, units);
        }
        self.release_slabs();
        if let Some(place) = self.map.chunks().find(side, units) {
            return Ok(place);
        }
        if self.map.chunks().find_place(side, units).is_none() {
            self.map.add_addresses(side, units)?;
        }
        self.grow_in_place(side, units)
    }

    /// Puts memory where the fewest bytes are missing: first what is free elsewhere, then new.
    fn grow_in_place(&mut self, side: u8, n_units: u32) -> Result<bins::Place> {
        let find = |arena: &Arena| arena.map.chunks().find_place(side, n_units);
        let units = self.map.units();
        let place = find(self).expect("a new region has room for what it is for");
        let missing = units.bytes(place.missing);
        let recyclable = self.map.recyclable_bytes(&place.units);
        if missing > self.driver().available_bytes().saturating_add(recyclable) {
            return Err(self.exhausted(n_units));
        }
        // What is free elsewhere moves, unless it is little: moving it to and fro would cost more.
        let before = self.held_bytes();
        let in_use = self.usage.in_use_bytes + units.bytes(n_units);
        let enough = in_use + in_use / SLACK_PARTS + SLACK_BYTES;
        let excess = (before + missing).saturating_sub(enough).min(missing);
        let lacking = missing.saturating_sub(self.driver().available_bytes());
        self.map.give_back(excess.max(lacking), &place.units)?;
        let recycled = before - self.held_bytes();
        // The place is untouched, but its neighbours may be other chunks now.
        let place = find(self).expect("there was a place");
        assert!(units.bytes(place.missing) <= missing, "the place is as it was");
        let missing = units.bytes(place.missing);
        let spare = match missing > recycled {
            true => self.step_bytes(side).saturating_sub(missing - recycled),
            false => 0,
        };
        let spare = spare.min(self.driver().available_bytes().saturating_sub(missing));
        self.map.fill_place(&place, spare)
    }

    /// Adds a region with memory, and returns where its one chunk stands.
    fn grow_by_region(&mut self, side: u8, units: u32) -> Result<bins::Place> {
        let least = self.map.units().bytes(units);
        let largest = self.driver().properties().region_bytes_max;
        if least > self.driver().available_bytes() {
            self.map.release_regions(least, 0);
        }
        let wanted = self.step_bytes(side).min(self.driver().available_bytes()).min(largest);
        let id = match self.map.add_memory(side, wanted.max(least)) {
            Err(_) if wanted > least => self.map.add_memory(side, least),
            added => added,
        }?;
        Ok(self.map.chunks().place_of(id))
    }

    /// Frees the slabs that are kept only in case.
    pub(super) fn release_slabs(&mut self) {
        while let Some(chunk) = self.slabs.remove_empty() {
            self.map.put(chunk);
        }
    }

    pub(super) fn step_bytes(&self, side: u8) -> u64 {
        match self.growth {
            Growth::OnDemand { step_bytes } if side == SMALL => step_bytes.min(SMALL_STEP_BYTES),
            Growth::OnDemand { step_bytes } => step_bytes,
            Growth::Reserved { .. } => 0,
        }
    }

    fn exhausted(&self, units: u32) -> Error {
        let available = match self.growth {
            Growth::OnDemand { .. } => self.driver().available_bytes(),
            Growth::Reserved { .. } => 0,
        };
        Error::Exhausted {
            device: self.driver().properties().name.clone(),
            needed_bytes: self.map.units().bytes(units),
            free_bytes: available.saturating_add(self.idle_bytes()),
            limit_bytes: available.saturating_add(self.held_bytes()),
        }
    }
}
