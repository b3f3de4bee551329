//! The memory of NVIDIA GPUs, by CUDA's driver API: addresses are reserved once, and memory is put
//! behind them a granule at a time, so that growing moves nothing and every granule can go back.
//!
//! The library is looked for when the program runs; without it there are no such GPUs, and that is
//! no error. Kernels are no part of this: buffers of the host cannot be there.

use std::collections::BTreeSet;
use std::ops::Range;
use std::ptr;

use cudarc::driver::sys;
use cudarc::driver::sys::CUdevice_attribute as Attribute;
use cudarc::driver::sys::CUresult as Code;
use parking_lot::Mutex;

use crate::driver::{Driver, Kind, Properties};
use crate::error::{Error, Result};
use crate::logical::Physical;

/// The GPUs that CUDA finds; none if there is no CUDA.
///
/// # Errors
/// If there is a CUDA driver, but it fails.
pub fn cuda_gpus() -> Result<Vec<Cuda>> {
    if is_usable() { gpus() } else { Ok(Vec::new()) }
}

/// A driver of one GPU's memory.
#[derive(Debug)]
pub struct Cuda {
    ordinal: i32,
    /// The primary context, by address.
    context: usize,
    properties: Properties,
    compute_capability: (u32, u32),
    /// What the context took of the GPU.
    context_bytes: u64,
    /// The granules that have memory, by address.
    mapped: Mutex<BTreeSet<u64>>,
}

/// The calls that are made. cudarc looks for each when it is made first, and panics without it, so
/// that a driver that lacks one is found out here.
const CALLS: &[&str] = &[
    "cuInit",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceTotalMem_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuCtxCreate_v2",
    "cuCtxDestroy_v2",
    "cuCtxSetCurrent",
    "cuCtxSynchronize",
    "cuMemGetInfo_v2",
    "cuMemGetAllocationGranularity",
    "cuMemAddressReserve",
    "cuMemAddressFree",
    "cuMemCreate",
    "cuMemRelease",
    "cuMemMap",
    "cuMemUnmap",
    "cuMemSetAccess",
    "cuMemsetD8_v2",
    "cuMemcpyHtoD_v2",
    "cuMemcpyDtoH_v2",
    "cuMemcpyDtoD_v2",
];

/// What every CUDA driver since compute capability 7 says of its streams.
const STREAM_PRIORITIES: (i32, i32) = (0, -5);

/// What CUDA aligns its allocations to.
const ALIGNMENT_BYTES: u64 = 256;

/// The largest region: more than any GPU has.
const REGION_BYTES_MAX: u64 = 1 << 40;

/// Whether there is a CUDA driver, and it is not too old.
fn is_usable() -> bool {
    // SAFETY: what a library does when it is loaded is its own; that of CUDA's name is CUDA's.
    if !unsafe { sys::is_culib_present() } {
        return false;
    }
    // SAFETY: as above. It is there, so that this does not panic, and never closed.
    let library = unsafe { sys::culib() };
    let has = |call: &str| {
        // SAFETY: the symbol is only looked for, and not used.
        unsafe { library.get::<*const ()>(call) }.is_ok()
    };
    CALLS.iter().all(|call| has(call))
}

