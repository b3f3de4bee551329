//! The markers of a JPEG file and the tables that they bring.

use super::bits::Next;
use super::huffman::Table;
use super::standard::{CHROMA_CODES, LUMA_CODES};
use crate::error::{Result, invalid};

/// The most blocks that a unit may have.
const BLOCKS_MAX: usize = 10;

/// The markers of a file that have been read so far.
#[derive(Debug, Default)]
pub(super) struct Header {
    pub(super) frame: Option<Frame>,
    /// Quantization tables, in the order of the file.
    pub(super) quantization: [Option<[u16; 64]>; 4],
    pub(super) dc: [Option<Table>; 4],
    pub(super) ac: [Option<Table>; 4],
    pub(super) restart_interval: usize,
    /// Set when the file says that it is JFIF.
    pub(super) jfif: bool,
    /// The colour transform that an Adobe marker names.
    pub(super) adobe: Option<u8>,
    /// The scan that comes next.
    pub(super) scan: Scan,
    /// The number of scans so far, with this one.
    scans: usize,
}

/// The size of an image and its components.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) progressive: bool,
    /// Set when one scan does not bring all of the frame.
    pub(super) has_passes: bool,
    pub(super) components: Vec<Component>,
    /// The largest sampling factors.
    pub(super) max_h: usize,
    pub(super) max_v: usize,
    /// Units that are coded together, across and down.
    pub(super) units_across: usize,
    pub(super) units_down: usize,
}

/// One component of an image.
#[derive(Debug)]
pub(super) struct Component {
    pub(super) id: u8,
    pub(super) h: usize,
    pub(super) v: usize,
    /// The number of its quantization table.
    table: usize,
    /// That table, as it was at the component's first scan.
    pub(super) quantization: Option<[u16; 64]>,
    /// Its size in blocks when it is coded alone.
    pub(super) blocks_across: usize,
    pub(super) blocks_down: usize,
    /// The blocks in a row, with those that only fill up units.
    pub(super) stride: usize,
    pub(super) known: Known,
}

/// The number of first coefficients whose known bits are noted.
pub(super) const N_KNOWN: usize = 10;

/// The known bits of the first coefficients of a progressive component: the lowest bit that the
/// passes brought, if there is one.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// With the last pass that has the component.
    pub(super) now: [Option<u8>; N_KNOWN],
    /// Without it.
    pub(super) before: [Option<u8>; N_KNOWN],
}

/// A pass over some components.
#[derive(Debug, Default, Clone)]
pub(super) struct Scan {
    /// For each of its components: number in the frame, tables for DC and AC.
    pub(super) components: Vec<(usize, usize, usize)>,
    /// The first and last coefficient.
    pub(super) first: usize,
    pub(super) last: usize,
    /// The bits that earlier passes and this one leave out.
    pub(super) high: u32,
    pub(super) low: u32,
}

/// The units by which a scan goes through an image.
#[derive(Debug, Clone, Copy)]
pub(super) struct Units {
    /// Units across and down.
    pub(super) across: usize,
    pub(super) down: usize,
    /// The blocks of a unit.
    pub(super) blocks: usize,
}

impl Header {
    /// Returns whether the only scan of a picture was read. libjpeg then waits for the rest of a
    /// marker or of its length that is there in part, and TensorFlow does not.
    fn is_whole(&self) -> bool {
        self.scans > 0 && self.frame.as_ref().is_some_and(|frame| !frame.has_passes)
    }

    /// Reads markers from `next` on up to a scan, and returns where its data starts; `None` at the
    /// end of the image. With `recover` a file that is cut off behind a scan ends there.
    pub(super) fn read(
        &mut self,
        bytes: &[u8],
        next: Next,
        recover: bool,
    ) -> Result<Option<usize>> {
        let recover = recover && self.scans > 0;
        let mut next = next;
        loop {
            let (marker, at) = match next {
                Next::End => (0xD9, 0),
                Next::Marker(marker, at) => (marker, at),
                Next::At(at) => match bytes.get(at..).and_then(next_marker) {
                    Some(found) => (bytes[at + found], at + found + 1),
                    None if recover => return Ok(None),
                    None if self.is_whole() && bytes[at..].last() == Some(&0xFF) => {
                        return Ok(None);
                    }
                    None => return invalid!("the image is cut off"),
                },
            };
            match marker {
                0xD9 if self.scans == 0 => return invalid!("the image has no data"),
                0xD9 => return Ok(None),
                // Markers without a body.
                0x01 | 0xD0..=0xD7 => {
                    next = Next::At(at);
                    continue;
                }
                0xC0..=0xC2 | 0xC4 | 0xCC | 0xDA..=0xDD | 0xE0..=0xEF | 0xFE => {}
                _ => return invalid!("JPEG marker {marker:#x} is not supported"),
            }
            let len = bytes.get(at..).and_then(<[u8]>::first_chunk);
            let len = len.map_or(0, |len| usize::from(u16::from_be_bytes(*len)));
            let body = len.checked_sub(2).and_then(|n| bytes.get(at + 2..at + 2 + n));
            let Some(body) = body else {
                // What may be passed over may also be missing.
                let is_idle = matches!(marker, 0xCC | 0xDC | 0xE0..=0xEF | 0xFE) && len != 1;
                if recover && is_idle || self.is_whole() && at + 1 == bytes.len() {
                    return Ok(None);
                }
                return invalid!("the image is cut off");
            };
            next = Next::At(at + len);
            if self.segment(marker, body)? {
                return Ok(Some(at + len));
            }
        }
    }

