//! A reader of the protobuf wire format, for messages that are read once and never built.

/// The rest of a message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wire<'a>(&'a [u8]);

/// The number and wire type of a field, as on the wire.
pub(super) type Tag = u64;

/// The tag of field `number` with a length before its bytes.
pub(super) const fn delimited(number: u64) -> Tag {
    number << 3 | 2
}

/// The tag of field `number` with a varint.
pub(super) const fn varint(number: u64) -> Tag {
    number << 3
}

/// The tag of field `number` with four bytes.
pub(super) const fn fixed32(number: u64) -> Tag {
    number << 3 | 5
}

impl<'a> Wire<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next number; `None` if it does not end or is longer than ten bytes.
    #[inline]
    pub(super) fn varint(&mut self) -> Option<u64> {
        let first = *self.0.first()?;
        if first < 0x80 {
            self.0 = &self.0[1..];
            return Some(u64::from(first));
        }
        self.long_varint()
    }

    fn long_varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for (i, byte) in self.0.iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * i);
            if *byte < 0x80 {
                self.0 = &self.0[i + 1..];
                return Some(value);
            }
        }
        None
    }

    /// The next bytes with their length before them; `None` if they do not all follow.
    #[inline]
    pub(super) fn delimited(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.varint()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    /// The next message with its length before it. As TensorFlow has it, one that is longer than
    /// what is around it ends there, and lengths have 32 bits.
    pub(super) fn message(&mut self) -> Option<&'a [u8]> {
        let len = self.varint()? as u32;
        let len = i32::try_from(len).map_or(usize::MAX, |len| len as usize);
        let (bytes, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        Some(bytes)
    }

    /// The next four bytes.
    pub(super) fn fixed32(&mut self) -> Option<[u8; 4]> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*bytes)
    }

    /// Steps over the value of a field that is of no interest. Groups are not known.
    pub(super) fn skip(&mut self, tag: Tag) -> Option<()> {
        match tag & 7 {
            0 => self.varint().map(drop),
            1 => self.split(8),
            2 => self.delimited().map(drop),
            5 => self.split(4),
            _ => None,
        }
    }

    fn split(&mut self, len: usize) -> Option<()> {
        self.0 = self.0.split_at_checked(len)?.1;
        Some(())
    }
}
