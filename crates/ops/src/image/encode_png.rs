//! `EncodePng`: pictures as PNG files.
//!
//! Follows `encode_png_op.cc`. The bytes are not TensorFlow's: compressors differ, the pixels do
//! not.

use png::{BitDepth, ColorType, Compression, Encoder};

use crate::prelude::*;

pub(super) const DEF: OpDef = OpDef::pure("EncodePng", RowRule::Mixed, |attrs| {
    let compression = attrs.int_or("compression", -1)?;
    if !(-1..=9).contains(&compression) {
        return invalid!("compression should be in [-1,9], got {compression}");
    }
    Ok(Box::new(EncodePng { compression }))
});

/// The bytes that an encoder takes for tables and what it compresses at a time.
const ENCODER_BYTES: usize = 1 << 20;

struct EncodePng {
    compression: i64,
}

impl Op for EncodePng {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [images] = arity(inputs)?;
        images.require_rank_at_least(3)?;
        Ok(vec![match images.dims() {
            Some(dims) => Spec::new(DType::String, dims[..dims.len() - 3].iter().cloned()),
            None => Spec::unknown(DType::String),
        }])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let images = ctx.input(0);
        let [lead @ .., height, width, channels] = images.shape().dims() else {
            return invalid!("image must be at least 3-dimensional: {}", images.shape());
        };
        let color = match channels {
            1 => ColorType::Grayscale,
            2 => ColorType::GrayscaleAlpha,
            3 => ColorType::Rgb,
            4 => ColorType::Rgba,
            n => return invalid!("image must have 1, 2, 3, or 4 channels, got {n}"),
        };
        let (Ok(w), Ok(h)) = (u32::try_from(*width), u32::try_from(*height)) else {
            return invalid!("image is too large: {}", images.shape());
        };
        // The pixels, the rows of an encoder, and the files, which may be a little larger.
        let _booked = Booked::new(images.bytes().len().saturating_mul(4) + ENCODER_BYTES)?;
        let (depth, bytes) = match images.dtype() {
            DType::U8 => (BitDepth::Eight, images.bytes().to_vec()),
            DType::U16 => {
                let wide = images.as_slice::<u16>().iter().flat_map(|x| x.to_be_bytes());
                (BitDepth::Sixteen, wide.collect())
            }
            dtype => return invalid!("an image of {dtype} cannot be written"),
        };
        let n_images: usize = lead.iter().product();
        let size = bytes.len().checked_div(n_images).unwrap_or(0);
        if size == 0 && n_images > 0 {
            return Err(Error::Internal("PNG encoding failed: no pixels".to_owned()));
        }
        let mut files = Vec::new();
        for image in bytes.chunks_exact(size.max(1)) {
            let mut file = Vec::new();
            let mut encoder = Encoder::new(&mut file, w, h);
            encoder.set_color(color);
            encoder.set_depth(depth);
            encoder.set_compression(match self.compression {
                0 => Compression::NoCompression,
                1..=3 => Compression::Fast,
                7..=9 => Compression::High,
                _ => Compression::Balanced,
            });
            let written = encoder.write_header().and_then(|mut writer| {
                writer.write_image_data(image)?;
                writer.finish()
            });
            if let Err(error) = written {
                return Err(Error::Internal(format!("PNG encoding failed: {error}")));
            }
            files.push(file);
        }
        let strings = Strings::collect(files.iter().map(Vec::as_slice))?;
        ctx.set_output(0, Tensor::from_strings(Shape::of(lead), strings)?)
    }
}
