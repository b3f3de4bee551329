//! Models on our own executor, from outside, in one program. `allocations` stands apart, for it has
//! an allocator of its own.

mod ahead;
mod headway;
mod homes;
mod needs;
mod rows;
mod state;
mod unfit;
