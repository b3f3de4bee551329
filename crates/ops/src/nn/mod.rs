//! Layers: activations, normalisation, convolution, pooling.

mod conv;
mod conv_f32;
mod conv_kernel;
mod depthwise;
mod depthwise_kernel;
mod dtypes;
mod fused;
mod fused_conv;
mod pooling;
mod pooling_kernel;
mod softmax;
mod transpose;
mod window;

use crate::op::OpDef;

pub(crate) use fused::Steps;
pub(crate) use transpose::swap_last;

/// The ops of this family.
pub(crate) const OPS: &[OpDef] = &[
    conv::CONV_2D,
    conv::CONV_3D,
    depthwise::DEF,
    fused_conv::CONV_2D,
    fused_conv::DEPTHWISE,
    pooling::AVG_POOL,
    pooling::AVG_POOL_3D,
    pooling::MAX_POOL,
    pooling::MAX_POOL_3D,
    pooling::MAX_POOL_V2,
    softmax::DEF,
];
