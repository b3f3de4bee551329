//! Names that every op file uses.

pub(crate) use device::{Booked, BookedVec};
pub(crate) use tensor::{DType, Dim, Element, Shape, Spec, Strings, Tensor, View, ViewMut};

pub(crate) use crate::attrs::Attrs;
pub(crate) use crate::cancel::{AT_ONCE, is_stopped, pace, paced};
pub(crate) use crate::ctx::Ctx;
pub(crate) use crate::dispatch::{for_float, for_integer, for_number, for_width};
pub(crate) use crate::error::{Error, Result, invalid};
pub(crate) use crate::facts::RowRule;
pub(crate) use crate::infer::{
    Require, arity, arity_at_least, broadcast, broadcast_shapes, normalise_axis,
};
pub(crate) use crate::moves::{Move, rearrange};
pub(crate) use crate::op::{Kind, Op, OpDef};
pub(crate) use crate::pieces::in_pieces;
pub(crate) use crate::scratch::{Part, Scratch};
pub(crate) use crate::sizes::{
    Dims, Ints, booked_i64, dims_of_attr, int, int_at, ints, known_int, known_ints, merge_dim,
    merge_dims, size, sizes_of, spec_of, spec_of_rank, with_sizes,
};
pub(crate) use crate::walk::{Gather, Walk};
