//! Layers: activations, normalisation, convolution, pooling.

mod conv;
mod conv_kernel;
mod depthwise;
mod dtypes;
mod pooling;
mod pooling_kernel;
mod softmax;
mod transpose;
mod window;

use crate::op::OpDef;

/// The ops of this family.
pub(crate) const OPS: &[OpDef] = &[
    conv::CONV_2D,
    conv::CONV_3D,
    depthwise::DEF,
    pooling::AVG_POOL,
    pooling::AVG_POOL_3D,
    pooling::MAX_POOL,
    pooling::MAX_POOL_3D,
    pooling::MAX_POOL_V2,
    softmax::DEF,
];
