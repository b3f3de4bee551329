//! `Buffer`: a piece of host memory that its clones and slices share.

use std::alloc::Layout;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

use crate::error::{Error, Result};
use crate::ledger::Category;
use crate::space::{self, Block, Owner, Tally};
use crate::sync::Mutex;

/// The alignment of every buffer and of every planned offset, in bytes: a cache line, and the
/// widest vector register.
pub const ALIGNMENT: usize = 64;

/// From this size on, memory is mapped for itself, so that dropping it returns it to the system
/// whatever the heap does.
const MAPPED_FROM: usize = 256 << 10;

/// Smaller buffers have their bytes in a rehearsal too: what is decided by values is decided by
/// few.
const REHEARSED_FROM: usize = 64 << 10;

/// Owned, aligned, zero-initialised bytes on the host. Clones and slices share the memory, which is
/// returned when the last of them is dropped.
#[derive(Clone)]
pub struct Buffer {
    memory: Arc<BufferMemory>,
    offset: usize,
    len: usize,
}

impl Buffer {
    /// Allocates `len` zeroed bytes, booked to whom this thread works for
    /// ([`booked_to`](crate::booked_to)). Fails when a limit or the system refuses them.
    pub fn allocate(len: usize) -> Result<Self> {
        let memory = match space::current() {
            Some(tally) if len > 0 => BufferMemory::booked(&tally, len)?,
            _ => BufferMemory::allocate(len)?,
        };
        Ok(Self { memory: Arc::new(memory), offset: 0, len })
    }

    /// The same, booked to `owner`.
    pub fn allocate_for(owner: &Owner, category: Category, len: usize) -> Result<Self> {
        let memory = match len {
            0 => BufferMemory::allocate(0)?,
            _ => BufferMemory::booked(owner.tally(category), len)?,
        };
        Ok(Self { memory: Arc::new(memory), offset: 0, len })
    }

    /// As many bytes that nobody has: they take no memory, nobody counts them, and they read as
    /// zeros. In place of a weight whose packed form is all that is used.
    pub fn vacant(len: usize) -> Result<Self> {
        let memory = match len {
            0 => BufferMemory::allocate(0)?,
            _ => {
                let start = map(len, libc::PROT_READ).ok_or(Error::OutOfMemory { bytes: len })?;
                BufferMemory { start, len, source: BufferSource::Vacant }
            }
        };
        Ok(Self { memory: Arc::new(memory), offset: 0, len })
    }

    /// Returns whether the buffer has no bytes behind it: see [`Buffer::vacant`].
    pub fn is_vacant(&self) -> bool {
        matches!(self.memory.source, BufferSource::Vacant)
    }

    /// Returns whether its bytes are counted but not meant: they belong to a space in which a load
    /// is only rehearsed ([`Space::rehearsal`](crate::Space::rehearsal)), and are too many to be
    /// written.
    pub fn is_rehearsed(&self) -> bool {
        let BufferSource::Booked { booking, .. } = &self.memory.source else { return false };
        self.memory.len >= REHEARSED_FROM && booking.lock().tally.space().is_rehearsal()
    }

    /// The name of the tensor that the buffer was taken for, if it was given
    /// ([`named`](crate::named)).
    pub fn tensor(&self) -> Option<Arc<str>> {
        let BufferSource::Booked { booking, .. } = &self.memory.source else { return None };
        booking.lock().tensor.clone()
    }

    /// The arena of its space that all of its memory is a chunk of, and the number of buffers that
    /// share it.
    pub(crate) fn chunk_of(&self) -> Option<(usize, usize)> {
        let BufferSource::Booked { block: Block::Chunk { arena, .. }, .. } = &self.memory.source
        else {
            return None;
        };
        (self.len == self.memory.len).then(|| (*arena, Arc::strong_count(&self.memory)))
    }

    /// A reference that does not keep the memory alive.
    pub(crate) fn downgrade(&self) -> WeakBuffer {
        WeakBuffer { memory: Arc::downgrade(&self.memory), offset: self.offset, len: self.len }
    }

