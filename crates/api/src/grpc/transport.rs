//! HTTP/2 below gRPC, and its limits.

use std::time::Duration;

use tonic::transport::Server;
use tower::layer::util::{Identity, Stack};

use super::Grpc;
use super::direct::DirectLayer;

/// The limits of connections. No client can move them.
#[derive(Debug, Clone, Copy)]
pub struct TransportOptions {
    /// The number of calls of one connection that run at once.
    pub streams_max: u32,
    /// The most bytes of a call's headers.
    pub header_bytes_max: u32,
    /// The number of calls that a client cancelled and that may wait to be looked at before the
    /// client is taken for an attack.
    pub resets_max: usize,
    /// The interval of HTTP/2 pings on a silent connection, if there are any: the system's probes
    /// are sent anyway, and cost nothing for a request.
    pub keepalive_interval: Option<Duration>,
    /// The longest time that the answer to a ping may take.
    pub keepalive_timeout: Duration,
    /// The age at which a connection is told to end, if at all.
    pub connection_age: Option<Duration>,
    /// The time that the requests of an ending connection are then given; no limit without it.
    pub connection_age_grace: Option<Duration>,
}

/// Larger frames cost memory, smaller ones time: a connection keeps a frame that is not complete.
const FRAME_BYTES_MAX: u32 = 256 << 10;

impl TransportOptions {
    /// A server of `PredictionService` with these limits, to which other services are to be added.
    pub fn server(&self, face: &Grpc) -> Server<Stack<DirectLayer, Identity>> {
        let mut server = Server::builder()
            .max_frame_size(FRAME_BYTES_MAX)
            .max_concurrent_streams(self.streams_max)
            .http2_max_header_list_size(self.header_bytes_max)
            .http2_max_pending_accept_reset_streams(Some(self.resets_max))
            .http2_keepalive_interval(self.keepalive_interval)
            .http2_keepalive_timeout(Some(self.keepalive_timeout));
        if let Some(age) = self.connection_age {
            server = server.max_connection_age(age);
        }
        if let Some(grace) = self.connection_age_grace {
            server = server.max_connection_age_grace(grace);
        }
        server.layer(DirectLayer::new(face))
    }
}
