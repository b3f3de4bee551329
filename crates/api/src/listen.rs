//! Connections: taken within a limit, plain or over TLS, of a port or a UNIX socket.

mod cut;
mod drain;
mod local;
mod open_call;
mod patient;
mod peer;
mod rewound;
mod slots;
mod sniffed;
mod stray;

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::server::Connected;

use crate::tls::{Protocol, Tls};
pub(crate) use drain::Drain;
pub use local::Local;
pub(crate) use open_call::OpenCall;
use patient::Patient;
pub use peer::Peer;
use rewound::Rewound;
pub use slots::Client;
use slots::{Slot, Slots};
use sniffed::Sniffed;

/// The interval at which the system probes a silent connection: one that answers no probe for a
/// minute is ended.
const KEEPALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(Duration::from_secs(60))
    .with_interval(Duration::from_secs(20))
    .with_retries(3);

/// Settings of the accept loop.
#[derive(Clone)]
pub struct ListenOptions {
    /// Speaks TLS with these keys.
    pub tls: Option<Tls>,
    /// The protocol that is spoken.
    pub protocol: Protocol,
    /// The answer to a client that speaks the protocol of another port: where to go instead.
    pub elsewhere: Arc<str>,
    /// The most connections at once. For a further one, a connection whose client is slow or idle
    /// is closed; the new connection waits if there is none.
    pub connections_max: usize,
    /// The longest time that a TLS handshake may take.
    pub handshake_timeout: Duration,
    /// The longest time in which a client may take no byte of an answer.
    pub write_timeout: Duration,
    /// The pause after a connection could not be accepted, for want of file descriptors say.
    pub accept_pause: Duration,
}

/// A source of connections.
#[derive(Debug)]
pub enum Listener {
    /// A port.
    Tcp(TcpListener),
    /// A UNIX socket.
    Unix(UnixListener),
}

impl Listener {
    async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                Ok((prepared(stream), Peer::Tcp(address)))
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let peer = Peer::of_unix(&stream);
                Ok((Box::new(stream), peer))
            }
        }
    }

    /// Gives the connections that wait to be taken, one at each call, without waiting for more. The
    /// runtime may not have been told of them yet, so the system is asked.
    fn waiting(self) -> io::Result<Box<dyn FnMut() -> Option<Accepted> + Send>> {
        Ok(match self {
            Self::Tcp(listener) => {
                let listener = listener.into_std()?;
                Box::new(move || {
                    let (stream, address) = listener.accept().ok()?;
                    stream.set_nonblocking(true).ok()?;
                    let stream = TcpStream::from_std(stream).ok()?;
                    Some((prepared(stream), Peer::Tcp(address)))
                })
            }
            Self::Unix(listener) => {
                let listener = listener.into_std()?;
                Box::new(move || {
                    let (stream, _) = listener.accept().ok()?;
                    stream.set_nonblocking(true).ok()?;
                    let stream = UnixStream::from_std(stream).ok()?;
                    let peer = Peer::of_unix(&stream);
                    Some((Box::new(stream), peer))
                })
            }
        })
    }
}

/// A connection, and who is at its other end.
type Accepted = (Box<dyn Transport>, Peer);

fn prepared(stream: TcpStream) -> Box<dyn Transport> {
    // Answers are written at once: they should not wait for more.
    drop(stream.set_nodelay(true));
    drop(SockRef::from(&stream).set_tcp_keepalive(&KEEPALIVE));
    Box::new(stream)
}

/// Something to read from and write to.
trait Transport: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Transport for T {}

/// The other end of a connection.
#[derive(Debug, Clone)]
pub struct ConnectInfo {
    pub(crate) peer: Peer,
    pub(crate) client: Client,
}

/// A connection that was taken. Its place is free again when it is dropped.
pub struct Connection {
    stream: Patient<Box<dyn Transport>>,
    info: ConnectInfo,
    _slot: Arc<Slot>,
}

/// Takes connections until the token is cancelled, and then those that wait to be taken.
pub fn connections(
    listener: Listener,
    options: ListenOptions,
    token: CancellationToken,
) -> impl Stream<Item = io::Result<Connection>> + Send + Unpin + use<> {
    let (send, receive) = mpsc::channel(1);
    let slots = Slots::new(options.connections_max);
    let is_local = matches!(listener, Listener::Unix(_));
    let door = Door { options, slots, send, is_local };
    tokio::spawn(async move {
        let first = door.take(&listener, &token).await;
        door.take_waiting(first, listener).await;
    });
    ReceiverStream::new(receive)
}

