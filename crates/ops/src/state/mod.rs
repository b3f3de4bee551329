//! Variables.

mod assign;
mod gather;
mod handle;
mod scatter;
mod variable;

pub use variable::Variable;

use crate::op::OpDef;

/// The ops of this family.
pub(crate) const OPS: &[OpDef] = &[
    assign::ASSIGN,
    assign::ASSIGN_ADD,
    assign::ASSIGN_SUB,
    gather::GATHER,
    handle::DISABLE_COPY_ON_READ,
    handle::IS_INITIALIZED,
    handle::READ,
    handle::SHAPE,
    handle::VAR_HANDLE,
    scatter::ADD,
    scatter::DIV,
    scatter::GATHER_ND,
    scatter::MAX,
    scatter::MIN,
    scatter::MUL,
    scatter::ND_ADD,
    scatter::ND_MAX,
    scatter::ND_MIN,
    scatter::ND_SUB,
    scatter::ND_UPDATE,
    scatter::SUB,
    scatter::UPDATE,
];

/// The ops of TensorFlow 1 that hand on references. They have no kernels: a graph that uses them is
/// rewritten to handles when it is imported, which is the meaning of its second column.
pub const REF_OPS: &[(&str, &str)] = &[
    ("Variable", "VarHandleOp"),
    ("VariableV2", "VarHandleOp"),
    ("Assign", "AssignVariableOp"),
    ("AssignAdd", "AssignAddVariableOp"),
    ("AssignSub", "AssignSubVariableOp"),
    ("IsVariableInitialized", "VarIsInitializedOp"),
];
