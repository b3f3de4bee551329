//! Huffman codes.

use super::bits::Bits;
use crate::prelude::*;

/// Codes up to this many bits are found by one look.
const LOOK: u32 = 9;

/// A table of codes.
#[derive(Debug)]
pub(super) struct Table {
    /// For each of the next `LOOK` bits: symbol and length of the code; length 0 if it is longer.
    look: Vec<(u8, u8)>,
    /// For each length: the first code beyond it, aligned to 16 bits.
    limits: [u32; 17],
    /// For each length: what leads from a code to its symbol.
    offsets: [i32; 17],
    symbols: Vec<u8>,
}

impl Table {
    /// A table with so many codes of each length, for these symbols. Fails if the codes do not fit.
    pub(super) fn new(counts: &[u8; 16], symbols: &[u8]) -> Result<Self> {
        let mut look = vec![(0, 0); 1 << LOOK];
        let (mut limits, mut offsets) = ([0; 17], [0; 17]);
        let (mut code, mut at) = (0u32, 0usize);
        for len in 1..=16u32 {
            let n = u32::from(counts[len as usize - 1]);
            if code + n > 1 << len || at + n as usize > symbols.len() {
                return invalid!("a Huffman table with too many codes");
            }
            offsets[len as usize] = at as i32 - code as i32;
            for _ in 0..n {
                if len <= LOOK {
                    let first = (code << (LOOK - len)) as usize;
                    let entry = (symbols[at], len as u8);
                    look[first..first + (1 << (LOOK - len))].fill(entry);
                }
                code += 1;
                at += 1;
            }
            limits[len as usize] = code << (16 - len);
            code <<= 1;
        }
        Ok(Self { look, limits, offsets, symbols: symbols.to_vec() })
    }

    /// The next symbol. Fails for a code that the table does not have.
    pub(super) fn symbol(&self, bits: &mut Bits<'_>) -> Result<u8> {
        let next = bits.peek();
        let (symbol, len) = self.look[(next >> (16 - LOOK)) as usize];
        if len > 0 {
            bits.skip(u32::from(len))?;
            return Ok(symbol);
        }
        for len in LOOK as usize + 1..=16 {
            if next < self.limits[len] {
                let index = (next >> (16 - len)) as i32 + self.offsets[len];
                bits.skip(len as u32)?;
                let symbol = usize::try_from(index).ok().and_then(|i| self.symbols.get(i));
                return match symbol {
                    Some(symbol) => Ok(*symbol),
                    None => invalid!("a wrong Huffman code"),
                };
            }
        }
        invalid!("a wrong Huffman code")
    }
}
