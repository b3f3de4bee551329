//! Matrix products and decompositions.

mod batch;
mod matmul;
mod product;
mod scalar;

pub(crate) use scalar::Scalar;

use crate::op::OpDef;

/// The ops of this family.
pub(crate) const OPS: &[OpDef] =
    &[matmul::BATCH_MAT_MUL, matmul::BATCH_MAT_MUL_V2, matmul::BATCH_MAT_MUL_V3, matmul::MAT_MUL];
