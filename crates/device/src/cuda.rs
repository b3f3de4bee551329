//! The memory of NVIDIA GPUs, by CUDA's driver API: addresses are reserved once, and memory is put
//! behind them a granule at a time, so that growing moves nothing and every granule can go back.
//!
//! The library is looked for when the program runs; without it there are no such GPUs, and that is
//! no error. Kernels are no part of this: buffers of the host cannot be there.

mod calls;

use std::collections::BTreeSet;
use std::ops::Range;
use std::ptr;

use cudarc::driver::sys;
use cudarc::driver::sys::CUdevice_attribute as Attribute;
use parking_lot::Mutex;

use self::calls::{Calls, Code, NO_DEVICE, OUT_OF_MEMORY, STUB_LIBRARY, SUCCESS, calls};
use crate::driver::{Driver, Kind, Properties};
use crate::error::{Error, Result};
use crate::logical::Physical;

/// The GPUs that CUDA finds; none if there is no CUDA.
///
/// # Errors
/// If there is a CUDA driver, but it fails.
pub fn cuda_gpus() -> Result<Vec<Cuda>> {
    calls().map_or(Ok(Vec::new()), gpus)
}

/// A driver of one GPU's memory.
#[derive(Debug)]
pub struct Cuda {
    calls: &'static Calls,
    ordinal: i32,
    /// The primary context, by address.
    context: usize,
    properties: Properties,
    compute_capability: (u32, u32),
    /// The bytes that the context took of the GPU.
    context_bytes: u64,
    /// The granules that have memory, by address.
    mapped: Mutex<BTreeSet<u64>>,
}

/// The stream priorities that every CUDA driver reports since compute capability 7.
const STREAM_PRIORITIES: (i32, i32) = (0, -5);

/// The alignment of CUDA's allocations.
const ALIGNMENT_BYTES: u64 = 256;

/// The largest region: more than any GPU has.
const REGION_BYTES_MAX: u64 = 1 << 40;

fn gpus(calls: &'static Calls) -> Result<Vec<Cuda>> {
    // SAFETY: the first call that the driver API asks for; 0 is its only flag.
    let code = unsafe { (calls.init)(0) };
    // The library of a toolkit is there for programs to be linked, and drives nothing.
    if [NO_DEVICE, STUB_LIBRARY].contains(&code) {
        return Ok(Vec::new());
    }
    check("cuda", "cuInit", code)?;
    let mut n_gpus = 0;
    // SAFETY: the pointer is to a number of that type.
    check("cuda", "cuDeviceGetCount", unsafe { (calls.device_get_count)(&raw mut n_gpus) })?;
    (0..n_gpus).map(|number| Cuda::open(calls, number)).collect()
}

fn check(device: &str, call: &'static str, code: Code) -> Result<()> {
    if code == SUCCESS {
        return Ok(());
    }
    let reason = format!("CUDA error {code}");
    Err(Error::Driver { device: device.to_owned(), call, reason })
}

impl Cuda {
    fn open(calls: &'static Calls, number: i32) -> Result<Cuda> {
        let name = format!("gpu:{number}");
        let mut ordinal = 0;
        // SAFETY: the pointer is to a number of that type.
        check(&name, "cuDeviceGet", unsafe { (calls.device_get)(&raw mut ordinal, number) })?;
        let attribute = |attribute: Attribute| {
            let mut value = 0;
            // SAFETY: the pointer is to a number of that type, the device is the driver's own.
            let code = unsafe { (calls.device_get_attribute)(&raw mut value, attribute, ordinal) };
            check(&name, "cuDeviceGetAttribute", code).map(|()| u32::try_from(value).unwrap_or(0))
        };
        let capability = (
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        );
        if attribute(Attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)? == 0 {
            let reason = "it has no virtual memory management".to_owned();
            return Err(Error::Driver { device: name, call: "cuDeviceGetAttribute", reason });
        }
        let mut total = 0;
        // SAFETY: the pointer is to a number of that type.
        let code = unsafe { (calls.device_total_mem)(&raw mut total, ordinal) };
        check(&name, "cuDeviceTotalMem", code)?;
        let (context, context_bytes) = retain(calls, &name, ordinal)?;
        let mut cuda = Cuda {
            calls,
            ordinal,
            context: context.expose_provenance(),
            properties: Properties {
                name,
                kind: Kind::Gpu,
                capacity_bytes: total as u64,
                granule_bytes: ALIGNMENT_BYTES,
                alignment_bytes: ALIGNMENT_BYTES,
                region_bytes_max: REGION_BYTES_MAX,
                grows_in_place: true,
                host_visible: false,
            },
            compute_capability: capability,
            context_bytes,
            mapped: Mutex::default(),
        };
        cuda.properties.granule_bytes = cuda.granule()?;
        cuda.properties.check();
        Ok(cuda)
    }

