//! Code for the widest vectors that the machine has, picked when it runs.
//!
//! The only folder of this crate with `unsafe` in it.
#![allow(unsafe_code, reason = "instructions that are checked for when the program runs")]

mod widest;

pub(crate) use widest::{Loop, widest};
