//! The whole program, from outside: processes, sockets, real clients.
#![allow(clippy::disallowed_methods, reason = "tests read the environment")]

mod clients;
mod golden;
mod inspect;
mod serving;
mod support;