    /// CUDA's compute capability, major and minor.
    pub fn compute_capability(&self) -> (u32, u32) {
        self.compute_capability
    }

    /// The GPU as it was found, to make logical devices of.
    ///
    /// # Errors
    /// If the driver does not say what is free.
    pub fn physical(&self) -> Result<Physical> {
        Ok(Physical {
            name: self.properties.name.clone(),
            kind: Kind::Gpu,
            total_bytes: self.properties.capacity_bytes,
            free_bytes: self.free_bytes()?.saturating_add(self.context_bytes),
            compute_capability: Some(self.compute_capability),
            priorities: STREAM_PRIORITIES,
        })
    }

    /// The bytes free on the GPU, whoever holds the rest.
    pub fn free_bytes(&self) -> Result<u64> {
        let mut free = 0;
        self.call("cuMemGetInfo", || free_now(self.calls, &mut free))?;
        Ok(free)
    }

    fn granule(&self) -> Result<u64> {
        let (prop, mut bytes) = (self.prop(), 0);
        let least = sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
        self.call("cuMemGetAllocationGranularity", || {
            // SAFETY: the pointers are to values of those types.
            unsafe { (self.calls.mem_get_granularity)(&raw mut bytes, &raw const prop, least) }
        })?;
        Ok(bytes as u64)
    }

    /// Memory of this GPU that stays there, and is nobody else's.
    fn prop(&self) -> sys::CUmemAllocationProp {
        sys::CUmemAllocationProp {
            type_: sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
            location: self.location(),
            win32HandleMetaData: ptr::null_mut(),
            allocFlags: sys::CUmemAllocationProp_st__bindgen_ty_1 {
                compressionType: 0,
                gpuDirectRDMACapable: 0,
                usage: 0,
                reserved: [0; 4],
            },
        }
    }

    fn location(&self) -> sys::CUmemLocation {
        let type_ = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        sys::CUmemLocation { type_, id: self.ordinal }
    }

    /// Makes the context current and calls the driver.
    fn call(&self, call: &'static str, work: impl FnOnce() -> Code) -> Result<()> {
        let name = &self.properties.name;
        let context = ptr::with_exposed_provenance_mut(self.context);
        // SAFETY: the context was retained when this was made, and is until it is dropped.
        check(name, "cuCtxSetCurrent", unsafe { (self.calls.ctx_set_current)(context) })?;
        let code = work();
        if code == OUT_OF_MEMORY {
            return Err(Error::Exhausted {
                device: name.clone(),
                needed_bytes: self.properties.granule_bytes,
                free_bytes: self.available_bytes(),
                limit_bytes: self.properties.capacity_bytes,
            });
        }
        check(name, call, code)
    }

    /// The same for what gives something back: a second time, since there will not be another.
    fn call_again(&self, call: &'static str, work: impl Fn() -> Code) -> Result<()> {
        self.call(call, &work).or_else(|_| self.call(call, &work))
    }

