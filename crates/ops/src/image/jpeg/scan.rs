//! The passes over an image, which bring its coefficients.

use super::bits::Bits;
use super::header::{Frame, Header};
use super::huffman::Table;
use crate::prelude::*;

/// Where each coefficient of the file's order stands in a block.
pub(super) const ORDER: [u8; 64] = [
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20,
    13, 6, 7, 14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59,
    52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
];

/// The coefficients of all components, block by block.
#[derive(Debug)]
pub(super) struct Planes(Vec<Vec<[i16; 64]>>);

impl Planes {
    pub(super) fn new(frame: &Frame) -> Self {
        let blocks = |c: &super::header::Component| c.stride * frame.units_down * c.v;
        Self(frame.components.iter().map(|c| vec![[0; 64]; blocks(c)]).collect())
    }

    pub(super) fn coefficients(&self, component: usize) -> &[[i16; 64]] {
        &self.0[component]
    }
}

/// Decodes the scan that `header` has read, from `at` on, and returns where it ends.
pub(super) fn decode(
    bytes: &[u8],
    at: usize,
    header: &Header,
    planes: &mut Planes,
) -> Result<usize> {
    let Some(frame) = &header.frame else { return invalid!("a scan before its frame") };
    let mut pass = Pass {
        header,
        progressive: frame.progressive,
        bits: Bits::new(bytes, at),
        last_dc: [0; 4],
        zero_blocks: 0,
    };
    let scan = &header.scan;
    let mut left = header.restart_interval;
    let alone = scan.components.len() == 1;
    let component = &frame.components[scan.components[0].0];
    let (across, down) = match alone {
        true => (component.blocks_across, component.blocks_down),
        false => (frame.units_across, frame.units_down),
    };
    for unit in 0..across * down {
        if header.restart_interval > 0 && left == 0 {
            pass.bits.restart()?;
            (pass.last_dc, pass.zero_blocks) = ([0; 4], 0);
            left = header.restart_interval;
        }
        left = left.saturating_sub(1);
        let (x, y) = (unit % across, unit / across);
        for (slot, (number, dc, ac)) in scan.components.iter().enumerate() {
            let component = &frame.components[*number];
            let (h, v) = if alone { (1, 1) } else { (component.h, component.v) };
            for i in 0..h * v {
                let at = (y * v + i / h) * component.stride + x * h + i % h;
                pass.block(slot, (*dc, *ac), &mut planes.0[*number][at])?;
            }
        }
    }
    Ok(pass.bits.position())
}

/// One pass.
struct Pass<'a> {
    header: &'a Header,
    progressive: bool,
    bits: Bits<'a>,
    /// The last DC coefficient of each component of the scan.
    last_dc: [i32; 4],
    /// How many blocks without further coefficients follow.
    zero_blocks: u32,
}

impl Pass<'_> {
    fn block(&mut self, slot: usize, tables: (usize, usize), block: &mut [i16; 64]) -> Result<()> {
        let scan = &self.header.scan;
        if !self.progressive {
            self.dc(slot, tables.0, 0, block)?;
            return self.ac(tables.1, (1, 63), 0, block);
        }
        match (scan.first, scan.high) {
            (0, 0) => self.dc(slot, tables.0, scan.low, block),
            (0, _) => {
                if self.bits.take(1)? == 1 {
                    block[0] |= 1 << scan.low;
                }
                Ok(())
            }
            (_, 0) => self.ac(tables.1, (scan.first, scan.last), scan.low, block),
            _ => self.refine(tables.1, (scan.first, scan.last), block),
        }
    }

    fn dc(&mut self, slot: usize, table: usize, low: u32, block: &mut [i16; 64]) -> Result<()> {
        let size = table_of(&self.header.dc, table)?.symbol(&mut self.bits)?;
        if size > 15 {
            return invalid!("a wrong DC coefficient");
        }
        let Some(last) = self.last_dc.get_mut(slot) else { return invalid!("a wrong scan") };
        *last = last.wrapping_add(self.bits.signed(u32::from(size))?);
        block[0] = (*last << low) as i16;
        Ok(())
    }

    fn ac(
        &mut self,
        table: usize,
        (first, last): (usize, usize),
        low: u32,
        block: &mut [i16; 64],
    ) -> Result<()> {
        if self.zero_blocks > 0 {
            self.zero_blocks -= 1;
            return Ok(());
        }
        let table = table_of(&self.header.ac, table)?;
        let mut k = first;
        while k <= last {
            let symbol = table.symbol(&mut self.bits)?;
            let (run, size) = (usize::from(symbol >> 4), u32::from(symbol & 15));
            if size == 0 {
                if run < 15 {
                    self.zero_blocks = (1 << run) - 1 + self.bits.take(run as u32)?;
                    if run > 0 && !self.progressive {
                        return invalid!("a wrong AC coefficient");
                    }
                    return Ok(());
                }
                k += 16;
                continue;
            }
            k += run;
            let Some(at) = ORDER.get(k) else { return invalid!("a coefficient beyond its block") };
            block[usize::from(*at)] = (self.bits.signed(size)? << low) as i16;
            k += 1;
        }
        Ok(())
    }

    /// One more bit of coefficients that are known, and new ones of a single bit.
    fn refine(
        &mut self,
        table: usize,
        (first, last): (usize, usize),
        block: &mut [i16; 64],
    ) -> Result<()> {
        let bit = 1i16 << self.header.scan.low;
        let mut k = first;
        if self.zero_blocks == 0 {
            let table = table_of(&self.header.ac, table)?;
            while k <= last {
                let symbol = table.symbol(&mut self.bits)?;
                let (run, size) = (usize::from(symbol >> 4), symbol & 15);
                let mut value = 0;
                if size == 0 && run < 15 {
                    self.zero_blocks = (1 << run) + self.bits.take(run as u32)?;
                    break;
                }
                if size != 0 {
                    value = if self.bits.take(1)? == 1 { bit } else { -bit };
                }
                k = self.correct((k, last), Some(run), bit, block)?;
                if value != 0 && k <= last {
                    block[usize::from(ORDER[k])] = value;
                }
                k += 1;
            }
        }
        if self.zero_blocks > 0 {
            self.correct((k, last), None, bit, block)?;
            self.zero_blocks -= 1;
        }
        Ok(())
    }

    /// Refines known coefficients until `zeros` unknown ones were passed (or to the end), and
    /// returns the place of the next unknown one.
    fn correct(
        &mut self,
        (first, last): (usize, usize),
        zeros: Option<usize>,
        bit: i16,
        block: &mut [i16; 64],
    ) -> Result<usize> {
        let mut zeros = zeros;
        for k in first..=last {
            let value = &mut block[usize::from(ORDER[k])];
            if *value == 0 {
                match &mut zeros {
                    Some(0) => return Ok(k),
                    Some(n) => *n -= 1,
                    None => {}
                }
            } else if self.bits.take(1)? == 1 && *value & bit == 0 {
                *value = value.saturating_add(if *value > 0 { bit } else { -bit });
            }
        }
        Ok(last + 1)
    }
}

fn table_of(tables: &[Option<Table>; 4], number: usize) -> Result<&Table> {
    match &tables[number & 3] {
        Some(table) => Ok(table),
        None => invalid!("Huffman table {number} is missing"),
    }
}
