//! `Ring`: messages through shared memory, from one writer to one reader.
//!
//! A message is a word that says its length in bytes, and then its bytes in words. Each side keeps
//! its own place to itself and publishes a copy of it; what the other publishes is checked before
//! it is used, and what is read is copied before it is looked at, so that the worst that a hostile
//! side can say is a malformed message. A message that does not fit goes in pieces.
//!
//! A reader that finds nothing says that it sleeps, looks once more, and waits: for the futex of
//! the writer's place, or for a bell that the writer rings then. Nobody spins, but for a moment:
//! who is woken before there is something to read, because the writer still prepares it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use prost::Message;
use prost::bytes::Bytes;

use crate::area::Area;
use crate::error::{Error, Result};

/// The words of a ring; a power of two, so that places may wrap around.
const WORDS: u32 = 32 << 10;

/// The bytes before the words: the places, a cache line each.
const HEAD_BYTES: usize = 4096;
const RING_BYTES: usize = HEAD_BYTES + WORDS as usize * size_of::<u64>();

/// The bytes of an area for the rings of both directions.
pub(crate) const RINGS_BYTES: usize = 2 * RING_BYTES;

/// The longest message.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// The time that a reader which was woken early looks out for the word it was woken for.
const AWAKE_FOR: Duration = Duration::from_micros(150);

/// The number of pauses between two looks: a microsecond or so.
const PAUSES: usize = 32;

/// The direction of a ring: one of the two of an area.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Direction {
    /// From the server.
    Orders,
    /// From the worker.
    Answers,
}

/// The memory that both sides share.
struct Ring {
    area: Arc<Area>,
    start: usize,
}

impl Ring {
    fn new(area: &Arc<Area>, direction: Direction) -> Self {
        let start = match direction {
            Direction::Orders => 0,
            Direction::Answers => RING_BYTES,
        };
        Self { area: Arc::clone(area), start }
    }

    /// Returns the number of words that were ever written.
    fn written(&self) -> &AtomicU32 {
        self.area.word32(self.start)
    }

    /// Returns the number of words that were ever read.
    fn read(&self) -> &AtomicU32 {
        self.area.word32(self.start + 64)
    }

    /// Returns the flag that is set while the reader sleeps.
    fn sleeper(&self) -> &AtomicU32 {
        self.area.word32(self.start + 128)
    }

    fn words(&self) -> &[AtomicU64] {
        self.area.words64(self.start + HEAD_BYTES, WORDS as usize)
    }

    /// The words between two places, if that can be.
    fn between(read: u32, written: u32) -> Result<u32> {
        let between = written.wrapping_sub(read);
        if between > WORDS {
            return Err(Error::Malformed(format!("{between} words in a ring of {WORDS}")));
        }
        Ok(between)
    }
}

/// The side that writes.
pub(crate) struct Writer {
    ring: Ring,
    written: u32,
    /// The words that did not fit yet.
    waiting: VecDeque<u64>,
}

impl Writer {
    pub(crate) fn new(area: &Arc<Area>, direction: Direction) -> Self {
        Self { ring: Ring::new(area, direction), written: 0, waiting: VecDeque::new() }
    }

    /// Writes a message, or as much of it as there is room for.
    ///
    /// # Errors
    /// If it is too long, or what the reader says makes no sense.
    pub(crate) fn push(&mut self, message: &impl Message) -> Result<()> {
        let len = message.encoded_len();
        if len > MESSAGE_BYTES_MAX {
            return Err(Error::TooLong(len));
        }
        let bytes = message.encode_to_vec();
        self.waiting.reserve(1 + len.div_ceil(8));
        self.waiting.push_back(len as u64);
        let (words, rest) = bytes.as_chunks::<8>();
        self.waiting.extend(words.iter().map(|word| u64::from_le_bytes(*word)));
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            self.waiting.push_back(u64::from_le_bytes(last));
        }
        self.flush()?;
        Ok(())
    }

    /// Writes what waits, as far as there is room. Gives whether nothing waits any more.
    ///
    /// # Errors
    /// If what the reader says makes no sense.
    pub(crate) fn flush(&mut self) -> Result<bool> {
        let used = Ring::between(self.ring.read().load(Ordering::Acquire), self.written)?;
        let n = usize::try_from(WORDS - used).unwrap_or(0).min(self.waiting.len());
        let words = self.ring.words();
        for word in self.waiting.drain(..n) {
            words[(self.written % WORDS) as usize].store(word, Ordering::Relaxed);
            self.written = self.written.wrapping_add(1);
        }
        // Also in order with what `has_sleeper` looks at.
        self.ring.written().store(self.written, Ordering::SeqCst);
        Ok(self.waiting.is_empty())
    }

    /// Returns whether something did not fit yet.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns whether the reader sleeps and is to be woken.
    pub(crate) fn has_sleeper(&self) -> bool {
        self.ring.sleeper().load(Ordering::SeqCst) != 0
    }

    /// Wakes a reader that waits for the futex.
    pub(crate) fn wake(&self) {
        let word = std::ptr::from_ref(self.ring.written());
        // SAFETY: the word lies in a mapping that lives as long as the ring.
        let _ = unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE, 1) };
    }

    /// Waits a little for the reader to read on.
    pub(crate) fn wait_for_room(&self) {
        let seen = self.ring.read().load(Ordering::Acquire);
        wait(self.ring.read(), seen, Some(Duration::from_millis(1)));
    }
}

