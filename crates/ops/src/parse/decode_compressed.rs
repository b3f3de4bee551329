//! `DecodeCompressed`: strings that were compressed with zlib or gzip.

use std::io::Read;

use flate2::read::{MultiGzDecoder, ZlibDecoder};

use crate::prelude::*;

/// The most bytes that all strings together may unfold to.
const LIMIT_BYTES: u64 = 1 << 30;

pub(super) const DEF: OpDef = OpDef::pure("DecodeCompressed", |attrs| {
    let format = match attrs.str_or("compression_type", "")? {
        "" => Format::Plain,
        "ZLIB" => Format::Zlib,
        "GZIP" => Format::Gzip,
        other => {
            return invalid!("Only ZLIB, GZIP or NONE are supported compressions, not {other}");
        }
    };
    Ok(Box::new(DecodeCompressed(format)))
});

#[derive(Clone, Copy)]
enum Format {
    Plain,
    Zlib,
    Gzip,
}

struct DecodeCompressed(Format);

impl Op for DecodeCompressed {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [input] = arity(inputs)?;
        input.require_dtype(DType::String)?;
        Ok(vec![input.with_dtype(DType::String)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let input = ctx.input(0);
        if matches!(self.0, Format::Plain) {
            return ctx.forward(0, input, input.shape().clone());
        }
        let mut out = Strings::with_capacity(input.n_elements(), input.strings().n_bytes());
        let mut room = LIMIT_BYTES;
        let mut buffer = Vec::new();
        for string in input.strings().iter() {
            buffer.clear();
            let read = match self.0 {
                Format::Gzip => MultiGzDecoder::new(string).take(room + 1).read_to_end(&mut buffer),
                _ => ZlibDecoder::new(string).take(room + 1).read_to_end(&mut buffer),
            };
            match read {
                Err(error) => return Err(Error::DataLoss(format!("inflate failed: {error}"))),
                Ok(n) if n as u64 > room => {
                    let text = "the decompressed strings are too large".to_owned();
                    return Err(Error::ResourceExhausted(text));
                }
                Ok(n) => room -= n as u64,
            }
            out.push(&buffer);
        }
        ctx.set_output(0, Tensor::from_strings(input.shape().clone(), out)?)
    }
}
