//! Gives out memory: drivers, arenas, growth, limits, logical devices, the ledger, the offset
//! planner and placement. Knows nothing of tensors, ops or models.

pub mod plan;
