//! Images: decoding, resizing, colours, boxes.

mod bmp;
mod boxes;
mod color;
mod combined_nms;
mod crop_and_resize;
mod decode;
mod encode_jpeg;
mod encode_png;
mod gif;
mod heap;
mod nms;
mod paced_reader;
mod pixels;
mod png;
mod resize;
mod sampling;
mod scale_and_translate;

use crate::op::OpDef;
use crate::prelude::*;

/// The ops of this family.
pub(crate) const OPS: &[OpDef] = &[
    color::CONTRAST,
    color::HSV_TO_RGB,
    color::HUE,
    color::RGB_TO_HSV,
    color::SATURATION,
    combined_nms::DEF,
    crop_and_resize::DEF,
    decode::BMP,
    decode::CROP_JPEG,
    decode::GIF,
    decode::IMAGE,
    decode::JPEG,
    decode::PNG,
    encode_jpeg::DEF,
    encode_jpeg::VARIABLE,
    encode_png::DEF,
    nms::V1,
    nms::V2,
    nms::V3,
    nms::V4,
    nms::V5,
    nms::WITH_OVERLAPS,
    resize::AREA,
    resize::BICUBIC,
    resize::BILINEAR,
    resize::NEAREST,
    scale_and_translate::DEF,
];

/// The height and width that an input asks for.
fn size_of(size: View<'_>) -> Result<(usize, usize)> {
    let sizes = ints(&size).unwrap_or_default();
    let [height, width] = sizes[..] else {
        return invalid!("a size must be two integers: {}", size.shape());
    };
    match (usize::try_from(height), usize::try_from(width)) {
        (Ok(height), Ok(width)) => Ok((height, width)),
        _ => invalid!("output dimensions must be positive: {height} x {width}"),
    }
}