    /// Takes in a marker and its body, and says whether it begins a scan.
    fn segment(&mut self, marker: u8, body: &[u8]) -> Result<bool> {
        match marker {
            0xC0..=0xC2 => self.frame(body, marker == 0xC2)?,
            0xC4 => self.huffman(body)?,
            0xDB => self.quantization(body)?,
            0xDD => {
                let Ok(interval) = body.try_into() else {
                    return invalid!("a wrong restart interval");
                };
                self.restart_interval = usize::from(u16::from_be_bytes(interval));
            }
            0xE0 if body.starts_with(b"JFIF\0") && body.len() >= 14 => self.jfif = true,
            0xEE if body.starts_with(b"Adobe") && body.len() >= 12 => {
                self.adobe = Some(body[11]);
            }
            0xDA => {
                self.scan = self.scan(body)?;
                self.scans += 1;
                self.latch()?;
                return Ok(true);
            }
            _ => {}
        }
        Ok(false)
    }

    /// Keeps the quantization tables of the components that are in a scan for the first time.
    fn latch(&mut self) -> Result<()> {
        let Some(frame) = &mut self.frame else { return invalid!("a scan before its frame") };
        if self.scans > 1 && !frame.has_passes {
            return invalid!("a second scan of an image of one");
        }
        let n_components = self.scan.components.len();
        frame.has_passes |= frame.progressive || n_components < frame.components.len();
        if self.scans == 1 && !frame.progressive {
            // Frames of films leave out the tables that everybody has.
            for (number, [dc, ac]) in [LUMA_CODES, CHROMA_CODES].iter().enumerate() {
                self.dc[number].get_or_insert_with(|| Table::new(&dc.counts, dc.symbols));
                self.ac[number].get_or_insert_with(|| Table::new(&ac.counts, ac.symbols));
            }
        }
        for (number, ..) in &self.scan.components {
            let component = &mut frame.components[*number];
            if component.quantization.is_none() {
                let table = self.quantization.get(component.table).copied().flatten();
                if table.is_none() {
                    return invalid!("quantization table {} is missing", component.table);
                }
                component.quantization = table;
            }
            let known = &mut component.known;
            // libjpeg-turbo takes it that nothing is left to learn before the first pass.
            known.before = if self.scans > 1 { known.now } else { [Some(0); N_KNOWN] };
            let told = known.now.iter_mut().take(self.scan.last + 1).skip(self.scan.first);
            told.for_each(|low| *low = Some(self.scan.low as u8));
        }
        Ok(())
    }

    /// Ends the reading of a file: after one pass nothing was known before it.
    pub(super) fn end(&mut self) {
        for component in self.frame.iter_mut().flat_map(|frame| &mut frame.components) {
            if self.scans == 1 {
                component.known.before = [None; N_KNOWN];
            }
        }
    }

    /// Returns the units by which the scan goes through the image.
    pub(super) fn units(&self, frame: &Frame) -> Units {
        match self.scan.components[..] {
            [(number, ..)] => {
                let component = &frame.components[number];
                let (across, down) = (component.blocks_across, component.blocks_down);
                Units { across, down, blocks: 1 }
            }
            _ => {
                let of = |(number, ..): &(usize, usize, usize)| &frame.components[*number];
                let blocks = self.scan.components.iter().map(of).map(|c| c.h * c.v).sum();
                Units { across: frame.units_across, down: frame.units_down, blocks }
            }
        }
    }

    fn frame(&mut self, body: &[u8], progressive: bool) -> Result<()> {
        let [8, h1, h0, w1, w0, n, rest @ ..] = body else {
            return invalid!("a frame that is not of eight bits");
        };
        let (height, width) = (u16::from_be_bytes([*h1, *h0]), u16::from_be_bytes([*w1, *w0]));
        let (specs, left) = rest.as_chunks::<3>();
        if self.frame.is_some() || specs.len() != usize::from(*n) || !left.is_empty() {
            return invalid!("a wrong frame");
        }
        let fits = |size: u16| (1..=65500).contains(&size);
        if !fits(width) || !fits(height) || !matches!(n, 1 | 3 | 4) {
            return invalid!("an image of {width} by {height} with {n} components");
        }
        let size = (usize::from(width), usize::from(height));
        self.frame = Some(Frame::new(size, progressive, specs)?);
        Ok(())
    }

