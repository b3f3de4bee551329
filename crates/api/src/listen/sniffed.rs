//! `Sniffed`: a connection whose first bytes tell whether its client speaks the port's protocol.
//!
//! A server of HTTP/2 writes before it reads: those bytes are held back until the client has said
//! something. A client of another protocol is handed on to [`stray`], and the server sees the end
//! of the connection.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::slots::Slot;
use super::{Transport, stray};
use crate::tls::Protocol;

/// The most bytes that are held back: a server has more to say only once it was spoken to.
const HELD_MAX: usize = 4 << 10;

/// A connection whose first bytes are looked at.
pub(super) struct Sniffed {
    inner: Option<Box<dyn Transport>>,
    protocol: Protocol,
    elsewhere: Arc<str>,
    slot: Arc<Slot>,
    /// Bytes of the server that wait for the first of the client, and for their turn behind them.
    held: Vec<u8>,
    is_known: bool,
}

impl Sniffed {
    /// A connection from which nothing was read yet. A client that is wrong at this port is told
    /// to go `elsewhere`, and keeps its slot meanwhile.
    pub(super) fn new(
        inner: Box<dyn Transport>,
        protocol: Protocol,
        elsewhere: Arc<str>,
        slot: Arc<Slot>,
    ) -> Self {
        let inner = Some(inner);
        Self { inner, protocol, elsewhere, slot, held: Vec::new(), is_known: false }
    }

    fn inner(&mut self) -> io::Result<Pin<&mut Box<dyn Transport>>> {
        self.inner.as_mut().map(Pin::new).ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }

    /// Looks at the first bytes. `false` if the client is a stray one, which is answered.
    fn look(&mut self, first: &[u8]) -> bool {
        self.is_known = true;
        let is_stray =
            |spoken: &Protocol| self.protocol != Protocol::Either && *spoken != self.protocol;
        let spoken = stray::spoken(first).filter(is_stray);
        let Some(spoken) = spoken else { return true };
        self.held.clear();
        if let Some(stream) = self.inner.take() {
            let (slot, text) = (Arc::clone(&self.slot), self.elsewhere.to_string());
            let first = first.to_vec();
            tokio::spawn(async move {
                stray::answer(spoken, first, stream, text).await;
                drop(slot);
            });
        }
        false
    }

    /// Writes what was held back.
    fn poll_held(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.held.is_empty() {
            let held = std::mem::take(&mut self.held);
            let written = self.inner().map(|inner| inner.poll_write(context, &held));
            self.held = held;
            let n_written = ready!(written?)?;
            self.held.drain(..n_written);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Sniffed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.inner.is_none() {
            return Poll::Ready(Ok(())); // The end, for a server that has lost its client.
        }
        let n_before = buffer.filled().len();
        ready!(self.inner()?.poll_read(context, buffer))?;
        if !self.is_known {
            if !self.look(&buffer.filled()[n_before..]) {
                buffer.set_filled(n_before);
                return Poll::Ready(Ok(()));
            }
            if let Poll::Ready(Err(error)) = self.poll_held(context) {
                return Poll::Ready(Err(error));
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Sniffed {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if !self.is_known && self.held.len() + bytes.len() <= HELD_MAX {
            self.held.extend_from_slice(bytes);
            return Poll::Ready(Ok(bytes.len()));
        }
        ready!(self.poll_held(context))?;
        self.inner()?.poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if !self.is_known {
            let first = bytes.iter().find(|part| !part.is_empty());
            return self.poll_write(context, first.map_or(&[], |part| &**part));
        }
        ready!(self.poll_held(context))?;
        self.inner()?.poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.as_ref().is_some_and(AsyncWrite::is_write_vectored)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.is_known {
            return Poll::Ready(Ok(()));
        }
        ready!(self.poll_held(context))?;
        self.inner()?.poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.inner() {
            Ok(inner) => inner.poll_shutdown(context),
            Err(_) => Poll::Ready(Ok(())),
        }
    }
}
