//! Where log lines go: to standard error, as text.

use tracing_subscriber::EnvFilter;

/// Starts logging. `TENSORD_LOG` chooses what is logged, `info` if it is not set.
pub(crate) fn start() {
    let filter = EnvFilter::try_from_env("TENSORD_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let subscriber =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).finish();
    // Only a second start could fail, and there is none.
    drop(tracing::subscriber::set_global_default(subscriber));
}
