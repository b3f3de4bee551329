//! The loop that answers what comes over connections.
//!
//! While it drains, each answer says `Connection: close`, so that no client sends another request
//! on a connection that is about to be closed. A connection on which nothing is asked is closed
//! after a while, and not at once: a request may be on its way, and HTTP/1.1 cannot take it back.

mod drained;
mod turn;

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;

use http::header::CONNECTION;
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_stream::Stream;
use tokio_util::sync::CancellationToken;
use tonic::transport::server::Connected;

use super::{Reply, Rest};
use crate::budget::held_with;
use crate::listen::{ConnectInfo, Drain, OpenCall};
use drained::DrainedBody;
pub(crate) use turn::Turns;

/// Answers connections until the token is cancelled; then drains those that are open, and those
/// that were on their way.
pub async fn serve<C>(
    connections: impl Stream<Item = io::Result<C>> + Unpin,
    rest: Rest,
    token: CancellationToken,
) where
    C: AsyncRead + AsyncWrite + Connected<ConnectInfo = ConnectInfo> + Send + Unpin + 'static,
{
    let drain = Drain::new(token, rest.shared.options.linger);
    let server = Arc::new(Server::new(rest, drain.clone()));
    drain.serve(connections, |connection| Arc::clone(&server).answer(connection)).await;
}

/// The most bytes of a head, and of a body that is read at once.
pub(crate) const HEAD_BYTES_MAX: usize = 64 << 10;

/// The most headers of a request.
pub(crate) const HEADERS_MAX: usize = 100;

/// An answer whose call is open until the answer is sent.
pub(crate) async fn held(reply: Reply, open: Arc<OpenCall>) -> Reply {
    // Also a call that is answered before all of it has come.
    open.has_come();
    let (head, body) = reply.into_parts();
    let Ok(body) = body.collect().await;
    Response::from_parts(head, Full::new(held_with(body.to_bytes(), open)))
}

/// State that all connections share.
struct Server {
    builder: http1::Builder,
    rest: Rest,
    drain: Drain,
}

impl Server {
    fn new(rest: Rest, drain: Drain) -> Self {
        let mut builder = http1::Builder::new();
        let timeout = rest.shared.options.header_timeout;
        builder.timer(TokioTimer::new()).header_read_timeout(timeout).keep_alive(true);
        builder
            .max_buf_size(HEAD_BYTES_MAX)
            .max_header_size(HEAD_BYTES_MAX)
            .max_headers(HEADERS_MAX);
        Self { builder, rest, drain }
    }

    /// Answers all requests of a connection.
    async fn answer<C>(self: Arc<Self>, connection: C)
    where
        C: AsyncRead + AsyncWrite + Connected<ConnectInfo = ConnectInfo> + Send + Unpin + 'static,
    {
        let ConnectInfo { peer, client } = connection.connect_info();
        let service = service_fn(|mut request: Request<Incoming>| {
            let (rest, drain) = (self.rest.clone(), self.drain.token.clone());
            let open = client.open();
            request.extensions_mut().insert(Arc::clone(&open));
            async move {
                let request = request.map(DrainedBody::new);
                let mut reply = held(rest.respond(request, peer).await, open).await;
                if drain.is_cancelled() {
                    reply.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
                Ok::<_, Infallible>(reply)
            }
        });
        let (connection, turns) = Turns::watch(connection);
        let connection = self.builder.serve_connection(TokioIo::new(connection), service);
        let mut connection = pin!(connection);
        let ended = tokio::select! {
            biased;
            ended = connection.as_mut() => ended,
            () = self.drain.lingered.cancelled() => {
                // A request that has begun to come is answered, and its answer is the last.
                if !turns.is_servers() {
                    connection.as_mut().graceful_shutdown();
                }
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!("a REST connection ended: {error}");
        }
    }
}
