//! `EncodeJpeg` and `EncodeJpegVariableQuality`: a picture as a JPEG file.
//!
//! Follows `encode_jpeg_op.cc`. What is asked to be progressive or of smallest size is written as a
//! plain file: the same pixels in other bytes.

use jpeg::{Image, Style, XMP_MAX, encode};

use crate::prelude::*;

pub(super) const DEF: OpDef = OpDef::pure("EncodeJpeg", RowRule::Mixed, |attrs| {
    let quality = attrs.int_or("quality", 95)?;
    check_quality(quality)?;
    let density = |name: &str| {
        let value = attrs.int_or(name, 300)?;
        u16::try_from(value).map_err(|_| Error::InvalidArgument(format!("{name} is {value}")))
    };
    let channels = match attrs.str_or("format", "")? {
        "" => None,
        "grayscale" => Some(1),
        "rgb" => Some(3),
        other => return invalid!("format must be '', grayscale or rgb, got {other}"),
    };
    let style = Style {
        quality,
        downsampled: attrs.bool_or("chroma_downsampling", true)?,
        density_unit: match attrs.str_or("density_unit", "in")? {
            "in" => 1,
            "cm" => 2,
            other => return invalid!("Invalid density_unit {other}"),
        },
        density: (density("x_density")?, density("y_density")?),
    };
    let has_xmp = attrs.has("xmp_metadata");
    let xmp = if has_xmp { attrs.bytes("xmp_metadata")? } else { b"" };
    let xmp = BookedVec::from_slice(xmp)?;
    Ok(Box::new(EncodeJpeg { style, channels, quality_input: false, xmp }))
});
pub(super) const VARIABLE: OpDef = OpDef::pure("EncodeJpegVariableQuality", RowRule::Mixed, |_| {
    let style = Style { quality: 95, downsampled: true, density_unit: 1, density: (300, 300) };
    Ok(Box::new(EncodeJpeg { style, channels: None, quality_input: true, xmp: BookedVec::new() }))
});

/// The bytes of a file beside its pixels.
const FILE_BYTES: usize = 128 << 10;

struct EncodeJpeg {
    style: Style,
    /// The channels that the image must have, if that is said.
    channels: Option<usize>,
    /// `true` if the quality is an input.
    quality_input: bool,
    /// The file's description of itself, in XMP; none if it is empty.
    xmp: BookedVec<u8>,
}

fn check_quality(quality: i64) -> Result<()> {
    // The text is TensorFlow's.
    if !(0..=100).contains(&quality) {
        return invalid!("quality must be in [0,100], got {quality}");
    }
    Ok(())
}

impl Op for EncodeJpeg {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let n_inputs = 1 + usize::from(self.quality_input);
        if inputs.len() != n_inputs {
            return invalid!("expected {n_inputs} inputs but got {}", inputs.len());
        }
        inputs[0].require_rank(3)?;
        inputs[0].require_dtype(DType::U8)?;
        Ok(vec![Spec::scalar(DType::String)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let image = ctx.input(0);
        let &[height, width, channels] = image.shape().dims() else {
            return invalid!("image must be 3-dimensional: {}", image.shape());
        };
        if self.channels.is_some_and(|expected| expected != channels) {
            return invalid!("format needs another number of channels than {channels}");
        }
        if channels != 1 && channels != 3 {
            return invalid!("image must have 1 or 3 channels, got shape {}", image.shape());
        }
        let mut style = self.style;
        if self.quality_input {
            style.quality = int(&ctx.input(1))?;
            check_quality(style.quality)?;
        }
        if !(1..=65500).contains(&height) || !(1..=65500).contains(&width) {
            let text = format!("JPEG encoding failed for an image of {height} by {width}");
            return Err(Error::Internal(text));
        }
        if self.xmp.len() > XMP_MAX {
            let text = format!("JPEG encoding failed: {} bytes of XMP", self.xmp.len());
            return Err(Error::Internal(text));
        }
        // The pixels, their planes, their coefficients, and the file.
        let _booked = Booked::new(image.n_elements().saturating_mul(24) + FILE_BYTES)?;
        let data = image.as_slice::<u8>();
        let file = encode(Image { height, width, channels, data }, style, &self.xmp);
        let strings = Strings::copied(std::iter::once(&file[..]))?;
        ctx.set_output(0, Tensor::from_strings(Shape::scalar(), strings)?)
    }
}
