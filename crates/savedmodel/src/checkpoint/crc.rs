//! CRC32C, masked as LevelDB masks it so that a checksum of checksums is no trap.

/// A CRC32C that is being computed.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Crc(u32);

impl Crc {
    /// The checksum of `bytes`.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self(crc32c::crc32c(bytes))
    }

    /// Goes on with `bytes`.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0 = crc32c::crc32c_append(self.0, bytes);
    }

    /// Returns whether the checksum is the one that was stored. A fuzzer cannot guess checksums, so
    /// there every one will do.
    pub(crate) fn is(self, stored: u32) -> bool {
        cfg!(fuzzing) || self.masked() == stored
    }

    /// The checksum as it is stored.
    pub(crate) fn masked(self) -> u32 {
        self.0.rotate_right(15).wrapping_add(0xa282_ead8)
    }
}
