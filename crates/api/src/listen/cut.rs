//! `Cut`: ends a connection from elsewhere.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;

/// Ends the connection that it is of. Clones are of the same one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cut {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    is_cut: AtomicBool,
    reader: AtomicWaker,
}

impl Cut {
    /// Ends the connection.
    pub(crate) fn cut(&self) {
        self.shared.is_cut.store(true, Ordering::Release);
        self.shared.reader.wake();
    }

    /// Returns whether the connection was ended.
    #[cfg(test)]
    pub(super) fn is_cut(&self) -> bool {
        self.shared.is_cut.load(Ordering::Acquire)
    }

    /// Waits until the connection is ended.
    pub(super) async fn is_ended(&self) {
        poll_fn(|context| match self.check(context) {
            Ok(()) => Poll::Pending,
            Err(_) => Poll::Ready(()),
        })
        .await;
    }

    /// Fails if the connection was ended; otherwise whoever reads is woken when it is.
    pub(super) fn check(&self, context: &Context<'_>) -> io::Result<()> {
        self.shared.reader.register(context.waker());
        if self.shared.is_cut.load(Ordering::Acquire) {
            return Err(io::Error::new(
                io::ErrorKind::ConnectionAborted,
                "the server gave the connection up",
            ));
        }
        Ok(())
    }
}
