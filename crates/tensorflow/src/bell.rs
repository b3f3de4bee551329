//! `Bell`: wakes the thread that supervises a worker.

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::error::{Error, Result};

/// Something to ring, and to wait for beside others.
pub(crate) struct Bell {
    file: OwnedFd,
}

/// The events that a supervisor waits for beside its own bell.
#[derive(Clone, Copy)]
pub(crate) struct Watched<'a> {
    /// The bell that a worker rings.
    pub(crate) bell: &'a Bell,
    /// The socket that is closed when the worker ends.
    pub(crate) socket: &'a UnixStream,
}

/// The reason that a wait ended: `by_socket` is not set when a bell rang or time was up.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Woken {
    pub(crate) by_socket: bool,
}

impl Bell {
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: takes numbers only.
        let file = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if file < 0 {
            return Err(Error::last("cannot make an event"));
        }
        // SAFETY: it was opened just now and is nobody else's.
        Ok(Self { file: unsafe { OwnedFd::from_raw_fd(file) } })
    }

    /// A bell that the other side made.
    pub(crate) fn open(file: OwnedFd) -> Self {
        Self { file }
    }

    /// The file behind it.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Wakes who waits, now or at their next wait.
    pub(crate) fn ring(&self) {
        let one = 1u64;
        // If the count is full, the bell is ringing already.
        // SAFETY: eight bytes are there to be read.
        let _ = unsafe {
            libc::write(self.file.as_raw_fd(), (&raw const one).cast(), size_of::<u64>())
        };
    }

    /// Waits until the bell rings, something happens to what is watched, or time is up.
    pub(crate) fn wait(&self, watched: Option<Watched<'_>>, limit: Duration) -> Woken {
        let poll = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // A negative number stands for nothing.
        let bell = watched.map_or(-1, |watched| watched.bell.file.as_raw_fd());
        let socket = watched.map_or(-1, |watched| watched.socket.as_raw_fd());
        let mut files = [poll(self.file.as_raw_fd()), poll(bell), poll(socket)];
        // Rounded up, so that what is waited for is due.
        let millis = i32::try_from(limit.as_micros().div_ceil(1000)).unwrap_or(i32::MAX);
        // SAFETY: three entries are there.
        let _ = unsafe { libc::poll(files.as_mut_ptr(), 3, millis) };
        if files[0].revents != 0 {
            self.hush();
        }
        if let Some(watched) = watched.filter(|_| files[1].revents != 0) {
            watched.bell.hush();
        }
        Woken { by_socket: files[2].revents != 0 }
    }

    fn hush(&self) {
        let mut count = 0u64;
        // SAFETY: eight bytes are there to be written; the file does not block.
        let _ =
            unsafe { libc::read(self.file.as_raw_fd(), (&raw mut count).cast(), size_of::<u64>()) };
    }
}
