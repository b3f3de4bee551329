//! `Workspace`: the activation memory of a lane.
//!
//! A plan says at which offset each of its tensors lives; while a step runs, it borrows the spans
//! it reads and those it writes. Spans that are written overlap nothing else: this is checked at
//! each borrow, so a faulty plan is a failed assertion and never a data race.
//!
//! The workspace of a GPU's lane has a part on the host too: what steps that run there pass on.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::buffer::Buffer;
use crate::error::Result;
use crate::ledger::Category;
use crate::space::{Owner, booked_on_host};

/// The location of a tensor of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Home {
    /// On the device that the plan is for.
    #[default]
    Device,
    /// On the host, where that is another.
    Host,
}

/// A piece of a workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    /// The part of the workspace.
    pub home: Home,
    /// The first byte.
    pub offset: usize,
    /// The number of bytes.
    pub len: usize,
}

impl Span {
    fn end(self) -> usize {
        self.offset + self.len
    }

    fn overlaps(self, other: Self) -> bool {
        self.home == other.home
            && self.len > 0
            && other.len > 0
            && self.offset < other.end()
            && other.offset < self.end()
    }
}

/// The borrows of a step: the spans read and the spans written, in the order asked for.
pub type Borrowed<'a> = (SmallVec<[&'a [u8]; 8]>, SmallVec<[&'a mut [u8]; 8]>);

/// The activation memory of a lane: as large as the largest plan that ran on it.
#[derive(Debug)]
pub struct Workspace {
    memory: Buffer,
    /// The part on the host, if the device is another.
    host: Buffer,
    /// The owner that pays for it; nobody in particular without one.
    owner: Option<Arc<Owner>>,
    /// The bytes copied between the two since the last reading.
    copied_bytes: u64,
    /// The scratch memory that is booked as such, of the device and of the host.
    scratch_bytes: [usize; 2],
}

impl Workspace {
    /// A workspace of `bytes` bytes, paid for by whom the thread works for, if anybody.
    pub fn allocate(bytes: usize) -> Result<Self> {
        Self::new(Buffer::allocate(bytes)?, None)
    }

    /// An empty workspace in the space of `owner`, who pays for it.
    pub fn for_owner(owner: Arc<Owner>) -> Result<Self> {
        Self::new(Buffer::allocate(0)?, Some(owner))
    }

    fn new(memory: Buffer, owner: Option<Arc<Owner>>) -> Result<Self> {
        let host = Buffer::allocate(0)?;
        Ok(Self { memory, host, owner, copied_bytes: 0, scratch_bytes: [0; 2] })
    }

    fn make(&self, home: Home, bytes: usize) -> Result<Buffer> {
        match (&self.owner, home) {
            (Some(owner), Home::Device) => {
                Buffer::allocate_for(owner, Category::Activations, bytes)
            }
            (Some(owner), Home::Host) => {
                Buffer::allocate_for(owner.host(), Category::Activations, bytes)
            }
            (None, Home::Device) => Buffer::allocate(bytes),
            (None, Home::Host) => {
                let _scope = booked_on_host();
                Buffer::allocate(bytes)
            }
        }
    }

    /// The number of bytes held of the device.
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// The most bytes that it could hold in a home: what it has there, and what is free. Without
    /// anybody who pays there is no limit.
    pub fn room_bytes(&self, home: Home) -> u64 {
        let Some(owner) = &self.owner else { return u64::MAX };
        let (own, space) = match home {
            Home::Device => (self.memory.len(), owner.space()),
            Home::Host => (self.host.len(), owner.host().space()),
        };
        space.free_bytes().saturating_add(own as u64)
    }

    /// Returns whether nothing is held, neither on the device nor on the host.
    pub fn is_empty(&self) -> bool {
        self.memory.is_empty() && self.host.is_empty()
    }

    /// Makes room for at least `bytes` bytes; what was in the workspace is lost if it grows.
    pub fn ensure(&mut self, bytes: usize) -> Result<()> {
        if self.memory.len() < bytes {
            // The old memory goes first, so that growing never holds both.
            self.scratch_bytes[0] = 0;
            self.memory = Buffer::allocate(0)?;
            self.memory = self.make(Home::Device, bytes)?;
        }
        Ok(())
    }

    /// The same for the part on the host.
    pub fn ensure_on_host(&mut self, bytes: usize) -> Result<()> {
        if self.host.len() < bytes {
            self.scratch_bytes[1] = 0;
            self.host = Buffer::allocate(0)?;
            self.host = self.make(Home::Host, bytes)?;
        }
        Ok(())
    }

    /// Says that kernels of a plan that runs in it use up to `bytes` of its memory in a home as
    /// scratch memory: the most so far is booked as that, and the rest as activations.
    pub fn note_scratch(&mut self, home: Home, bytes: usize) {
        let (memory, noted) = match home {
            Home::Device => (&self.memory, &mut self.scratch_bytes[0]),
            Home::Host => (&self.host, &mut self.scratch_bytes[1]),
        };
        let Some(owner) = self.owner.as_ref().filter(|_| *noted < bytes) else { return };
        let owner = if home == Home::Device { owner } else { owner.host() };
        *noted = bytes.min(memory.len());
        memory.book_part(owner.tally(Category::Workspace), *noted as u64);
    }

    /// Gives all memory back.
    pub fn trim(&mut self) -> Result<()> {
        self.scratch_bytes = [0; 2];
        self.memory = Buffer::allocate(0)?;
        self.host = Buffer::allocate(0)?;
        Ok(())
    }

    /// Notes that so many bytes were copied between host and device.
    pub fn note_copied(&mut self, bytes: u64) {
        self.copied_bytes += bytes;
    }

    /// Takes the number of bytes copied between host and device since the last call.
    pub fn take_copied_bytes(&mut self) -> u64 {
        std::mem::take(&mut self.copied_bytes)
    }

    /// All its bytes.
    ///
    /// # Panics
    /// Never: a workspace owns its memory alone.
    pub fn memory(&mut self) -> Memory<'_> {
        let alone = "a workspace owns its memory alone";
        Memory {
            device: self.memory.bytes_mut().expect(alone),
            host: self.host.bytes_mut().expect(alone),
            copied_bytes: 0,
        }
    }

    /// Borrows `reads` for reading and `writes` for writing, all at once: see [`Memory::borrow`].
    ///
    /// # Panics
    /// If a span lies outside the workspace, or a written span overlaps any other.
    pub fn borrow(&mut self, reads: &[Span], writes: &[Span]) -> Borrowed<'_> {
        let memory = self.memory();
        let Memory { device, host, .. } = memory;
        borrow(device, host, reads, writes)
    }
}

