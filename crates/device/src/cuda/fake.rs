//! A CUDA driver that is not there: its memory is the host's, its rules are CUDA's.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_void};
use std::ptr;

use parking_lot::{Mutex, MutexGuard};

use super::api::{AccessDesc, AllocationProp, Api};

const GRANULE: usize = 2 << 20;
const INVALID: i32 = 1;
const UNKNOWN: i32 = 999;

/// One process has one CUDA: tests take turns.
static TURN: Mutex<()> = Mutex::new(());
static STATE: Mutex<State> = Mutex::new(State::new());

pub(super) fn turn() -> MutexGuard<'static, ()> {
    TURN.lock()
}

struct State {
    capacities: &'static [u64],
    /// The major compute capability of each.
    majors: [i32; 4],
    used: [u64; 4],
    n_contexts: i32,
    current: usize,
    next: u64,
    /// Memory without a mapping: its bytes and its device.
    memory: BTreeMap<u64, (usize, usize)>,
    /// Mapped memory: its bytes, its device, and whether it may be used.
    mapped: BTreeMap<u64, (usize, usize, bool)>,
    reserved: BTreeMap<u64, usize>,
    n_calls: u64,
    fail_at: u64,
}

impl State {
    const fn new() -> State {
        State {
            capacities: &[],
            majors: [8; 4],
            used: [0; 4],
            n_contexts: 0,
            current: 0,
            next: 1,
            memory: BTreeMap::new(),
            mapped: BTreeMap::new(),
            reserved: BTreeMap::new(),
            n_calls: 0,
            fail_at: u64::MAX,
        }
    }

    /// Whether all of a range may be used.
    fn is_usable(&self, at: u64, bytes: usize) -> bool {
        let end = at + bytes as u64;
        let mut next = at;
        while next < end {
            match self.mapped.range(..=next).next_back() {
                Some((start, (bytes, _, true))) if next < start + *bytes as u64 => {
                    next = start + *bytes as u64;
                }
                _ => return false,
            }
        }
        true
    }
}

/// The calls of a fake with GPUs of these sizes; forgets what was before.
pub(super) fn api(capacities: &'static [u64]) -> Api {
    *STATE.lock() = State { capacities, ..State::new() };
    Api::load(find).expect("the fake has every call")
}

/// Lets the GPUs opened from now on be of these generations.
pub(super) fn set_majors(majors: [i32; 4]) {
    STATE.lock().majors = majors;
}

/// How many calls there were that can fail.
pub(super) fn n_calls() -> u64 {
    STATE.lock().n_calls
}

pub(super) fn n_contexts() -> i32 {
    STATE.lock().n_contexts
}

/// Lets another process have memory of a GPU.
pub(super) fn take_away(gpu: usize, bytes: u64) {
    STATE.lock().used[gpu] += bytes;
}

/// Lets the `n`-th call that can fail from now on fail.
pub(super) fn fail_call(n: u64) {
    let mut state = STATE.lock();
    state.fail_at = state.n_calls.saturating_add(n);
}

/// The state, unless it is this call's turn to fail.
fn enter() -> Option<MutexGuard<'static, State>> {
    let mut state = STATE.lock();
    let n = state.n_calls;
    state.n_calls += 1;
    (n != state.fail_at).then_some(state)
}

macro_rules! enter {
    () => {
        match enter() {
            Some(state) => state,
            None => return UNKNOWN,
        }
    };
}

unsafe extern "C" fn init(_: u32) -> i32 {
    if STATE.lock().capacities.is_empty() { 100 } else { 0 }
}

unsafe extern "C" fn device_get_count(count: *mut i32) -> i32 {
    let n = i32::try_from(STATE.lock().capacities.len()).expect("small");
    // SAFETY: the caller gives a pointer to a number.
    unsafe { count.write(n) };
    0
}

unsafe extern "C" fn device_get(device: *mut i32, ordinal: i32) -> i32 {
    // SAFETY: the caller gives a pointer to a number.
    unsafe { device.write(ordinal) };
    0
}

unsafe extern "C" fn device_get_attribute(value: *mut i32, attribute: i32, gpu: i32) -> i32 {
    let known = match attribute {
        75 => STATE.lock().majors[usize::try_from(gpu).expect("small")],
        76 => 0,
        102 => 1,
        _ => return INVALID,
    };
    // SAFETY: the caller gives a pointer to a number.
    unsafe { value.write(known) };
    0
}

unsafe extern "C" fn device_total_mem(bytes: *mut usize, device: i32) -> i32 {
    let total = STATE.lock().capacities[usize::try_from(device).expect("small")];
    // SAFETY: the caller gives a pointer to a number.
    unsafe { bytes.write(usize::try_from(total).expect("small")) };
    0
}

