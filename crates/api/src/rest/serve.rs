//! The loop that answers what comes over connections.

use std::convert::Infallible;
use std::io;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_stream::{Stream, StreamExt as _};
use tokio_util::sync::CancellationToken;

use super::Rest;

/// Answers connections until the token is cancelled, and then those that are open until each has
/// nothing more in flight.
pub async fn serve<C>(
    mut connections: impl Stream<Item = io::Result<C>> + Unpin,
    rest: Rest,
    token: CancellationToken,
) where
    C: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let mut builder = http1::Builder::new();
    let timeout = rest.shared.options.header_timeout;
    builder.timer(TokioTimer::new()).header_read_timeout(timeout).keep_alive(true);
    let graceful = GracefulShutdown::new();
    while let Some(Some(taken)) = token.run_until_cancelled(connections.next()).await {
        let Ok(connection) = taken else { continue };
        let rest = rest.clone();
        let service = service_fn(move |request| {
            let rest = rest.clone();
            async move { Ok::<_, Infallible>(rest.respond(request).await) }
        });
        let connection = builder.serve_connection(TokioIo::new(connection), service);
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!("a REST connection ended: {error}");
            }
        });
    }
    drop(connections);
    graceful.shutdown().await;
}
