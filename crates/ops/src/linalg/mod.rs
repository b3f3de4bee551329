//! Matrix products and decompositions.

mod batch;
mod decompose;
mod einsum;
mod factors;
pub(crate) mod fft;
mod fused_matmul;
mod linear;
mod matmul;
mod matmul_kernel;
mod matrices;
mod orthogonal;
mod panels;
mod product;
mod scalar;
mod square;

pub(crate) use batch::Stack;
pub(crate) use panels::Panels;
pub(crate) use scalar::Scalar;

use crate::op::OpDef;

/// The ops of this family.
pub(crate) const OPS: &[OpDef] = &[
    einsum::DEF,
    factors::QR,
    factors::SVD,
    fft::OPS[0],
    fft::OPS[1],
    fft::OPS[2],
    fft::OPS[3],
    fft::OPS[4],
    fft::OPS[5],
    fft::OPS[6],
    fft::OPS[7],
    fft::OPS[8],
    fft::OPS[9],
    fft::OPS[10],
    fft::OPS[11],
    fused_matmul::DEF,
    linear::DEF,
    matmul::BATCH_MAT_MUL,
    matmul::BATCH_MAT_MUL_V2,
    matmul::BATCH_MAT_MUL_V3,
    matmul::MAT_MUL,
    matrices::CHOLESKY,
    matrices::DETERMINANT,
    matrices::INVERSE,
    matrices::SOLVE,
    matrices::TRIANGULAR_SOLVE,
];
