//! `Bell`: wakes the thread that supervises a worker.

use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::error::{Error, Result};

/// Something to ring, and to wait for beside a socket.
pub(super) struct Bell {
    file: OwnedFd,
}

/// Why a wait ended. Both may be true, or neither when time was up.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Woken {
    pub(super) by_socket: bool,
}

impl Bell {
    pub(super) fn new() -> Result<Self> {
        // SAFETY: takes numbers only.
        let file = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if file < 0 {
            return Err(Error::last("cannot make an event"));
        }
        // SAFETY: it was opened just now and is nobody else's.
        Ok(Self { file: unsafe { OwnedFd::from_raw_fd(file) } })
    }

    /// Wakes who waits, now or at their next wait.
    pub(super) fn ring(&self) {
        let one = 1u64;
        // If the count is full, the bell is ringing already.
        // SAFETY: eight bytes are there to be read.
        let _ = unsafe {
            libc::write(self.file.as_raw_fd(), (&raw const one).cast(), size_of::<u64>())
        };
    }

    /// Waits until the bell rings, the socket has something to say, or time is up.
    pub(super) fn wait(&self, socket: Option<&UnixStream>, limit: Duration) -> Woken {
        let poll = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // A negative number stands for nothing.
        let mut files =
            [poll(self.file.as_raw_fd()), poll(socket.map_or(-1, std::os::fd::AsRawFd::as_raw_fd))];
        // Rounded up, so that what is waited for is due.
        let millis = i32::try_from(limit.as_micros().div_ceil(1000)).unwrap_or(i32::MAX);
        // SAFETY: two entries are there.
        let _ = unsafe { libc::poll(files.as_mut_ptr(), 2, millis) };
        if files[0].revents != 0 {
            let mut count = 0u64;
            // SAFETY: eight bytes are there to be written; the file does not block.
            let _ = unsafe {
                libc::read(self.file.as_raw_fd(), (&raw mut count).cast(), size_of::<u64>())
            };
        }
        Woken { by_socket: files[1].revents != 0 }
    }
}
