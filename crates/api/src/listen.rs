//! Connections: taken within a limit, plain or over TLS, of a port or a UNIX socket.

mod local;
mod patient;

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::server::Connected;

use crate::tls::{Protocol, Tls};
pub use local::Local;
use patient::Patient;

/// How often the system asks a silent connection whether the other side is still there: one that
/// says nothing to that for a minute is ended.
const KEEPALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(Duration::from_secs(60))
    .with_interval(Duration::from_secs(20))
    .with_retries(3);

/// How connections are taken.
#[derive(Clone)]
pub struct ListenOptions {
    /// Speaks TLS with these keys.
    pub tls: Option<Tls>,
    /// What is spoken.
    pub protocol: Protocol,
    /// The most connections at once; further ones wait.
    pub connections_max: usize,
    /// How long the two sides may take to agree on TLS.
    pub handshake_timeout: Duration,
    /// How long a client may take no byte of an answer.
    pub write_timeout: Duration,
    /// How long to wait after a connection could not be taken, for want of file descriptors say.
    pub accept_pause: Duration,
}

/// Where connections come from.
#[derive(Debug)]
pub enum Listener {
    /// A port.
    Tcp(TcpListener),
    /// A UNIX socket.
    Unix(UnixListener),
}

impl Listener {
    async fn accept(&self) -> io::Result<Box<dyn Transport>> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                // Answers are written at once: they should not wait for more.
                drop(stream.set_nodelay(true));
                drop(SockRef::from(&stream).set_tcp_keepalive(&KEEPALIVE));
                Ok(Box::new(stream))
            }
            Self::Unix(listener) => Ok(Box::new(listener.accept().await?.0)),
        }
    }
}

/// Something to read from and write to.
trait Transport: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Transport for T {}

/// A connection that was taken. Its place is free again when it is dropped.
pub struct Connection {
    stream: Patient<Box<dyn Transport>>,
    _slot: OwnedSemaphorePermit,
}

/// Takes connections until the token is cancelled.
pub fn connections(
    listener: Listener,
    options: ListenOptions,
    token: CancellationToken,
) -> impl Stream<Item = io::Result<Connection>> + Send + Unpin + use<> {
    let (send, receive) = mpsc::channel(1);
    tokio::spawn(async move {
        let taken = take(&listener, &options, &send);
        tokio::select! {
            () = taken => {}
            () = token.cancelled() => {}
        }
    });
    ReceiverStream::new(receive)
}

type Sender = mpsc::Sender<io::Result<Connection>>;

async fn take(listener: &Listener, options: &ListenOptions, send: &Sender) {
    let slots = Arc::new(Semaphore::new(options.connections_max));
    loop {
        let slot = Arc::clone(&slots).acquire_owned().await;
        let slot = slot.expect("nobody closes the semaphore");
        let stream = match listener.accept().await {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!("a connection was not taken: {error}");
                tokio::time::sleep(options.accept_pause).await;
                continue;
            }
        };
        let patience = options.write_timeout;
        let is_local = matches!(listener, Listener::Unix(_));
        let connection = move |stream: Box<dyn Transport>| {
            let stream = if is_local { Box::new(Local::new(stream)) } else { stream };
            Connection { stream: Patient::new(stream, patience), _slot: slot }
        };
        let Some(tls) = &options.tls else {
            if send.send(Ok(connection(stream))).await.is_err() {
                return; // Nobody wants them any more.
            }
            continue;
        };
        let acceptor = TlsAcceptor::from(tls.config(options.protocol));
        let (send, timeout) = (send.clone(), options.handshake_timeout);
        tokio::spawn(async move {
            match tokio::time::timeout(timeout, acceptor.accept(stream)).await {
                // If nobody wants it any more, it is closed.
                Ok(Ok(stream)) => drop(send.send(Ok(connection(Box::new(stream)))).await),
                Ok(Err(error)) => tracing::debug!("no agreement on TLS: {error}"),
                Err(_) => tracing::debug!("no agreement on TLS in time"),
            }
        });
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl Connected for Connection {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}
