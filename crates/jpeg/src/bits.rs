//! The bits of a scan, in which a zero follows each byte of ones.
//!
//! The treatment of bytes that are missing or too many follows libjpeg's `jdhuff.c`
//! and `jdmarker.c` and TensorFlow's `jpeg_handle.cc`, where damage is no error: behind a marker
//! there are zeros.

use crate::error::Error;

/// The reason that a scan cannot be read on.
#[derive(Debug)]
pub(super) enum Halt {
    /// The file ends within a unit.
    CutOff,
    /// Nothing can be made of the file.
    Wrong(Error),
}

/// The result of reading from a scan.
pub(super) type Read<T> = std::result::Result<T, Halt>;

impl From<Error> for Halt {
    fn from(error: Error) -> Self {
        Self::Wrong(error)
    }
}

/// Reads bits up to the next marker.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bits<'a> {
    bytes: &'a [u8],
    /// The next byte.
    at: usize,
    /// The next byte when the unit began.
    unit: usize,
    /// Bits that were read, at the low end.
    buffer: u64,
    /// The number of bits in the buffer.
    count: u32,
    /// The marker that was met, or 0.
    marker: u8,
    /// Set when zeros had to stand in for bits.
    is_short: bool,
    /// `true` if a file that is cut off is taken as one that ends there.
    recover: bool,
    /// `true` if bytes are taken six at a time, as libjpeg does far from the end of a file.
    in_bulk: bool,
}

impl<'a> Bits<'a> {
    pub(super) fn new(bytes: &'a [u8], at: usize, recover: bool) -> Self {
        Self {
            bytes,
            at,
            unit: at,
            buffer: 0,
            count: 0,
            marker: 0,
            is_short: false,
            recover,
            in_bulk: false,
        }
    }

    /// Begins a unit; `bulk` is how many bytes it takes at most, if they may be taken in bulk.
    pub(super) fn begin(&mut self, bulk: Option<usize>) {
        self.unit = self.at;
        let left = self.bytes.len().saturating_sub(self.at);
        self.in_bulk = self.marker == 0 && bulk.is_some_and(|n| left >= n);
    }

    /// Returns whether bytes are taken in bulk, and a marker was met, which asks for another try.
    pub(super) fn must_retry(&self) -> bool {
        self.in_bulk && self.marker != 0
    }

    /// Returns whether there were too few bits: the data up to the next restart is not there.
    pub(super) fn is_short(&self) -> bool {
        self.is_short
    }

    /// The next byte. Where the file is cut off, a unit goes on with its own first bytes again, as
    /// TensorFlow's source of bytes has it, or with the marker of an end if it has none.
    fn byte(&mut self) -> Read<u8> {
        if self.at >= self.bytes.len() {
            let is_empty = self.unit >= self.bytes.len();
            match (is_empty, self.recover) {
                (true, false) => return Err(cut_off().into()),
                (false, false) => return Err(Halt::CutOff),
                (true, true) if self.bytes == END => return Err(cut_off().into()),
                (true, true) => (self.bytes, self.at, self.unit) = (&END, 0, 0),
                (false, true) => self.at = self.unit,
            }
        }
        self.at += 1;
        Ok(self.bytes[self.at - 1])
    }

    /// The next byte of data, or the marker in its place.
    fn data_byte(&mut self) -> Read<Option<u8>> {
        let mut byte = self.byte()?;
        if byte == 0xFF {
            let mut stalled = 0;
            while byte == 0xFF {
                byte = self.byte()?;
                stalled += 1;
                if stalled > self.bytes.len() {
                    return Err(cut_off().into());
                }
            }
            if byte != 0 {
                self.marker = byte;
                return Ok(None);
            }
            byte = 0xFF;
        }
        Ok(Some(byte))
    }

    /// Sees to it that there are `n` bits, or `n` zeros, and as many more as fit.
    fn fill(&mut self, n: u32) -> Read<()> {
        let enough = if self.in_bulk { self.count + 48 } else { 57 };
        while self.marker == 0 && self.count < enough {
            match self.data_byte()? {
                Some(byte) => self.buffer = self.buffer << 8 | u64::from(byte),
                None => break,
            }
            self.count += 8;
        }
        if n > self.count {
            self.is_short = true;
            self.buffer <<= 57 - self.count;
            self.count = 57;
        }
        Ok(())
    }

    /// The next eight bits, if there are so many.
    pub(super) fn peek(&mut self) -> Read<Option<u32>> {
        self.refill()?;
        if self.count < 8 {
            self.fill(0)?;
        }
        let shift = self.count.checked_sub(8);
        Ok(shift.map(|shift| (self.buffer >> shift) as u32 & 0xFF))
    }

    /// Takes bytes in bulk where it is time.
    fn refill(&mut self) -> Read<()> {
        if self.in_bulk && self.count <= 16 {
            self.fill(17)?;
        }
        Ok(())
    }

    /// Takes up to 16 bits of a code.
    pub(super) fn code(&mut self, n: u32) -> Read<u32> {
        if self.count < n {
            self.fill(n)?;
        }
        self.count -= n;
        Ok((self.buffer >> self.count) as u32 & ((1 << n) - 1))
    }

    /// The next up to 16 bits that follow a code.
    pub(super) fn take(&mut self, n: u32) -> Read<u32> {
        if n == 0 {
            return Ok(0);
        }
        self.refill()?;
        self.code(n)
    }

    /// A number of `n` bits whose first bit is its sign: 0 for negative.
    pub(super) fn signed(&mut self, n: u32) -> Read<i32> {
        let value = self.take(n)? as i32;
        if n > 0 && value < 1 << (n - 1) {
            return Ok(value - (1 << n) + 1);
        }
        Ok(value)
    }

    /// Goes behind restart marker number `wanted`, or stays where that seems to be missing.
    pub(super) fn restart(&mut self, wanted: u8) -> Read<()> {
        (self.buffer, self.count) = (0, 0);
        if self.marker == 0 {
            self.find_marker()?;
        }
        loop {
            let ahead = self.marker.wrapping_sub(0xD0 + wanted) & 7;
            match (self.marker, ahead) {
                // A restart to come, or none: this part of the data is empty.
                (0xD0..=0xD7, 1 | 2) => return Ok(()),
                // One that has been, or no marker at all.
                (0xD0..=0xD7, 6 | 7) | (..0xC0, _) => self.find_marker()?,
                (0xD0..=0xD7, _) => break,
                _ => return Ok(()),
            }
        }
        (self.marker, self.is_short) = (0, false);
        Ok(())
    }

    fn find_marker(&mut self) -> Read<()> {
        self.marker = 0;
        while self.marker == 0 {
            self.unit = self.at;
            self.data_byte()?;
        }
        Ok(())
    }

    /// Returns where markers go on: at the one that was met, or behind the bytes that were read.
    pub(super) fn next(&self) -> Next {
        match (self.marker, self.bytes == END) {
            (0xD9, _) | (_, true) => Next::End,
            (0, _) => Next::At(self.at),
            (marker, _) => Next::Marker(marker, self.at),
        }
    }
}

/// The bytes that follow a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing.
    End,
    /// A marker that was read, and where its body begins.
    Marker(u8, usize),
    /// Bytes up to the next marker.
    At(usize),
}

/// The marker that stands in for the end of a file that is cut off.
const END: [u8; 2] = [0xFF, 0xD9];

fn cut_off() -> Error {
    Error::Invalid("the image's data is cut off".to_owned())
}
