//! Fakes and fixtures for tests: op cases, tiny models, a running server.
#![forbid(unsafe_code)]
#![allow(
    clippy::wildcard_enum_match_arm,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::unwrap_used,
    reason = "test code: literals are cast to the dtype they are written for"
)]

pub mod opcases;
pub mod sets;
pub mod tight;
pub mod zoo;
