//! Matrix products and decompositions.

mod batch;
mod einsum;
mod fused_matmul;
mod linear;
mod matmul;
mod matmul_kernel;
mod product;
mod scalar;

pub(crate) use product::{Form, Matrix};
pub(crate) use scalar::Scalar;

use crate::op::OpDef;

/// The ops of this family.
pub(crate) const OPS: &[OpDef] = &[
    einsum::DEF,
    fused_matmul::DEF,
    linear::DEF,
    matmul::BATCH_MAT_MUL,
    matmul::BATCH_MAT_MUL_V2,
    matmul::BATCH_MAT_MUL_V3,
    matmul::MAT_MUL,
];
