//! A piece of a device's address space, owned: dropping it gives everything back.

use std::ops::Range;
use std::sync::Arc;

use crate::driver::Driver;
use crate::error::Result;

/// A range of addresses reserved from a driver, and which parts of it have memory.
///
/// Offsets are relative to the region. Weights live in regions of their own; an arena cuts its
/// regions into chunks. Every call is checked against what is committed, so that a wrong offset is
/// a panic and not a wild access.
#[derive(Debug)]
pub struct Region {
    driver: Arc<dyn Driver>,
    base: u64,
    bytes: u64,
    /// The committed ranges: sorted, disjoint and never touching.
    committed: Vec<Range<u64>>,
}

impl Region {
    /// Reserves `bytes`, rounded up to the driver's granule, without memory.
    ///
    /// # Errors
    /// As [`Driver::reserve`].
    pub fn reserve(driver: Arc<dyn Driver>, bytes: u64) -> Result<Region> {
        let granule = driver.properties().granule_bytes;
        let bytes = bytes.max(1).checked_next_multiple_of(granule).unwrap_or(u64::MAX);
        let base = driver.reserve(bytes)?;
        assert_eq!(
            base % granule,
            0,
            "{} gave a region that is not aligned",
            driver.properties().name
        );
        Ok(Region { driver, base, bytes, committed: Vec::new() })
    }

    /// Reserves `bytes`, rounded up to the driver's granule, with memory behind all of it.
    ///
    /// # Errors
    /// As [`Driver::reserve`] and [`Driver::commit`].
    pub fn committed(driver: Arc<dyn Driver>, bytes: u64) -> Result<Region> {
        let mut region = Region::reserve(driver, bytes)?;
        region.commit(0..region.bytes)?;
        Ok(region)
    }

    /// The device's address of offset 0.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// The bytes of address space of the region.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The bytes of the region with memory behind them.
    pub fn held_bytes(&self) -> u64 {
        self.committed.iter().map(|range| range.end - range.start).sum()
    }

    /// The driver it came from.
    pub fn driver(&self) -> &Arc<dyn Driver> {
        &self.driver
    }

    /// The parts that have memory, from below, no two touching.
    pub fn committed_ranges(&self) -> &[Range<u64>] {
        &self.committed
    }

    /// Puts zeroed memory behind a range that has none. On an error nothing has changed.
    ///
    /// # Errors
    /// As [`Driver::commit`].
    ///
    /// # Panics
    /// If the range is not made of granules of this region, or is committed already.
    pub fn commit(&mut self, range: Range<u64>) -> Result<()> {
        let at = self.granules(&range);
        let clear = |other: &Range<u64>| range.end <= other.start || other.end <= range.start;
        let neighbours = &self.committed[at.saturating_sub(1)..self.committed.len().min(at + 1)];
        assert!(neighbours.iter().all(clear), "{range:?} is committed already");
        // SAFETY: the range is inside this region and not committed: both asserted above.
        unsafe { self.driver.commit(self.base + range.start..self.base + range.end) }?;
        self.insert(at, range);
        Ok(())
    }

    /// Puts pages behind what is committed of a range of addresses; see [`Driver::populate`].
    pub(crate) fn populate(&self, addresses: &Range<u64>) {
        let granule = self.driver.properties().granule_bytes;
        let first = addresses.start / granule * granule;
        let last = addresses.end.next_multiple_of(granule);
        for range in &self.committed {
            let from = (self.base + range.start).max(first);
            let to = (self.base + range.end).min(last);
            if from < to {
                // SAFETY: it is part of a committed range, and what is committed stays so while
                // `self` is borrowed.
                unsafe { self.driver.populate(from..to) };
            }
        }
    }

