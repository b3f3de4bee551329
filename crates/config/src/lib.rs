//! Flags and config files → one validated [`Config`], and the settings of models and devices.
//!
//! It knows the `Options` of the crates that it configures, and nothing of how they are put
//! together. It reads the files that flags name, and the environment for those below it.
#![forbid(unsafe_code)]
#![allow(
    clippy::wildcard_enum_match_arm,
    clippy::disallowed_methods,
    reason = "this crate reads the environment for others; messages have many kinds"
)]

pub mod api_keys;
pub mod batching;
mod blank;
pub mod channel_arguments;
mod config;
pub mod control;
mod defaults;
pub mod devices;
mod discover;
pub mod engines;
pub mod flags;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod misplaced;
pub mod model_config;
pub mod monitoring;
mod persona;
mod request_log;
mod settle;
pub mod ssl_config;

pub use config::{
    Address, Config, DataPort, FORCE_GROWTH, Management, ModelConfigFile, Session, Warmup,
    session_config,
};
pub use defaults::{PLANS_MAX, n_cpus, split_tags};
pub use discover::{is_saved_model, open_model};
pub use flags::Flags;
pub use misplaced::remedy as misplaced_remedy;
pub use persona::Persona;
pub use settle::Settling;