    /// Books the memory to another tally of the same space, if that one's limit allows it.
    pub(crate) fn rebook(&self, to: &Arc<Tally>) {
        let BufferSource::Booked { booking, block, .. } = &self.memory.source else { return };
        let mut booking = booking.lock();
        assert!(booking.part.is_none(), "only whole buffers change hands");
        let (space, bytes) = (Arc::clone(booking.tally.space()), self.memory.len as u64);
        let moves = !Arc::ptr_eq(&booking.tally, to) && Arc::ptr_eq(&space, to.space());
        let (from, tensor) = (&booking.tally, booking.tensor.as_ref());
        if moves && from.move_booking(to, block, bytes, tensor) {
            booking.tally = Arc::clone(to);
        }
    }

    /// Books `bytes` of the memory to another tally of the same owner, and the rest as before.
    pub(crate) fn book_part(&self, to: &Arc<Tally>, bytes: u64) {
        assert!(bytes <= self.memory.len as u64, "a part is no more than the whole");
        let BufferSource::Booked { booking, block, .. } = &self.memory.source else { return };
        let mut booking = booking.lock();
        booking.take_part_back(block);
        let space = booking.tally.space();
        let moved = Arc::ptr_eq(space, to.space())
            && booking.tally.move_booking(to, block, bytes, booking.tensor.as_ref());
        if moved {
            booking.part = Some(Box::new((Arc::clone(to), bytes)));
        }
    }

    /// A buffer over memory that somebody else gives and takes back: shared with another process,
    /// say. It is given back when the last clone or slice is dropped.
    pub fn from_foreign(memory: Box<dyn Foreign>) -> Self {
        let (start, len) = (memory.start(), memory.len());
        let memory = BufferMemory { start, len, source: BufferSource::Foreign(memory) };
        Self { memory: Arc::new(memory), offset: 0, len }
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        assert!(self.offset + self.len <= self.memory.len);
        // SAFETY: the assertion above keeps the offset inside the memory.
        let start = unsafe { self.memory.start.as_ptr().add(self.offset) };
        // SAFETY: `offset + len` lies inside the memory (asserted above), which is initialised at
        // allocation; it is written only through `bytes_mut`, which needs the sole owner.
        unsafe { std::slice::from_raw_parts(start, self.len) }
    }

    /// The bytes for writing, if nothing else shares them.
    pub fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        let memory = Arc::get_mut(&mut self.memory)?;
        if matches!(memory.source, BufferSource::Vacant) {
            return None;
        }
        assert!(self.offset + self.len <= memory.len);
        // SAFETY: the assertion above keeps the offset inside the memory.
        let start = unsafe { memory.start.as_ptr().add(self.offset) };
        // SAFETY: in bounds by the assertion, initialised at allocation, and `get_mut` proves that
        // no other buffer refers to this memory while `self` is borrowed.
        Some(unsafe { std::slice::from_raw_parts_mut(start, self.len) })
    }

    /// A part of this buffer that shares its memory.
    ///
    /// # Panics
    /// If the range does not lie inside the buffer.
    pub fn slice(&self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.len, "slice out of bounds");
        Self {
            memory: Arc::clone(&self.memory),
            offset: self.offset + range.start,
            len: range.end - range.start,
        }
    }

    /// Returns whether both buffers are parts of the same allocation.
    pub fn shares_memory_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.memory, &other.memory)
    }

    /// Returns whether nothing else shares the memory, so that `bytes_mut` will succeed.
    pub fn is_unique(&mut self) -> bool {
        Arc::get_mut(&mut self.memory).is_some()
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} bytes)", self.len)
    }
}

/// Memory that is not ours; dropping this gives it back.
///
/// # Safety
/// `start` and `len` never change and name memory that is mapped, initialised and aligned to
/// [`ALIGNMENT`], and that nothing else in this process writes, for as long as the value lives.
pub unsafe trait Foreign: Send + Sync {
    /// The first address of the memory.
    fn start(&self) -> NonNull<u8>;

    /// Its bytes.
    fn len(&self) -> usize;

