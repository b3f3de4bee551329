//! The batching of versions that serve, looked at again while they serve.

mod watch;

pub(crate) use watch::{Row, Versions, watch};
