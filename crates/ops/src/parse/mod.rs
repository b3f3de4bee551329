//! Ops that read serialized and textual data.

mod base64;
mod column;
mod csv;
mod decode_compressed;
mod decode_raw;
mod dense;
mod feature;
mod found;
mod number;
mod parse_example;
mod rows;
mod schema;
mod sequence;
mod sequence_output;
mod string_to_number;
mod tensor_proto;
mod values;
mod wire;

use crate::op::OpDef;
use crate::prelude::*;

/// The ops of this family.
pub(crate) const OPS: &[OpDef] = &[
    base64::DECODE,
    base64::ENCODE,
    csv::DEF,
    decode_compressed::DEF,
    decode_raw::PADDED,
    decode_raw::RAW,
    parse_example::SINGLE,
    parse_example::V1,
    parse_example::V2,
    sequence::SINGLE,
    sequence::V1,
    sequence::V2,
    string_to_number::DEF,
    tensor_proto::PARSE,
    tensor_proto::SERIALIZE,
];

/// The most elements that rows may be padded to: one long row makes all others as long.
const N_PADDED_MAX: usize = 1 << 30;

/// Fails for a padded shape that is absurdly large.
fn limit(dtype: DType, shape: &Shape) -> Result<()> {
    if shape.n_elements() > N_PADDED_MAX {
        let text = format!("rows of {dtype} padded to shape {shape} are too large");
        return Err(Error::ResourceExhausted(text));
    }
    Ok(())
}

/// The bytes of so many copies of a string. Fails if they are absurdly many.
fn limit_bytes(count: usize, string: &[u8]) -> Result<usize> {
    match count.checked_mul(string.len()) {
        Some(n_bytes) if n_bytes <= N_PADDED_MAX => Ok(n_bytes),
        _ => {
            let text = format!("{count} times {} bytes of padding are too large", string.len());
            Err(Error::ResourceExhausted(text))
        }
    }
}
