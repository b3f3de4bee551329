//! The state of the fake driver.

use std::cell::Cell;
use std::collections::BTreeMap;

use parking_lot::{Mutex, MutexGuard};

use crate::control::{Counters, Gpu};
use crate::pages::{self, Memory};

/// `CUDA_ERROR_…`, as `cuda.h` numbers them.
pub(crate) const INVALID_VALUE: i32 = 1;
pub(crate) const OUT_OF_MEMORY: i32 = 2;
pub(crate) const NOT_INITIALIZED: i32 = 3;
pub(crate) const NO_DEVICE: i32 = 100;
pub(crate) const INVALID_DEVICE: i32 = 101;
pub(crate) const INVALID_CONTEXT: i32 = 201;

pub(crate) static STATE: Mutex<State> = Mutex::new(State::new());

thread_local! {
    /// The context that is current for this thread; 0 if none is.
    pub(crate) static CURRENT: Cell<u64> = const { Cell::new(0) };
}

pub(crate) struct State {
    pub(crate) gpus: Vec<Gpu>,
    /// The bytes that this process holds of each GPU.
    used: Vec<u64>,
    pub(crate) is_initialized: bool,
    /// The GPU of each context, and how often it is retained.
    contexts: BTreeMap<u64, (usize, u64)>,
    /// The context that everybody in the process shares, of each GPU.
    primaries: Vec<Option<u64>>,
    next: u64,
    /// Memory that has a handle.
    handles: BTreeMap<u64, Piece>,
    /// Memory that is behind an address.
    mapped: BTreeMap<u64, Mapped>,
    /// The reserved ranges of addresses: their starts and lengths in bytes.
    ranges: BTreeMap<u64, usize>,
    pub(crate) n_calls: u64,
    /// The number of the call that fails, and its code.
    pub(crate) failure: Option<(u64, i32)>,
}

struct Piece {
    bytes: usize,
    gpu: usize,
    memory: Memory,
}

struct Mapped {
    handle: u64,
    bytes: usize,
    gpu: usize,
    is_allowed: bool,
}

/// The state, unless it is this call's turn to fail.
pub(crate) fn enter() -> Result<MutexGuard<'static, State>, i32> {
    let mut state = STATE.lock();
    let n = state.n_calls;
    state.n_calls += 1;
    match state.failure {
        Some((at, code)) if at == n => Err(code),
        _ => Ok(state),
    }
}

impl State {
    const fn new() -> State {
        State {
            gpus: Vec::new(),
            used: Vec::new(),
            is_initialized: false,
            contexts: BTreeMap::new(),
            primaries: Vec::new(),
            next: 1,
            handles: BTreeMap::new(),
            mapped: BTreeMap::new(),
            ranges: BTreeMap::new(),
            n_calls: 0,
            failure: None,
        }
    }

    /// Forgets everything, and begins anew with these GPUs.
    pub(crate) fn replace(&mut self, gpus: &[Gpu]) {
        for (at, bytes) in std::mem::take(&mut self.ranges) {
            pages::unreserve(at, bytes);
        }
        // Numbers are not used again: what a test before had kept means nothing now.
        *self = State {
            gpus: gpus.to_vec(),
            used: vec![0; gpus.len()],
            primaries: vec![None; gpus.len()],
            next: self.next,
            ..State::new()
        };
    }

    pub(crate) fn counters(&self) -> Counters {
        let retained: u64 = self.contexts.values().map(|(_, times)| times).sum();
        Counters {
            n_calls: self.n_calls,
            n_contexts: retained,
            n_ranges: self.ranges.len() as u64,
            n_handles: self.handles.len() as u64,
            n_mapped: self.mapped.len() as u64,
            used_bytes: self.used.iter().sum(),
        }
    }

    /// The number of a GPU, if there is one of this ordinal.
    pub(crate) fn gpu(&self, ordinal: i32) -> Result<usize, i32> {
        if !self.is_initialized {
            return Err(NOT_INITIALIZED);
        }
        usize::try_from(ordinal).ok().filter(|gpu| *gpu < self.gpus.len()).ok_or(INVALID_DEVICE)
    }

    /// The GPU of the context that is current.
    pub(crate) fn current(&self) -> Result<usize, i32> {
        self.contexts.get(&CURRENT.get()).map(|(gpu, _)| *gpu).ok_or(INVALID_CONTEXT)
    }

    pub(crate) fn free_bytes(&self, gpu: usize) -> u64 {
        let Gpu { bytes, taken_bytes, .. } = self.gpus[gpu];
        bytes.saturating_sub(taken_bytes).saturating_sub(self.used[gpu])
    }

    /// Returns the granule of memory and addresses of a GPU.
    pub(crate) fn granule(&self, gpu: usize) -> usize {
        usize::try_from(self.gpus[gpu].granule_bytes).expect("tests ask for small ones")
    }

