//! All ops we have, by name.

use std::sync::OnceLock;

use rustc_hash::FxHashMap;

use crate::op::OpDef;
use crate::{
    array, audio, control, image, linalg, list, lookup, math, nn, parse, random, seq, sparse,
    state, text,
};

/// Ops of one kind, in a folder of their own.
#[derive(Debug)]
pub struct Family {
    /// The kind, for people.
    pub title: &'static str,
    /// The ops.
    pub ops: &'static [OpDef],
}

/// All families.
pub const FAMILIES: &[Family] = &[
    Family { title: "Shapes, slices and joins", ops: array::OPS },
    Family { title: "Sound", ops: audio::OPS },
    Family { title: "Control flow and functions", ops: control::OPS },
    Family { title: "Pictures and boxes", ops: image::OPS },
    Family { title: "Products and linear algebra", ops: linalg::OPS },
    Family { title: "Lists of tensors", ops: list::OPS },
    Family { title: "Tables", ops: lookup::OPS },
    Family { title: "Element by element, sums", ops: math::OPS },
    Family { title: "Neural networks", ops: nn::OPS },
    Family { title: "Parsing and encoding", ops: parse::OPS },
    Family { title: "Random numbers", ops: random::OPS },
    Family { title: "Sequences", ops: seq::OPS },
    Family { title: "Sparse and ragged tensors", ops: sparse::OPS },
    Family { title: "Variables", ops: state::OPS },
    Family { title: "Strings", ops: text::OPS },
];

/// The op called `name`, if we have it.
pub fn find(name: &str) -> Option<&'static OpDef> {
    static BY_NAME: OnceLock<FxHashMap<&'static str, &'static OpDef>> = OnceLock::new();
    let by_name = BY_NAME.get_or_init(|| all().map(|def| (def.name, def)).collect());
    by_name.get(name).copied()
}

/// All ops.
pub fn all() -> impl Iterator<Item = &'static OpDef> {
    FAMILIES.iter().flat_map(|family| family.ops.iter())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_is_listed_twice() {
        let mut names: Vec<_> = all().map(|def| def.name).collect();
        names.sort_unstable();
        for pair in names.windows(2) {
            assert_ne!(pair[0], pair[1]);
        }
    }
}
