//! Both faces, served on loopback, in front of an engine of a few lines.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod access;
mod both;
mod codec;
mod frames;
mod golden;
mod grpc;
mod hostile;
mod http;
mod http2;
mod labels;
mod rest;
mod stats;
mod support;
mod tls;
mod trace;
