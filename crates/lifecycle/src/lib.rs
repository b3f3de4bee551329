//! Decides which versions are loaded, and hands out handles to them; generic over what a servable
//! is.
//!
//! The inside is pure: [`Policy`] says what to do next for one model, [`VersionPolicy`] which
//! versions are aspired, and a machine owns all states, takes events with the time, and returns
//! actions. Around it stands one task, started by [`Lifecycle::start`], that looks at the source,
//! runs loads and unloads on bounded pools of threads, and publishes an immutable map. Requests see
//! only that map, through [`Models::get`].
//!
//! ```no_run
//! # async fn serve(options: lifecycle::Options, models: Vec<lifecycle::ModelOptions>) {
//! use lifecycle::{Attempt, Folders, Lifecycle, LoadError, Loader, Target};
//! use tokio_util::sync::CancellationToken;
//!
//! struct Names;
//!
//! impl Loader for Names {
//!     type Servable = String;
//!
//!     fn load(
//!         &self,
//!         model: &str,
//!         version: i64,
//!         _path: &str,
//!         _attempt: &Attempt,
//!     ) -> Result<String, LoadError> {
//!         Ok(format!("{model} {version}"))
//!     }
//! }
//!
//! let token = CancellationToken::new();
//! let lifecycle = Lifecycle::start(options, Folders, Names, token.clone());
//! lifecycle.set_config(models).await.expect("all models are available");
//! let handle = lifecycle.models().get(&Target::latest("m")).expect("m is available");
//! assert_eq!(*handle, format!("m {}", handle.version()));
//! drop(handle);
//! token.cancel();
//! lifecycle.stopped().await;
//! # }
//! ```
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

pub use error::{Absence, Error, LoadError, Unavailable};
pub use folders::{Folders, children, tree};
pub use handle::{Handle, Id};
pub use look::{Source, Tree};
pub use models::{Choice, ModelSnapshot, Models, Target};
pub use options::{LabelRule, Missing, ModelOptions, Options, Poll, RetryRule, StartWhen};
pub use policy::Policy;
pub use shell::{Applied, Attempt, Lifecycle, Loader};
pub use state::{Retried, State, VersionStatus};
pub use versions::{Child, VersionPolicy};
