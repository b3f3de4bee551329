//! The settings of both faces, and of how they take connections.

use std::fs::Metadata;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use api::{Access, ArrivalLimits, Door, ListenOptions, Protocol, Tls};
use banner::{Guards, Samples};
use config::{Config, DataPort, Flags, Management, monitoring};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::PATIENCE;
use crate::api_keys::ApiKeysFile;
use crate::control::Control;
use crate::devices::Devices;
use crate::external::External;
use crate::metrics::Counters;
use crate::ssl_config::SslConfigFile;

/// The time to wait after a connection could not be taken.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The settings of both faces.
pub(super) struct Doors<'a> {
    pub(super) config: &'a Config,
    pub(super) flags: &'a Flags,
    pub(super) counters: &'a Counters,
    pub(super) control: Arc<Control>,
    pub(super) devices: Arc<Devices>,
    pub(super) external: Arc<External>,
    /// The path at which the metrics are shown besides `/metrics`.
    pub(super) metrics_path: Option<String>,
    /// The proofs that callers have to show.
    pub(super) guards: Guards,
    /// The files of sample input.
    pub(super) samples: Arc<Samples>,
    pub(super) tls: Option<Tls>,
    pub(super) tasks: &'a TaskTracker,
    pub(super) token: &'a CancellationToken,
}

impl Doors<'_> {
    /// Changes what is served.
    pub(super) fn control(&self) -> Arc<dyn api::Control> {
        Arc::clone(&self.control) as _
    }

    /// Replaces the list of models for those at the data ports, if they may.
    pub(super) fn reload(&self) -> Option<Arc<dyn api::Control>> {
        (self.config.management.data_port != DataPort::None).then(|| self.control())
    }

    /// The calls that REST's data port takes, if the server can be changed at `managed` too.
    pub(super) fn data_door(&self, managed: Option<&str>) -> Door {
        let Management { data_port, hosts, .. } = &self.config.management;
        let has_keys = self.counters.requests.access.is_some();
        match data_port {
            DataPort::All => return Door::Open(hosts.clone()),
            DataPort::Reload if has_keys => return Door::Open(hosts.clone()),
            DataPort::Reload | DataPort::None => {}
        }
        Door::Closed(match managed {
            Some(address) => format!(
                "calls that change the server are taken at {address}, and here only with \
                 --management_on_data_port or with an API key"
            ),
            None => "this server takes no calls that change it: start it with \
                     --management_address=HOST:PORT, --management_on_data_port or --api_keys_file"
                .to_owned(),
        })
    }

    /// The limits on how slowly a request may come.
    pub(super) fn arrival(&self) -> ArrivalLimits {
        let seconds = self.flags.request_body_seconds;
        ArrivalLimits {
            idle_max: PATIENCE,
            total_max: (seconds > 0).then(|| Duration::from_secs(seconds)),
            bytes_per_second_min: self.flags.request_bytes_per_second_min,
        }
    }

    /// The text that tells a client where to go that speaks the other protocol at a port of this
    /// one.
    fn elsewhere(&self, protocol: Protocol) -> String {
        let Config { grpc_port, rest_port, .. } = self.config;
        match (protocol, grpc_port, rest_port) {
            (Protocol::Http1, Some(port), _) => {
                format!("this is the REST port, and the call is gRPC: that is at port {port}")
            }
            (Protocol::Http1, None, _) => "this is the REST port, and the call is gRPC: start the \
                                           server with --port=PORT for that"
                .to_owned(),
            (Protocol::Http2, _, Some(port)) => {
                format!("this is the gRPC port, and the request is HTTP/1: REST is at port {port}")
            }
            (Protocol::Http2, _, None) => "this is the gRPC port, and the request is HTTP/1: \
                                           start the server with --rest_api_port=PORT for REST"
                .to_owned(),
            (Protocol::Either, ..) => String::new(),
        }
    }

    /// The settings by which a face takes connections.
    pub(super) fn listening(&self, protocol: Protocol) -> ListenOptions {
        ListenOptions {
            tls: self.tls.clone(),
            protocol,
            elsewhere: self.elsewhere(protocol).into(),
            connections_max: self.flags.max_connections.get(),
            handshake_timeout: PATIENCE,
            write_timeout: PATIENCE,
            accept_pause: ACCEPT_PAUSE,
        }
    }
}

/// Removes a UNIX socket that an earlier server left behind, and nothing else that has its name.
pub(super) fn clear(socket: &Path) {
    let is_socket = |metadata: &Metadata| metadata.file_type().is_socket();
    if std::fs::symlink_metadata(socket).is_ok_and(|metadata| is_socket(&metadata)) {
        // Whether that worked, binding says.
        drop(std::fs::remove_file(socket));
    }
}

/// The content of the files that the flags name.
pub(crate) struct Files {
    pub(super) ssl: Option<SslConfigFile>,
    pub(super) api_keys: Option<ApiKeysFile>,
    pub(super) metrics_path: Option<String>,
    /// The proofs that callers have to show, as the files say.
    pub(super) guards: Guards,
}

impl Files {
    /// Reads the files.
    pub(crate) fn read(flags: &Flags) -> Result<Self> {
        let ssl = &flags.ssl_config_file;
        let ssl = (!ssl.is_empty()).then(|| SslConfigFile::open(Path::new(ssl))).transpose()?;
        let monitoring = &flags.monitoring_config_file;
        let metrics_path = match monitoring.is_empty() {
            true => None,
            false => monitoring::read(Path::new(monitoring))?,
        };
        let keys = &flags.api_keys_file;
        let api_keys =
            (!keys.is_empty()).then(|| ApiKeysFile::open(Path::new(keys))).transpose()?;
        let guards = Guards {
            has_tls: ssl.is_some(),
            checks_clients: ssl.as_ref().is_some_and(|file| file.checks_clients),
            has_keys: api_keys.is_some(),
        };
        Ok(Self { ssl, api_keys, metrics_path, guards })
    }

    /// The keys of those who ask, which follow their file until the token is cancelled.
    pub(super) fn access(
        file: Option<ApiKeysFile>,
        token: &CancellationToken,
    ) -> Option<Arc<Access>> {
        file.map(|file| {
            let access = Arc::clone(&file.access);
            tokio::spawn(file.follow(token.clone()));
            access
        })
    }

    /// The keys of TLS, which follow their file until the token is cancelled.
    pub(super) fn keys(ssl: Option<SslConfigFile>, token: &CancellationToken) -> Option<Tls> {
        ssl.map(|file| {
            let tls = file.tls.clone();
            tokio::spawn(file.follow(token.clone()));
            tls
        })
    }
}
