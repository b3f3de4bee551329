//! `Turns`: whose turn it is on a connection, the client's to ask or the server's to answer.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The side whose turn it is on a connection.
pub(crate) struct Turns(Arc<AtomicBool>);

impl Turns {
    /// A connection whose turns are seen.
    pub(crate) fn watch<C>(connection: C) -> (Watched<C>, Self) {
        let is_servers = Arc::new(AtomicBool::new(false));
        let watched = Watched { inner: connection, is_servers: Arc::clone(&is_servers) };
        (watched, Self(is_servers))
    }

    /// Returns whether bytes have come since the server last wrote.
    pub(crate) fn is_servers(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A connection whose turns are seen.
pub(crate) struct Watched<C> {
    inner: C,
    is_servers: Arc<AtomicBool>,
}

impl<C: AsyncRead + Unpin> AsyncRead for Watched<C> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let n_before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(context, buffer))?;
        if buffer.filled().len() > n_before {
            self.is_servers.store(true, Ordering::Relaxed);
        }
        Poll::Ready(Ok(()))
    }
}

impl<C: AsyncWrite + Unpin> AsyncWrite for Watched<C> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.is_servers.store(false, Ordering::Relaxed);
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.is_servers.store(false, Ordering::Relaxed);
        Pin::new(&mut self.inner).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
