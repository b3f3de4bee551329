//! The address for those who change the server, apart from the data ports: gRPC's `ModelService`
//! and the REST face, on one listener.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use anyhow::{Context, Result};
use api::{Door, Grpc, Local, Peer, Rest};
use config::Address;
use config::channel_arguments::ChannelArguments;
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

use super::{Doors, doors, grpc, rest};

/// How long a client may take for the head of a request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);

/// How long to wait after a connection could not be taken.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves the management calls, if they have an address of their own, and gives that address. One
/// that is not free and that nobody asked for is done without.
pub(super) async fn start(doors: &Doors<'_>) -> Result<Option<String>> {
    let Doors { config, tasks, token, .. } = doors;
    let management = &config.management;
    let Some(address) = &management.address else { return Ok(None) };
    let listener = match Listener::bind(address).await {
        Ok(listener) => listener,
        Err(error) if !management.is_asked => {
            warn!(
                "cannot listen on {address}: {error}: this server takes no calls that change it; \
                 choose another --management_address"
            );
            return Ok(None);
        }
        Err(error) => {
            return Err(error).with_context(|| {
                format!("cannot listen on {address}: choose another --management_address")
            });
        }
    };
    let grpc = grpc::face(doors, &ChannelArguments::default(), Some(doors.control()));
    let routes = Routes::new(grpc.model_service());
    let door = Door::Management(management.hosts.clone());
    let rest = rest::face(doors, Some(doors.control()), door);
    let address = listener.address(address)?;
    info!("Management at {address} ...");
    tasks.spawn(serve(listener, Both { grpc, routes, rest }, (*token).clone()));
    Ok(Some(address))
}

/// Both faces, told apart by what a request says that it holds.
#[derive(Clone)]
struct Both {
    grpc: Grpc,
    routes: Routes,
    rest: Rest,
}

impl Both {
    async fn respond(mut self, mut request: Request<Incoming>, peer: Peer) -> Response<Body> {
        let kind = request.headers().get(CONTENT_TYPE).map(|kind| kind.as_bytes().to_vec());
        if !kind.is_some_and(|kind| kind.starts_with(b"application/grpc")) {
            return self.rest.respond(request, peer).await.map(Body::new);
        }
        request.extensions_mut().insert(peer);
        if let Some(refusal) = self.grpc.refusal(&mut request) {
            return refusal;
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
                doors::clear(path);
                UnixListener::bind(path).map(Self::Unix)
            }
        }
    }

    /// The address that it listens on, which has a port if any was asked for.
    fn address(&self, asked: &Address) -> io::Result<String> {
        match self {
            Self::Tcp(listener) => Ok(listener.local_addr()?.to_string()),
            Self::Unix(_) => Ok(asked.to_string()),
        }
    }

    async fn accept(&self) -> io::Result<(Box<dyn Stream>, Peer)> {
        Ok(match self {
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                (Box::new(stream), Peer::Tcp(address))
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let peer = Peer::of_unix(&stream);
                (Box::new(Local::new(stream)), peer)
            }
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
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!("a management connection was not taken: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let both = both.clone();
        let service = service_fn(move |request| {
            let both = both.clone();
            async move { Ok::<_, Infallible>(both.respond(request, peer).await) }
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