unsafe extern "C" fn primary_ctx_retain(context: *mut usize, device: i32) -> i32 {
    STATE.lock().n_contexts += 1;
    // SAFETY: the caller gives a pointer to a pointer.
    unsafe { context.write(usize::try_from(device).expect("small") + 1) };
    0
}

unsafe extern "C" fn primary_ctx_release(_: i32) -> i32 {
    STATE.lock().n_contexts -= 1;
    0
}

unsafe extern "C" fn ctx_set_current(context: usize) -> i32 {
    STATE.lock().current = context - 1;
    0
}

unsafe extern "C" fn ctx_synchronize() -> i32 {
    0
}

unsafe extern "C" fn mem_get_info(free: *mut usize, total: *mut usize) -> i32 {
    let state = STATE.lock();
    let (all, used) = (state.capacities[state.current], state.used[state.current]);
    // SAFETY: the caller gives a pointer to a number.
    unsafe { free.write(usize::try_from(all - used).expect("small")) };
    // SAFETY: the caller gives a pointer to a number.
    unsafe { total.write(usize::try_from(all).expect("small")) };
    0
}

unsafe extern "C" fn mem_granularity(bytes: *mut usize, _: *const AllocationProp, _: i32) -> i32 {
    // SAFETY: the caller gives a pointer to a number.
    unsafe { bytes.write(GRANULE) };
    0
}

unsafe extern "C" fn mem_address_reserve(
    base: *mut u64,
    bytes: usize,
    alignment: usize,
    _: u64,
    _: u64,
) -> i32 {
    let mut state = enter!();
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a mapping of its own, without access. What aligning leaves over is never given back.
    let at =
        unsafe { libc::mmap(ptr::null_mut(), bytes + alignment, libc::PROT_NONE, flags, -1, 0) };
    assert_ne!(at, libc::MAP_FAILED);
    let at = (at.expose_provenance() as u64).next_multiple_of(alignment as u64);
    state.reserved.insert(at, bytes);
    // SAFETY: the caller gives a pointer to a number.
    unsafe { base.write(at) };
    0
}

unsafe extern "C" fn mem_address_free(base: u64, bytes: usize) -> i32 {
    let mut state = STATE.lock();
    let end = base + bytes as u64;
    if state.mapped.range(base..end).next().is_some() {
        return INVALID;
    }
    if state.reserved.remove(&base) == Some(bytes) { 0 } else { INVALID }
}

unsafe extern "C" fn mem_create(
    memory: *mut u64,
    bytes: usize,
    prop: *const AllocationProp,
    _: u64,
) -> i32 {
    let mut state = enter!();
    // SAFETY: the caller gives a pointer to such a value.
    let device = unsafe { *prop }.location().id();
    let device = usize::try_from(device).expect("small");
    if state.used[device] + bytes as u64 > state.capacities[device] {
        return 2;
    }
    state.used[device] += bytes as u64;
    let id = state.next;
    state.next += 1;
    state.memory.insert(id, (bytes, device));
    // SAFETY: the caller gives a pointer to a number.
    unsafe { memory.write(id) };
    0
}

/// Memory without a mapping goes when it is released; mapped memory is only forgotten.
unsafe extern "C" fn mem_release(memory: u64) -> i32 {
    let mut state = STATE.lock();
    if let Some((bytes, device)) = state.memory.remove(&memory) {
        state.used[device] -= bytes as u64;
    }
    0
}

unsafe extern "C" fn mem_map(at: u64, bytes: usize, _: usize, memory: u64, _: u64) -> i32 {
    let mut state = enter!();
    let inside = state.reserved.range(..=at).next_back();
    let inside = inside.is_some_and(|(base, len)| at + bytes as u64 <= base + *len as u64);
    if !inside || state.mapped.contains_key(&at) {
        return INVALID;
    }
    let Some((_, device)) = state.memory.remove(&memory) else { return INVALID };
    state.mapped.insert(at, (bytes, device, false));
    0
}

unsafe extern "C" fn mem_unmap(at: u64, bytes: usize) -> i32 {
    let mut state = enter!();
    match state.mapped.get(&at).copied() {
        // A mapping goes as a whole or not at all.
        Some((mapped, device, _)) if mapped == bytes => {
            state.mapped.remove(&at);
            state.used[device] -= bytes as u64;
        }
        _ => return INVALID,
    }
    let start = ptr::with_exposed_provenance_mut::<c_void>(usize::try_from(at).expect("small"));
    // SAFETY: the range is one of our own mappings, and nobody uses it any more.
    unsafe { libc::madvise(start, bytes, libc::MADV_DONTNEED) };
    // SAFETY: as above.
    unsafe { libc::mprotect(start, bytes, libc::PROT_NONE) };
    0
}

