//! Decides which versions are loaded, and hands out handles to them; generic over what a servable
//! is.
//!
//! The inside is pure: [`Policy`] says what to do next for one model, [`VersionPolicy`] which
//! versions are aspired, and a machine owns all states, takes events with the time, and returns
//! actions. Around it stands one task, started by [`Lifecycle::start`], that looks at the source,
//! runs loads and unloads on bounded pools of threads, and publishes an immutable map. Requests see
//! only that map, through [`Models::get`].
#![forbid(unsafe_code)]

mod error;
mod folders;
mod handle;
mod labels;
mod look;
mod machine;
mod models;
mod options;
mod policy;
mod shell;
mod state;
mod versions;

pub use error::{Code, Error, LoadError, Unavailable};
pub use folders::Folders;
pub use handle::{Handle, Id};
pub use look::{Source, Tree};
pub use models::{Choice, ModelSnapshot, Models, Target};
pub use options::{LabelRule, ModelOptions, Options, Poll, StartWhen};
pub use policy::Policy;
pub use shell::{Applied, Lifecycle, Loader};
pub use state::{State, VersionStatus};
pub use versions::{Child, VersionPolicy};
