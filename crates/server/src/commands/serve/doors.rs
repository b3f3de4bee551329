//! What both faces need, and how they take connections.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use api::{ListenOptions, Protocol, Tls};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::PATIENCE;
use crate::config::Config;
use crate::control::Control;
use crate::devices::Devices;
use crate::external::External;
use crate::flags::Flags;
use crate::metrics::Counters;
use crate::monitoring;
use crate::ssl_config::SslConfigFile;

/// The most connections of a face at once.
const CONNECTIONS_MAX: usize = 10_000;

/// How long to wait after a connection could not be taken.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What both faces need.
pub(super) struct Doors<'a> {
    pub(super) config: &'a Config,
    pub(super) flags: &'a Flags,
    pub(super) counters: &'a Counters,
    pub(super) control: Arc<Control>,
    pub(super) devices: Arc<Devices>,
    pub(super) external: Arc<External>,
    /// Where the metrics are shown besides `/metrics`.
    pub(super) metrics_path: Option<String>,
    pub(super) tls: Option<Tls>,
    pub(super) tasks: &'a TaskTracker,
    pub(super) token: &'a CancellationToken,
}

impl Doors<'_> {
    /// Changes what is served for those at the data ports, if they may.
    pub(super) fn control(&self) -> Option<Arc<dyn api::Control>> {
        let is_elsewhere = self.config.management_address.is_some();
        (!is_elsewhere).then(|| Arc::clone(&self.control) as Arc<dyn api::Control>)
    }

    /// How a face takes connections.
    pub(super) fn listening(&self, protocol: Protocol) -> ListenOptions {
        ListenOptions {
            tls: self.tls.clone(),
            protocol,
            connections_max: CONNECTIONS_MAX,
            handshake_timeout: PATIENCE,
            write_timeout: PATIENCE,
            accept_pause: ACCEPT_PAUSE,
        }
    }
}

/// What the files say that the flags name.
pub(super) struct Files {
    pub(super) ssl: Option<SslConfigFile>,
    pub(super) metrics_path: Option<String>,
}

impl Files {
    /// Reads the files.
    pub(super) fn read(flags: &Flags) -> Result<Self> {
        let ssl = &flags.ssl_config_file;
        let ssl = (!ssl.is_empty()).then(|| SslConfigFile::open(Path::new(ssl))).transpose()?;
        let monitoring = &flags.monitoring_config_file;
        let metrics_path = match monitoring.is_empty() {
            true => None,
            false => monitoring::read(Path::new(monitoring))?,
        };
        Ok(Self { ssl, metrics_path })
    }

    /// The keys, which follow their file until the token is cancelled.
    pub(super) fn keys(ssl: Option<SslConfigFile>, token: &CancellationToken) -> Option<Tls> {
        ssl.map(|file| {
            let tls = file.tls.clone();
            tokio::spawn(file.follow(token.clone()));
            tls
        })
    }
}
