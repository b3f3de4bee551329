//! The boundaries between symbols of HPACK's Huffman code (RFC 7541, appendix B).
//!
//! The code is canonical: of each length, the codes are consecutive numbers, and those of the next
//! length go on where they end. How many codes there are of each length is thus all that is needed
//! to find the ends of symbols.

/// The number of symbols that have a code of 0, 1, 2, ... bits.
const COUNTS: [u32; 31] = [
    0, 0, 0, 0, 0, 10, 26, 32, 6, 0, 5, 3, 2, 6, 2, 3, 0, 0, 0, 3, 8, 13, 26, 29, 12, 4, 15, 19,
    29, 0, 4,
];

/// For each length, the first number that is no code of that length, but the beginning of a longer.
const ENDS: [u32; 31] = ends();

const fn ends() -> [u32; 31] {
    let mut ends = [0; 31];
    let mut n_bits = 1;
    while n_bits < 31 {
        ends[n_bits] = 2 * ends[n_bits - 1] + COUNTS[n_bits];
        n_bits += 1;
    }
    ends
}

/// A place in a Huffman-coded string.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Place {
    code: u32,
    n_bits: usize,
}

impl Place {
    /// Passes a byte, and gives it with every percent sign overwritten.
    ///
    /// A percent sign is `010101` and a full stop `010111`: as long, and one bit apart, which is
    /// known to be wrong before the byte ends. (That bit also tells a blank from a hyphen. A host
    /// can no more have a blank than a percent sign.)
    pub(super) fn pass(&mut self, byte: u8) -> u8 {
        let mut byte = byte;
        for bit in (0..8).rev() {
            self.code = self.code << 1 | u32::from(byte >> bit & 1);
            self.n_bits += 1;
            if self.n_bits == 5 && self.code == 0b01010 {
                self.code |= 1;
                byte |= 1 << bit;
            }
            // The longest code ends here too, as do the ones that fill up the last byte.
            if self.code < ENDS[self.n_bits] || self.n_bits == ENDS.len() - 1 {
                *self = Self::default();
            }
        }
        byte
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Some characters' codes, as the appendix has them.
    fn code(char: char) -> &'static str {
        match char {
            '%' => "010101",
            '-' => "010110",
            '.' => "010111",
            '/' => "011000",
            '2' => "00010",
            'F' => "1100010",
            't' => "01001",
            'z' => "1111011",
            '{' => "111111111111110",
            '\\' => "1111111111111110000",
            'ÿ' => "11111111111111111111101110",
            '\n' => "111111111111111111111111111100",
            other => panic!("no code for {other:?}"),
        }
    }

    pub(in super::super) fn encode(text: &str) -> Vec<u8> {
        let mut bits: String = text.chars().map(code).collect();
        while !bits.len().is_multiple_of(8) {
            bits.push('1');
        }
        let byte = |bits: &[u8]| bits.iter().fold(0, |byte, bit| byte << 1 | (bit - b'0'));
        bits.as_bytes().chunks(8).map(byte).collect()
    }

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let mut place = Place::default();
        let got: Vec<u8> = encode(text).into_iter().map(|byte| place.pass(byte)).collect();
        assert_eq!(got, encode(expected), "{text:?}");
    }

    #[test]
    fn overwrites_percent_signs_wherever_they_stand() {
        check("%2Ft", ".2Ft");
        check("t%2F%2F%", "t.2F.2F.");
        for width in 0..16 {
            let prefix = "t".repeat(width);
            check(&format!("{prefix}%%t"), &format!("{prefix}..t"));
        }
    }

    #[test]
    fn keeps_its_place_behind_codes_of_all_lengths() {
        for char in ['-', '/', '2', 'F', 'z', '{', '\\', 'ÿ', '\n'] {
            let text = format!("{char}%{char}{char}%2Ft{char}");
            check(&text, &text.replace('%', "."));
        }
    }

    #[test]
    fn the_code_is_complete() {
        assert_eq!(COUNTS.iter().sum::<u32>(), 257);
        assert_eq!(ENDS[30], 1 << 30);
    }
}
