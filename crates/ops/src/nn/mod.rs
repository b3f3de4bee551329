//! Layers: activations, normalisation, convolution, pooling.

mod activation;
mod batch_norm;
mod conv;
mod conv_f32;
mod conv_kernel;
mod conv_transpose;
mod conv_transpose_kernel;
mod depthwise;
mod depthwise_kernel;
mod dilation;
mod dtypes;
mod fused;
mod fused_conv;
mod layer_norm;
mod lrn;
mod max_pool_argmax;
mod pooling;
mod pooling_kernel;
mod softmax;
mod transpose;
mod window;

use crate::op::OpDef;

pub(crate) use dtypes::{Floats, float, narrow, through_f32, wide_bytes, widen_to};
pub(crate) use fused::Steps;
pub(crate) use transpose::swap_last;

/// The ops of this family.
pub(crate) const OPS: &[OpDef] = &[
    activation::DEF,
    batch_norm::V1,
    batch_norm::V2,
    batch_norm::V3,
    conv::CONV_2D,
    conv::CONV_3D,
    conv_transpose::CONV_2D,
    conv_transpose::CONV_3D,
    depthwise::DEF,
    dilation::DEF,
    fused_conv::CONV_2D,
    fused_conv::DEPTHWISE,
    layer_norm::DEF,
    lrn::DEF,
    max_pool_argmax::DEF,
    pooling::AVG_POOL,
    pooling::AVG_POOL_3D,
    pooling::MAX_POOL,
    pooling::MAX_POOL_3D,
    pooling::MAX_POOL_V2,
    softmax::DEF,
];
