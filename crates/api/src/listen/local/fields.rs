//! The fields of a header block (RFC 7541), one byte at a time.
//!
//! A field that was overwritten once is overwritten in the table of both sides, so that later
//! fields which only refer to it need no look. A name is known by its place in the fixed table or
//! by its letters; a name that is a reference into the table of the connection is not followed (the
//! encoders of gRPC's clients refer to `:authority` by the fixed table or spell it).

use super::huffman::Place;

/// The place of `:authority` in the fixed table.
const AUTHORITY: u32 = 1;

const NAME: &[u8] = b":authority";

/// The same name, Huffman-coded.
const NAME_CODED: &[u8] = &[0xb8, 0x3b, 0x53, 0x39, 0xec, 0x32, 0x7d, 0x7f];

/// A number beyond this is a mistake or an attack; `h2` will say so.
const NUMBER_MAX: u32 = 1 << 24;

/// A place in a header block.
#[derive(Debug)]
pub(super) struct Fields {
    at: At,
    is_authority: bool,
    /// The letters of a name so far, unless it is none of interest.
    letters: Option<Letters>,
}

#[derive(Debug, Clone, Copy)]
enum At {
    /// The first byte of a field.
    Field,
    /// Further bytes of a number.
    Number { value: u32, shift: u32, of: Number },
    /// The first byte of a string's length.
    Length(Text),
    /// A name or a value.
    Text { n_left: u32, text: Text, coding: Coding },
    /// The state after an error: nothing is touched from here on.
    Lost,
}

#[derive(Debug, Clone, Copy)]
enum Number {
    /// Of a field that has no strings.
    Other,
    /// A name's place in the tables.
    Name,
    /// The bytes of a string.
    Length(Text, Coding),
}

#[derive(Debug, Clone, Copy)]
enum Text {
    Name,
    Value,
}

#[derive(Debug, Clone, Copy)]
enum Coding {
    Plain,
    Huffman(Place),
}

#[derive(Debug, Clone, Copy)]
struct Letters {
    expected: &'static [u8],
    n_seen: usize,
}

impl Fields {
    pub(super) fn new() -> Self {
        Self { at: At::Field, is_authority: false, letters: None }
    }

    /// Passes a byte of a block.
    pub(super) fn pass(&mut self, byte: &mut u8) {
        match self.at {
            At::Field => self.field(*byte),
            At::Number { value, shift, of } => {
                let value = value + (u32::from(*byte & 0x7f) << shift);
                if value > NUMBER_MAX || shift > 21 {
                    self.at = At::Lost;
                } else if *byte & 0x80 != 0 {
                    self.at = At::Number { value, shift: shift + 7, of };
                } else {
                    self.number(value, of);
                }
            }
            At::Length(text) => {
                let is_coded = *byte & 0x80 != 0;
                let coding =
                    if is_coded { Coding::Huffman(Place::default()) } else { Coding::Plain };
                self.begin(*byte, 7, Number::Length(text, coding));
            }
            At::Text { n_left, text, coding } => {
                let coding = match text {
                    Text::Name => self.letter(*byte, coding),
                    Text::Value => self.value(byte, coding),
                };
                self.text(n_left - 1, text, coding);
            }
            At::Lost => {}
        }
    }

    fn field(&mut self, byte: u8) {
        self.is_authority = false;
        match byte {
            0x80.. => self.begin(byte, 7, Number::Other),
            0x40.. => self.begin(byte, 6, Number::Name),
            0x20.. => self.begin(byte, 5, Number::Other),
            _ => self.begin(byte, 4, Number::Name),
        }
    }

    /// Begins a number that has some bits in its first byte.
    fn begin(&mut self, byte: u8, n_bits: u32, of: Number) {
        let mask = (1_u8 << n_bits) - 1;
        let value = u32::from(byte & mask);
        if byte & mask == mask {
            self.at = At::Number { value, shift: 0, of };
        } else {
            self.number(value, of);
        }
    }

