//! `Area`: memory that the server and a worker share.
//!
//! It is a file without a name, mapped by both at its full length; pages come into being when they
//! are touched, so a large area costs nothing by itself. Neither side can shorten it: it is sealed.
//! One side gives out its spans; the other only looks at those that it is told of.

mod spans;

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

use device::{ALIGNMENT, Booked};
use parking_lot::Mutex;

use crate::error::{Error, Result};
use spans::Spans;

/// The pages in bytes that an area keeps when it is idle.
const KEPT_BYTES: usize = 16 << 20;

/// A stretch of shared memory, and which of its spans are given out.
pub(crate) struct Area {
    file: OwnedFd,
    start: NonNull<u8>,
    len: usize,
    spans: Mutex<Spans>,
}

// SAFETY: the mapping is plain memory, and lives as long as the area.
unsafe impl Send for Area {}
// SAFETY: spans that are given out do not overlap; see `Block`.
unsafe impl Sync for Area {}

impl Area {
    /// A new area of `len` bytes.
    pub(crate) fn create(name: &CStr, len: usize) -> Result<Self> {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: the name ends with a zero.
        let file = unsafe { libc::memfd_create(name.as_ptr(), flags) };
        if file < 0 {
            return Err(Error::last("cannot make shared memory"));
        }
        // SAFETY: it was opened just now and is nobody else's.
        let file = unsafe { OwnedFd::from_raw_fd(file) };
        let size = libc::off_t::try_from(len).expect("an area fits in memory");
        // SAFETY: the file is open.
        if unsafe { libc::ftruncate(file.as_raw_fd(), size) } != 0 {
            return Err(Error::last("cannot size shared memory"));
        }
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: the file is open.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } != 0 {
            return Err(Error::last("cannot seal shared memory"));
        }
        Self::map(file, len)
    }

    /// Maps an area that the other side made.
    pub(crate) fn map(file: OwnedFd, len: usize) -> Result<Self> {
        // SAFETY: a new mapping of an open file, at an address of the system's choice, touches no
        // memory that exists.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_NORESERVE,
                file.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(Error::last("cannot map shared memory"));
        }
        let start = NonNull::new(start.cast()).expect("a mapping is not at zero");
        Ok(Self { file, start, len, spans: Mutex::new(Spans::new(len)) })
    }

    /// Its bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len as u64
    }

    /// The file behind it.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Gives out a span, booked to whom the thread works for until it is dropped. Fails if there is
    /// none that is long enough, or the books have no room for it.
    pub(crate) fn allocate(self: &Arc<Self>, len: usize) -> Result<Block> {
        let full = Error::Full { wanted: len, limit: self.len };
        let rounded = len.checked_next_multiple_of(ALIGNMENT).ok_or(full.clone())?.max(ALIGNMENT);
        let booked = Booked::new(rounded)?;
        let offset = self.spans.lock().allocate(rounded).ok_or(full)?;
        Ok(Block { area: Arc::clone(self), offset, len, rounded, _booked: booked })
    }

    /// A span that the other side gave out. Fails if it does not lie inside, or is not aligned.
    pub(crate) fn span(&self, offset: u64, len: u64) -> Result<NonNull<[u8]>> {
        let malformed = || Error::Malformed(format!("a span of {len} bytes at {offset}"));
        let offset = usize::try_from(offset).map_err(|_| malformed())?;
        let len = usize::try_from(len).map_err(|_| malformed())?;
        let end = offset.checked_add(len).ok_or_else(malformed)?;
        if end > self.len || !offset.is_multiple_of(ALIGNMENT) {
            return Err(malformed());
        }
        // SAFETY: the span ends inside the mapping (checked above).
        let start = unsafe { self.start.add(offset) };
        Ok(NonNull::slice_from_raw_parts(start, len))
    }

    /// A word that both sides may change.
    ///
    /// # Panics
    /// If it does not lie inside, or is not aligned.
    pub(crate) fn word32(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.len);
        // SAFETY: inside the mapping, as asserted.
        let word = unsafe { self.start.add(offset) };
        // SAFETY: it is aligned, since mappings are and the offset is; it lives as long as the
        // mapping, and is only ever used as an atomic.
        unsafe { AtomicU32::from_ptr(word.as_ptr().cast()) }
    }

    /// Words that both sides may change.
    ///
    /// # Panics
    /// If they do not lie inside, or are not aligned.
    pub(crate) fn words64(&self, offset: usize, n: usize) -> &[AtomicU64] {
        assert!(offset.is_multiple_of(8) && offset + n * 8 <= self.len);
        // SAFETY: inside the mapping, as asserted.
        let start = unsafe { self.start.add(offset) };
        // SAFETY: they lie inside, are aligned and initialised (zeroed by the system), live as long
        // as the mapping, and are only ever used as atomics.
        unsafe { std::slice::from_raw_parts(start.as_ptr().cast(), n) }
    }

    /// Gives pages back to the system if no span is given out.
    pub(crate) fn trim(&self) {
        let mut spans = self.spans.lock();
        let Some(touched) = spans.reset_if_idle().filter(|touched| *touched > KEPT_BYTES) else {
            return;
        };
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let offset = |n: usize| libc::off_t::try_from(n).expect("an area fits in memory");
        let (from, len) = (offset(KEPT_BYTES), offset(touched - KEPT_BYTES));
        // If the system refuses, the pages stay, which is no more than they cost before.
        // SAFETY: the file is open, and no span is in use while the lock is held.
        let _ = unsafe { libc::fallocate(self.file.as_raw_fd(), mode, from, len) };
    }

    /// The bytes that are given out.
    #[cfg(test)]
    fn in_use(&self) -> usize {
        self.spans.lock().in_use()
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and unmapped once; blocks keep the area alive.
        let failed = unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
        assert_eq!(failed, 0, "munmap of our own mapping");
    }
}

