//! Ops that read serialized and textual data.

mod base64;
mod csv;
mod decode_compressed;
mod decode_raw;
mod dense;
mod feature;
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

/// Row splits: a zero, if asked for, and the ends of the rows.
fn splits(dtype: DType, starts_at_zero: bool, ends: &[usize]) -> Result<Tensor> {
    let all = starts_at_zero.then_some(&0).into_iter().chain(ends);
    if dtype == DType::I64 {
        return Ok(Tensor::vector(&all.map(|end| *end as i64).collect::<Vec<_>>())?);
    }
    let narrow: std::result::Result<Vec<i32>, _> = all.map(|end| i32::try_from(*end)).collect();
    match narrow {
        Ok(splits) => Ok(Tensor::vector(&splits)?),
        Err(_) => invalid!("row splits do not fit in int32"),
    }
}
