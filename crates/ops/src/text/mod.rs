//! Ops on strings.

mod case;
mod encoding;
pub(crate) mod farmhash;
mod hash_bucket;
mod hashes;
mod re2;
mod regex;
mod split;

use crate::op::OpDef;

/// The ops of this family.
pub(crate) const OPS: &[OpDef] = &[
    case::LOWER,
    case::UPPER,
    hash_bucket::FAST,
    hash_bucket::PLAIN,
    hash_bucket::STRONG,
    regex::FULL_MATCH,
    regex::REPLACE,
    regex::STATIC_FULL_MATCH,
    regex::STATIC_REPLACE,
    split::ANY_OF,
    split::SEQUENCE,
];
