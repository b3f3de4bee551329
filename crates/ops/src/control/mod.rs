//! Ops that call functions: loops, conditionals, calls.

mod branch;
mod call;
mod join;
mod memory;
mod ready;
mod repeat;

pub use join::join;

use crate::op::OpDef;

/// The ops of this family.
pub(crate) const OPS: &[OpDef] = &[
    branch::CASE,
    branch::IF,
    branch::STATELESS_CASE,
    branch::STATELESS_IF,
    call::BATCH_FUNCTION,
    call::CALL,
    call::STATEFUL_CALL,
    repeat::STATELESS_WHILE,
    repeat::WHILE,
];

#[cfg(test)]
mod tests;
