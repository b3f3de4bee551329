//! `Patient`: a stream that gives up on a reader who takes next to nothing for too long.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// A reader that takes so many bytes, or all there are, is given its time anew: one that takes a
/// byte now and then would keep its answer for ever.
const PROGRESS_BYTES: usize = 16 << 10;

/// A stream whose writes fail when too few bytes are taken for a time.
pub(crate) struct Patient<S> {
    inner: S,
    patience: Duration,
    /// Runs out when the patience does; set anew by writes that get on.
    timer: Pin<Box<Sleep>>,
    is_waiting: bool,
    /// The bytes that were taken since the timer was set.
    n_taken: usize,
}

impl<S> Patient<S> {
    pub(crate) fn new(inner: S, patience: Duration) -> Self {
        let timer = Box::pin(tokio::time::sleep(patience));
        Self { inner, patience, timer, is_waiting: false, n_taken: 0 }
    }

    /// Passes on how many bytes a write took, unless they were waited for too long.
    fn watch_write(
        &mut self,
        outcome: Poll<io::Result<usize>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(n_bytes)) = outcome
            && self.is_waiting
        {
            self.n_taken += n_bytes;
            if self.n_taken < PROGRESS_BYTES {
                return outcome; // The timer goes on.
            }
        }
        self.watch(outcome, context)
    }

    /// Passes on an outcome, unless it has been waited for too long.
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
            (self.is_waiting, self.n_taken) = (true, 0);
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
        self.watch_write(outcome, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.inner).poll_write_vectored(context, bytes);
        self.watch_write(outcome, context)
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
        let (near, mut far) = tokio::io::duplex(PROGRESS_BYTES);
        let mut near = Patient::new(near, Duration::from_secs(30));
        // A slow reader is waited for, again and again.
        let read = async {
            let mut bytes = vec![0; PROGRESS_BYTES];
            for _ in 0..3 {
                tokio::time::sleep(Duration::from_secs(20)).await;
                far.read_exact(&mut bytes).await.unwrap();
            }
        };
        let text = vec![7; 4 * PROGRESS_BYTES];
        let (written, ()) = tokio::join!(near.write_all(&text), read);
        written.unwrap();
        near.flush().await.unwrap();
        let error = near.write_all(b"more").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_takes_a_byte_now_and_then_is_given_up() {
        let (near, mut far) = tokio::io::duplex(4);
        let mut near = Patient::new(near, Duration::from_secs(30));
        let start = Instant::now();
        let read = async {
            while far.read_u8().await.is_ok() {
                tokio::time::sleep(Duration::from_secs(7)).await;
            }
        };
        let write = near.write_all(b"a hundred bytes would take twelve minutes");
        let written = tokio::select! {
            written = write => written,
            () = read => unreachable!("the other side stays"),
        };
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn short_answers_that_are_all_taken_never_end_the_patience() {
        let (near, mut far) = tokio::io::duplex(4);
        let mut near = Patient::new(near, Duration::from_secs(30));
        for _ in 0..10 {
            let read = async {
                tokio::time::sleep(Duration::from_secs(20)).await;
                far.read_exact(&mut [0; 8]).await.unwrap();
            };
            let write = async {
                near.write_all(b"8 bytes.").await.unwrap();
                near.flush().await.unwrap();
            };
            tokio::join!(write, read);
        }
    }
}
