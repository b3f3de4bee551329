//! `DecodeJpeg`, `DecodePng`, `DecodeGif`, `DecodeBmp`, `DecodeImage` and `DecodeAndCropJpeg`:
//! pixels of a file's bytes.
//!
//! Follows `decode_image_op.cc`: but for the name, each op decodes what the first bytes say it is.

use jpeg::Dct;

use super::pixels::{MAX_ELEMENTS, Pixels};
use super::{bmp, gif, png};
use crate::prelude::*;

pub(super) const JPEG: OpDef =
    OpDef::pure("DecodeJpeg", RowRule::Mixed, |attrs| build(attrs, Name::Jpeg));
pub(super) const CROP_JPEG: OpDef =
    OpDef::pure("DecodeAndCropJpeg", RowRule::Mixed, |attrs| build(attrs, Name::CropJpeg));
pub(super) const PNG: OpDef =
    OpDef::pure("DecodePng", RowRule::Mixed, |attrs| build(attrs, Name::Png));
pub(super) const GIF: OpDef =
    OpDef::pure("DecodeGif", RowRule::Mixed, |attrs| build(attrs, Name::Gif));
pub(super) const BMP: OpDef =
    OpDef::pure("DecodeBmp", RowRule::Mixed, |attrs| build(attrs, Name::Bmp));
pub(super) const IMAGE: OpDef =
    OpDef::pure("DecodeImage", RowRule::Mixed, |attrs| build(attrs, Name::Image));

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Name {
    Jpeg,
    CropJpeg,
    Png,
    Gif,
    Bmp,
    Image,
}

struct Decode {
    name: Name,
    channels: usize,
    dtype: DType,
    dct: Dct,
    fancy: bool,
    ratio: usize,
    /// `true` if a JPEG that is cut off is taken as one that ends there.
    recover: bool,
    /// The fraction of a JPEG's rows that must be there.
    fraction: f32,
    /// `true` if a GIF gives all of its frames.
    animations: bool,
}

fn build(attrs: &Attrs<'_>, name: Name) -> Result<Box<dyn Op>> {
    let channels = match attrs.int_or("channels", 0)? {
        channels @ (0 | 1 | 3 | 4) => channels as usize,
        channels => return invalid!("channels must be 0, 1, 3 or 4, got {channels}"),
    };
    if channels == 4 && matches!(name, Name::Jpeg | Name::CropJpeg) {
        return invalid!("channels must be 0, 1 or 3 for JPEG, got {channels}");
    }
    let dtype = match name {
        Name::Png | Name::Image => attrs.dtype_or("dtype", DType::U8)?,
        _ => DType::U8,
    };
    if !matches!(dtype, DType::U8 | DType::U16 | DType::F32) {
        return invalid!("an image cannot be {dtype}");
    }
    let ratio = match attrs.int_or("ratio", 1)? {
        ratio @ (1 | 2 | 4 | 8) => ratio as usize,
        ratio => return invalid!("ratio must be 1, 2, 4, or 8, got {ratio}"),
    };
    let dct = match attrs.str_or("dct_method", "")? {
        "INTEGER_ACCURATE" => Dct::Accurate,
        "" | "INTEGER_FAST" => Dct::Fast,
        name => return invalid!("dct_method must be INTEGER_FAST or INTEGER_ACCURATE, not {name}"),
    };
    Ok(Box::new(Decode {
        name,
        channels,
        dtype,
        dct,
        fancy: attrs.bool_or("fancy_upscaling", true)?,
        ratio,
        recover: attrs.bool_or("try_recover_truncated", false)?,
        fraction: attrs.float_or("acceptable_fraction", 1.)?,
        animations: match name {
            Name::Gif => true,
            Name::Image => attrs.bool_or("expand_animations", true)?,
            _ => false,
        },
    }))
}

impl Op for Decode {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let contents = match self.name {
            Name::CropJpeg => &arity::<2>(inputs)?[0],
            _ => &arity::<1>(inputs)?[0],
        };
        contents.require_rank(0)?;
        let channels = match self.channels {
            0 if self.name == Name::Gif => Dim::Known(3),
            0 => Dim::Unknown,
            n => Dim::of(n),
        };
        let unknown = || Dim::Unknown;
        Ok(vec![match self.name {
            Name::Image if self.animations => Spec::unknown(self.dtype),
            Name::Gif => Spec::new(self.dtype, [unknown(), unknown(), unknown(), channels]),
            _ => Spec::new(self.dtype, [unknown(), unknown(), channels]),
        }])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let contents = ctx.input(0);
        if contents.n_elements() != 1 {
            return invalid!("contents must be scalar, got shape {}", contents.shape());
        }
        let bytes = contents.strings().get(0);
        if bytes.is_empty() {
            return invalid!("Input is empty.");
        }
        match bytes {
            [0xFF, 0xD8, 0xFF, ..] => self.jpeg(ctx, bytes),
            [0x89, b'P', b'N', b'G', ..] => self.png(ctx, bytes),
            [b'G', b'I', b'F', b'8', ..] => self.gif(ctx, bytes),
            [b'B', b'M', ..] => {
                self.refuse(&[Name::Jpeg, Name::CropJpeg, Name::Png, Name::Gif], "BMP")?;
                self.write(ctx, &bmp::decode(bytes, self.channels)?)
            }
            _ => invalid!("Unknown image file format. One of JPEG, PNG, GIF, BMP required."),
        }
    }
}

