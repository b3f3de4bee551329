//! The commands that need the parts of a server: to serve, and to show its devices.

pub(crate) mod devices;
pub(crate) mod serve;
