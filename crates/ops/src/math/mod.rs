//! Arithmetic: element by element, reductions, segments.
#![allow(
    clippy::type_complexity,
    clippy::unnecessary_cast,
    clippy::useless_conversion,
    reason = "one text is compiled for many types, and for some of them it converts nothing; \
              a kernel's type says what it reads and writes"
)]

pub(crate) mod approx;
mod arg;
mod bias_add;
mod binary;
mod broadcast;
mod cast;
mod expand;
mod like;
mod map;
mod reduce;
mod segment;
mod select;
mod special;
mod strings;
mod table;
mod unary;
mod zip;

use crate::op::OpDef;

/// The ops of this family.
pub(crate) const OPS: &[OpDef] = &joined::<{ count() }>();

/// The tables of this family.
const TABLES: &[&[OpDef]] = &[unary::OPS, binary::OPS, reduce::OPS, segment::OPS, SINGLE];

/// The ops with a file of their own.
const SINGLE: &[OpDef] = &[
    arg::ARG_MAX,
    arg::ARG_MIN,
    bias_add::BIAS_ADD,
    bias_add::BIAS_ADD_V1,
    cast::DEF,
    like::ONES_LIKE,
    like::ZEROS_LIKE,
    select::SELECT,
    select::SELECT_V2,
];

const fn count() -> usize {
    let (mut count, mut i) = (0, 0);
    while i < TABLES.len() {
        count += TABLES[i].len();
        i += 1;
    }
    count
}

/// All tables as one.
const fn joined<const N: usize>() -> [OpDef; N] {
    let mut all = [TABLES[0][0]; N];
    let (mut table, mut row, mut at) = (0, 0, 0);
    while at < N {
        if row == TABLES[table].len() {
            (table, row) = (table + 1, 0);
        } else {
            all[at] = TABLES[table][row];
            (row, at) = (row + 1, at + 1);
        }
    }
    all
}