impl Decode {
    fn refuse(&self, names: &[Name], format: &str) -> Result<()> {
        if names.contains(&self.name) {
            return invalid!("Trying to decode {format} format using an op for {:?}", self.name);
        }
        Ok(())
    }

    fn jpeg(&self, ctx: &mut Ctx<'_>, bytes: &[u8]) -> Result<()> {
        self.refuse(&[Name::Bmp], "JPEG")?;
        if self.channels == 4 {
            return invalid!("channels must be 0, 1 or 3 for JPEG, got 4");
        }
        let window = match self.name {
            Name::CropJpeg => Some(window(ctx.input(1))?),
            _ => None,
        };
        let options = jpeg::Options {
            channels: self.still_channels(),
            dct: self.dct,
            fancy: self.fancy,
            ratio: self.ratio,
            recover: self.recover,
            fraction: self.fraction,
            window,
            n_samples_max: MAX_ELEMENTS,
        };
        let decoder = jpeg::Decoder::new(bytes, options)?;
        let _booked = Booked::new(decoder.memory_bytes())?;
        let decoded = decoder.decode(&mut |n_samples| !is_stopped(n_samples));
        if decoded.is_err() {
            // A run that is stopped says why.
            pace(0)?;
        }
        let jpeg::Image { height, width, channels, data } = decoded?;
        self.write(ctx, &Pixels { height, width, channels, data, _booked })
    }

    fn png(&self, ctx: &mut Ctx<'_>, bytes: &[u8]) -> Result<()> {
        self.refuse(&[Name::Bmp, Name::CropJpeg], "PNG")?;
        let pixels = png::decode(bytes, self.still_channels(), self.dtype != DType::U8)?;
        let dims = self.still(&[pixels.height, pixels.width, pixels.channels]);
        let shape = Shape::checked(dims.iter().map(|dim| *dim as i64))?;
        let mut out = ctx.output(0, self.dtype, &shape)?;
        match self.dtype {
            DType::U8 => convert(&pixels.data, out.as_mut_slice(), |x| x as u8),
            DType::U16 => convert(&pixels.data, out.as_mut_slice::<u16>(), |x| x),
            _ => convert(&pixels.data, out.as_mut_slice(), |x| f32::from(x) / 65535.),
        }
    }

    fn gif(&self, ctx: &mut Ctx<'_>, bytes: &[u8]) -> Result<()> {
        self.refuse(&[Name::Bmp, Name::CropJpeg], "GIF")?;
        if !matches!(self.channels, 0 | 3) {
            return invalid!("channels must be 0 or 3 for GIF, got {}", self.channels);
        }
        let all = self.animations || self.name != Name::Image;
        let frames = gif::decode(bytes, all)?;
        if self.animations {
            let dims = [frames.count, frames.height, frames.width, 3];
            return self.fill(ctx, &dims, &frames.data);
        }
        if frames.count != 1 {
            let n = frames.count;
            return invalid!(
                "Got {n} frames, but only decode_gif and decode_image take animations"
            );
        }
        self.fill(ctx, &[frames.height, frames.width, 3], &frames.data)
    }

    fn write(&self, ctx: &mut Ctx<'_>, pixels: &Pixels) -> Result<()> {
        let dims = self.still(&[pixels.height, pixels.width, pixels.channels]);
        self.fill(ctx, &dims, &pixels.data)
    }

    /// The dimensions of a picture without frames: for `DecodeGif` it is one frame.
    fn still(&self, dims: &[usize]) -> Vec<usize> {
        let frame = (self.name == Name::Gif).then_some(1);
        frame.into_iter().chain(dims.iter().copied()).collect()
    }

    /// The channels of a picture without frames: for `DecodeGif` three.
    fn still_channels(&self) -> usize {
        if self.name == Name::Gif { 3 } else { self.channels }
    }

    /// Writes bytes in the dtype that was asked for.
    fn fill(&self, ctx: &mut Ctx<'_>, dims: &[usize], data: &[u8]) -> Result<()> {
        let shape = Shape::checked(dims.iter().map(|dim| *dim as i64))?;
        assert!(data.len() <= MAX_ELEMENTS);
        let mut out = ctx.output(0, self.dtype, &shape)?;
        match self.dtype {
            DType::U8 => convert(data, out.as_mut_slice::<u8>(), |x| x),
            DType::U16 => convert(data, out.as_mut_slice(), |x| u16::from(x) << 8),
            _ => convert(data, out.as_mut_slice(), |x| f32::from(x) / 255.),
        }
    }
}

/// Writes each sample in the dtype that was asked for.
fn convert<A: Copy, B>(from: &[A], to: &mut [B], of: impl Fn(A) -> B) -> Result<()> {
    assert_eq!(from.len(), to.len(), "one for each");
    for (from, to) in from.chunks(AT_ONCE).zip(to.chunks_mut(AT_ONCE)) {
        pace(from.len())?;
        to.iter_mut().zip(from).for_each(|(to, x)| *to = of(*x));
    }
    Ok(())
}

/// The part of an image that starts at the first two numbers and has the size of the last.
fn window(numbers: View<'_>) -> Result<jpeg::Window> {
    let numbers = numbers.to_i64().unwrap_or_default();
    let sizes: Option<Vec<usize>> = numbers.iter().map(|x| usize::try_from(*x).ok()).collect();
    let Some(&[y, x, height, width]) = sizes.as_deref() else {
        return invalid!("crop_window must have four elements that are not negative");
    };
    Ok(jpeg::Window { y, x, height, width })
}
