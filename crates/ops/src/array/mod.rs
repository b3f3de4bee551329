//! Ops that move elements without computing on them.

mod concat;
mod constant;
mod fill;
pub(crate) mod gather;
mod identity;
mod pack;
mod placeholder;
mod reshape;
mod shape;
mod slice;
mod split;
mod squeeze;
mod strided_slice;
mod tile;
mod transpose;
mod unique;
mod where_true;

use crate::op::OpDef;
pub(crate) use shape::write_sizes;

/// The ops of this family.
pub(crate) const OPS: &[OpDef] = &[
    concat::CONCAT,
    concat::CONCAT_OFFSET,
    concat::CONCAT_V2,
    constant::CONST,
    constant::HOST_CONST,
    fill::EMPTY,
    fill::FILL,
    gather::GATHER,
    gather::GATHER_V2,
    identity::IDENTITY,
    identity::IDENTITY_N,
    identity::NO_OP,
    identity::PREVENT_GRADIENT,
    identity::SNAPSHOT,
    identity::STOP_GRADIENT,
    pack::PACK,
    pack::UNPACK,
    placeholder::PLACEHOLDER,
    placeholder::PLACEHOLDER_V2,
    placeholder::PLACEHOLDER_WITH_DEFAULT,
    reshape::RESHAPE,
    shape::RANK,
    shape::SHAPE,
    shape::SHAPE_N,
    shape::SIZE,
    slice::SLICE,
    split::SPLIT,
    split::SPLIT_V,
    squeeze::EXPAND_DIMS,
    squeeze::SQUEEZE,
    strided_slice::STRIDED_SLICE,
    strided_slice::TENSOR_STRIDED_SLICE_UPDATE,
    tile::BROADCAST_ARGS,
    tile::BROADCAST_TO,
    tile::TILE,
    transpose::CONJUGATE_TRANSPOSE,
    transpose::TRANSPOSE,
    unique::UNIQUE,
    unique::UNIQUE_V2,
    unique::UNIQUE_WITH_COUNTS,
    unique::UNIQUE_WITH_COUNTS_V2,
    where_true::WHERE,
];