    /// Takes the memory behind a range away. On an error nothing has changed.
    ///
    /// The owner of the region has to see to it that no slice of the range is left.
    ///
    /// # Errors
    /// As [`Driver::decommit`].
    ///
    /// # Panics
    /// If the range is not made of granules of this region, or not all of it is committed.
    pub fn decommit(&mut self, range: Range<u64>) -> Result<()> {
        self.granules(&range);
        let at = self.holder(&range);
        // SAFETY: the range is inside this region and committed: both asserted above.
        unsafe { self.driver.decommit(self.base + range.start..self.base + range.end) }?;
        let whole = self.committed[at].clone();
        let rest = [whole.start..range.start, range.end..whole.end];
        self.committed.splice(at..=at, rest.into_iter().filter(|r| !r.is_empty()));
        Ok(())
    }

    /// Copies bytes of the host to `offset`.
    ///
    /// # Errors
    /// As [`Driver::write`].
    ///
    /// # Panics
    /// If not all of the range is committed.
    pub fn write(&mut self, offset: u64, from: &[u8]) -> Result<()> {
        if from.is_empty() {
            return Ok(());
        }
        self.holder(&(offset..offset + from.len() as u64));
        // SAFETY: the range is committed, as just asserted, and `self` is borrowed exclusively.
        unsafe { self.driver.write(self.base + offset, from) }
    }

    /// Copies bytes at `offset` to the host.
    ///
    /// # Errors
    /// As [`Driver::read`].
    ///
    /// # Panics
    /// If not all of the range is committed.
    pub fn read(&self, offset: u64, to: &mut [u8]) -> Result<()> {
        if to.is_empty() {
            return Ok(());
        }
        self.holder(&(offset..offset + to.len() as u64));
        // SAFETY: the range is committed, as just asserted, and writing needs `self` exclusively.
        unsafe { self.driver.read(self.base + offset, to) }
    }

    /// Copies `bytes` bytes inside the region.
    ///
    /// # Errors
    /// As [`Driver::copy`].
    ///
    /// # Panics
    /// If not all of both ranges is committed, or they overlap.
    pub fn copy(&mut self, from: u64, to: u64, bytes: u64) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.holder(&(from..from + bytes));
        self.holder(&(to..to + bytes));
        assert!(from + bytes <= to || to + bytes <= from, "copy of {bytes} bytes onto itself");
        // SAFETY: both are committed and apart, as just asserted; `self` is borrowed exclusively.
        unsafe { self.driver.copy(self.base + from, self.base + to, bytes) }
    }

    /// Asserts that the range is made of granules; returns how many committed ranges begin before
    /// it.
    fn granules(&self, range: &Range<u64>) -> usize {
        let granule = self.driver.properties().granule_bytes;
        assert!(range.start < range.end && range.end <= self.bytes, "{range:?} of {}", self.bytes);
        assert!(
            range.start.is_multiple_of(granule) && range.end.is_multiple_of(granule),
            "{range:?} by {granule}"
        );
        self.committed.partition_point(|other| other.start < range.start)
    }

    /// Asserts that all of the range is committed; returns which committed range holds it.
    fn holder(&self, range: &Range<u64>) -> usize {
        let at = self.committed.partition_point(|other| other.end <= range.start);
        let held = self.committed.get(at);
        let held = held.is_some_and(|r| r.start <= range.start && range.end <= r.end);
        assert!(held, "not all of {range:?} is committed");
        at
    }

    /// Adds a range before the `at`-th, merging it with those it touches.
    fn insert(&mut self, at: usize, range: Range<u64>) {
        let joins_left = at > 0 && self.committed[at - 1].end == range.start;
        let joins_right = self.committed.get(at).is_some_and(|next| next.start == range.end);
        match (joins_left, joins_right) {
            (true, true) => self.committed[at - 1].end = self.committed.remove(at).end,
            (true, false) => self.committed[at - 1].end = range.end,
            (false, true) => self.committed[at].start = range.start,
            (false, false) => self.committed.insert(at, range),
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let held_bytes = self.held_bytes();
        // SAFETY: exactly what was reserved, and nobody can use the region any more.
        unsafe { self.driver.release(self.base..self.base + self.bytes, held_bytes) };
    }
}
