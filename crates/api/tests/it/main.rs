//! Both faces, served on loopback, in front of an engine of a few lines.
#![forbid(unsafe_code)]

mod golden;
mod grpc;
mod hostile;
mod http;
mod rest;
mod stats;
mod support;
