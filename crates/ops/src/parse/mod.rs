//! Ops that parse serialized `Example`s, tensors, numbers and raw bytes.

use crate::op::OpDef;

/// The ops of this family.
pub(crate) const OPS: &[OpDef] = &[];