    /// Returns whether there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A reference to a buffer that does not keep its memory alive.
#[derive(Clone)]
pub(crate) struct WeakBuffer {
    memory: Weak<BufferMemory>,
    offset: usize,
    len: usize,
}

impl std::fmt::Debug for WeakBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WeakBuffer({} bytes)", self.len)
    }
}

impl WeakBuffer {
    /// Returns whether it refers to the memory of a buffer.
    pub(crate) fn is_of(&self, buffer: &Buffer) -> bool {
        std::ptr::eq(self.memory.as_ptr(), Arc::as_ptr(&buffer.memory))
    }

    /// The buffer, if it is still there.
    pub(crate) fn upgrade(&self) -> Option<Buffer> {
        let memory = self.memory.upgrade()?;
        Some(Buffer { memory, offset: self.offset, len: self.len })
    }
}

/// The allocation behind a buffer.
struct BufferMemory {
    start: NonNull<u8>,
    len: usize,
    source: BufferSource,
}

enum BufferSource {
    Empty,
    Heap(Layout),
    Mapped,
    /// Mapped to be read only, and never written.
    Vacant,
    /// Kept for its drop.
    Foreign(#[expect(dead_code, reason = "dropping it gives the memory back")] Box<dyn Foreign>),
    /// A block of a space; with a layout if its bytes are on the heap.
    Booked {
        booking: Mutex<Booking>,
        block: Block,
        layout: Option<Layout>,
    },
    /// Only while it is dropped.
    Gone,
}

/// The tally that memory is booked to.
struct Booking {
    tally: Arc<Tally>,
    /// The name of the tensor that the memory was taken for, if it was given.
    tensor: Option<Arc<str>>,
    /// So many of the bytes are booked to another tally.
    part: Option<Box<(Arc<Tally>, u64)>>,
}

impl Booking {
    /// Books a part of a block that is elsewhere where the rest is.
    fn take_part_back(&mut self, block: &Block) {
        if let Some(part) = self.part.take() {
            let (tally, tensor) = (&self.tally, self.tensor.as_ref());
            let moved = part.0.move_booking(tally, block, part.1, tensor);
            assert!(moved, "both are of one owner, and have one limit");
        }
    }
}

// SAFETY: the memory is owned by this value alone and is plain bytes.
unsafe impl Send for BufferMemory {}
// SAFETY: shared access only reads; writing needs `&mut Memory` through `Arc::get_mut`.
unsafe impl Sync for BufferMemory {}

impl BufferMemory {
    fn allocate(len: usize) -> Result<Self> {
        let refused = Error::OutOfMemory { bytes: len };
        if len == 0 {
            // SAFETY: the alignment is not zero.
            let start = unsafe { NonNull::new_unchecked(ALIGNMENT as *mut u8) };
            return Ok(Self { start, len, source: BufferSource::Empty });
        }
        if len >= MAPPED_FROM {
            let start = map(len, libc::PROT_READ | libc::PROT_WRITE).ok_or(refused)?;
            return Ok(Self { start, len, source: BufferSource::Mapped });
        }
        let (start, layout) = from_heap(len).ok_or(refused)?;
        Ok(Self { start, len, source: BufferSource::Heap(layout) })
    }

