//! Ops that call functions: loops, conditionals, calls.

use crate::op::OpDef;

/// The ops of this family.
pub(crate) const OPS: &[OpDef] = &[];
