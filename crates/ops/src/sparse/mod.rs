//! Ops on sparse and ragged tensors.

mod bincount;
pub(crate) mod coo;
mod count;
mod cross;
mod cwise;
mod fill_empty_rows;
mod fingerprint;
mod gather;
mod matmul;
mod merge;
mod number;
mod order;
mod ragged;
mod ragged_cross;
mod ragged_gather;
mod ragged_to_tensor;
mod ragged_variant;
mod reduce;
mod reshape;
mod rows;
mod softmax;
mod to_dense;

use crate::op::OpDef;

/// The ops of this family.
pub(crate) const OPS: &[OpDef] = &[
    bincount::RAGGED,
    bincount::SPARSE,
    count::DENSE,
    count::RAGGED,
    count::SPARSE,
    cross::HASHED,
    cross::V1,
    cross::V2,
    cwise::ADD,
    cwise::DENSE_ADD,
    cwise::DIV,
    cwise::MUL,
    fill_empty_rows::DEF,
    fingerprint::DEF,
    matmul::DEF,
    merge::ADD,
    merge::MAXIMUM,
    merge::MINIMUM,
    order::CONCAT,
    order::REORDER,
    order::SLICE,
    order::SPLIT,
    ragged::RANGE,
    ragged::TO_SPARSE,
    ragged_cross::DEF,
    ragged_gather::DEF,
    ragged_to_tensor::DEF,
    ragged_variant::FROM_VARIANT,
    ragged_variant::TO_VARIANT,
    reduce::MAX,
    reduce::SUM,
    reshape::DEF,
    softmax::DEF,
    to_dense::DEF,
];
