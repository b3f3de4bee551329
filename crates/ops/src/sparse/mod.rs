//! Ops on sparse and ragged tensors.

mod coo;
mod fill_empty_rows;
mod gather;
mod ragged_to_tensor;
mod reshape;

use crate::op::OpDef;

/// The ops of this family.
pub(crate) const OPS: &[OpDef] = &[fill_empty_rows::DEF, ragged_to_tensor::DEF, reshape::DEF];
