//! The bits of a scan, in which a zero follows each byte of ones.

use crate::prelude::*;

/// Reads bits up to the next marker.
#[derive(Debug)]
pub(super) struct Bits<'a> {
    bytes: &'a [u8],
    /// The next byte.
    at: usize,
    /// Bits that were read, at the high end.
    buffer: u64,
    /// How many of them there are.
    count: u32,
}

impl<'a> Bits<'a> {
    pub(super) fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at, buffer: 0, count: 0 }
    }

    /// Fills the buffer as far as there are bytes.
    fn fill(&mut self) {
        while self.count <= 48 {
            let Some(byte) = self.bytes.get(self.at) else { return };
            let step = match (byte, self.bytes.get(self.at + 1)) {
                (0xFF, Some(0)) => 2,
                (0xFF, _) => return,
                _ => 1,
            };
            self.buffer |= u64::from(*byte) << (56 - self.count);
            self.count += 8;
            self.at += step;
        }
    }

    /// The next 16 bits, with zeros where there are none.
    pub(super) fn peek(&mut self) -> u32 {
        if self.count < 16 {
            self.fill();
        }
        (self.buffer >> 48) as u32
    }

    /// Passes over up to 16 bits. Fails where there are none.
    pub(super) fn skip(&mut self, n: u32) -> Result<()> {
        if n > self.count {
            self.fill();
            if n > self.count {
                return invalid!("the image's data is cut off");
            }
        }
        self.buffer <<= n;
        self.count -= n;
        Ok(())
    }

    /// The next up to 16 bits.
    pub(super) fn take(&mut self, n: u32) -> Result<u32> {
        if n == 0 {
            return Ok(0);
        }
        let value = self.peek() >> (16 - n);
        self.skip(n)?;
        Ok(value)
    }

    /// A number of `n` bits whose first bit is its sign: 0 for negative.
    pub(super) fn signed(&mut self, n: u32) -> Result<i32> {
        let value = self.take(n)? as i32;
        if n > 0 && value < 1 << (n - 1) {
            return Ok(value - (1 << n) + 1);
        }
        Ok(value)
    }

    /// Goes behind the next restart marker.
    pub(super) fn restart(&mut self) -> Result<()> {
        (self.buffer, self.count) = (0, 0);
        match self.bytes.get(self.at..self.at + 2) {
            Some([0xFF, 0xD0..=0xD7]) => self.at += 2,
            _ => return invalid!("a restart marker is missing"),
        }
        Ok(())
    }

    /// The next byte, after what was looked at but not read.
    pub(super) fn position(&self) -> usize {
        self.at
    }
}
