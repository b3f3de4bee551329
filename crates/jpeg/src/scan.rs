//! The passes over an image, which bring its coefficients.

use super::bits::{Bits, Halt, Next, Read};
use super::header::{Frame, Header};
use super::huffman::Table;
use crate::error::{Result, ask, invalid};

/// The place in a block of each coefficient of the file's order.
pub(super) const ORDER: [u8; 64] = [
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20,
    13, 6, 7, 14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59,
    52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
];

/// The coefficients of all components, block by block.
#[derive(Debug)]
pub(super) struct Planes {
    all: Vec<Vec<[i16; 64]>>,
    /// The last row of the frame's units that the last pass brought something of.
    pub(super) last_good: usize,
}

impl Planes {
    pub(super) fn new(frame: &Frame) -> Self {
        let blocks = |c: &super::header::Component| c.stride * frame.units_down * c.v;
        let all = frame.components.iter().map(|c| vec![[0; 64]; blocks(c)]).collect();
        Self { all, last_good: 0 }
    }

    /// The number of coefficients of all components.
    pub(super) fn n_coefficients(frame: &Frame) -> usize {
        frame.components.iter().map(|c| 64 * c.stride * frame.units_down * c.v).sum()
    }

    pub(super) fn coefficients(&self, component: usize) -> &[[i16; 64]] {
        &self.all[component]
    }

    pub(super) fn coefficients_mut(&mut self, component: usize) -> &mut [[i16; 64]] {
        &mut self.all[component]
    }
}

/// The outcome of decoding a scan.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The whole scan was read, as far as it was there.
    Done(Next),
    /// The file is cut off in this unit, counted from 0.
    CutOff(usize),
}

/// Decodes the scan that `header` has read, from the bits behind it on.
pub(super) fn decode(
    bits: Bits<'_>,
    header: &Header,
    planes: &mut Planes,
    go_on: &mut dyn FnMut(usize) -> bool,
) -> Result<Outcome> {
    let Some(frame) = &header.frame else { return invalid!("a scan before its frame") };
    check_tables(header, frame)?;
    let mut pass =
        Pass { header, progressive: frame.progressive, bits, last_dc: [0; 4], zero_blocks: 0 };
    let units = header.units(frame);
    let (mut left, mut turn) = (header.restart_interval, 0);
    for unit in 0..units.across * units.down {
        if unit.is_multiple_of(units.across) {
            ask(go_on, 64 * units.blocks * units.across)?;
        }
        let mut step = || -> Read<()> {
            if header.restart_interval > 0 && left == 0 {
                pass.restart(turn)?;
                (left, turn) = (header.restart_interval, (turn + 1) & 7);
            }
            left = left.saturating_sub(1);
            pass.unit(frame, (unit % units.across, unit / units.across), planes)
        };
        match step() {
            Ok(()) => {}
            Err(Halt::CutOff) => return Ok(Outcome::CutOff(unit)),
            Err(Halt::Wrong(error)) => return Err(error),
        }
    }
    Ok(Outcome::Done(pass.bits.next()))
}

/// Fails if a table that the scan names is missing or unsound.
fn check_tables(header: &Header, frame: &Frame) -> Result<()> {
    let scan = &header.scan;
    let refines = frame.progressive && scan.high > 0;
    for (_, dc, ac) in &scan.components {
        if !frame.progressive || scan.first == 0 && !refines {
            table_of(&header.dc, *dc, 15)?;
        }
        if !frame.progressive || scan.first > 0 {
            table_of(&header.ac, *ac, u8::MAX)?;
        }
    }
    Ok(())
}

/// One pass.
struct Pass<'a> {
    header: &'a Header,
    progressive: bool,
    bits: Bits<'a>,
    /// The last DC coefficient of each component of the scan.
    last_dc: [i32; 4],
    /// The number of blocks without further coefficients that follow.
    zero_blocks: u32,
}

