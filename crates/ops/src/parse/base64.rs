//! `EncodeBase64` and `DecodeBase64`: the alphabet for URLs, with or without padding.
//!
//! Follows `base64.cc` of TensorFlow.

use ::base64::Engine;
use ::base64::alphabet::URL_SAFE;
use ::base64::engine::DecodePaddingMode;
use ::base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};

use crate::prelude::*;

pub(super) const ENCODE: OpDef = OpDef::pure("EncodeBase64", RowRule::Elementwise, |attrs| {
    let pads = attrs.bool_or("pad", false)?;
    let config = GeneralPurposeConfig::new().with_encode_padding(pads);
    Ok(Box::new(Encode(GeneralPurpose::new(&URL_SAFE, config))))
});
pub(super) const DECODE: OpDef = OpDef::pure("DecodeBase64", RowRule::Elementwise, |_| {
    let config = GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true);
    let engine = |mode| GeneralPurpose::new(&URL_SAFE, config.with_decode_padding_mode(mode));
    Ok(Box::new(Decode {
        padded: engine(DecodePaddingMode::RequireCanonical),
        bare: engine(DecodePaddingMode::RequireNone),
    }))
});

struct Encode(GeneralPurpose);

impl Op for Encode {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [input] = arity(inputs)?;
        input.require_dtype(DType::String)?;
        Ok(vec![input.with_dtype(DType::String)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let input = ctx.input(0);
        let all = input.strings();
        let mut strings = Strings::with_capacity(all.len(), all.n_bytes().div_ceil(3) * 4)?;
        for string in all.iter() {
            pace(8 + string.len())?;
            let _booked = Booked::new(string.len().div_ceil(3).saturating_mul(4))?;
            strings.push(self.0.encode(string).as_bytes())?;
        }
        ctx.set_output(0, Tensor::from_strings(input.shape().clone(), strings)?)
    }
}

/// Padding is all there or not at all.
struct Decode {
    padded: GeneralPurpose,
    bare: GeneralPurpose,
}

impl Op for Decode {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [input] = arity(inputs)?;
        input.require_dtype(DType::String)?;
        Ok(vec![input.with_dtype(DType::String)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let input = ctx.input(0);
        let mut out = Strings::with_capacity(input.n_elements(), input.strings().n_bytes())?;
        for string in input.strings().iter() {
            pace(8 + string.len())?;
            let engine = if string.ends_with(b"=") { &self.padded } else { &self.bare };
            let _booked = Booked::new(string.len())?;
            match engine.decode(string) {
                Ok(bytes) => out.push(&bytes)?,
                Err(_) => return invalid!("Invalid character found in base64."),
            }
        }
        ctx.set_output(0, Tensor::from_strings(input.shape().clone(), out)?)
    }
}
