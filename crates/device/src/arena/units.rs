//! The unit in which an arena counts.

use crate::driver::Properties;

/// The bytes of address space that a region has for each byte of the device: enough that holes
/// between chunks seldom exhaust it, and another region is needed.
pub(super) const ADDRESSES_PER_BYTE: u64 = 2;

/// The size of a unit, at whose multiples chunks begin and end, and how many of them a granule of
/// the driver has.
#[derive(Debug, Clone, Copy)]
pub(super) struct Units {
    /// The logarithm of a unit's bytes.
    shift: u32,
    granule: u32,
}

impl Units {
    /// The driver's alignment, unless the addresses that are needed would not fit 32 bits of such
    /// units.
    pub(super) fn new(properties: &Properties) -> Units {
        let addresses = properties.capacity_bytes.saturating_mul(2 * ADDRESSES_PER_BYTE);
        let least = addresses.div_ceil(1 << 32).next_power_of_two();
        let bytes = properties.alignment_bytes.max(least).min(properties.granule_bytes);
        let granule = u32::try_from(properties.granule_bytes / bytes);
        Units { shift: bytes.ilog2(), granule: granule.expect("a granule is a few units") }
    }

    /// The units that so many bytes need, at least one; `None` if there are not as many.
    #[inline]
    pub(super) fn for_bytes(self, bytes: u64) -> Option<u32> {
        u32::try_from(((bytes.max(1) - 1) >> self.shift) + 1).ok()
    }

    /// The units that are whole in so many bytes.
    pub(super) fn within(self, bytes: u64) -> u64 {
        bytes >> self.shift
    }

    /// The bytes of so many units.
    #[inline]
    pub(super) fn bytes(self, units: impl Into<u64>) -> u64 {
        units.into() << self.shift
    }

    /// The most bytes that a chunk can have.
    pub(super) fn bytes_max(self) -> u64 {
        self.bytes(u32::MAX)
    }

    /// The units of a granule.
    #[inline]
    pub(super) fn granule(self) -> u32 {
        self.granule
    }

    /// As many units as whole granules in so many bytes have, as far as 32 bits can say.
    pub(super) fn granules_within(self, bytes: u64) -> u32 {
        let granule = u64::from(self.granule);
        u32::try_from(self.within(bytes) / granule * granule).unwrap_or(u32::MAX)
    }

    /// Asserts that a granule is at least a unit, and made of whole ones.
    pub(super) fn check(self, properties: &Properties) {
        assert_eq!(self.bytes(self.granule), properties.granule_bytes, "a granule in units");
        assert!(self.granule > 0, "a granule is at least a unit");
    }
}
