//! Ops that move elements without computing on them.

mod bitcast;
mod bounds;
mod checks;
mod concat;
mod constant;
mod data_format;
mod diag;
mod dynamic;
mod edit_distance;
mod fill;
pub(crate) mod gather;
pub(crate) mod gather_nd;
mod identity;
mod inplace;
mod list_diff;
mod matrix_diag;
pub(crate) mod nd;
mod one_hot;
mod pack;
mod pad;
mod patches;
mod permutation;
mod placeholder;
mod reshape;
mod reverse;
pub(crate) mod scatter_nd;
mod shape;
mod slice;
mod space_batch;
mod space_depth;
mod split;
mod squeeze;
mod strided_slice;
mod tables;
mod tile;
mod transpose;
mod unique;
mod where_true;
mod wrap_indices;

use crate::op::OpDef;
pub(crate) use shape::write_sizes;

/// The ops of this family.
pub(crate) const OPS: &[OpDef] = &[
    bitcast::BITCAST,
    bounds::LOWER,
    bounds::UPPER,
    checks::ASSERT,
    checks::ENSURE_SHAPE,
    checks::PRINT,
    checks::PRINT_V2,
    concat::CONCAT,
    concat::CONCAT_OFFSET,
    concat::CONCAT_V2,
    constant::CONST,
    constant::HOST_CONST,
    data_format::DIM_MAP,
    data_format::VEC_PERMUTE,
    diag::DIAG,
    diag::DIAG_PART,
    dynamic::PARALLEL_STITCH,
    dynamic::PARTITION,
    dynamic::STITCH,
    edit_distance::EDIT_DISTANCE,
    fill::EMPTY,
    fill::FAKE_PARAM,
    fill::FILL,
    gather::GATHER,
    gather::GATHER_V2,
    gather_nd::GATHER_ND,
    identity::GUARANTEE_CONST,
    identity::IDENTITY,
    identity::IDENTITY_N,
    identity::NO_OP,
    identity::PREVENT_GRADIENT,
    identity::SNAPSHOT,
    identity::STOP_GRADIENT,
    inplace::ADD,
    inplace::SUB,
    inplace::UPDATE,
    list_diff::LIST_DIFF,
    matrix_diag::BAND_PART,
    matrix_diag::DIAG,
    matrix_diag::DIAG_V2,
    matrix_diag::DIAG_V3,
    matrix_diag::PART,
    matrix_diag::PART_V2,
    matrix_diag::PART_V3,
    matrix_diag::SET,
    matrix_diag::SET_V2,
    matrix_diag::SET_V3,
    one_hot::ONE_HOT,
    pack::PACK,
    pack::UNPACK,
    pad::MIRROR_PAD,
    pad::PAD,
    pad::PAD_V2,
    patches::EXTRACT,
    permutation::INVERT,
    permutation::UNRAVEL,
    placeholder::PLACEHOLDER,
    placeholder::PLACEHOLDER_V2,
    placeholder::PLACEHOLDER_WITH_DEFAULT,
    reshape::RESHAPE,
    reverse::REVERSE,
    reverse::REVERSE_SEQUENCE,
    reverse::REVERSE_V2,
    reverse::ROLL,
    scatter_nd::ADD,
    scatter_nd::MAX,
    scatter_nd::MIN,
    scatter_nd::SCATTER_ND,
    scatter_nd::SUB,
    scatter_nd::UPDATE,
    shape::RANK,
    shape::SHAPE,
    shape::SHAPE_N,
    shape::SIZE,
    slice::SLICE,
    space_batch::BATCH_TO_SPACE,
    space_batch::BATCH_TO_SPACE_ND,
    space_batch::SPACE_TO_BATCH,
    space_batch::SPACE_TO_BATCH_ND,
    space_depth::DEPTH_TO_SPACE,
    space_depth::SPACE_TO_DEPTH,
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
    wrap_indices::DEF,
];
