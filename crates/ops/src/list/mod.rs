//! Lists of tensors: `TensorList` and `TensorArray`.

mod item;
mod items;
mod join;
mod make;
mod shapes;
mod stack;
mod tensor_array;
mod tensor_list;
mod tensors;

pub use tensor_list::item_shape;
pub(crate) use tensor_list::list_spec;

use crate::op::OpDef;

/// The ops of this family.
pub(crate) const OPS: &[OpDef] = &[
    item::GET,
    item::POP_BACK,
    item::PUSH_BACK,
    item::PUSH_BACK_BATCH,
    item::SET,
    join::CONCAT,
    join::CONCAT_V2,
    join::SPLIT,
    make::CONCAT_LISTS,
    make::ELEMENT_SHAPE,
    make::EMPTY,
    make::LENGTH,
    make::RESERVE,
    make::RESIZE,
    stack::FROM_TENSOR,
    stack::GATHER,
    stack::SCATTER,
    stack::SCATTER_INTO,
    stack::SCATTER_V2,
    stack::STACK,
    tensor_array::ARRAY,
    tensor_array::CLOSE,
    tensor_array::CONCAT,
    tensor_array::GATHER,
    tensor_array::READ,
    tensor_array::SCATTER,
    tensor_array::SIZE,
    tensor_array::SPLIT,
    tensor_array::WRITE,
];
