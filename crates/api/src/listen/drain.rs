//! `Drain`: takes connections until a server is to end, and then sees the open ones off.

use std::io;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use tokio_stream::{Stream, StreamExt as _};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The end of a server. Clones are of the same one.
#[derive(Debug, Clone)]
pub(crate) struct Drain {
    /// Cancelled when answers are to be the last of their connections.
    pub(crate) token: CancellationToken,
    /// The time that connections without a request stay open then.
    pub(crate) linger: Duration,
    /// Cancelled when connections that are idle are to be closed.
    pub(crate) lingered: CancellationToken,
}

impl Drain {
    /// A server that drains when the token is cancelled.
    pub(crate) fn new(token: CancellationToken, linger: Duration) -> Self {
        Self { token, linger, lingered: CancellationToken::new() }
    }

    /// Answers connections until the token is cancelled; then drains those that are open, and those
    /// that were on their way.
    pub(crate) async fn serve<C, F>(
        self,
        mut connections: impl Stream<Item = io::Result<C>> + Unpin,
        answer: impl Fn(C) -> F,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let tasks = TaskTracker::new();
        let begin = |taken: io::Result<C>| {
            if let Ok(connection) = taken {
                tasks.spawn(answer(connection));
            }
        };
        while let Some(Some(taken)) = self.token.run_until_cancelled(connections.next()).await {
            begin(taken);
        }
        let end = Instant::now() + self.linger;
        while let Ok(Some(taken)) = timeout_at(end, connections.next()).await {
            begin(taken);
        }
        drop(connections);
        tasks.close();
        if timeout_at(end, tasks.wait()).await.is_err() {
            self.lingered.cancel();
            tasks.wait().await;
        }
    }
}
