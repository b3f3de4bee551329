//! Owns the lanes of every device and picks what runs next. It knows nothing of models or the wire.
#![forbid(unsafe_code)]

mod lanes;

pub use lanes::{Job, Lanes, Options, QueueFull};