    /// Takes `len` bytes, which are not none, from the space of a tally.
    fn booked(tally: &Arc<Tally>, len: usize) -> Result<Self> {
        let refused = Error::OutOfMemory { bytes: len };
        let (space, tensor) = (tally.space(), space::current_tensor(tally.category()));
        let block = tally.allocate(len as u64, tensor.as_ref())?;
        let (start, layout) = match &block {
            Block::Chunk { chunk, .. } => {
                assert!(chunk.bytes() >= len as u64);
                let start = std::ptr::with_exposed_provenance_mut::<u8>(
                    usize::try_from(chunk.address()).expect("a buffer's device is host visible"),
                );
                let start = NonNull::new(start).expect("an arena gives no null pointers");
                if !(space.is_rehearsal() && len >= REHEARSED_FROM) {
                    // SAFETY: the chunk has as many bytes (asserted above), committed, and is ours.
                    unsafe { start.as_ptr().write_bytes(0, len) };
                }
                (start, None)
            }
            Block::Heap => match from_heap(len) {
                Some((start, layout)) => (start, Some(layout)),
                None => {
                    tally.free(Block::Heap, len as u64, tensor.as_ref());
                    return Err(refused);
                }
            },
        };
        let booking = Mutex::new(Booking { tally: Arc::clone(tally), tensor, part: None });
        Ok(Self { start, len, source: BufferSource::Booked { booking, block, layout } })
    }
}

/// Zeroed bytes of the heap, which are not none; `None` if it refuses.
fn from_heap(len: usize) -> Option<(NonNull<u8>, Layout)> {
    assert!(len > 0);
    let layout = Layout::from_size_align(len, ALIGNMENT).ok()?;
    // SAFETY: the layout's size is not zero (asserted above).
    let start = unsafe { std::alloc::alloc_zeroed(layout) };
    Some((NonNull::new(start)?, layout))
}

impl Drop for BufferMemory {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.source, BufferSource::Gone) {
            BufferSource::Empty | BufferSource::Foreign(_) | BufferSource::Gone => {}
            BufferSource::Booked { booking, block, layout } => {
                if let Some(layout) = layout {
                    // SAFETY: `start` came from `alloc_zeroed` with this layout; freed once.
                    unsafe { std::alloc::dealloc(self.start.as_ptr(), layout) };
                }
                let mut booking = booking.into_inner();
                booking.take_part_back(&block);
                let Booking { tally, tensor, .. } = booking;
                tally.free(block, self.len as u64, tensor.as_ref());
            }
            // SAFETY: `start` came from `alloc_zeroed` with this very layout, and is freed once.
            BufferSource::Heap(layout) => unsafe {
                std::alloc::dealloc(self.start.as_ptr(), layout)
            },
            BufferSource::Mapped | BufferSource::Vacant => {
                // SAFETY: `start` and `len` are those of one mapping of ours, unmapped once.
                let failed = unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
                assert_eq!(failed, 0, "munmap of our own mapping");
            }
        }
    }
}

/// Maps `len` zeroed bytes of our own; `None` if the system refuses.
fn map(len: usize, access: libc::c_int) -> Option<NonNull<u8>> {
    if isize::try_from(len).is_err() {
        return None;
    }
    // SAFETY: an anonymous private mapping at an address of the system's choice touches no memory
    // that exists.
    let start = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            len,
            access,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return None;
    }
    NonNull::new(start.cast())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_and_large_buffers_are_aligned_zeroed_and_writable() {
        for len in [0, 1, 64, 4096, MAPPED_FROM, MAPPED_FROM + 1] {
            let mut buffer = Buffer::allocate(len).unwrap();
            assert_eq!(buffer.bytes().as_ptr().align_offset(ALIGNMENT), 0);
            assert!(buffer.bytes().iter().all(|b| *b == 0));
            buffer.bytes_mut().unwrap().fill(7);
            assert!(buffer.bytes().iter().all(|b| *b == 7));
        }
    }

    #[test]
    fn shared_memory_cannot_be_written() {
        let mut buffer = Buffer::allocate(128).unwrap();
        let part = buffer.slice(64..128);
        assert!(buffer.bytes_mut().is_none());
        assert!(part.shares_memory_with(&buffer));
        drop(part);
        assert!(buffer.bytes_mut().is_some());
    }

    #[test]
    fn vacant_bytes_read_as_zeros_and_cannot_be_written() {
        let mut buffer = Buffer::vacant(3 << 20).unwrap();
        assert!(buffer.is_vacant() && buffer.bytes_mut().is_none());
        assert!(buffer.bytes().iter().all(|byte| *byte == 0));
        assert_eq!(Buffer::vacant(0).unwrap().len(), 0);
    }

    #[test]
    fn an_impossible_size_is_refused() {
        let error = Buffer::allocate(usize::MAX - 4096).unwrap_err();
        assert_eq!(error, Error::OutOfMemory { bytes: usize::MAX - 4096 });
    }
}
