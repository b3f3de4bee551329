//! Small files that stand for large pictures.

use std::borrow::Cow;
use std::io::Write as _;

use tensor::{Shape, Strings, Tensor};

/// A file, the op that decodes it, and what is the matter with it.
pub(crate) struct Bomb {
    pub(crate) op: &'static str,
    pub(crate) name: String,
    pub(crate) file: Vec<u8>,
}

impl Bomb {
    fn new(op: &'static str, name: impl Into<String>, file: Vec<u8>) -> Self {
        Self { op, name: name.into(), file }
    }

    /// The scalar string that the op takes.
    pub(crate) fn contents(&self) -> Tensor {
        let strings = Strings::copied(std::iter::once(&self.file[..])).unwrap();
        Tensor::from_strings(Shape::scalar(), strings).unwrap()
    }
}

/// Files whose pictures are large and take a while, but no more than some megabytes.
pub(crate) fn large() -> Vec<Bomb> {
    vec![
        Bomb::new("DecodePng", "png of zeros", png(1000, 1000, png::BitDepth::Eight)),
        Bomb::new("DecodeGif", "gif of zeros", gif(1500, 1500, 1)),
        Bomb::new("DecodeGif", "gif of many frames", gif(256, 256, 60)),
        Bomb::new("DecodeBmp", "bmp of zeros", bmp(1000, 1000, 3000 * 1000)),
        Bomb::new("DecodeJpeg", "jpeg of zeros", jpeg(1000, 1000)),
        Bomb::new("DecodeAndCropJpeg", "jpeg to crop", jpeg(1000, 1000)),
        Bomb::new("DecodeJpeg", "progressive jpeg of many scans", scans(1000, 200)),
        Bomb::new("DecodeImage", "png as any image", png(1000, 1000, png::BitDepth::Eight)),
    ]
}

/// Files whose pictures are larger than tests allow, or say that they are.
pub(crate) fn giant() -> Vec<Bomb> {
    let mut all = vec![
        Bomb::new("DecodePng", "giant png of zeros", png(6000, 6000, png::BitDepth::Eight)),
        Bomb::new("DecodePng", "giant png of 16 bits", png(4000, 4000, png::BitDepth::Sixteen)),
        Bomb::new("DecodeImage", "giant png as any image", png(4000, 4000, png::BitDepth::Eight)),
        Bomb::new("DecodeGif", "giant gif of zeros", gif(5000, 5000, 1)),
        Bomb::new("DecodeGif", "giant gif of many frames", gif(1500, 1500, 40)),
        Bomb::new("DecodeImage", "giant gif as any image", gif(5000, 5000, 3)),
        Bomb::new("DecodeJpeg", "progressive jpeg of many scans", scans(1500, 20_000)),
    ];
    for side in [3000, 9000, 16_000, 65_500] {
        all.push(Bomb::new("DecodePng", format!("png that says {side}"), png_of_size(side)));
        all.push(Bomb::new("DecodeGif", format!("gif that says {side}"), gif_of_size(side)));
        all.push(Bomb::new("DecodeJpeg", format!("jpeg that says {side}"), jpeg_of_size(side)));
        all.push(Bomb::new("DecodeBmp", format!("bmp that says {side}"), bmp(side, side, 64)));
    }
    all.push(Bomb::new("DecodeBmp", "bmp of the largest size", bmp(u32::MAX >> 1, 1 << 31, 64)));
    all
}

fn png(width: u32, height: u32, depth: png::BitDepth) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(depth);
    encoder.set_compression(png::Compression::Fast);
    let mut writer = encoder.write_header().unwrap();
    let mut stream = writer.stream_writer().unwrap();
    let row = vec![0; width as usize * if depth == png::BitDepth::Eight { 3 } else { 6 }];
    (0..height).for_each(|_| stream.write_all(&row).unwrap());
    stream.finish().unwrap();
    drop(writer);
    file
}

/// A PNG with rows for 16 by 16 pixels that says that it has so many rows and columns.
fn png_of_size(side: u32) -> Vec<u8> {
    let mut file = png(16, 16, png::BitDepth::Eight);
    file[16..20].copy_from_slice(&side.to_be_bytes());
    file[20..24].copy_from_slice(&side.to_be_bytes());
    let mut sum = flate2::Crc::new();
    sum.update(&file[12..29]);
    file[29..33].copy_from_slice(&sum.sum().to_be_bytes());
    file
}

fn gif(width: u16, height: u16, n_frames: usize) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = gif::Encoder::new(&mut file, width, height, &[0, 0, 0, 9, 9, 9]).unwrap();
    let buffer = Cow::Owned(vec![1; usize::from(width) * usize::from(height)]);
    let mut frame = gif::Frame { width, height, buffer, ..gif::Frame::default() };
    frame.make_lzw_pre_encoded();
    for _ in 0..n_frames {
        encoder.write_lzw_pre_encoded_frame(&frame).unwrap();
    }
    drop(encoder);
    file
}

/// A GIF with colours for 16 by 16 pixels whose frame says that it has so many rows and columns.
fn gif_of_size(side: u32) -> Vec<u8> {
    let mut file = gif(16, 16, 1);
    let head: &[u8] = &[0x2C, 0, 0, 0, 0, 16, 0, 16, 0];
    let at = file.windows(head.len()).position(|bytes| bytes == head).unwrap();
    let side = u16::try_from(side).unwrap().to_le_bytes();
    file[at + 5..at + 9].copy_from_slice(&[side, side].concat());
    file
}

fn bmp(width: u32, height: u32, n_bytes: usize) -> Vec<u8> {
    let mut file = b"BM".to_vec();
    file.resize(54 + n_bytes, 0);
    file[10] = 54;
    file[18..22].copy_from_slice(&width.to_le_bytes());
    file[22..26].copy_from_slice(&height.to_le_bytes());
    file[28] = 24;
    file
}

fn jpeg(width: usize, height: usize) -> Vec<u8> {
    let data = &vec![0; 3 * width * height][..];
    let style = jpeg::Style { quality: 50, downsampled: true, density_unit: 1, density: (1, 1) };
    jpeg::encode(jpeg::Image { height, width, channels: 3, data }, style, &[])
}

/// A JPEG with blocks for 16 by 16 pixels that says that it has so many rows and columns.
fn jpeg_of_size(side: u32) -> Vec<u8> {
    let mut file = jpeg(16, 16);
    let at = file.windows(2).position(|bytes| bytes == [0xFF, 0xC0]).unwrap();
    let side = u16::try_from(side).unwrap().to_be_bytes();
    file[at + 5..at + 9].copy_from_slice(&[side, side].concat());
    file
}

/// A progressive grey JPEG of so many scans, all without data: they are taken for zeros.
fn scans(side: u16, n_scans: usize) -> Vec<u8> {
    let side = side.to_be_bytes();
    let mut file = vec![0xFF, 0xD8, 0xFF, 0xDB, 0, 67, 0];
    file.extend([1; 64]);
    file.extend([0xFF, 0xC2, 0, 11, 8, side[0], side[1], side[0], side[1], 1, 1, 0x11, 0]);
    // One code of one bit, for a level like the one before.
    file.extend([0xFF, 0xC4, 0, 20, 0, 1]);
    file.extend([0; 16]);
    for _ in 0..n_scans {
        file.extend([0xFF, 0xDA, 0, 8, 1, 1, 0, 0, 0, 0]);
    }
    file.extend([0xFF, 0xD9]);
    file
}
