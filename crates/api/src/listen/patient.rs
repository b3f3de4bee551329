//! `Patient`: a stream that gives up on a reader who takes nothing for too long.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// A stream whose writes fail when no byte is taken for a time.
pub(crate) struct Patient<S> {
    inner: S,
    patience: Duration,
    /// Runs out when the patience does; set anew by each write that gets on.
    timer: Pin<Box<Sleep>>,
    is_waiting: bool,
}

impl<S> Patient<S> {
    pub(crate) fn new(inner: S, patience: Duration) -> Self {
        Self { inner, patience, timer: Box::pin(tokio::time::sleep(patience)), is_waiting: false }
    }

    /// Passes on the outcome of a write, unless it has been waited for too long.
    fn watch<T>(
        &mut self,
        outcome: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.is_waiting = false;
            return outcome;
        }
        if !self.is_waiting {
            self.is_waiting = true;
            self.timer.as_mut().reset(Instant::now() + self.patience);
        }
        ready!(self.timer.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.watch(outcome, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.inner).poll_write_vectored(context, bytes);
        self.watch(outcome, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.inner).poll_flush(context);
        self.watch(outcome, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.inner).poll_shutdown(context);
        self.watch(outcome, context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_takes_nothing_is_given_up() {
        let (near, mut far) = tokio::io::duplex(4);
        let mut near = Patient::new(near, Duration::from_secs(30));
        // A slow reader is waited for, again and again.
        let read = async {
            let mut bytes = [0; 4];
            for _ in 0..3 {
                tokio::time::sleep(Duration::from_secs(20)).await;
                far.read_exact(&mut bytes).await.unwrap();
            }
        };
        let (written, ()) = tokio::join!(near.write_all(b"sixteen bytes..."), read);
        written.unwrap();
        let error = near.write_all(b"more").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
