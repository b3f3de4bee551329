//! Arithmetic: element by element, reductions, matrix products.

use crate::op::OpDef;

/// The ops of this family.
pub(crate) const OPS: &[OpDef] = &[];
