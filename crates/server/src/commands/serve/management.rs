//! The address for those who change what is served, apart from the data port: gRPC's `ModelService`
//! and the REST face, on one listener.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use api::{Control, Local, Rest};
use http::header::CONTENT_TYPE;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::service::Routes;
use tower::Service as _;
use tracing::{debug, info, warn};

use super::{Doors, grpc, rest};
use crate::channel_arguments::ChannelArguments;
use crate::config::Address;

/// How long a client may take for the head of a request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);

/// How long to wait after a connection could not be taken.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves the management calls, if they have an address of their own.
pub(super) async fn start(doors: &Doors<'_>) -> Result<()> {
    let Doors { config, control, tasks, token, .. } = doors;
    let Some(address) = &config.management_address else { return Ok(()) };
    let control: Arc<dyn Control> = Arc::clone(control) as _;
    let face = grpc::face(doors, &ChannelArguments::default(), Some(Arc::clone(&control)));
    let routes = Routes::new(face.model_service());
    let rest = rest::face(doors, Some(control));
    let listener = Listener::bind(address).await.with_context(|| {
        format!("cannot listen on {address}: choose another --management_address")
    })?;
    info!("Management at {address} ...");
    tasks.spawn(serve(listener, Both { routes, rest }, (*token).clone()));
    Ok(())
}

/// Both faces, told apart by what a request says that it holds.
#[derive(Clone)]
struct Both {
    routes: Routes,
    rest: Rest,
}

impl Both {
    async fn respond(mut self, request: Request<Incoming>) -> Response<Body> {
        let kind = request.headers().get(CONTENT_TYPE).map(|kind| kind.as_bytes().to_vec());
        if !kind.is_some_and(|kind| kind.starts_with(b"application/grpc")) {
            return self.rest.respond(request).await.map(Body::new);
        }
        let Ok(response) = self.routes.call(request.map(Body::new)).await;
        response
    }
}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A connection of either kind.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

impl Listener {
    async fn bind(address: &Address) -> io::Result<Self> {
        match address {
            Address::Tcp(address) => TcpListener::bind(address).await.map(Self::Tcp),
            Address::Unix(path) => {
                // What an earlier server left behind would be in the way.
                drop(std::fs::remove_file(path));
                UnixListener::bind(path).map(Self::Unix)
            }
        }
    }

    async fn accept(&self) -> io::Result<Box<dyn Stream>> {
        Ok(match self {
            Self::Tcp(listener) => Box::new(listener.accept().await?.0),
            Self::Unix(listener) => Box::new(Local::new(listener.accept().await?.0)),
        })
    }
}

async fn serve(listener: Listener, both: Both, token: CancellationToken) {
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    builder.http2().timer(TokioTimer::new());
    let graceful = GracefulShutdown::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = token.cancelled() => break,
        };
        let stream = match accepted {
            Ok(stream) => stream,
            Err(error) => {
                warn!("a management connection was not taken: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let both = both.clone();
        let service = service_fn(move |request| {
            let both = both.clone();
            async move { Ok::<_, Infallible>(both.respond(request).await) }
        });
        let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                debug!("a management connection ended: {error}");
            }
        });
    }
    drop(listener);
    graceful.shutdown().await;
}