/// The side that reads.
pub(crate) struct Reader {
    ring: Ring,
    read: u32,
    /// The message that is being read: the bytes it has, and those of it that have arrived.
    begun: Option<(usize, Vec<u8>)>,
}

impl Reader {
    pub(crate) fn new(area: &Arc<Area>, direction: Direction) -> Self {
        Self { ring: Ring::new(area, direction), read: 0, begun: None }
    }

    /// The next message, if all of it has arrived.
    ///
    /// # Errors
    /// If what the writer says makes no sense.
    pub(crate) fn next<M: Message + Default>(&mut self) -> Result<Option<M>> {
        let there = Ring::between(self.read, self.ring.written().load(Ordering::Acquire))?;
        let Some(message) = self.take(there)? else { return Ok(None) };
        let message = M::decode(Bytes::from(message));
        message.map(Some).map_err(|error| Error::Malformed(error.to_string()))
    }

    /// Takes at most `there` words, up to the end of a message.
    fn take(&mut self, mut there: u32) -> Result<Option<Vec<u8>>> {
        let words = self.ring.words();
        let mut next = || {
            there = there.checked_sub(1)?;
            let word = words[(self.read % WORDS) as usize].load(Ordering::Relaxed);
            self.read = self.read.wrapping_add(1);
            Some(word)
        };
        if self.begun.is_none() {
            let Some(len) = next() else { return Ok(None) };
            let known = usize::try_from(len).ok().filter(|len| *len <= MESSAGE_BYTES_MAX);
            let too_long = || Error::Malformed(format!("{len} bytes are announced"));
            let len = known.ok_or_else(too_long)?;
            // Nothing is allocated on the writer's word beyond what a ring holds.
            let room = len.next_multiple_of(8).min(RING_BYTES);
            self.begun = Some((len, Vec::with_capacity(room)));
        }
        let (len, mut bytes) = self.begun.take().expect("it was begun above");
        while bytes.len() < len {
            let Some(word) = next() else { break };
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        self.ring.read().store(self.read, Ordering::Release);
        if bytes.len() < len {
            self.begun = Some((len, bytes));
            return Ok(None);
        }
        bytes.truncate(len);
        Ok(Some(bytes))
    }

    /// Says that the reader goes to sleep. Gives false if there is something to read after all;
    /// then it does not.
    pub(crate) fn begin_sleep(&self) -> bool {
        self.ring.sleeper().store(1, Ordering::SeqCst);
        if self.ring.written().load(Ordering::SeqCst) != self.read {
            self.end_sleep();
            return false;
        }
        true
    }

    /// Says that the reader is awake.
    pub(crate) fn end_sleep(&self) {
        self.ring.sleeper().store(0, Ordering::Relaxed);
    }

    /// Waits for the futex until there may be something to read.
    pub(crate) fn sleep(&self) {
        if self.begin_sleep() {
            wait(self.ring.written(), self.read, None);
            self.end_sleep();
        }
    }

    /// Looks out for a moment for something to read.
    pub(crate) fn look_out(&self) {
        let start = Instant::now();
        let is_there = || self.ring.written().load(Ordering::Acquire) != self.read;
        while !is_there() && start.elapsed() < AWAKE_FOR {
            (0..PAUSES).for_each(|_| std::hint::spin_loop());
            // Whoever prepares it may need the processor.
            std::thread::yield_now();
        }
    }
}

/// Puts words into a ring, and says that so many were written, as a hostile writer may.
#[cfg(any(test, fuzzing))]
pub(crate) fn scribble(area: &Arc<Area>, direction: Direction, words: &[u64], written: u32) {
    let ring = Ring::new(area, direction);
    for (place, word) in ring.words().iter().zip(words) {
        place.store(*word, Ordering::Relaxed);
    }
    ring.written().store(written, Ordering::Release);
}

/// Waits while a word has a value, until it is woken or time is up.
fn wait(word: &AtomicU32, value: u32, limit: Option<Duration>) {
    let limit = limit.map(|limit| libc::timespec {
        tv_sec: libc::time_t::try_from(limit.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    });
    let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let word = std::ptr::from_ref(word);
    // Whatever it says: who waits looks again.
    // SAFETY: word and time live until the call returns.
    let _ = unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAIT, value, limit) };
}

#[cfg(test)]
mod tests;
