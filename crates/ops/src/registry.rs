//! All ops we have, by name.

use std::sync::OnceLock;

use rustc_hash::FxHashMap;

use crate::op::OpDef;
use crate::{
    array, audio, control, image, linalg, list, lookup, math, nn, parse, random, seq, sparse,
    state, text,
};

/// The tables of the families.
const FAMILIES: &[&[OpDef]] = &[
    array::OPS,
    audio::OPS,
    control::OPS,
    image::OPS,
    linalg::OPS,
    list::OPS,
    lookup::OPS,
    math::OPS,
    nn::OPS,
    parse::OPS,
    random::OPS,
    seq::OPS,
    sparse::OPS,
    state::OPS,
    text::OPS,
];

/// The op called `name`, if we have it.
pub fn find(name: &str) -> Option<&'static OpDef> {
    static BY_NAME: OnceLock<FxHashMap<&'static str, &'static OpDef>> = OnceLock::new();
    let by_name = BY_NAME.get_or_init(|| all().map(|def| (def.name, def)).collect());
    by_name.get(name).copied()
}

/// All ops.
pub fn all() -> impl Iterator<Item = &'static OpDef> {
    FAMILIES.iter().flat_map(|family| family.iter())
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
