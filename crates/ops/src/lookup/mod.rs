//! Tables: hash tables from constants and from files.

use crate::op::OpDef;

/// The ops of this family.
pub(crate) const OPS: &[OpDef] = &[];