/// The bytes of a workspace.
#[derive(Debug)]
pub struct Memory<'a> {
    /// Those of the device.
    pub device: &'a mut [u8],
    /// Those of the host, where that is another.
    pub host: &'a mut [u8],
    /// The bytes copied between the two.
    pub copied_bytes: u64,
}

impl Memory<'_> {
    /// Borrows `reads` for reading and `writes` for writing, all at once.
    ///
    /// # Panics
    /// If a span lies outside the bytes, or a written span overlaps any other.
    pub fn borrow(&mut self, reads: &[Span], writes: &[Span]) -> Borrowed<'_> {
        borrow(self.device, self.host, reads, writes)
    }

    /// The same, behind what is in `borrowed` already: it may have room for many.
    ///
    /// # Panics
    /// As `borrow`.
    pub fn borrow_into<'a>(
        &'a mut self,
        reads: &[Span],
        writes: &[Span],
        borrowed: &mut Borrowed<'a>,
    ) {
        borrow_into(self.device, self.host, (reads, writes), borrowed);
    }
}

fn borrow<'a>(
    device: &'a mut [u8],
    host: &'a mut [u8],
    reads: &[Span],
    writes: &[Span],
) -> Borrowed<'a> {
    let mut borrowed = Borrowed::default();
    borrow_into(device, host, (reads, writes), &mut borrowed);
    borrowed
}

