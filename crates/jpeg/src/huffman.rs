//! Huffman codes.

use super::bits::{Bits, Read};

/// Codes up to this many bits are found by one look.
const LOOK: u32 = 8;

/// A table of codes.
#[derive(Debug)]
pub(super) struct Table {
    /// For each of the next `LOOK` bits: symbol and length of the code; length 0 if it is longer.
    look: Vec<(u8, u8)>,
    /// For each length: the last code of it, or -1.
    last: [i32; 17],
    /// For each length: what leads from a code to its symbol.
    offsets: [i32; 17],
    symbols: Vec<u8>,
    /// `true` if each code fits in its bits and none is all ones.
    is_sound: bool,
}

impl Table {
    /// A table with so many codes of each length, for these symbols.
    pub(super) fn new(counts: &[u8; 16], symbols: &[u8]) -> Self {
        let mut table = Self {
            look: vec![(0, 0); 1 << LOOK],
            last: [-1; 17],
            offsets: [0; 17],
            symbols: symbols.to_vec(),
            is_sound: true,
        };
        let (mut code, mut at) = (0u32, 0usize);
        for (len, n) in (1..=16u32).zip(counts) {
            let n = u32::from(*n);
            if n > 0 && (code + n >= 1 << len || at + n as usize > symbols.len()) {
                table.is_sound = false;
                return table;
            }
            table.offsets[len as usize] = at as i32 - code as i32;
            for symbol in symbols.iter().skip(at).take(n as usize) {
                if len <= LOOK {
                    let first = (code << (LOOK - len)) as usize;
                    table.look[first..first + (1 << (LOOK - len))].fill((*symbol, len as u8));
                }
                table.last[len as usize] = code as i32;
                code += 1;
                at += 1;
            }
            code <<= 1;
        }
        table
    }

    /// Returns whether a scan may use the table: its codes are sound and no symbol is larger than
    /// `most`.
    pub(super) fn serves(&self, most: u8) -> bool {
        self.is_sound && self.symbols.iter().all(|symbol| *symbol <= most)
    }

    /// The next symbol; 0 for a code that the table does not have.
    pub(super) fn symbol(&self, bits: &mut Bits<'_>) -> Read<u8> {
        let mut len = 1;
        if let Some(next) = bits.peek()? {
            let (symbol, known) = self.look[next as usize];
            if known > 0 {
                bits.code(u32::from(known))?;
                return Ok(symbol);
            }
            len = LOOK as usize + 1;
        }
        let mut code = bits.code(len as u32)? as i32;
        while len <= 16 && code > self.last[len] {
            code = code << 1 | bits.code(1)? as i32;
            len += 1;
        }
        let index = self.offsets.get(len).map(|offset| code + offset);
        let symbol = index.and_then(|i| self.symbols.get(usize::try_from(i).ok()?));
        Ok(symbol.copied().unwrap_or(0))
    }
}
