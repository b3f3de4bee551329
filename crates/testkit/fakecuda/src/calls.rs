//! The calls of CUDA's driver API, by the names and with the arguments of `cuda.h`.
//!
//! Every one of them counts, and can be told to fail: then it does nothing.

use std::ffi::c_void;

use crate::pages::{self, pointer};
use crate::state::{CURRENT, INVALID_VALUE, NO_DEVICE, State, enter};

/// `CU_DEVICE_ATTRIBUTE_…`
const COMPUTE_CAPABILITY_MAJOR: i32 = 75;
const COMPUTE_CAPABILITY_MINOR: i32 = 76;
const VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: i32 = 102;

/// `CU_MEM_LOCATION_TYPE_DEVICE`, `CU_MEM_ALLOCATION_TYPE_PINNED`,
/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`
const ON_DEVICE: i32 = 1;
const PINNED: i32 = 1;
const READ_WRITE: i32 = 3;

/// The place of memory: `CUmemLocation`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Location {
    kind: i32,
    id: i32,
}

/// The properties of memory: `CUmemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Prop {
    kind: i32,
    handle_types: i32,
    location: Location,
    windows: *mut c_void,
    flags: [u8; 8],
}

/// The access of a device to memory: `CUmemAccessDesc`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Access {
    location: Location,
    flags: i32,
}

/// Defines calls: each is its own check of whether it fails, a body that changes the state, and the
/// code that it answers with.
macro_rules! calls {
    ($($(#[$doc:meta])* fn $name:ident($state:ident $(, $arg:ident: $type:ty)*) $body:block)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// As `cuda.h` says: pointers are to values of their types.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($arg: $type),*) -> i32 {
                let body = || -> Result<(), i32> {
                    #[allow(unused_mut, reason = "not every call changes the state")]
                    let mut $state = enter()?;
                    $body
                };
                body().err().unwrap_or(0)
            }
        )*
    };
}

/// Gives an answer by a pointer.
fn answer<T>(to: *mut T, value: T) -> Result<(), i32> {
    if to.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: it is not null, and callers of the driver API promise the rest.
    unsafe { to.write(value) };
    Ok(())
}

/// Reads an argument behind a pointer.
fn argument<T: Copy>(from: *const T) -> Result<T, i32> {
    if from.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: it is not null, and callers of the driver API promise the rest.
    Ok(unsafe { from.read() })
}