    fn take(&mut self, gpu: usize, bytes: u64) -> Result<(), i32> {
        if bytes > self.free_bytes(gpu) {
            return Err(OUT_OF_MEMORY);
        }
        self.used[gpu] += bytes;
        Ok(())
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

impl State {
    /// Makes a context of a GPU.
    pub(crate) fn make_context(&mut self, gpu: usize) -> Result<u64, i32> {
        self.take(gpu, self.gpus[gpu].context_bytes)?;
        let context = self.number();
        self.contexts.insert(context, (gpu, 1));
        Ok(context)
    }

    /// Takes a context back, or one of those who retained it.
    pub(crate) fn end_context(&mut self, context: u64) -> Result<(), i32> {
        let (gpu, times) = self.contexts.get_mut(&context).ok_or(INVALID_CONTEXT)?;
        *times -= 1;
        let (gpu, is_last) = (*gpu, *times == 0);
        if is_last {
            self.contexts.remove(&context);
            self.used[gpu] -= self.gpus[gpu].context_bytes;
        }
        Ok(())
    }

    pub(crate) fn set_current(&self, context: u64) -> Result<(), i32> {
        if context != 0 && !self.contexts.contains_key(&context) {
            return Err(INVALID_CONTEXT);
        }
        CURRENT.set(context);
        Ok(())
    }

    /// Retains the context that all share.
    pub(crate) fn retain_primary(&mut self, gpu: usize) -> Result<u64, i32> {
        let known = self.primaries[gpu].and_then(|context| {
            let (_, times) = self.contexts.get_mut(&context)?;
            *times += 1;
            Some(context)
        });
        let context = known.map_or_else(|| self.make_context(gpu), Ok)?;
        self.primaries[gpu] = Some(context);
        Ok(context)
    }

    pub(crate) fn release_primary(&mut self, gpu: usize) -> Result<(), i32> {
        self.end_context(self.primaries[gpu].ok_or(INVALID_CONTEXT)?)
    }
}

impl State {
    pub(crate) fn reserve(&mut self, bytes: usize, alignment: usize) -> Result<u64, i32> {
        let granule = self.granule(self.current()?);
        if bytes == 0 || !bytes.is_multiple_of(granule) || !alignment.is_power_of_two() {
            return Err(INVALID_VALUE);
        }
        let at = pages::reserve(bytes, alignment.max(granule));
        if at == 0 {
            return Err(OUT_OF_MEMORY);
        }
        self.ranges.insert(at, bytes);
        Ok(at)
    }

    /// Takes addresses back that have no memory any more.
    pub(crate) fn unreserve(&mut self, at: u64, bytes: usize) -> Result<(), i32> {
        let is_used = self.mapped.range(at..at.saturating_add(bytes as u64)).next().is_some();
        if is_used || self.ranges.get(&at) != Some(&bytes) {
            return Err(INVALID_VALUE);
        }
        self.ranges.remove(&at);
        pages::unreserve(at, bytes);
        Ok(())
    }

    /// Memory of a GPU, by a handle.
    pub(crate) fn create(&mut self, gpu: usize, bytes: usize) -> Result<u64, i32> {
        if bytes == 0 || !bytes.is_multiple_of(self.granule(gpu)) {
            return Err(INVALID_VALUE);
        }
        let memory = Memory::new(bytes).ok_or(OUT_OF_MEMORY)?;
        self.take(gpu, bytes as u64)?;
        let handle = self.number();
        self.handles.insert(handle, Piece { bytes, gpu, memory });
        Ok(handle)
    }

    /// Takes a handle back. Memory that is behind an address stays there.
    pub(crate) fn release(&mut self, handle: u64) -> Result<(), i32> {
        let Piece { bytes, gpu, .. } = self.handles.remove(&handle).ok_or(INVALID_VALUE)?;
        if !self.mapped.values().any(|mapped| mapped.handle == handle) {
            self.used[gpu] -= bytes as u64;
        }
        Ok(())
    }

    pub(crate) fn map(&mut self, at: u64, bytes: usize, handle: u64) -> Result<(), i32> {
        let end = at.checked_add(bytes as u64).ok_or(INVALID_VALUE)?;
        let inside = self.ranges.range(..=at).next_back();
        let inside = inside.is_some_and(|(base, len)| end <= base + *len as u64);
        let is_used = self.mapped.range(..end).next_back();
        let is_used = is_used.is_some_and(|(start, mapped)| start + mapped.bytes as u64 > at);
        let piece = self.handles.get(&handle).ok_or(INVALID_VALUE)?;
        if !inside || is_used || piece.bytes != bytes {
            return Err(INVALID_VALUE);
        }
        pages::map(at, bytes, &piece.memory);
        self.mapped.insert(at, Mapped { handle, bytes, gpu: piece.gpu, is_allowed: false });
        Ok(())
    }

    /// Takes the memory behind an address away: what was mapped at once goes at once.
    pub(crate) fn unmap(&mut self, at: u64, bytes: usize) -> Result<(), i32> {
        if self.mapped.get(&at).is_none_or(|mapped| mapped.bytes != bytes) {
            return Err(INVALID_VALUE);
        }
        let Some(Mapped { handle, gpu, .. }) = self.mapped.remove(&at) else {
            return Err(INVALID_VALUE);
        };
        pages::unmap(at, bytes);
        if !self.handles.contains_key(&handle) {
            self.used[gpu] -= bytes as u64;
        }
        Ok(())
    }

    /// Lets a GPU use what is mapped at an address.
    pub(crate) fn allow(&mut self, at: u64, bytes: usize, gpu: usize) -> Result<(), i32> {
        let mapped = self.mapped.get_mut(&at).ok_or(INVALID_VALUE)?;
        if mapped.bytes != bytes || mapped.gpu != gpu {
            return Err(INVALID_VALUE);
        }
        mapped.is_allowed = true;
        pages::allow(at, bytes);
        Ok(())
    }

    /// Refuses ranges of which not all may be used, and threads without a context.
    pub(crate) fn check_usable(&self, at: u64, bytes: usize) -> Result<(), i32> {
        self.current()?;
        let end = at.checked_add(bytes as u64).ok_or(INVALID_VALUE)?;
        let mut next = at;
        while next < end {
            let (start, mapped) = self.mapped.range(..=next).next_back().ok_or(INVALID_VALUE)?;
            let its_end = start + mapped.bytes as u64;
            if next >= its_end || !mapped.is_allowed {
                return Err(INVALID_VALUE);
            }
            next = its_end;
        }
        Ok(())
    }
}
