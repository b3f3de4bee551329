//! Ops on images: decoding, resizing, cropping, boxes.

use crate::op::OpDef;

/// The ops of this family.
pub(crate) const OPS: &[OpDef] = &[];
