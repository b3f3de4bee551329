//! Variables.

mod variable;

pub use variable::Variable;

use crate::op::OpDef;

/// The ops of this family.
pub(crate) const OPS: &[OpDef] = &[];