/// A span that we gave out. Dropping it takes it back.
pub(crate) struct Block {
    area: Arc<Area>,
    offset: usize,
    len: usize,
    rounded: usize,
    /// Kept for its drop.
    _booked: Booked,
}

impl Block {
    /// Returns the offset of the span in the area.
    pub(crate) fn offset(&self) -> u64 {
        self.offset as u64
    }

    /// Its bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len as u64
    }

    /// Its memory, to be filled.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        assert!(self.offset + self.len <= self.area.len);
        // SAFETY: inside the mapping, as asserted.
        let start = unsafe { self.area.start.add(self.offset) };
        // SAFETY: the span lies inside the mapping, which is initialised (zeroed by the system);
        // no other block overlaps it, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), self.len) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.area.spans.lock().free(self.offset, self.rounded);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_mapping_writes_the_other_reads() {
        let ours = Arc::new(Area::create(c"test", 1 << 20).unwrap());
        let theirs = Area::map(ours.file().try_clone_to_owned().unwrap(), 1 << 20).unwrap();
        let mut block = ours.allocate(100).unwrap();
        block.bytes_mut().fill(7);
        let span = theirs.span(block.offset(), block.len()).unwrap();
        // SAFETY: the span lies in a mapping that lives, and nobody writes to it now.
        assert!(unsafe { span.as_ref() }.iter().all(|byte| *byte == 7));
        drop(block);
        assert_eq!(ours.in_use(), 0);
    }

    #[test]
    fn spans_outside_or_askew_are_refused() {
        let area = Area::create(c"test", 1 << 12).unwrap();
        for (offset, len) in [(0, 4097), (4096, 1), (u64::MAX, 1), (1, 1), (64, u64::MAX)] {
            assert!(area.span(offset, len).is_err(), "{len} at {offset}");
        }
        assert!(area.span(4096, 0).is_ok());
    }

    #[test]
    fn neither_side_can_shorten_an_area() {
        let area = Area::create(c"test", 1 << 12).unwrap();
        let file = std::fs::File::from(area.file().try_clone_to_owned().unwrap());
        assert!(file.set_len(0).is_err());
        assert!(file.set_len(1 << 13).is_err());
    }

    #[test]
    fn more_than_there_is_is_refused_and_what_comes_back_is_given_out_again() {
        let area = Arc::new(Area::create(c"test", 1 << 12).unwrap());
        let all = area.allocate(1 << 12).unwrap();
        assert!(matches!(area.allocate(1), Err(Error::Full { wanted: 1, limit: 4096 })));
        assert!(area.allocate(usize::MAX).is_err());
        drop(all);
        assert!(area.allocate(1 << 12).is_ok());
        area.trim();
    }
}
