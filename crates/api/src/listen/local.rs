//! `Local`: a connection over a UNIX socket, whose clients name the socket where a host belongs.
//!
//! gRPC's own clients send the path of the socket, percent-encoded, as `:authority`
//! (`%2Frun%2Ftensord.sock`). A percent sign is not allowed in a host, and `h2` refuses the call
//! before any service sees it. Nobody looks at the name of a socket, so each percent sign in that
//! field is overwritten with a full stop while the bytes pass: `frames` finds the header blocks in
//! the stream, `fields` the field in a block, `huffman` the sign in a packed string. Nothing is
//! held back, nothing grows, and all other bytes stay as they are.

mod fields;
mod frames;
mod huffman;

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use frames::Frames;

/// A connection over a UNIX socket that gRPC's own clients can use.
pub struct Local<S> {
    inner: S,
    frames: Frames,
}

impl<S> Local<S> {
    /// Wraps a connection from which nothing was read yet; below it is TLS, if there is any.
    pub fn new(inner: S) -> Self {
        Self { inner, frames: Frames::new() }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Local<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let n_before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(context, buffer))?;
        self.frames.pass(&mut buffer.filled_mut()[n_before..]);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Local<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
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
