//! The locks and counters that threads share. In tests every use of one is a point at which a
//! model checker may let another thread run.

#[cfg(test)]
mod modelled;

#[cfg(test)]
pub(crate) use modelled::{AtomicU64, Mutex};
#[cfg(not(test))]
pub(crate) use parking_lot::Mutex;
#[cfg(not(test))]
pub(crate) use std::sync::atomic::AtomicU64;

#[cfg(test)]
mod tests;
