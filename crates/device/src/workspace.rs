//! `Workspace`: the activation memory of a lane.
//!
//! A plan says at which offset each of its tensors lives; while a step runs, it borrows the spans
//! it reads and those it writes. Spans that are written overlap nothing else: this is checked at
//! each borrow, so a faulty plan is a failed assertion and never a data race.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::buffer::Buffer;
use crate::error::Result;
use crate::ledger::Category;
use crate::space::Owner;

/// A piece of a workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
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
        self.len > 0 && other.len > 0 && self.offset < other.end() && other.offset < self.end()
    }
}

/// What a step borrows: the spans read and the spans written, in the order asked for.
pub type Borrowed<'a> = (SmallVec<[&'a [u8]; 8]>, SmallVec<[&'a mut [u8]; 8]>);

/// The activation memory of a lane: as large as the largest plan that ran on it.
#[derive(Debug)]
pub struct Workspace {
    memory: Buffer,
    /// Who pays for it; nobody counts it without one.
    owner: Option<Arc<Owner>>,
}

impl Workspace {
    /// A workspace of `bytes` bytes that nobody counts.
    pub fn allocate(bytes: usize) -> Result<Self> {
        Ok(Self { memory: Buffer::allocate(bytes)?, owner: None })
    }

    /// An empty workspace in the space of `owner`, who pays for it.
    pub fn of(owner: Arc<Owner>) -> Result<Self> {
        Ok(Self { memory: Buffer::allocate(0)?, owner: Some(owner) })
    }

    fn make(&self, bytes: usize) -> Result<Buffer> {
        match &self.owner {
            Some(owner) => Buffer::allocate_for(owner, Category::Activations, bytes),
            None => Buffer::allocate(bytes),
        }
    }

    /// The number of bytes held.
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.memory.is_empty()
    }

    /// Makes room for at least `bytes` bytes; what was in the workspace is lost if it grows.
    pub fn ensure(&mut self, bytes: usize) -> Result<()> {
        if self.memory.len() < bytes {
            // The old memory goes first, so that growing never holds both.
            self.memory = Buffer::allocate(0)?;
            self.memory = self.make(bytes)?;
        }
        Ok(())
    }

    /// Gives all memory back.
    pub fn trim(&mut self) -> Result<()> {
        self.memory = Buffer::allocate(0)?;
        Ok(())
    }

    /// All its bytes.
    ///
    /// # Panics
    /// Never: a workspace owns its memory alone.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.memory.bytes_mut().expect("a workspace owns its memory alone")
    }

    /// Borrows `reads` for reading and `writes` for writing, all at once: see [`borrow`].
    ///
    /// # Panics
    /// If a span lies outside the workspace, or a written span overlaps any other.
    pub fn borrow(&mut self, reads: &[Span], writes: &[Span]) -> Borrowed<'_> {
        borrow(self.bytes_mut(), reads, writes)
    }
}

/// Borrows `reads` of a workspace's bytes for reading and `writes` for writing, all at once.
///
/// # Panics
/// If a span lies outside the bytes, or a written span overlaps any other.
pub fn borrow<'a>(memory: &'a mut [u8], reads: &[Span], writes: &[Span]) -> Borrowed<'a> {
    let len = memory.len();
    let base = memory.as_mut_ptr();
    for (i, write) in writes.iter().enumerate() {
        assert!(write.offset.checked_add(write.len).is_some_and(|end| end <= len));
        assert!(!writes[..i].iter().any(|other| other.overlaps(*write)), "two writers");
        assert!(!reads.iter().any(|read| read.overlaps(*write)), "reader of a written span");
    }
    for read in reads {
        assert!(read.offset.checked_add(read.len).is_some_and(|end| end <= len));
    }
    let read = |span: &Span| {
        // SAFETY: the offset is inside the memory (asserted above).
        let start = unsafe { base.add(span.offset) };
        // SAFETY: in bounds and disjoint from every written span (both asserted above); the
        // lifetime is that of the exclusive borrow of the bytes.
        unsafe { std::slice::from_raw_parts(start.cast_const(), span.len) }
    };
    let write = |span: &Span| {
        // SAFETY: the offset is inside the memory (asserted above).
        let start = unsafe { base.add(span.offset) };
        // SAFETY: in bounds and disjoint from every other span (both asserted above); the
        // lifetime is that of the exclusive borrow of the bytes.
        unsafe { std::slice::from_raw_parts_mut(start, span.len) }
    };
    (reads.iter().map(read).collect(), writes.iter().map(write).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disjoint_spans_are_borrowed_together() {
        let mut workspace = Workspace::allocate(256).unwrap();
        let (a, b) = (Span { offset: 0, len: 64 }, Span { offset: 64, len: 64 });
        workspace.borrow(&[], &[a]).1[0].fill(3);
        let (reads, mut writes) = workspace.borrow(&[a, a], &[b]);
        writes[0].copy_from_slice(reads[1]);
        drop((reads, writes));
        assert_eq!(workspace.borrow(&[b], &[]).0[0], [3; 64]);
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