/// The GPU that memory is to be on.
fn gpu_of(state: &State, location: Location) -> Result<usize, i32> {
    if location.kind == ON_DEVICE { state.gpu(location.id) } else { Err(INVALID_VALUE) }
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

calls! {
    /// Begins.
    fn cuInit(state, flags: u32) {
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        if state.gpus.is_empty() {
            return Err(NO_DEVICE);
        }
        state.is_initialized = true;
        Ok(())
    }

    /// Gives the number of GPUs.
    fn cuDeviceGetCount(state, count: *mut i32) {
        answer(count, i32::try_from(state.gpus.len()).unwrap_or(i32::MAX))
    }

    /// A GPU by its ordinal.
    fn cuDeviceGet(state, device: *mut i32, ordinal: i32) {
        state.gpu(ordinal)?;
        answer(device, ordinal)
    }

    /// Gives an attribute of a GPU.
    fn cuDeviceGetAttribute(state, value: *mut i32, attribute: i32, device: i32) {
        let gpu = &state.gpus[state.gpu(device)?];
        answer(value, match attribute {
            COMPUTE_CAPABILITY_MAJOR => gpu.major,
            COMPUTE_CAPABILITY_MINOR => gpu.minor,
            VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED => gpu.has_virtual_memory,
            _ => return Err(INVALID_VALUE),
        })
    }

    /// All memory of a GPU.
    fn cuDeviceTotalMem_v2(state, bytes: *mut usize, device: i32) {
        answer(bytes, size(state.gpus[state.gpu(device)?].bytes))
    }

    /// The context that all share.
    fn cuDevicePrimaryCtxRetain(state, context: *mut u64, device: i32) {
        let gpu = state.gpu(device)?;
        answer(context, state.retain_primary(gpu)?)
    }

    /// Takes it back.
    fn cuDevicePrimaryCtxRelease_v2(state, device: i32) {
        let gpu = state.gpu(device)?;
        state.release_primary(gpu)
    }

    /// A context of one's own, which is current from now on.
    fn cuCtxCreate_v2(state, context: *mut u64, _flags: u32, device: i32) {
        let gpu = state.gpu(device)?;
        let made = state.make_context(gpu)?;
        CURRENT.set(made);
        answer(context, made)
    }

    /// Takes it back.
    fn cuCtxDestroy_v2(state, context: u64) {
        state.end_context(context)?;
        if CURRENT.get() == context {
            CURRENT.set(0);
        }
        Ok(())
    }

    /// Sets the context that the calls of this thread are about.
    fn cuCtxSetCurrent(state, context: u64) {
        state.set_current(context)
    }

    /// Waits for copies, which are done when their calls return.
    fn cuCtxSynchronize(state) {
        state.current().map(drop)
    }

    /// Gives the free bytes and all bytes of a GPU.
    fn cuMemGetInfo_v2(state, free: *mut usize, total: *mut usize) {
        let gpu = state.current()?;
        answer(free, size(state.free_bytes(gpu)))?;
        answer(total, size(state.gpus[gpu].bytes))
    }

    /// Gives the granule of memory.
    fn cuMemGetAllocationGranularity(state, bytes: *mut usize, prop: *const Prop, _option: i32) {
        let gpu = gpu_of(&state, argument(prop)?.location)?;
        answer(bytes, state.granule(gpu))
    }

    /// Addresses without memory.
    fn cuMemAddressReserve(
        state, base: *mut u64, bytes: usize, alignment: usize, _wish: u64, _flags: u64
    ) {
        answer(base, state.reserve(bytes, alignment)?)
    }

    /// Takes them back.
    fn cuMemAddressFree(state, base: u64, bytes: usize) {
        state.unreserve(base, bytes)
    }

    /// Memory without addresses.
    fn cuMemCreate(state, handle: *mut u64, bytes: usize, prop: *const Prop, _flags: u64) {
        let prop = argument(prop)?;
        let gpu = gpu_of(&state, prop.location)?;
        if prop.kind != PINNED || prop.handle_types != 0 || !prop.windows.is_null() {
            return Err(INVALID_VALUE);
        }
        if prop.flags != [0; 8] {
            return Err(INVALID_VALUE);
        }
        answer(handle, state.create(gpu, bytes)?)
    }

    /// Takes a handle back.
    fn cuMemRelease(state, handle: u64) {
        state.release(handle)
    }

    /// Puts memory behind addresses.
    fn cuMemMap(state, at: u64, bytes: usize, offset: usize, handle: u64, _flags: u64) {
        if offset == 0 { state.map(at, bytes, handle) } else { Err(INVALID_VALUE) }
    }

    /// Takes it away.
    fn cuMemUnmap(state, at: u64, bytes: usize) {
        state.unmap(at, bytes)
    }

    /// Lets a GPU use memory.
    fn cuMemSetAccess(state, at: u64, bytes: usize, access: *const Access, n: usize) {
        let access = argument(access)?;
        let gpu = gpu_of(&state, access.location)?;
        if n != 1 || access.flags != READ_WRITE {
            return Err(INVALID_VALUE);
        }
        state.allow(at, bytes, gpu)
    }

    /// Writes the same byte everywhere.
    fn cuMemsetD8_v2(state, at: u64, value: u8, bytes: usize) {
        state.check_usable(at, bytes)?;
        pages::fill(at, bytes, value);
        Ok(())
    }

    /// Copies from the host.
    fn cuMemcpyHtoD_v2(state, to: u64, from: *const c_void, bytes: usize) {
        state.check_usable(to, bytes)?;
        // SAFETY: the target was just checked; the source is the caller's promise.
        unsafe { pointer(to).copy_from_nonoverlapping(from.cast(), bytes) };
        Ok(())
    }

    /// Copies to the host.
    fn cuMemcpyDtoH_v2(state, to: *mut c_void, from: u64, bytes: usize) {
        state.check_usable(from, bytes)?;
        // SAFETY: the source was just checked; the target is the caller's promise.
        unsafe { to.cast::<u8>().copy_from_nonoverlapping(pointer(from), bytes) };
        Ok(())
    }

    /// Copies inside a GPU.
    fn cuMemcpyDtoD_v2(state, to: u64, from: u64, bytes: usize) {
        state.check_usable(from, bytes)?;
        state.check_usable(to, bytes)?;
        // SAFETY: both were just checked, and are apart by the caller's promise.
        unsafe { pointer(to).copy_from_nonoverlapping(pointer(from), bytes) };
        Ok(())
    }
}
