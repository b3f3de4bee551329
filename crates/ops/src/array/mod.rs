//! Ops that move elements without computing on them.

mod identity;

use crate::op::OpDef;

/// The ops of this family.
pub(crate) const OPS: &[OpDef] = &[identity::IDENTITY, identity::STOP_GRADIENT];
