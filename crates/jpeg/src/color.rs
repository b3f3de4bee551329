//! From the components of an image to its channels.

use super::header::{Frame, Header};
use crate::error::{Result, ask, invalid};

/// The pixels that are converted before the caller is asked again whether to go on.
const AT_ONCE: usize = 1 << 14;

/// The colour space of an image's components.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Space {
    Gray,
    Rgb,
    YCbCr,
    Cmyk,
    Ycck,
}

/// The pixels in 1 or 3 channels.
pub(super) fn convert(
    header: &Header,
    frame: &Frame,
    planes: &[Vec<u8>],
    channels: usize,
    go_on: &mut dyn FnMut(usize) -> bool,
) -> Result<Vec<u8>> {
    let n = planes[0].len();
    let adobe = header.adobe.is_some();
    let at = |plane: usize, i: usize| planes[plane][i];
    let ycc = |i: usize| to_rgb(at(0, i), at(1, i), at(2, i));
    let black = |[c, m, y]: [u8; 3], k: u8| [c, m, y].map(|ink| with_black(ink, k, adobe));
    let mut pixels = Pixels { n, go_on };
    match (space(header, frame), channels) {
        (Space::Gray | Space::YCbCr, 1) => Ok(planes[0].clone()),
        (Space::Gray, 3) => pixels.collect(|i| [at(0, i); 3]),
        (Space::YCbCr, 3) => pixels.collect(ycc),
        (Space::Rgb, 3) => pixels.collect(|i| [at(0, i), at(1, i), at(2, i)]),
        (Space::Rgb, 1) => pixels.collect(|i| [to_gray(at(0, i), at(1, i), at(2, i))]),
        (Space::Cmyk, 3) => pixels.collect(|i| black([at(0, i), at(1, i), at(2, i)], at(3, i))),
        // What is stored is the opposite of the inks.
        (Space::Ycck, 3) => pixels.collect(|i| black(ycc(i).map(|x| 255 - x), at(3, i))),
        (space, channels) => invalid!("{space:?} as {channels} channels"),
    }
}

/// The pixels of an image, which are converted a few thousand at a time.
struct Pixels<'a> {
    n: usize,
    go_on: &'a mut dyn FnMut(usize) -> bool,
}

impl Pixels<'_> {
    /// The samples that a function gives for each pixel. Fails if the caller does not go on.
    fn collect<const N: usize>(&mut self, of: impl Fn(usize) -> [u8; N]) -> Result<Vec<u8>> {
        let mut samples = Vec::with_capacity(self.n * N);
        for start in (0..self.n).step_by(AT_ONCE) {
            let end = self.n.min(start + AT_ONCE);
            ask(self.go_on, N * (end - start))?;
            samples.extend((start..end).flat_map(&of));
        }
        Ok(samples)
    }
}

fn space(header: &Header, frame: &Frame) -> Space {
    let ids: Vec<u8> = frame.components.iter().map(|component| component.id).collect();
    match (ids.len(), header.adobe) {
        (1, _) => Space::Gray,
        // Adobe's marker with a transform that is not known means this one.
        (4, Some(1..)) => Space::Ycck,
        (4, _) => Space::Cmyk,
        _ if header.jfif => Space::YCbCr,
        (_, Some(0)) => Space::Rgb,
        (_, Some(_)) => Space::YCbCr,
        _ if ids == *b"RGB" => Space::Rgb,
        _ => Space::YCbCr,
    }
}

/// A number in 16 bits of fraction.
const fn fixed(x: f64) -> i32 {
    (x * 65536. + 0.5) as i32
}

fn to_rgb(y: u8, cb: u8, cr: u8) -> [u8; 3] {
    const HALF: i32 = 1 << 15;
    let (y, cb, cr) = (i32::from(y), i32::from(cb) - 128, i32::from(cr) - 128);
    let red = y + ((fixed(1.402) * cr + HALF) >> 16);
    let green = y + ((-fixed(0.34414) * cb - fixed(0.71414) * cr + HALF) >> 16);
    let blue = y + ((fixed(1.772) * cb + HALF) >> 16);
    [red, green, blue].map(|x| x.clamp(0, 255) as u8)
}

fn to_gray(red: u8, green: u8, blue: u8) -> u8 {
    let sum = fixed(0.299) * i32::from(red)
        + fixed(0.587) * i32::from(green)
        + fixed(0.114) * i32::from(blue);
    ((sum + (1 << 15)) >> 16) as u8
}

/// A colour of an ink and black; Adobe stores them inverted.
fn with_black(ink: u8, black: u8, inverted: bool) -> u8 {
    let (ink, black) = (u32::from(ink), u32::from(black));
    match inverted {
        true => (black * ink / 255) as u8,
        false => ((255 - black) * (255 - ink) / 255) as u8,
    }
}
