//! `BothFaces`: gRPC's `ModelService` and REST on one listener, for those who change the server.
//!
//! Connections are taken, limited and drained as those of the data ports are. HTTP/1.1 and HTTP/2
//! are told apart by their first bytes, the faces by what a request says that it holds.

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::header::{CONNECTION, CONTENT_TYPE};
use http::{HeaderValue, Request, Response, Version};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_stream::Stream;
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::service::Routes;
use tonic::transport::server::Connected;
use tower::Service as _;

use crate::grpc::Grpc;
use crate::listen::{ConnectInfo, Drain};
use crate::rest::Rest;
use crate::rest::serve::{HEAD_BYTES_MAX, HEADERS_MAX, Turns, held};

/// The number of calls of one connection that run at once, over HTTP/2.
const STREAMS_MAX: u32 = 64;

/// The most bytes of a call's headers, over HTTP/2.
const HEADER_LIST_BYTES_MAX: u32 = 64 << 10;

/// The number of calls that a client cancelled and that may wait to be looked at.
const RESETS_MAX: usize = 64;

/// The two faces.
#[derive(Clone)]
pub struct BothFaces {
    grpc: Grpc,
    routes: Routes,
    rest: Rest,
}

impl BothFaces {
    /// The `ModelService` of one face, and all of the other.
    pub fn new(grpc: Grpc, rest: Rest) -> Self {
        Self { routes: Routes::new(grpc.model_service()), grpc, rest }
    }

    /// Answers a request.
    async fn respond(
        mut self,
        mut request: Request<Incoming>,
        info: ConnectInfo,
    ) -> Response<Body> {
        let kind = request.headers().get(CONTENT_TYPE);
        if !kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc")) {
            let open = info.client.open();
            request.extensions_mut().insert(Arc::clone(&open));
            let reply = self.rest.respond(request, info.peer).await;
            return held(reply, open).await.map(Body::new);
        }
        request.extensions_mut().insert(info);
        if let Some(refusal) = self.grpc.refusal(&mut request) {
            return refusal;
        }
        let Ok(response) = self.routes.call(request.map(Body::new)).await;
        response
    }
}

/// Answers connections until the token is cancelled; then drains those that are open, and those
/// that were on their way.
pub async fn serve_both<C>(
    connections: impl Stream<Item = io::Result<C>> + Unpin,
    both: BothFaces,
    token: CancellationToken,
) where
    C: AsyncRead + AsyncWrite + Connected<ConnectInfo = ConnectInfo> + Send + Unpin + 'static,
{
    let drain = Drain::new(token, both.rest.options().linger);
    let server = Arc::new(Server { builder: builder(&both), both, drain: drain.clone() });
    drain.serve(connections, |connection| Arc::clone(&server).answer(connection)).await;
}

fn builder(both: &BothFaces) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    let mut http1 = builder.http1();
    http1.timer(TokioTimer::new()).header_read_timeout(both.rest.options().header_timeout);
    http1.max_buf_size(HEAD_BYTES_MAX).max_headers(HEADERS_MAX);
    let mut http2 = builder.http2();
    http2.timer(TokioTimer::new()).max_concurrent_streams(STREAMS_MAX);
    http2.max_header_list_size(HEADER_LIST_BYTES_MAX).max_pending_accept_reset_streams(RESETS_MAX);
    builder
}

/// State that all connections share.
struct Server {
    builder: Builder<TokioExecutor>,
    both: BothFaces,
    drain: Drain,
}

impl Server {
    /// Answers all requests of a connection.
    async fn answer<C>(self: Arc<Self>, connection: C)
    where
        C: AsyncRead + AsyncWrite + Connected<ConnectInfo = ConnectInfo> + Send + Unpin + 'static,
    {
        let info = connection.connect_info();
        let has_streams = AtomicBool::new(false);
        let service = service_fn(|request: Request<Incoming>| {
            let (both, info, drain) = (self.both.clone(), info.clone(), self.drain.token.clone());
            let is_http2 = request.version() == Version::HTTP_2;
            has_streams.fetch_or(is_http2, Ordering::Relaxed);
            async move {
                let mut response = both.respond(request, info).await;
                if drain.is_cancelled() && !is_http2 {
                    let close = HeaderValue::from_static("close");
                    response.headers_mut().insert(CONNECTION, close);
                }
                Ok::<_, Infallible>(response)
            }
        });
        let (connection, turns) = Turns::watch(connection);
        let connection = self.builder.serve_connection(TokioIo::new(connection), service);
        let mut connection = pin!(connection);
        let ended = tokio::select! {
            biased;
            ended = connection.as_mut() => ended,
            () = self.drain.lingered.cancelled() => {
                // HTTP/2 says which calls are the last. Over HTTP/1.1, a request that has begun to
                // come is answered, and its answer is the last.
                if has_streams.load(Ordering::Relaxed) || !turns.is_servers() {
                    connection.as_mut().graceful_shutdown();
                }
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!("a management connection ended: {error}");
        }
    }
}
