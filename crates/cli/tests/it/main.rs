//! The whole program, from outside: processes, sockets, real clients.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::print_stdout,
    reason = "tests read the environment and say what they saw"
)]

mod announced;
mod batching;
mod book;
mod checks;
mod clients;
mod command_line;
mod control;
mod dashboard;
mod doors;
mod endless;
mod engine;
mod first_screen;
mod golden;
mod growth;
mod homes;
mod hostile;
mod inspect;
mod keys;
mod management;
mod measuring;
mod memory;
mod memory_books;
mod memory_context;
mod memory_faults;
mod memory_hostile;
mod memory_knobs;
mod memory_live;
mod memory_reserve;
mod mistakes;
mod names;
mod page;
mod placement;
mod predict;
mod real;
mod refusal;
mod remote;
mod requirements;
mod rows;
mod schema;
mod serving;
mod shutdown;
mod support;
mod tensorflow;
mod versions;
mod zoo;
