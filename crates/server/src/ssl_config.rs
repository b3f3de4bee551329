//! The file of `--ssl_config_file`: an `SSLConfig` with keys and certificates as PEM text. It is
//! read at the start, and again when it changes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use api::Tls;
use config::Settling;
use config::ssl_config::{pem, read, wrong};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

/// The time between two looks at the file.
const INTERVAL: Duration = Duration::from_secs(1);

/// Keys from a file.
pub(crate) struct SslConfigFile {
    path: PathBuf,
    text: String,
    settling: Settling<String>,
    pub(crate) tls: Tls,
    /// Set if clients have to show a certificate.
    pub(crate) checks_clients: bool,
}

impl SslConfigFile {
    /// Reads the file.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let text = read(path)?;
        let pem = pem(&text, path)?;
        let tls = Tls::new(&pem).map_err(|status| wrong(path, &status.message))?;
        let (path, settling) = (path.to_owned(), Settling::default());
        let checks_clients = pem.client_authorities.is_some();
        Ok(Self { path, text, settling, tls, checks_clients })
    }

    /// Looks at the file again and again until the token is cancelled.
    pub(crate) async fn follow(mut self, token: CancellationToken) {
        let mut interval = tokio::time::interval(INTERVAL);
        while token.run_until_cancelled(interval.tick()).await.is_some() {
            self.look();
        }
    }

    /// Takes the keys of the file if it has changed and has settled: without its last lines it may
    /// be right in itself, and let in whom it should not. Keeps those in use if something is wrong.
    fn look(&mut self) {
        // It may just be being replaced.
        let Ok(text) = read(&self.path) else { return };
        let Some(text) = self.settling.look(text, &self.text) else { return };
        let replaced = pem(&text, &self.path).and_then(|pem| {
            self.tls.replace(&pem).map_err(|status| wrong(&self.path, &status.message))
        });
        match replaced {
            Ok(()) => info!("new keys from {}", self.path.display()),
            Err(error) => error!("the keys in use are kept: {error:#}"),
        }
        self.text = text;
    }
}