unsafe extern "C" fn mem_set_access(at: u64, bytes: usize, _: *const AccessDesc, _: usize) -> i32 {
    let mut state = enter!();
    let Some(mapped) = state.mapped.get_mut(&at).filter(|m| m.0 == bytes) else { return INVALID };
    mapped.2 = true;
    let start = ptr::with_exposed_provenance_mut::<c_void>(usize::try_from(at).expect("small"));
    // SAFETY: the range is one of our own mappings.
    unsafe { libc::mprotect(start, bytes, libc::PROT_READ | libc::PROT_WRITE) };
    // SAFETY: the range was just made writable. A GPU's memory is not empty when it is new.
    unsafe { start.cast::<u8>().write_bytes(0xaa, bytes) };
    0
}

unsafe extern "C" fn memset(at: u64, value: u8, bytes: usize) -> i32 {
    let state = enter!();
    if !state.is_usable(at, bytes) {
        return INVALID;
    }
    let start = ptr::with_exposed_provenance_mut::<u8>(usize::try_from(at).expect("small"));
    // SAFETY: the range is mapped and usable, as was just checked.
    unsafe { start.write_bytes(value, bytes) };
    0
}

unsafe extern "C" fn memcpy_to_device(to: u64, from: *const c_void, bytes: usize) -> i32 {
    let state = enter!();
    if !state.is_usable(to, bytes) {
        return INVALID;
    }
    let to = ptr::with_exposed_provenance_mut::<u8>(usize::try_from(to).expect("small"));
    // SAFETY: the target is usable, as was just checked; the source is the caller's promise.
    unsafe { to.copy_from_nonoverlapping(from.cast(), bytes) };
    0
}

unsafe extern "C" fn memcpy_to_host(to: *mut c_void, from: u64, bytes: usize) -> i32 {
    let state = enter!();
    if !state.is_usable(from, bytes) {
        return INVALID;
    }
    let from = ptr::with_exposed_provenance::<u8>(usize::try_from(from).expect("small"));
    // SAFETY: the source is usable, as was just checked; the target is the caller's promise.
    unsafe { to.cast::<u8>().copy_from_nonoverlapping(from, bytes) };
    0
}

unsafe extern "C" fn memcpy_in_device(to: u64, from: u64, bytes: usize) -> i32 {
    let state = enter!();
    if !state.is_usable(from, bytes) || !state.is_usable(to, bytes) {
        return INVALID;
    }
    let from = ptr::with_exposed_provenance::<u8>(usize::try_from(from).expect("small"));
    let to = ptr::with_exposed_provenance_mut::<u8>(usize::try_from(to).expect("small"));
    // SAFETY: both are usable, as was just checked, and apart by the caller's promise.
    unsafe { to.copy_from_nonoverlapping(from, bytes) };
    0
}

fn find(symbol: &CStr) -> Option<*mut c_void> {
    Some(match symbol.to_str().ok()? {
        "cuInit" => init as *mut c_void,
        "cuDeviceGetCount" => device_get_count as *mut c_void,
        "cuDeviceGet" => device_get as *mut c_void,
        "cuDeviceGetAttribute" => device_get_attribute as *mut c_void,
        "cuDeviceTotalMem_v2" => device_total_mem as *mut c_void,
        "cuDevicePrimaryCtxRetain" => primary_ctx_retain as *mut c_void,
        "cuDevicePrimaryCtxRelease_v2" => primary_ctx_release as *mut c_void,
        "cuCtxSetCurrent" => ctx_set_current as *mut c_void,
        "cuCtxSynchronize" => ctx_synchronize as *mut c_void,
        "cuMemGetInfo_v2" => mem_get_info as *mut c_void,
        "cuMemGetAllocationGranularity" => mem_granularity as *mut c_void,
        "cuMemAddressReserve" => mem_address_reserve as *mut c_void,
        "cuMemAddressFree" => mem_address_free as *mut c_void,
        "cuMemCreate" => mem_create as *mut c_void,
        "cuMemRelease" => mem_release as *mut c_void,
        "cuMemMap" => mem_map as *mut c_void,
        "cuMemUnmap" => mem_unmap as *mut c_void,
        "cuMemSetAccess" => mem_set_access as *mut c_void,
        "cuMemsetD8_v2" => memset as *mut c_void,
        "cuMemcpyHtoD_v2" => memcpy_to_device as *mut c_void,
        "cuMemcpyDtoH_v2" => memcpy_to_host as *mut c_void,
        "cuMemcpyDtoD_v2" => memcpy_in_device as *mut c_void,
        _ => return None,
    })
}
