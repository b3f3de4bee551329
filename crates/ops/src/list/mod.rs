//! Lists of tensors: `TensorList` and `TensorArray`.

use crate::op::OpDef;

/// The ops of this family.
pub(crate) const OPS: &[OpDef] = &[];