/// Takes connections and hands them on.
struct Door {
    options: ListenOptions,
    slots: Slots,
    send: mpsc::Sender<io::Result<Connection>>,
    is_local: bool,
}

impl Door {
    /// Takes connections until the token is cancelled or nobody wants them. Gives one that was
    /// taken and has no slot yet, if there is one.
    async fn take(&self, listener: &Listener, token: &CancellationToken) -> Option<Accepted> {
        loop {
            match token.run_until_cancelled(listener.accept()).await? {
                Ok(accepted) => {
                    let Some(slot) = token.run_until_cancelled(self.slots.take()).await else {
                        return Some(accepted);
                    };
                    if !self.hand_on(slot, accepted).await {
                        return None;
                    }
                }
                Err(error) => {
                    tracing::warn!("a connection was not taken: {error}");
                    let pause = tokio::time::sleep(self.options.accept_pause);
                    token.run_until_cancelled(pause).await;
                }
            }
        }
    }

    /// Takes the connections that the system has agreed to already, behind the first, and closes
    /// the listener: the system would reset them, and with them requests that may have been sent.
    async fn take_waiting(&self, mut first: Option<Accepted>, listener: Listener) {
        let Ok(mut waiting) = listener.waiting() else { return };
        while let Some(slot) = self.slots.try_take() {
            let Some(accepted) = first.take().or_else(&mut waiting) else { return };
            if !self.hand_on(slot, accepted).await {
                return;
            }
        }
    }

    /// Hands a connection on, once the two sides agree on TLS if that is spoken. `false` if nobody
    /// wants it any more: it is closed then.
    async fn hand_on(&self, slot: Slot, (stream, peer): Accepted) -> bool {
        let (patience, is_local) = (self.options.write_timeout, self.is_local);
        let cut = slot.client.cut().clone();
        let (protocol, elsewhere) = (self.options.protocol, Arc::clone(&self.options.elsewhere));
        let connection = move |stream: Box<dyn Transport>| {
            let (slot, elsewhere) = (Arc::new(slot), Arc::clone(&elsewhere));
            let stream = Sniffed::new(stream, protocol, elsewhere, Arc::clone(&slot));
            let stream: Box<dyn Transport> =
                if is_local { Box::new(Local::new(stream)) } else { Box::new(stream) };
            let info = ConnectInfo { peer, client: slot.client.clone() };
            Connection { stream: Patient::new(stream, patience), info, _slot: slot }
        };
        let Some(tls) = &self.options.tls else {
            return self.send.send(Ok(connection(stream))).await.is_ok();
        };
        let acceptor = TlsAcceptor::from(tls.config(self.options.protocol));
        let (send, timeout) = (self.send.clone(), self.options.handshake_timeout);
        tokio::spawn(async move {
            let agreed = tokio::time::timeout(timeout, agree(&acceptor, stream));
            let agreed = tokio::select! {
                agreed = agreed => agreed,
                () = cut.is_ended() => return,
            };
            match agreed {
                Ok(Ok(None)) => {}
                Ok(Ok(Some(stream))) => drop(send.send(Ok(connection(stream))).await),
                Ok(Err(error)) => tracing::debug!("no agreement on TLS: {error}"),
                Err(_) => tracing::debug!("no agreement on TLS in time"),
            }
        });
        true
    }
}

/// The bytes that are read to see that a client speaks TLS.
const FIRST_BYTES: usize = 16;

/// The answer to clients that do not speak TLS where it is spoken.
const PLAIN: &str = "this port speaks TLS, and the request came without it: use https://, or a \
                     secure channel for gRPC";

/// Agrees on TLS with a client. One that speaks HTTP without it is answered so; none is left then.
async fn agree(
    acceptor: &TlsAcceptor,
    mut stream: Box<dyn Transport>,
) -> io::Result<Option<Box<dyn Transport>>> {
    let mut first = vec![0; FIRST_BYTES];
    let n_read = stream.read(&mut first).await?;
    first.truncate(n_read);
    if let Some(spoken) = stray::spoken(&first) {
        stray::answer(spoken, first, stream, PLAIN.to_owned()).await;
        return Ok(None);
    }
    let stream = acceptor.accept(Rewound::new(first, stream)).await?;
    Ok(Some(Box::new(stream)))
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.info.client.cut().check(context)?;
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
    type ConnectInfo = ConnectInfo;

    fn connect_info(&self) -> ConnectInfo {
        self.info.clone()
    }
}
