//! The writer of log lines: to standard error, as text or as JSON.

use std::io::IsTerminal as _;

use config::flags::LogFormat;
use tracing_subscriber::EnvFilter;

use banner::Screen;

/// Starts logging. `TENSORD_LOG` chooses what is logged, `info` if it is not set.
pub fn start(format: LogFormat) {
    let filter = EnvFilter::try_from_env("TENSORD_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let is_terminal = std::io::stderr().is_terminal();
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(is_terminal)
        .with_writer(|| Screen);
    // Only a second start could fail, and there is none.
    drop(match format {
        LogFormat::Text => tracing::subscriber::set_global_default(builder.finish()),
        LogFormat::Json => tracing::subscriber::set_global_default(builder.json().finish()),
    });
}