fn gpus() -> Result<Vec<Cuda>> {
    // SAFETY: the first call that the driver API asks for; 0 is its only flag.
    let code = unsafe { sys::cuInit(0) };
    // The library of a toolkit is there for programs to be linked, and drives nothing.
    if [Code::CUDA_ERROR_NO_DEVICE, Code::CUDA_ERROR_STUB_LIBRARY].contains(&code) {
        return Ok(Vec::new());
    }
    check("cuda", "cuInit", code)?;
    let mut n_gpus = 0;
    // SAFETY: the pointer is to a number of that type.
    check("cuda", "cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&raw mut n_gpus) })?;
    (0..n_gpus).map(Cuda::open).collect()
}

fn check(device: &str, call: &'static str, code: Code) -> Result<()> {
    if code == Code::CUDA_SUCCESS {
        return Ok(());
    }
    let reason = format!("CUDA error {}", code as u32);
    Err(Error::Driver { device: device.to_owned(), call, reason })
}

impl Cuda {
    fn open(number: i32) -> Result<Cuda> {
        let name = format!("gpu:{number}");
        let mut ordinal = 0;
        // SAFETY: the pointer is to a number of that type.
        check(&name, "cuDeviceGet", unsafe { sys::cuDeviceGet(&raw mut ordinal, number) })?;
        let attribute = |attribute: Attribute| {
            let mut value = 0;
            // SAFETY: the pointer is to a number of that type, the device is the driver's own.
            let code = unsafe { sys::cuDeviceGetAttribute(&raw mut value, attribute, ordinal) };
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
        let code = unsafe { sys::cuDeviceTotalMem_v2(&raw mut total, ordinal) };
        check(&name, "cuDeviceTotalMem", code)?;
        let (context, context_bytes) = retain(&name, ordinal)?;
        let mut cuda = Cuda {
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

    /// What was found, to make logical devices of.
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

    /// What is free on the GPU, whoever holds the rest.
    pub fn free_bytes(&self) -> Result<u64> {
        let mut free = 0;
        self.call("cuMemGetInfo", || free_now(&mut free))?;
        Ok(free)
    }

    fn granule(&self) -> Result<u64> {
        let (prop, mut bytes) = (self.prop(), 0);
        let least = sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
        self.call("cuMemGetAllocationGranularity", || {
            // SAFETY: the pointers are to values of those types.
            unsafe { sys::cuMemGetAllocationGranularity(&raw mut bytes, &raw const prop, least) }
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
        check(name, "cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(context) })?;
        let code = work();
        if code == Code::CUDA_ERROR_OUT_OF_MEMORY {
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
            unsafe { sys::cuMemCreate(&raw mut memory, bytes, &raw const prop, 0) }
        })?;
        let mapped = self.call("cuMemMap", || {
            // SAFETY: the caller's range is reserved and has no memory; the handle is new.
            unsafe { sys::cuMemMap(address, bytes, 0, memory, 0) }
        });
        // The mapping keeps the memory; without one it goes back now.
        let released = self.call_again("cuMemRelease", || {
            // SAFETY: the handle was made above, and is released once unless that failed.
            unsafe { sys::cuMemRelease(memory) }
        });
        mapped?;
        let access = sys::CUmemAccessDesc {
            location: self.location(),
            flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        let allowed = released.and_then(|()| {
            self.call("cuMemSetAccess", || {
                // SAFETY: the range was mapped above; one description is given.
                unsafe { sys::cuMemSetAccess(address, bytes, &raw const access, 1) }
            })?;
            self.call("cuMemsetD8", || {
                // SAFETY: the range is mapped and may be written.
                unsafe { sys::cuMemsetD8_v2(address, 0, bytes) }
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
            unsafe { sys::cuMemUnmap(address, bytes) }
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
            unsafe { sys::cuMemAddressReserve(&raw mut base, size(bytes), granule, 0, 0) }
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
            unsafe { sys::cuMemAddressFree(range.start, bytes) }
        }));
    }

    unsafe fn write(&self, to: u64, from: &[u8]) -> Result<()> {
        self.call("cuMemcpyHtoD", || {
            // SAFETY: the caller promises that the bytes at `to` are committed and unused.
            unsafe { sys::cuMemcpyHtoD_v2(to, from.as_ptr().cast(), from.len()) }
        })
    }

    unsafe fn read(&self, from: u64, to: &mut [u8]) -> Result<()> {
        self.call("cuMemcpyDtoH", || {
            // SAFETY: the caller promises that the bytes at `from` are committed and not written.
            unsafe { sys::cuMemcpyDtoH_v2(to.as_mut_ptr().cast(), from, to.len()) }
        })
    }

    unsafe fn copy(&self, from: u64, to: u64, bytes: u64) -> Result<()> {
        self.call("cuMemcpyDtoD", || {
            // SAFETY: the caller promises that both pieces are committed, apart, and unused.
            unsafe { sys::cuMemcpyDtoD_v2(to, from, size(bytes)) }
        })
    }

    fn sync(&self) -> Result<()> {
        self.call("cuCtxSynchronize", || {
            // SAFETY: the context is current.
            unsafe { sys::cuCtxSynchronize() }
        })
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        let release = || {
            // SAFETY: retained once when this was made; released once, unless that fails.
            unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.ordinal) }
        };
        if release() != Code::CUDA_SUCCESS {
            release();
        }
    }
}

/// Retains the context of a GPU that all of a process share, and measures what it takes. What is
/// free can only be asked for in a context, so that another one is there until that is known.
fn retain(name: &str, ordinal: i32) -> Result<(sys::CUcontext, u64)> {
    let mut other = ptr::null_mut();
    // SAFETY: the pointer is to a pointer; destroyed below.
    let code = unsafe { sys::cuCtxCreate_v2(&raw mut other, 0, ordinal) };
    // Where there is no room for two, nobody knows what one takes.
    let is_measured = code == Code::CUDA_SUCCESS;
    let free = || {
        let mut bytes = 0;
        (is_measured && free_now(&mut bytes) == Code::CUDA_SUCCESS).then_some(bytes)
    };
    let before = free();
    let mut context = ptr::null_mut();
    let mut retain = || {
        // SAFETY: the pointer is to a pointer; released when the driver is dropped.
        unsafe { sys::cuDevicePrimaryCtxRetain(&raw mut context, ordinal) }
    };
    let mut retained = retain();
    let after = free();
    if is_measured {
        destroy(other);
    }
    if retained == Code::CUDA_ERROR_OUT_OF_MEMORY {
        retained = retain();
    }
    check(name, "cuDevicePrimaryCtxRetain", retained)?;
    let taken = before.zip(after).map_or(0, |(before, after)| before.saturating_sub(after));
    Ok((context, taken))
}

/// What is free on the GPU of the context that is current.
fn free_now(bytes: &mut u64) -> Code {
    let (mut free, mut total) = (0, 0);
    // SAFETY: both pointers are to numbers of that type.
    let code = unsafe { sys::cuMemGetInfo_v2(&raw mut free, &raw mut total) };
    *bytes = free as u64;
    code
}

/// Ends a context that was made; a second time if that fails, since there will not be another.
fn destroy(context: sys::CUcontext) {
    let destroy = || {
        // SAFETY: the caller made it, and nobody else knows it.
        unsafe { sys::cuCtxDestroy_v2(context) }
    };
    if destroy() != Code::CUDA_SUCCESS {
        destroy();
    }
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).expect("sizes of a GPU fit the host's pointers")
}

#[cfg(test)]
mod tests;
