//! JPEG: baseline and progressive images with Huffman codes.
//!
//! Written for ourselves because TensorFlow decodes with libjpeg's fast transform by default, which
//! is up to twelve levels away from the accurate one that all crates have. The arithmetic of
//! transforms, upsampling and colours is libjpeg's (`jidctfst.c`, `jidctint.c`, `jdsample.c`,
//! `jdcolor.c`), so that the pixels are the same.

mod bits;
mod color;
mod encode;
mod header;
mod huffman;
mod idct;
mod reduced;
mod scan;
mod standard;
mod upsample;

pub(super) use encode::{Style, encode};
use header::{Frame, Header};
pub(super) use idct::Dct;

use super::pixels::{MAX_ELEMENTS, Pixels};
use crate::prelude::*;

/// How an image is decoded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Options {
    /// 1 or 3; 0 for what the image has.
    pub(super) channels: usize,
    pub(super) dct: Dct,
    /// Whether chroma is interpolated rather than repeated.
    pub(super) fancy: bool,
    /// One part in 1, 2, 4 or 8 of the size.
    pub(super) ratio: usize,
}

/// Decodes an image. Fails for what is no JPEG, is damaged or is too large.
pub(super) fn decode(bytes: &[u8], options: Options) -> Result<Pixels> {
    let mut header = Header::default();
    let mut at = header.read_to_scan(bytes, 2)?;
    let Some(frame) = &header.frame else { return invalid!("a scan before its frame") };
    let channels = match options.channels {
        0 => frame.components.len().min(3),
        n => n,
    };
    let pixels = frame.width * frame.height * channels.max(frame.components.len());
    if pixels > MAX_ELEMENTS {
        return invalid!("an image of {} by {} is too large", frame.width, frame.height);
    }
    let mut planes = scan::Planes::new(frame);
    loop {
        at = scan::decode(bytes, at, &header, &mut planes)?;
        let Some(next) = header.read_to_next(bytes, at)? else { break };
        at = next;
    }
    let Some(frame) = &header.frame else { return invalid!("a scan before its frame") };
    let samples: Vec<Vec<u8>> = (0..frame.components.len())
        .map(|i| plane(&header, frame, planes.coefficients(i), i, options))
        .collect::<Result<_>>()?;
    let data = color::convert(&header, frame, &samples, channels)?;
    let size = upsample::Size::new(frame, options.ratio);
    Ok(Pixels { height: size.height, width: size.width, channels, data })
}

/// One component in the size of the image.
fn plane(
    header: &Header,
    frame: &Frame,
    coefficients: &[[i16; 64]],
    number: usize,
    options: Options,
) -> Result<Vec<u8>> {
    let component = &frame.components[number];
    let Some(table) = &header.quantization[component.table] else {
        return invalid!("quantization table {} is missing", component.table);
    };
    let size = upsample::Size::new(frame, options.ratio);
    let block = size.block_of(frame, component);
    let samples = idct::plane(component, coefficients, table, options.dct, block);
    Ok(upsample::to_size((frame, size), component, &samples, options.fancy))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: Options = Options { channels: 0, dct: Dct::Fast, fancy: true, ratio: 1 };

    #[test]
    fn damaged_bytes_are_refused_and_never_panic() {
        let good: &[u8] = include_bytes!("../../../../testdata/images/small.jpg");
        assert!(decode(good, OPTIONS).is_ok());
        for end in 0..good.len() {
            // The last bytes are only the marker of the end.
            assert!(decode(&good[..end], OPTIONS).is_err() || end + 4 > good.len(), "{end}");
        }
        let mut seed = 1u64;
        for _ in 0..2000 {
            let mut bad = good.to_vec();
            for _ in 0..3 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let at = (seed >> 33) as usize % bad.len();
                bad[at] = (seed >> 20) as u8;
            }
            let ratio = 1 << (seed >> 60 & 3);
            if let Ok(pixels) = decode(&bad, Options { ratio, ..OPTIONS }) {
                assert_eq!(pixels.data.len(), pixels.height * pixels.width * pixels.channels);
            }
        }
    }
}
