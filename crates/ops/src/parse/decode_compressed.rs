//! `DecodeCompressed`: strings that were compressed with zlib or gzip.

use std::io::Read;

use flate2::read::{MultiGzDecoder, ZlibDecoder};

use crate::prelude::*;

/// The bytes that are unfolded at a time, and what a decoder takes besides.
const STEP_BYTES: usize = 16 << 10;
const DECODER_BYTES: usize = 128 << 10;

/// The most bytes that all strings together may unfold to.
const LIMIT_BYTES: u64 = 1 << 30;

pub(super) const DEF: OpDef = OpDef::pure("DecodeCompressed", RowRule::Mixed, |attrs| {
    let format = match attrs.str_or("compression_type", "")? {
        "" => DecodeCompressedFormat::Plain,
        "ZLIB" => DecodeCompressedFormat::Zlib,
        "GZIP" => DecodeCompressedFormat::Gzip,
        other => {
            return invalid!("Only ZLIB, GZIP or NONE are supported compressions, not {other}");
        }
    };
    Ok(Box::new(DecodeCompressed(format)))
});

#[derive(Clone, Copy)]
enum DecodeCompressedFormat {
    Plain,
    Zlib,
    Gzip,
}

struct DecodeCompressed(DecodeCompressedFormat);

impl Op for DecodeCompressed {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [input] = arity(inputs)?;
        input.require_dtype(DType::String)?;
        Ok(vec![input.with_dtype(DType::String)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let input = ctx.input(0);
        if matches!(self.0, DecodeCompressedFormat::Plain) {
            return ctx.forward(0, input, input.shape().clone());
        }
        let mut out = Strings::with_capacity(input.n_elements(), input.strings().n_bytes())?;
        // A decoder keeps a window of what it wrote, and tables.
        let _booked = Booked::new(DECODER_BYTES)?;
        let mut room = LIMIT_BYTES;
        for string in input.strings().iter() {
            pace(256 + string.len())?;
            let cancel = ctx.env().cancel;
            match self.0 {
                DecodeCompressedFormat::Gzip => {
                    unfold(MultiGzDecoder::new(string), &mut out, &mut room, cancel)?;
                }
                _ => unfold(ZlibDecoder::new(string), &mut out, &mut room, cancel)?,
            }
        }
        ctx.set_output(0, Tensor::from_strings(input.shape().clone(), out)?)
    }
}

/// Appends what a decoder gives as a string.
fn unfold(
    mut decoder: impl Read,
    out: &mut Strings,
    room: &mut u64,
    cancel: &crate::Cancel,
) -> Result<()> {
    let mut step = [0; STEP_BYTES];
    loop {
        cancel.check()?;
        let n = match decoder.read(&mut step) {
            Ok(0) => return Ok(out.end()?),
            Ok(n) => n,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Error::DataLoss(format!("inflate failed: {error}"))),
        };
        let Some(left) = room.checked_sub(n as u64) else {
            let text = "the decompressed strings are too large".to_owned();
            return Err(Error::ResourceExhausted(text));
        };
        *room = left;
        out.extend_last(&step[..n])?;
    }
}
