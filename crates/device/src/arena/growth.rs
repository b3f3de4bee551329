//! How an arena takes memory, moves it and gives it back.

use std::ops::Range;

use super::place::Place;
use super::records::{NONE, Record, State};
use super::{Arena, Growth, LARGE, Placed, SMALL, bins};
use crate::error::{Error, Result};
use crate::region::Region;

/// How many bytes of address space a region has for each byte of the device: enough that holes
/// between chunks seldom exhaust it, and another region is needed.
pub(super) const ADDRESSES_PER_BYTE: u64 = 2;

/// How much may stay free where it is when an arena grows: this part of what is in use, and some.
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
            let least = self.least_bytes;
            match self.driver.properties().grows_in_place {
                true => self.give_back(before - keep_bytes, &outside)?,
                false => self.release_regions(before - keep_bytes, least),
            }
        }
        self.sides.iter_mut().for_each(|side| side.bins.shrink());
        self.debug_check();
        Ok(before - self.held_bytes())
    }

    /// How many bytes [`Arena::trim`] could give back, or a few more: whole granules that are free,
    /// or whole regions where the driver knows no parts. Looks at each free chunk.
    pub fn returnable_bytes(&self) -> u64 {
        match self.growth {
            Growth::Reserved { .. } => 0,
            Growth::OnDemand { .. } => {
                let empty = self.regions.iter().filter(|placed| self.is_empty_region(placed));
                let free = match self.driver.properties().grows_in_place {
                    true => self.recyclable_bytes(&(0..0)),
                    false => empty.map(|placed| placed.region.bytes()).sum(),
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
        for placed in std::mem::take(&mut self.regions) {
            let mut id = placed.head;
            while id != NONE {
                let record = *self.records.get(id);
                if record.state == State::Free {
                    self.sides[usize::from(record.side)].bins.remove(&self.records, id);
                }
                self.records.remove(id);
                id = record.next;
            }
            self.counters.shrank(placed.region.held_bytes());
        }
        self.sides.iter_mut().for_each(|side| side.voids.clear());
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
        assert!(self.regions.is_empty(), "it gave up what it had");
        self.growth = Growth::Reserved { bytes };
        self.add_whole_region(LARGE, bytes)?;
        self.debug_check();
        Ok(())
    }

    /// Makes a free chunk of at least `units` units, and returns its place.
    pub(super) fn grow(&mut self, side: u8, units: u32) -> Result<bins::Place> {
        if let Growth::Reserved { bytes } = self.growth {
            if self.regions.is_empty() && bytes > 0 {
                self.add_whole_region(LARGE, bytes)?;
            }
            self.take_lent()?;
            let place = self.sides[usize::from(side)].bins.find(units);
            return place.ok_or_else(|| self.exhausted(units));
        }
        if !self.driver.properties().grows_in_place {
            return self.grow_by_region(side, units);
        }
        self.release_slabs();
        if let Some(place) = self.sides[usize::from(side)].bins.find(units) {
            return Ok(place);
        }
        if self.find_place(side, units).is_none() {
            self.add_addresses(side, units)?;
        }
        let place = self.find_place(side, units).expect("a new region has room for what it is for");
        let missing = u64::from(place.missing) * self.unit_bytes;
        let recyclable = self.recyclable_bytes(&place.units);
        if missing > self.driver.available_bytes().saturating_add(recyclable) {
            return Err(self.exhausted(units));
        }
        // What is free elsewhere moves, unless it is little: moving it to and fro would cost more.
        let before = self.held_bytes();
        let in_use = self.counters.in_use_bytes + u64::from(units) * self.unit_bytes;
        let enough = in_use + in_use / SLACK_PARTS + SLACK_BYTES;
        let excess = (before + missing).saturating_sub(enough).min(missing);
        let lacking = missing.saturating_sub(self.driver.available_bytes());
        self.give_back(excess.max(lacking), &place.units)?;
        let recycled = before - self.held_bytes();
        // The place is untouched, but its neighbours may be other chunks now.
        let place = self.find_place(side, units).expect("there was a place");
        assert!(u64::from(place.missing) * self.unit_bytes <= missing, "the place is as it was");
        self.fill_place(side, &place, recycled)
    }

    /// Frees the slabs that are kept only in case.
    pub(super) fn release_slabs(&mut self) {
        while let Some(chunk) = self.slabs.remove_empty() {
            self.put(chunk);
        }
    }

    /// Puts memory where the place has none; returns where the free chunk stands that begins there.
    fn fill_place(&mut self, side: u8, place: &Place, recycled: u64) -> Result<bins::Place> {
        let missing = u64::from(place.missing) * self.unit_bytes;
        let mut spare = match missing > recycled {
            true => self.step_bytes(side).saturating_sub(missing - recycled),
            false => 0,
        };
        spare = spare.min(self.driver.available_bytes().saturating_sub(missing));
        let mut id = place.first;
        while id != NONE && self.records.get(id).start < place.units.end {
            let range = self.missing_in(id, &place.units);
            if !range.is_empty() {
                let last = range.end >= place.units.end;
                let wider = self.stretched(id, range.clone(), if last { spare } else { 0 });
                id = self.fill(id, wider).or_else(|_| self.fill(id, range))?;
            }
            if self.records.get(id).end() >= place.units.end {
                break;
            }
            id = self.records.get(id).next;
        }
        Ok(self.carve(side, id, place.units.start))
    }

    /// Cuts the free chunk around `start` there, and returns where the upper part stands.
    fn carve(&mut self, side: u8, id: u32, start: u32) -> bins::Place {
        let record = *self.records.get(id);
        assert!(record.state == State::Free && record.start <= start, "the place was filled");
        let bins = &mut self.sides[usize::from(side)].bins;
        if record.start == start {
            return bins.place_of(&self.records, id);
        }
        // For a moment two free chunks are neighbours; the upper one is taken now.
        bins.remove(&self.records, id);
        let upper = self.records.split(id, start - record.start);
        bins.insert(&self.records, id);
        bins.insert(&self.records, upper);
        bins.place_of(&self.records, upper)
    }

    /// A range of a void chunk with up to `spare_bytes` more above it.
    fn stretched(&self, void: u32, range: Range<u32>, spare_bytes: u64) -> Range<u32> {
        let granules = spare_bytes / (u64::from(self.granule_units) * self.unit_bytes);
        let units = granules * u64::from(self.granule_units);
        let end = u64::from(range.end) + units;
        let limit = self.records.get(void).end();
        range.start..u32::try_from(end).unwrap_or(limit).min(limit)
    }

    /// Commits a range of a void chunk; returns the free chunk that it is part of then.
    pub(super) fn fill(&mut self, void: u32, range: Range<u32>) -> Result<u32> {
        let at = self.region_of(range.start);
        let bytes = self.offsets(at, &range);
        let grown = bytes.end - bytes.start;
        self.regions[at].region.commit(bytes)?;
        self.counters.grew(grown);
        let id = self.cut_void(void, &range);
        self.records.get_mut(id).state = State::Free;
        Ok(self.list(id))
    }

    /// Splits a void chunk so that `range` is a chunk of its own, and in no list.
    fn cut_void(&mut self, void: u32, range: &Range<u32>) -> u32 {
        let record = *self.records.get(void);
        let voids = &mut self.sides[usize::from(record.side)].voids;
        let at = voids.partition_point(|id| self.records.get(*id).start < record.start);
        assert_eq!(voids[at], void, "a void chunk stands in its list");
        let mut rest = [NONE; 2];
        let mut middle = void;
        if record.start < range.start {
            middle = self.records.split(void, range.start - record.start);
            rest[0] = void;
        }
        if range.end < record.end() {
            rest[1] = self.records.split(middle, range.end - range.start);
        }
        voids.splice(at..=at, rest.into_iter().filter(|id| *id != NONE));
        middle
    }

    /// Gives free granules back, at least `bytes` if there are as many; the largest chunks first,
    /// and none of `keep`.
    pub(super) fn give_back(&mut self, bytes: u64, keep: &Range<u32>) -> Result<()> {
        if !self.driver.properties().grows_in_place {
            self.release_regions(bytes, 0);
            return Ok(());
        }
        let mut left = bytes.div_ceil(self.unit_bytes);
        let chunks: Vec<u32> = self.sides.iter().rev().flat_map(|s| s.bins.iter_down()).collect();
        for id in chunks {
            if left == 0 {
                break;
            }
            let range = self.whole_granules(id, keep);
            let most = u32::try_from(left).unwrap_or(u32::MAX);
            let most = most.checked_next_multiple_of(self.granule_units).unwrap_or(u32::MAX);
            let units = most.min(range.end - range.start);
            if units > 0 {
                self.empty(id, range.end - units..range.end)?;
                left = left.saturating_sub(u64::from(units));
            }
        }
        Ok(())
    }

    /// How many bytes `give_back` could give.
    fn recyclable_bytes(&self, keep: &Range<u32>) -> u64 {
        let chunks = self.sides.iter().flat_map(|side| side.bins.iter_down());
        let units: u64 = chunks.map(|id| self.whole_granules(id, keep).len() as u64).sum();
        units * self.unit_bytes
    }

    /// The granules of a free chunk that lie wholly inside it and outside `keep`.
    fn whole_granules(&self, id: u32, keep: &Range<u32>) -> Range<u32> {
        let record = self.records.get(id);
        let (mut start, mut end) = (record.start, record.end());
        if start < keep.end && keep.start < end {
            // Never on both sides of it: a chunk around all of `keep` would not have to grow.
            if start < keep.start {
                end = keep.start;
            } else {
                start = keep.end.min(end);
            }
        }
        let start = start.next_multiple_of(self.granule_units);
        let end = end / self.granule_units * self.granule_units;
        if start < end { start..end } else { 0..0 }
    }

    /// Decommits a range of granules of a free chunk.
    fn empty(&mut self, id: u32, range: Range<u32>) -> Result<()> {
        let at = self.region_of(range.start);
        let bytes = self.offsets(at, &range);
        let shrunk = bytes.end - bytes.start;
        self.regions[at].region.decommit(bytes)?;
        self.counters.shrank(shrunk);
        let record = *self.records.get(id);
        let bins = &mut self.sides[usize::from(record.side)].bins;
        bins.remove(&self.records, id);
        let mut middle = id;
        if record.start < range.start {
            middle = self.records.split(id, range.start - record.start);
            bins.insert(&self.records, id);
        }
        if range.end < record.end() {
            let above = self.records.split(middle, range.end - range.start);
            bins.insert(&self.records, above);
        }
        self.add_void(middle);
        Ok(())
    }

    /// Makes a chunk that is in no list void, joins it with void neighbours, and lists it.
    fn add_void(&mut self, id: u32) {
        self.records.get_mut(id).state = State::Void;
        let Record { side, prev, next, .. } = *self.records.get(id);
        let is_void = |id: u32| id != NONE && self.records.get(id).state == State::Void;
        let (joins_prev, joins_next) = (is_void(prev), is_void(next));
        let voids = &mut self.sides[usize::from(side)].voids;
        let start = self.records.get(id).start;
        let at = voids.partition_point(|other| self.records.get(*other).start < start);
        if joins_next {
            self.records.join_next(id);
            voids.remove(at);
        }
        if joins_prev {
            self.records.join_next(prev);
        } else {
            voids.insert(at, id);
        }
    }

    /// Adds a region of addresses without memory, with room for at least `units`.
    fn add_addresses(&mut self, side: u8, units: u32) -> Result<()> {
        let properties = self.driver.properties();
        let least = u64::from(units) * self.unit_bytes;
        let most = properties.capacity_bytes.saturating_mul(ADDRESSES_PER_BYTE);
        let mut bytes = most.clamp(least, properties.region_bytes_max.max(least));
        let region = loop {
            match Region::reserve(self.driver.clone(), bytes) {
                Err(_) if bytes / 2 >= least => bytes /= 2,
                region => break region?,
            }
        };
        let id = self.place_region(side, region)?;
        self.add_void(id);
        Ok(())
    }

    /// Adds a region with memory, and returns where its one chunk stands.
    fn grow_by_region(&mut self, side: u8, units: u32) -> Result<bins::Place> {
        let least = u64::from(units) * self.unit_bytes;
        let largest = self.driver.properties().region_bytes_max;
        if least > self.driver.available_bytes() {
            self.release_regions(least, 0);
        }
        let wanted = self.step_bytes(side).min(self.driver.available_bytes()).min(largest);
        let id = match self.add_whole_region(side, wanted.max(least)) {
            Err(_) if wanted > least => self.add_whole_region(side, least),
            added => added,
        }?;
        Ok(self.sides[usize::from(side)].bins.place_of(&self.records, id))
    }

    /// Adds a region with memory behind all of it, as one free chunk in its bin.
    pub(super) fn add_whole_region(&mut self, side: u8, bytes: u64) -> Result<u32> {
        let region = Region::committed(self.driver.clone(), bytes)?;
        let held = region.bytes();
        let id = self.place_region(side, region)?;
        self.counters.grew(held);
        self.records.get_mut(id).state = State::Free;
        self.sides[usize::from(side)].bins.insert(&self.records, id);
        Ok(id)
    }

    /// Gives a region its units, and makes one chunk of them that is in no list.
    fn place_region(&mut self, side: u8, region: Region) -> Result<u32> {
        let units = u32::try_from(region.bytes() / self.unit_bytes).unwrap_or(u32::MAX);
        let mut at = 0;
        let mut first_unit = 0u32;
        while at < self.regions.len() && self.regions[at].first_unit - first_unit < units {
            first_unit = self.regions[at].end();
            at += 1;
        }
        if first_unit.checked_add(units).is_none() || units == u32::MAX {
            return Err(self.exhausted(units));
        }
        let (prev, next, state) = (NONE, NONE, State::InUse);
        let head =
            self.records.insert(Record { start: first_unit, units, prev, next, state, side });
        self.regions.insert(at, Placed { region, first_unit, units, head, side });
        Ok(head)
    }

    /// Releases regions of which nothing is in use, until `bytes` went back; `least_bytes` are
    /// held afterwards, if they were before.
    fn release_regions(&mut self, bytes: u64, least_bytes: u64) {
        let mut left = bytes;
        for at in (0..self.regions.len()).rev() {
            let Placed { head, side, .. } = self.regions[at];
            let is_needed = self.held_bytes() - self.regions[at].region.bytes() < least_bytes;
            if left == 0 || is_needed || !self.is_empty_region(&self.regions[at]) {
                continue;
            }
            self.sides[usize::from(side)].bins.remove(&self.records, head);
            self.records.remove(head);
            let region = self.regions.remove(at).region;
            self.counters.shrank(region.bytes());
            left = left.saturating_sub(region.bytes());
        }
    }

    /// Whether nothing of a region with memory is in use.
    fn is_empty_region(&self, placed: &Placed) -> bool {
        let record = self.records.get(placed.head);
        record.state == State::Free && record.units == placed.units
    }

    pub(super) fn step_bytes(&self, side: u8) -> u64 {
        match self.growth {
            Growth::OnDemand { step_bytes } if side == SMALL => step_bytes.min(SMALL_STEP_BYTES),
            Growth::OnDemand { step_bytes } => step_bytes,
            Growth::Reserved { .. } => 0,
        }
    }

    /// The offsets of `units` in the region they lie in.
    fn offsets(&self, at: usize, units: &Range<u32>) -> Range<u64> {
        let first = self.regions[at].first_unit;
        let offset = |unit: u32| u64::from(unit - first) * self.unit_bytes;
        offset(units.start)..offset(units.end)
    }

    fn exhausted(&self, units: u32) -> Error {
        let available = match self.growth {
            Growth::OnDemand { .. } => self.driver.available_bytes(),
            Growth::Reserved { .. } => 0,
        };
        Error::Exhausted {
            device: self.driver.properties().name.clone(),
            needed_bytes: u64::from(units) * self.unit_bytes,
            free_bytes: available.saturating_add(self.held_bytes() - self.counters.in_use_bytes),
            limit_bytes: available.saturating_add(self.held_bytes()),
        }
    }
}
