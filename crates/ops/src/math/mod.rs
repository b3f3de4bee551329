//! Arithmetic: element by element, reductions, segments.
#![allow(
    clippy::type_complexity,
    clippy::unnecessary_cast,
    clippy::useless_conversion,
    reason = "one text is compiled for many types, and for some of them it converts nothing; \
              a kernel's type says what it reads and writes"
)]

mod add_n;
mod approximate_equal;
mod arg;
mod bessel;
mod betainc;
mod bias_add;
mod binary;
mod bincount;
mod broadcast;
mod bucketize;
mod cast;
mod check_numerics;
mod clip;
mod complex;
mod cross;
mod cumulative;
mod expand;
mod gamma;
mod histogram;
mod l2_loss;
mod leaky_relu;
mod like;
mod log_softmax;
mod map;
mod merge;
mod nth_element;
mod plane;
mod population_count;
mod pow;
mod quant;
mod range;
mod reduce;
pub(crate) mod rows;
mod segment;
mod select;
mod special;
mod strings;
mod table;
mod top_k;
mod unary;
mod zip;

use crate::op::OpDef;

/// The ops of this family.
pub(crate) const OPS: &[OpDef] = &joined::<{ count() }>();

/// The tables of this family.
const TABLES: &[&[OpDef]] =
    &[unary::OPS, binary::OPS, reduce::OPS, segment::OPS, quant::OPS, SINGLE];

/// The ops with a file of their own.
const SINGLE: &[OpDef] = &[
    add_n::DEF,
    approximate_equal::DEF,
    arg::ARG_MAX,
    arg::ARG_MIN,
    betainc::DEF,
    bias_add::BIAS_ADD,
    bias_add::BIAS_ADD_V1,
    bincount::BINCOUNT,
    bincount::DENSE_BINCOUNT,
    bucketize::DEF,
    cast::DEF,
    check_numerics::CHECK_NUMERICS,
    check_numerics::CHECK_NUMERICS_V2,
    clip::DEF,
    complex::ANGLE,
    complex::COMPLEX,
    complex::COMPLEX_ABS,
    complex::IMAG,
    complex::REAL,
    cross::DEF,
    cumulative::CUMPROD,
    cumulative::CUMSUM,
    cumulative::CUMULATIVE_LOGSUMEXP,
    histogram::DEF,
    l2_loss::DEF,
    leaky_relu::DEF,
    like::ONES_LIKE,
    like::ZEROS_LIKE,
    log_softmax::CROSS_ENTROPY,
    log_softmax::LOG_SOFTMAX,
    log_softmax::SPARSE_CROSS_ENTROPY,
    nth_element::DEF,
    population_count::DEF,
    pow::DEF,
    range::LIN_SPACE,
    range::RANGE,
    select::SELECT,
    select::SELECT_V2,
    top_k::IN_TOP_K,
    top_k::IN_TOP_K_V2,
    top_k::TOP_K,
    top_k::TOP_K_V2,
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