    fn quantization(&mut self, body: &[u8]) -> Result<()> {
        let mut body = body;
        while let [kind, rest @ ..] = body {
            let wide = kind >> 4 != 0;
            let n = if wide { 128 } else { 64 };
            let (Some(values), true) = (rest.get(..n), kind & 15 < 4) else {
                return invalid!("a wrong quantization table");
            };
            let mut table = [0; 64];
            for (i, value) in table.iter_mut().enumerate() {
                *value = match wide {
                    true => u16::from_be_bytes([values[2 * i], values[2 * i + 1]]),
                    false => u16::from(values[i]),
                };
            }
            self.quantization[usize::from(kind & 15)] = Some(table);
            body = &rest[n..];
        }
        Ok(())
    }

    fn huffman(&mut self, body: &[u8]) -> Result<()> {
        let mut body = body;
        while let [kind, rest @ ..] = body {
            let Some((counts, symbols)) = rest.split_first_chunk::<16>() else {
                return invalid!("a Huffman table is cut off");
            };
            let n: usize = counts.iter().map(|n| usize::from(*n)).sum();
            let (Some(own), true) = (symbols.get(..n), kind & 15 < 4 && kind >> 4 < 2) else {
                return invalid!("a wrong Huffman table");
            };
            let table = Table::new(counts, own);
            let tables = if kind >> 4 == 0 { &mut self.dc } else { &mut self.ac };
            tables[usize::from(kind & 15)] = Some(table);
            body = &symbols[n..];
        }
        Ok(())
    }

    fn scan(&self, body: &[u8]) -> Result<Scan> {
        let [n, rest @ ..] = body else { return invalid!("a scan is cut off") };
        let n = usize::from(*n);
        let (specs, tail) = (rest.get(..2 * n), rest.get(2 * n..));
        let (Some(specs), Some(&[first, last, bits])) = (specs, tail) else {
            return invalid!("a wrong scan");
        };
        let Some(frame) = &self.frame else { return invalid!("a scan before its frame") };
        let mut components: Vec<(usize, usize, usize)> = Vec::new();
        for [id, tables] in specs.as_chunks::<2>().0 {
            let Some(number) = frame.components.iter().position(|c| c.id == *id) else {
                return invalid!("a scan of component {id}");
            };
            if components.iter().any(|(other, ..)| *other == number) {
                return invalid!("a scan of component {id} twice");
            }
            components.push((number, usize::from(tables >> 4), usize::from(tables & 15)));
        }
        let scan = Scan {
            components,
            first: usize::from(first),
            last: usize::from(last),
            high: u32::from(bits >> 4),
            low: u32::from(bits & 15),
        };
        let of = |(number, ..): &(usize, usize, usize)| &frame.components[*number];
        let blocks: usize = match scan.components.len() {
            1 => 1,
            _ => scan.components.iter().map(of).map(|c| c.h * c.v).sum(),
        };
        // The order of coefficients counts only where there are several passes.
        let sound = match (frame.progressive, scan.first) {
            (false, _) => true,
            (true, 0) => scan.last == 0,
            (true, first) => first <= scan.last && scan.last < 64 && scan.components.len() == 1,
        };
        let bits =
            !frame.progressive || scan.low <= 13 && (scan.high == 0 || scan.high == scan.low + 1);
        if scan.components.is_empty() || blocks > BLOCKS_MAX || !sound || !bits {
            return invalid!("a wrong scan");
        }
        Ok(scan)
    }
}

impl Frame {
    fn new((width, height): (usize, usize), progressive: bool, specs: &[[u8; 3]]) -> Result<Self> {
        let factors = |spec: &[u8; 3]| (usize::from(spec[1] >> 4), usize::from(spec[1] & 15));
        if specs.iter().any(|spec| {
            let (h, v) = factors(spec);
            !(1..=4).contains(&h) || !(1..=4).contains(&v)
        }) {
            return invalid!("wrong sampling factors");
        }
        let max_h = specs.iter().map(|spec| factors(spec).0).max().unwrap_or(1);
        let max_v = specs.iter().map(|spec| factors(spec).1).max().unwrap_or(1);
        let units_across = width.div_ceil(8 * max_h);
        let units_down = height.div_ceil(8 * max_v);
        let components = specs
            .iter()
            .map(|spec| {
                let (h, v) = factors(spec);
                let (own_width, own_height) =
                    ((width * h).div_ceil(max_h), (height * v).div_ceil(max_v));
                Component {
                    id: spec[0],
                    h,
                    v,
                    table: usize::from(spec[2]),
                    quantization: None,
                    blocks_across: own_width.div_ceil(8),
                    blocks_down: own_height.div_ceil(8),
                    stride: units_across * h,
                    known: Known::default(),
                }
            })
            .collect();
        Ok(Self {
            width,
            height,
            progressive,
            has_passes: false,
            components,
            max_h,
            max_v,
            units_across,
            units_down,
        })
    }
}

/// Returns the place of the next marker's code.
fn next_marker(bytes: &[u8]) -> Option<usize> {
    let mut pairs = bytes.windows(2).enumerate();
    let (at, _) = pairs.find(|(_, pair)| pair[0] == 0xFF && pair[1] != 0 && pair[1] != 0xFF)?;
    Some(at + 1)
}