impl Pass<'_> {
    fn restart(&mut self, turn: u8) -> Read<()> {
        self.bits.restart(turn)?;
        (self.last_dc, self.zero_blocks) = ([0; 4], 0);
        Ok(())
    }

    /// The blocks that are coded together at `(x, y)`.
    fn unit(&mut self, frame: &Frame, (x, y): (usize, usize), planes: &mut Planes) -> Read<()> {
        let units = self.header.units(frame);
        let bulk = !self.progressive && self.header.restart_interval == 0;
        self.bits.begin(bulk.then_some(512 * units.blocks));
        if self.bits.is_short() {
            return Ok(());
        }
        planes.last_good = match self.header.scan.components[..] {
            [(number, ..)] => y / frame.components[number].v,
            _ => y,
        };
        let before = (self.bits, self.last_dc);
        self.blocks(frame, (x, y), planes)?;
        if self.bits.must_retry() {
            (self.bits, self.last_dc) = before;
            self.bits.begin(None);
            self.blocks(frame, (x, y), planes)?;
        }
        Ok(())
    }

    fn blocks(&mut self, frame: &Frame, (x, y): (usize, usize), planes: &mut Planes) -> Read<()> {
        let alone = self.header.scan.components.len() == 1;
        for (slot, (number, dc, ac)) in self.header.scan.components.iter().enumerate() {
            let component = &frame.components[*number];
            let (h, v) = if alone { (1, 1) } else { (component.h, component.v) };
            for i in 0..h * v {
                let at = (y * v + i / h) * component.stride + x * h + i % h;
                self.block(slot, (*dc, *ac), &mut planes.all[*number][at])?;
            }
        }
        Ok(())
    }

    fn block(&mut self, slot: usize, tables: (usize, usize), block: &mut [i16; 64]) -> Read<()> {
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

    fn dc(&mut self, slot: usize, table: usize, low: u32, block: &mut [i16; 64]) -> Read<()> {
        let size = table_of(&self.header.dc, table, 15)?.symbol(&mut self.bits)?;
        let change = self.bits.signed(u32::from(size))?;
        self.last_dc[slot] = self.last_dc[slot].wrapping_add(change);
        block[0] = (self.last_dc[slot] << low) as i16;
        Ok(())
    }

    fn ac(
        &mut self,
        table: usize,
        (first, last): (usize, usize),
        low: u32,
        block: &mut [i16; 64],
    ) -> Read<()> {
        if self.zero_blocks > 0 {
            self.zero_blocks -= 1;
            return Ok(());
        }
        let table = table_of(&self.header.ac, table, u8::MAX)?;
        let mut k = first;
        while k <= last {
            let symbol = table.symbol(&mut self.bits)?;
            let (run, size) = (usize::from(symbol >> 4), u32::from(symbol & 15));
            if size == 0 {
                if run < 15 {
                    if self.progressive {
                        self.zero_blocks = (1 << run) - 1 + self.bits.take(run as u32)?;
                    }
                    return Ok(());
                }
                k += 16;
                continue;
            }
            k += run;
            block[place(k)] = (self.bits.signed(size)? << low) as i16;
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
    ) -> Read<()> {
        let bit = 1i16 << self.header.scan.low;
        let mut k = first;
        if self.zero_blocks == 0 {
            let table = table_of(&self.header.ac, table, u8::MAX)?;
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
                if value != 0 {
                    block[place(k)] = value;
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
    ) -> Read<usize> {
        let mut zeros = zeros;
        for k in first..=last {
            let value = &mut block[place(k)];
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

/// Returns the place in a block of coefficient `k` of the file's order; one beyond the block is
/// taken for the last.
fn place(k: usize) -> usize {
    usize::from(ORDER[k.min(63)])
}

fn table_of(tables: &[Option<Table>; 4], number: usize, most: u8) -> Result<&Table> {
    match tables.get(number) {
        Some(Some(table)) if table.serves(most) => Ok(table),
        _ => invalid!("Huffman table {number} is missing or wrong"),
    }
}
