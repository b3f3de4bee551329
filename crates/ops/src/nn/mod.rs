//! Layers: activations, normalisation, convolution, pooling.

mod softmax;

use crate::op::OpDef;

/// The ops of this family.
pub(crate) const OPS: &[OpDef] = &[softmax::DEF];
