//! The signals that the process listens to.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTERM and SIGINT, listened to from now on.
pub(crate) struct Stop {
    terminate: Signal,
    interrupt: Signal,
}

impl Stop {
    /// Listens from now on.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for either.
    pub(crate) async fn recv(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// Ends the process at once when the next one comes.
    pub(crate) fn exit_at_next(mut self) {
        tokio::spawn(async move {
            self.recv().await;
            std::process::exit(1);
        });
    }
}

/// SIGHUP, listened to from now on.
pub(crate) struct Hangup(Signal);

impl Hangup {
    /// Listens from now on.
    pub(crate) fn listen() -> io::Result<Self> {
        signal(SignalKind::hangup()).map(Self)
    }

    /// Waits for the next one.
    pub(crate) async fn recv(&mut self) {
        self.0.recv().await;
    }
}
