//! The op suite and what else is shown of ops from outside, in one program: each program costs the
//! time of a link. `booked` and `steady` stand apart, for each has an allocator of its own.

mod company;
mod dtypes;
mod edges;
mod fused;
mod hostile;
mod listed;
mod partial;
mod random;
mod required;
mod suite;
mod symbols;
