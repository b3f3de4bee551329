//! HTTP/2 below gRPC, and its limits.

use std::time::Duration;

use tonic::transport::Server;
use tower::layer::util::{Identity, Stack};

use super::Grpc;
use super::direct::DirectLayer;

/// The limits of connections. No client can move them.
#[derive(Debug, Clone, Copy)]
pub struct TransportOptions {
    /// How many calls of one connection run at once.
    pub streams_max: u32,
    /// The most bytes of a call's headers.
    pub header_bytes_max: u32,
    /// How many calls that a client took back may wait to be looked at before the client is taken
    /// for an attack.
    pub resets_max: usize,
    /// How often a silent connection is asked in HTTP/2 whether it is still there, if at all: the
    /// system asks anyway, and for every request that costs nothing.
    pub keepalive_interval: Option<Duration>,
    /// How long it may take to say so.
    pub keepalive_timeout: Duration,
    /// When a connection is told to end, if at all.
    pub connection_age: Option<Duration>,
    /// How long its requests are then given; for ever without it.
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