    fn number(&mut self, value: u32, of: Number) {
        match of {
            Number::Other => self.at = At::Field,
            Number::Name if value == 0 => self.at = At::Length(Text::Name),
            Number::Name => {
                self.is_authority = value == AUTHORITY;
                self.at = At::Length(Text::Value);
            }
            Number::Length(text, coding) => {
                let expected = match coding {
                    Coding::Plain => NAME,
                    Coding::Huffman(_) => NAME_CODED,
                };
                let is_long = usize::try_from(value) == Ok(expected.len());
                self.letters = is_long.then_some(Letters { expected, n_seen: 0 });
                self.text(value, text, coding);
            }
        }
    }

    /// Goes on in a string, or to what follows it.
    fn text(&mut self, n_left: u32, text: Text, coding: Coding) {
        self.at = match text {
            _ if n_left > 0 => At::Text { n_left, text, coding },
            Text::Name => {
                self.is_authority =
                    self.letters.is_some_and(|letters| letters.n_seen == letters.expected.len());
                At::Length(Text::Value)
            }
            Text::Value => At::Field,
        };
    }

    fn letter(&mut self, byte: u8, coding: Coding) -> Coding {
        self.letters = self.letters.and_then(|Letters { expected, n_seen }| {
            let is_expected = expected.get(n_seen) == Some(&byte);
            is_expected.then_some(Letters { expected, n_seen: n_seen + 1 })
        });
        coding
    }

    fn value(&self, byte: &mut u8, coding: Coding) -> Coding {
        if !self.is_authority {
            return coding;
        }
        match coding {
            Coding::Plain => {
                if *byte == b'%' {
                    *byte = b'.';
                }
                coding
            }
            Coding::Huffman(mut place) => {
                *byte = place.pass(*byte);
                Coding::Huffman(place)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `%2Ft` and `.2Ft`, Huffman-coded.
    const CODED: &[u8] = &[0x54, 0x58, 0x93];
    const CODED_AFTER: &[u8] = &[0x5c, 0x58, 0x93];

    #[track_caller]
    fn check(parts: &[&[u8]], expected: &[&[u8]]) {
        let mut block = parts.concat();
        let mut fields = Fields::new();
        block.iter_mut().for_each(|byte| fields.pass(byte));
        assert_eq!(block, expected.concat());
    }

    #[test]
    fn overwrites_the_host_however_it_is_written() {
        // Plain and Huffman-coded, by place and by letters, in every kind of literal.
        for kind in [0x40, 0x00, 0x10] {
            let by_place = [kind | 1];
            check(&[&by_place, b"\x06%2Frun"], &[&by_place, b"\x06.2Frun"]);
            check(&[&by_place, &[0x83], CODED], &[&by_place, &[0x83], CODED_AFTER]);
            let by_letters = [&[kind, 10][..], NAME].concat();
            check(&[&by_letters, b"\x03a%b"], &[&by_letters, b"\x03a.b"]);
            let coded = [&[kind, 0x88][..], NAME_CODED].concat();
            check(&[&coded, b"\x03a%b\x82"], &[&coded, b"\x03a.b\x82"]);
        }
    }

    #[test]
    fn touches_no_other_field() {
        let fields: &[&[u8]] = &[
            b"\x3f\xe1\x1f",                   // The table's size.
            b"\x82\xff\x01",                   // Two references.
            b"\x44\x03/%2",                    // `:path`.
            b"\x40\x0a:authoritz\x02%%",       // Another name of the same length.
            b"\x40\x09:authorit\x02%%",        // A shorter one.
            b"\x7f\x01\x02%%",                 // A name in the connection's table.
            b"\x41\x02ok\x44\x83\x54\x58\x93", // The right one, and then another.
        ];
        check(fields, fields);
    }

    #[test]
    fn long_values_and_lengths_are_followed() {
        let long = "%".repeat(300);
        let length = [0x7f, 0xad, 0x01]; // 127 + 45 + 128
        check(
            &[&[0x41], &length, long.as_bytes(), b"\x44\x01%"],
            &[&[0x41], &length, ".".repeat(300).as_bytes(), b"\x44\x01%"],
        );
        // An empty value, and numbers that never end.
        check(&[b"\x41\x00\x41\x01%"], &[b"\x41\x00\x41\x01."]);
        check(&[&[0xff; 40], b"\x41\x01%"], &[&[0xff; 40], b"\x41\x01%"]);
    }
}