fn borrow_into<'a>(
    device: &'a mut [u8],
    host: &'a mut [u8],
    (reads, writes): (&[Span], &[Span]),
    borrowed: &mut Borrowed<'a>,
) {
    let device = (device.len(), device.as_mut_ptr());
    let host = (host.len(), host.as_mut_ptr());
    let part = |span: &Span| match span.home {
        Home::Device => device,
        Home::Host => host,
    };
    for (i, write) in writes.iter().enumerate() {
        let len = part(write).0;
        assert!(write.offset.checked_add(write.len).is_some_and(|end| end <= len));
        assert!(!writes[..i].iter().any(|other| other.overlaps(*write)), "two writers");
        assert!(!reads.iter().any(|read| read.overlaps(*write)), "reader of a written span");
    }
    for read in reads {
        let len = part(read).0;
        assert!(read.offset.checked_add(read.len).is_some_and(|end| end <= len));
    }
    let read = |span: &Span| {
        // SAFETY: the offset is inside the memory (asserted above).
        let start = unsafe { part(span).1.add(span.offset) };
        // SAFETY: in bounds and disjoint from every written span (both asserted above); the
        // lifetime is that of the exclusive borrow of the bytes.
        unsafe { std::slice::from_raw_parts(start.cast_const(), span.len) }
    };
    let write = |span: &Span| {
        // SAFETY: the offset is inside the memory (asserted above).
        let start = unsafe { part(span).1.add(span.offset) };
        // SAFETY: in bounds and disjoint from every other span (both asserted above); the
        // lifetime is that of the exclusive borrow of the bytes.
        unsafe { std::slice::from_raw_parts_mut(start, span.len) }
    };
    borrowed.0.extend(reads.iter().map(read));
    borrowed.1.extend(writes.iter().map(write));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disjoint_spans_are_borrowed_together() {
        let mut workspace = Workspace::allocate(256).unwrap();
        let span = |offset| Span { home: Home::Device, offset, len: 64 };
        let (a, b) = (span(0), span(64));
        workspace.borrow(&[], &[a]).1[0].fill(3);
        let (reads, mut writes) = workspace.borrow(&[a, a], &[b]);
        writes[0].copy_from_slice(reads[1]);
        drop((reads, writes));
        assert_eq!(workspace.borrow(&[b], &[]).0[0], [3; 64]);
    }

    #[test]
    fn what_is_on_the_host_overlaps_nothing_on_the_device() {
        let mut workspace = Workspace::allocate(64).unwrap();
        workspace.ensure_on_host(64).unwrap();
        let span = |home| Span { home, offset: 0, len: 64 };
        let (device, host) = (span(Home::Device), span(Home::Host));
        let (_, mut writes) = workspace.borrow(&[], &[device, host]);
        writes[0].fill(1);
        writes[1].fill(2);
        drop(writes);
        let (reads, mut writes) = workspace.borrow(&[host], &[device]);
        writes[0].copy_from_slice(reads[0]);
        drop((reads, writes));
        assert_eq!(workspace.borrow(&[device], &[]).0[0], [2; 64]);
        workspace.note_copied(64);
        assert_eq!((workspace.take_copied_bytes(), workspace.take_copied_bytes()), (64, 0));
        assert!(workspace.len() == 64 && !workspace.is_empty());
    }

    #[test]
    fn growing_keeps_at_least_what_was_asked_for() {
        let mut workspace = Workspace::allocate(0).unwrap();
        workspace.ensure(100).unwrap();
        workspace.ensure(10).unwrap();
        assert_eq!(workspace.len(), 100);
        workspace.trim().unwrap();
        assert!(workspace.is_empty());
    }
}