    /// Puts a granule of memory behind an address.
    fn map(&self, address: u64) -> Result<()> {
        let (prop, mut memory) = (self.prop(), 0);
        let bytes = size(self.properties.granule_bytes);
        self.call("cuMemCreate", || {
            // SAFETY: the pointers are to values of those types.
            unsafe { (self.calls.mem_create)(&raw mut memory, bytes, &raw const prop, 0) }
        })?;
        let mapped = self.call("cuMemMap", || {
            // SAFETY: the caller's range is reserved and has no memory; the handle is new.
            unsafe { (self.calls.mem_map)(address, bytes, 0, memory, 0) }
        });
        // The mapping keeps the memory; without one it goes back now.
        let released = self.call_again("cuMemRelease", || {
            // SAFETY: the handle was made above, and is released once unless that failed.
            unsafe { (self.calls.mem_release)(memory) }
        });
        mapped?;
        let access = sys::CUmemAccessDesc {
            location: self.location(),
            flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        let allowed = released.and_then(|()| {
            self.call("cuMemSetAccess", || {
                // SAFETY: the range was mapped above; one description is given.
                unsafe { (self.calls.mem_set_access)(address, bytes, &raw const access, 1) }
            })?;
            self.call("cuMemsetD8", || {
                // SAFETY: the range is mapped and may be written.
                unsafe { (self.calls.memset)(address, 0, bytes) }
            })
        });
        match &allowed {
            Ok(()) => drop(self.mapped.lock().insert(address)),
            Err(_) => drop(self.unmap(address)),
        }
        allowed
    }

    fn unmap(&self, address: u64) -> Result<()> {
        let bytes = size(self.properties.granule_bytes);
        self.call("cuMemUnmap", || {
            // SAFETY: exactly one granule that `map` mapped.
            unsafe { (self.calls.mem_unmap)(address, bytes) }
        })?;
        self.mapped.lock().remove(&address);
        Ok(())
    }

    fn granules(&self, range: &Range<u64>) -> impl DoubleEndedIterator<Item = u64> + use<> {
        let granule = self.properties.granule_bytes;
        let first = range.start;
        (0..(range.end - range.start) / granule).map(move |n| first + n * granule)
    }
}

impl Driver for Cuda {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn held_bytes(&self) -> u64 {
        self.mapped.lock().len() as u64 * self.properties.granule_bytes
    }

    fn context_bytes(&self) -> u64 {
        self.context_bytes
    }

    fn available_bytes(&self) -> u64 {
        let ours = self.properties.capacity_bytes.saturating_sub(self.held_bytes());
        ours.min(self.free_bytes().unwrap_or(0))
    }

    fn reserve(&self, bytes: u64) -> Result<u64> {
        let Properties { name, granule_bytes, region_bytes_max, .. } = &self.properties;
        if bytes > *region_bytes_max {
            return Err(Error::TooLarge {
                device: name.clone(),
                needed_bytes: bytes,
                largest_bytes: *region_bytes_max,
            });
        }
        let mut base = 0;
        self.call("cuMemAddressReserve", || {
            let granule = size(*granule_bytes);
            // SAFETY: the pointer is to a number of that type; no address is asked for.
            unsafe { (self.calls.mem_address_reserve)(&raw mut base, size(bytes), granule, 0, 0) }
        })?;
        Ok(base)
    }

    unsafe fn commit(&self, range: Range<u64>) -> Result<()> {
        for address in self.granules(&range) {
            if let Err(error) = self.map(address) {
                let mapped = self.granules(&(range.start..address));
                mapped.rev().for_each(|address| drop(self.unmap(address)));
                return Err(error);
            }
        }
        Ok(())
    }

    unsafe fn decommit(&self, range: Range<u64>) -> Result<()> {
        let granules: Vec<u64> = self.granules(&range).collect();
        for (n, address) in granules.iter().enumerate() {
            if let Err(error) = self.unmap(*address) {
                // What is gone already comes back empty, so that the range is whole again.
                granules[..n].iter().for_each(|address| drop(self.map(*address)));
                return Err(error);
            }
        }
        Ok(())
    }

