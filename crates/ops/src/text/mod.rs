//! Ops on strings.

mod as_string;
mod case;
mod encoding;
pub(crate) mod farmhash;
mod format;
mod hash_bucket;
pub(crate) mod hashes;
mod join;
mod length;
mod ngrams;
mod normalize;
mod printf;
mod re2;
mod reduce_join;
mod regex;
mod segment_join;
mod split;
mod strip;
mod substr;
mod unicode_decode;
mod unicode_encode;
mod unicode_script;

use crate::op::OpDef;

/// The ops of this family.
pub(crate) const OPS: &[OpDef] = &[
    as_string::DEF,
    case::LOWER,
    case::UPPER,
    format::DEF,
    hash_bucket::FAST,
    hash_bucket::PLAIN,
    hash_bucket::STRONG,
    join::DEF,
    length::DEF,
    ngrams::DEF,
    normalize::CASE_FOLD,
    normalize::NORMALIZE,
    reduce_join::DEF,
    regex::FULL_MATCH,
    regex::REPLACE,
    regex::STATIC_FULL_MATCH,
    regex::STATIC_REPLACE,
    segment_join::DEF,
    split::ANY_OF,
    split::SEQUENCE,
    strip::DEF,
    substr::DEF,
    unicode_decode::DECODE,
    unicode_decode::DECODE_WITH_OFFSETS,
    unicode_encode::ENCODE,
    unicode_encode::TRANSCODE,
    unicode_script::DEF,
];
