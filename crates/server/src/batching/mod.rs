//! How versions that serve are batched, looked at again while they serve.

mod watch;

pub(crate) use watch::{Row, Versions, watch};