    unsafe fn release(&self, range: Range<u64>, held_bytes: u64) {
        let mapped: Vec<u64> = self.mapped.lock().range(range.clone()).copied().collect();
        assert_eq!(mapped.len() as u64 * self.properties.granule_bytes, held_bytes);
        for address in mapped {
            // As in `call_again`.
            drop(self.unmap(address).or_else(|_| self.unmap(address)));
        }
        let bytes = size(range.end - range.start);
        drop(self.call_again("cuMemAddressFree", || {
            // SAFETY: the caller promises that exactly this was reserved.
            unsafe { (self.calls.mem_address_free)(range.start, bytes) }
        }));
    }

    unsafe fn write(&self, to: u64, from: &[u8]) -> Result<()> {
        self.call("cuMemcpyHtoD", || {
            // SAFETY: the caller promises that the bytes at `to` are committed and unused.
            unsafe { (self.calls.memcpy_to_device)(to, from.as_ptr().cast(), from.len()) }
        })
    }

    unsafe fn read(&self, from: u64, to: &mut [u8]) -> Result<()> {
        self.call("cuMemcpyDtoH", || {
            // SAFETY: the caller promises that the bytes at `from` are committed and not written.
            unsafe { (self.calls.memcpy_to_host)(to.as_mut_ptr().cast(), from, to.len()) }
        })
    }

    unsafe fn copy(&self, from: u64, to: u64, bytes: u64) -> Result<()> {
        self.call("cuMemcpyDtoD", || {
            // SAFETY: the caller promises that both pieces are committed, apart, and unused.
            unsafe { (self.calls.memcpy_on_device)(to, from, size(bytes)) }
        })
    }

    fn sync(&self) -> Result<()> {
        self.call("cuCtxSynchronize", || {
            // SAFETY: the context is current.
            unsafe { (self.calls.ctx_synchronize)() }
        })
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        let release = || {
            // SAFETY: retained once when this was made; released once, unless that fails.
            unsafe { (self.calls.primary_ctx_release)(self.ordinal) }
        };
        if release() != SUCCESS {
            release();
        }
    }
}

/// Retains the context of a GPU that all of a process share, and measures what it takes. What is
/// free can only be asked for in a context, so that another one is there until that is known.
fn retain(calls: &Calls, name: &str, ordinal: i32) -> Result<(sys::CUcontext, u64)> {
    let mut other = ptr::null_mut();
    // SAFETY: the pointer is to a pointer; destroyed below.
    let code = unsafe { (calls.ctx_create)(&raw mut other, 0, ordinal) };
    // Where there is no room for two, nobody knows what one takes.
    let is_measured = code == SUCCESS;
    let free = || {
        let mut bytes = 0;
        (is_measured && free_now(calls, &mut bytes) == SUCCESS).then_some(bytes)
    };
    let before = free();
    let mut context = ptr::null_mut();
    let mut retain = || {
        // SAFETY: the pointer is to a pointer; released when the driver is dropped.
        unsafe { (calls.primary_ctx_retain)(&raw mut context, ordinal) }
    };
    let mut retained = retain();
    let after = free();
    if is_measured {
        destroy(calls, other);
    }
    if retained == OUT_OF_MEMORY {
        retained = retain();
    }
    check(name, "cuDevicePrimaryCtxRetain", retained)?;
    let taken = before.zip(after).map_or(0, |(before, after)| before.saturating_sub(after));
    Ok((context, taken))
}

/// Reads the bytes that are free on the GPU of the current context.
fn free_now(calls: &Calls, bytes: &mut u64) -> Code {
    let (mut free, mut total) = (0, 0);
    // SAFETY: both pointers are to numbers of that type.
    let code = unsafe { (calls.mem_get_info)(&raw mut free, &raw mut total) };
    *bytes = free as u64;
    code
}

/// Ends a context that was made; a second time if that fails, since there will not be another.
fn destroy(calls: &Calls, context: sys::CUcontext) {
    let destroy = || {
        // SAFETY: the caller made it, and nobody else knows it.
        unsafe { (calls.ctx_destroy)(context) }
    };
    if destroy() != SUCCESS {
        destroy();
    }
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).expect("sizes of a GPU fit the host's pointers")
}

#[cfg(test)]
mod tests;
