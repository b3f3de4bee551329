//! The memory that a message will take when it is decoded, told from its bytes.
//!
//! Most of a message takes about as much decoded as it does on the wire. But an empty string, a
//! dimension or an entry of a map takes two bytes there and dozens here, and a message may hold a
//! billion of them. So these are counted before anything is decoded.
//!
//! The bytes are followed as prost follows them: unknown fields and groups are skipped, lengths may
//! reach beyond the message around them, numbers may be packed or not. What prost would refuse is
//! refused here.

mod shapes;

use bytes::Buf;

use shapes::{Fixed, Part};
pub(crate) use shapes::{Shape, Shapes, shapes};

/// The number of levels to which messages and groups may be nested; prost allows one less.
const DEPTH_MAX: usize = 101;

/// A message that cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed;

/// The bytes that a message takes decoded besides those it takes encoded: no fewer than decoding it
/// will ever hold at once.
pub(crate) fn expansion(message: &mut impl Buf, shape: &Shape) -> Result<usize, Malformed> {
    Skim { shapes: shapes(), buf: message, cost: 0 }.message(0, shape, 0)
}

/// A message that is being followed.
struct Skim<'a, B> {
    shapes: &'a Shapes,
    buf: &'a mut B,
    cost: usize,
}

impl<B: Buf> Skim<'_, B> {
    /// Follows a message until `end` bytes are left. Gives the cost of all up to there.
    fn message(&mut self, end: usize, shape: &Shape, depth: usize) -> Result<usize, Malformed> {
        if depth > DEPTH_MAX {
            return Err(Malformed);
        }
        let mut seen = 0u64;
        while self.buf.remaining() > end {
            let (number, wire) = self.key()?;
            match shape.find(number) {
                Some((place, field)) => {
                    // The first entry of a map takes a node that has room for eleven.
                    if seen >> (place % 64) & 1 == 0 {
                        seen |= 1 << (place % 64);
                        self.add(field.first);
                    }
                    // prost reads an entry of a map however its key says that it is written.
                    let wire = if field.first > 0 { LENGTH } else { wire };
                    self.field(&field.part, wire, depth)?;
                }
                None => self.skip(number, wire, depth)?,
            }
        }
        if self.buf.remaining() == end { Ok(self.cost) } else { Err(Malformed) }
    }

    fn field(&mut self, part: &Part, wire: u8, depth: usize) -> Result<(), Malformed> {
        match (part, wire) {
            (Part::Shared { each }, LENGTH) => {
                self.add(*each);
                let length = self.length()?;
                self.buf.advance(length);
            }
            (Part::Copied { each }, LENGTH) => {
                let length = self.length()?;
                self.add(each.saturating_add(length));
                self.buf.advance(length);
            }
            (Part::Message { each, inside }, LENGTH) => {
                self.add(*each);
                let length = self.length()?;
                let end = self.buf.remaining() - length;
                self.message(end, self.shapes.get(*inside), depth + 1)?;
            }
            (Part::Numbers { width, fixed }, LENGTH) => {
                let length = self.length()?;
                let n_numbers = match fixed {
                    Some(Fixed(bytes)) => {
                        self.buf.advance(length);
                        length / bytes
                    }
                    None => self.count_varints(length),
                };
                self.add(first_bytes(*width));
                // A vector that has to grow holds what it had and twice as much.
                self.add(n_numbers.saturating_mul(3 * width));
            }
            (Part::Numbers { width, .. }, VARINT | FIXED32 | FIXED64) => {
                self.add(first_bytes(*width));
                self.skip(0, wire, depth)?;
            }
            _ => return Err(Malformed), // Another type than the field has.
        }
        Ok(())
    }

    /// Skips a value of a field, groups with all that is in them.
    fn skip(&mut self, number: u32, wire: u8, depth: usize) -> Result<(), Malformed> {
        if depth > DEPTH_MAX {
            return Err(Malformed);
        }
        let length = match wire {
            VARINT => self.varint().map(|_| 0)?,
            FIXED64 => 8,
            FIXED32 => 4,
            LENGTH => self.length()?,
            GROUP => loop {
                let (inner, wire) = self.key()?;
                if wire != GROUP_END {
                    self.skip(inner, wire, depth + 1)?;
                } else if inner == number {
                    break 0;
                } else {
                    return Err(Malformed);
                }
            },
            _ => return Err(Malformed),
        };
        if length > self.buf.remaining() {
            return Err(Malformed);
        }
        self.buf.advance(length);
        Ok(())
    }

    /// The number of varints in the next `length` bytes.
    fn count_varints(&mut self, mut length: usize) -> usize {
        let mut count = 0;
        while length > 0 {
            let chunk = self.buf.chunk();
            let chunk = &chunk[..chunk.len().min(length)];
            count += chunk.iter().filter(|byte| **byte < 0x80).count();
            let n_bytes = chunk.len();
            length -= n_bytes;
            self.buf.advance(n_bytes);
        }
        count
    }

    /// The number of a field, and how its value is written.
    fn key(&mut self) -> Result<(u32, u8), Malformed> {
        let key = u32::try_from(self.varint()?).map_err(|_| Malformed)?;
        if key < 8 {
            return Err(Malformed);
        }
        Ok((key >> 3, (key & 7).to_le_bytes()[0]))
    }

    /// The length of a value, which is there.
    fn length(&mut self) -> Result<usize, Malformed> {
        let length = usize::try_from(self.varint()?).map_err(|_| Malformed)?;
        if length <= self.buf.remaining() { Ok(length) } else { Err(Malformed) }
    }

    fn varint(&mut self) -> Result<u64, Malformed> {
        prost::encoding::decode_varint(self.buf).map_err(|_| Malformed)
    }

    fn add(&mut self, bytes: usize) {
        self.cost = self.cost.saturating_add(bytes);
    }
}

const VARINT: u8 = 0;
const FIXED64: u8 = 1;
const LENGTH: u8 = 2;
const GROUP: u8 = 3;
const GROUP_END: u8 = 4;
const FIXED32: u8 = 5;

/// The bytes that a vector takes for its first element: it has room for four, or for eight bytes.
const fn first_bytes(width: usize) -> usize {
    if width < 2 { 8 } else { 4 * width }
}

#[cfg(test)]
mod tests;
