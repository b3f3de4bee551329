//! The loop that takes connections and answers what comes over them.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::Rest;
use super::patient::Patient;

/// Limits of connections.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionOptions {
    /// How long a client may take to send the head of a request.
    pub header_timeout: Duration,
    /// How long a client may take no byte of an answer.
    pub write_timeout: Duration,
    /// The most connections at once; further ones wait.
    pub connections_max: usize,
    /// How long to wait after a connection could not be taken, for want of file descriptors say.
    pub accept_pause: Duration,
}

/// Answers connections until the token is cancelled, and then those that are open until each has
/// nothing more in flight.
pub async fn serve(
    listener: TcpListener,
    rest: Rest,
    options: ConnectionOptions,
    token: CancellationToken,
) {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(options.header_timeout).keep_alive(true);
    let graceful = GracefulShutdown::new();
    let slots = Arc::new(Semaphore::new(options.connections_max));
    let mut stop = pin!(token.cancelled());
    loop {
        let taken = async {
            let slot = Arc::clone(&slots).acquire_owned().await;
            (slot.expect("nobody closes the semaphore"), listener.accept().await)
        };
        let (slot, accepted) = tokio::select! {
            taken = taken => taken,
            () = &mut stop => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!("a REST connection was not taken: {error}");
                tokio::time::sleep(options.accept_pause).await;
                continue;
            }
        };
        // Answers are small and written at once: they should not wait for more.
        drop(stream.set_nodelay(true));
        let stream = Patient::new(stream, options.write_timeout);
        let rest = rest.clone();
        let service = service_fn(move |request| {
            let rest = rest.clone();
            async move { Ok::<_, Infallible>(rest.respond(request).await) }
        });
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!("a REST connection ended: {error}");
            }
            drop(slot);
        });
    }
    drop(listener);
    graceful.shutdown().await;
}
