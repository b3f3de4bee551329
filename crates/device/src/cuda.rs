//! The memory of NVIDIA GPUs, by CUDA's driver API: addresses are reserved once, and memory is put
//! behind them a granule at a time, so that growing moves nothing and every granule can go back.
//!
//! The library is looked for when the program runs; without it there are no such GPUs, and that is
//! no error. Kernels are no part of this: buffers of the host cannot be there.

mod api;
#[cfg(test)]
mod fake;

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::driver::{Driver, Kind, Properties};
use crate::error::{Error, Result};
use crate::logical::Physical;

use api::{AccessDesc, AllocationProp, Api, Location};

/// The GPUs that CUDA finds; none if there is no CUDA.
///
/// # Errors
/// If there is a CUDA driver, but it fails.
pub fn cuda_gpus() -> Result<Vec<Cuda>> {
    match Api::open() {
        Some(api) => gpus(&Arc::new(api)),
        None => Ok(Vec::new()),
    }
}

/// A driver of one GPU's memory.
#[derive(Debug)]
pub struct Cuda {
    api: Arc<Api>,
    ordinal: i32,
    /// The primary context, by address.
    context: usize,
    properties: Properties,
    compute_capability: (u32, u32),
    /// The granules that have memory, by address.
    mapped: Mutex<BTreeSet<u64>>,
}

/// `CUDA_SUCCESS`, `CUDA_ERROR_OUT_OF_MEMORY`, `CUDA_ERROR_NO_DEVICE`
const SUCCESS: i32 = 0;
const OUT_OF_MEMORY: i32 = 2;
const NO_DEVICE: i32 = 100;

/// `CU_DEVICE_ATTRIBUTE_…`
const COMPUTE_CAPABILITY_MAJOR: i32 = 75;
const COMPUTE_CAPABILITY_MINOR: i32 = 76;
const VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: i32 = 102;

/// What every CUDA driver since compute capability 7 says of its streams.
const STREAM_PRIORITIES: (i32, i32) = (0, -5);

/// What CUDA aligns its allocations to.
const ALIGNMENT_BYTES: u64 = 256;

/// The largest region: more than any GPU has.
const REGION_BYTES_MAX: u64 = 1 << 40;

fn gpus(api: &Arc<Api>) -> Result<Vec<Cuda>> {
    // SAFETY: the first call that the driver API asks for; 0 is its only flag.
    let code = unsafe { (api.init)(0) };
    if code == NO_DEVICE {
        return Ok(Vec::new());
    }
    check("cuda", "cuInit", code)?;
    let mut n_gpus = 0;
    // SAFETY: the pointer is to a number of that type.
    check("cuda", "cuDeviceGetCount", unsafe { (api.device_get_count)(&raw mut n_gpus) })?;
    (0..n_gpus).map(|number| Cuda::open(api, number)).collect()
}

fn check(device: &str, call: &'static str, code: i32) -> Result<()> {
    match code {
        SUCCESS => Ok(()),
        code => {
            let reason = format!("CUDA error {code}");
            Err(Error::Driver { device: device.to_owned(), call, reason })
        }
    }
}

impl Cuda {
    fn open(api: &Arc<Api>, number: i32) -> Result<Cuda> {
        let name = format!("gpu:{number}");
        let mut ordinal = 0;
        // SAFETY: the pointer is to a number of that type.
        check(&name, "cuDeviceGet", unsafe { (api.device_get)(&raw mut ordinal, number) })?;
        let attribute = |attribute: i32| {
            let mut value = 0;
            // SAFETY: the pointer is to a number of that type, the device is the driver's own.
            let code = unsafe { (api.device_get_attribute)(&raw mut value, attribute, ordinal) };
            check(&name, "cuDeviceGetAttribute", code).map(|()| u32::try_from(value).unwrap_or(0))
        };
        let capability =
            (attribute(COMPUTE_CAPABILITY_MAJOR)?, attribute(COMPUTE_CAPABILITY_MINOR)?);
        if attribute(VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)? == 0 {
            let reason = "it has no virtual memory management".to_owned();
            return Err(Error::Driver { device: name, call: "cuDeviceGetAttribute", reason });
        }
        let mut total = 0;
        // SAFETY: the pointer is to a number of that type.
        let code = unsafe { (api.device_total_mem)(&raw mut total, ordinal) };
        check(&name, "cuDeviceTotalMem", code)?;
        let mut context = 0;
        // SAFETY: the pointer is to a pointer's worth of bytes; released when this is dropped.
        let code = unsafe { (api.primary_ctx_retain)(&raw mut context, ordinal) };
        check(&name, "cuDevicePrimaryCtxRetain", code)?;
        let mut cuda = Cuda {
            api: Arc::clone(api),
            ordinal,
            context,
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
            free_bytes: self.free_bytes()?,
            compute_capability: Some(self.compute_capability),
            priorities: STREAM_PRIORITIES,
        })
    }

    /// What is free on the GPU, whoever holds the rest.
    pub fn free_bytes(&self) -> Result<u64> {
        let (mut free, mut total) = (0, 0);
        self.call("cuMemGetInfo", |api| {
            // SAFETY: both pointers are to numbers of that type; the context is current.
            unsafe { (api.mem_get_info)(&raw mut free, &raw mut total) }
        })?;
        Ok(free as u64)
    }

    fn granule(&self) -> Result<u64> {
        let (prop, mut bytes) = (self.prop(), 0);
        self.call("cuMemGetAllocationGranularity", |api| {
            // SAFETY: the pointers are to values of those types; 0 asks for the least granularity.
            unsafe { (api.mem_granularity)(&raw mut bytes, &raw const prop, 0) }
        })?;
        Ok(bytes as u64)
    }

    fn prop(&self) -> AllocationProp {
        AllocationProp::pinned(self.location())
    }

    fn location(&self) -> Location {
        Location::device(self.ordinal)
    }

    /// Makes the context current and calls the driver.
    fn call(&self, call: &'static str, work: impl FnOnce(&Api) -> i32) -> Result<()> {
        let name = &self.properties.name;
        // SAFETY: the context was retained when this was made, and is until it is dropped.
        check(name, "cuCtxSetCurrent", unsafe { (self.api.ctx_set_current)(self.context) })?;
        match work(&self.api) {
            OUT_OF_MEMORY => Err(Error::Exhausted {
                device: name.clone(),
                needed_bytes: self.properties.granule_bytes,
                free_bytes: self.available_bytes(),
                limit_bytes: self.properties.capacity_bytes,
            }),
            code => check(name, call, code),
        }
    }

    /// Puts a granule of memory behind an address.
    fn map(&self, address: u64) -> Result<()> {
        let (prop, mut memory) = (self.prop(), 0);
        let bytes = size(self.properties.granule_bytes);
        self.call("cuMemCreate", |api| {
            // SAFETY: the pointers are to values of those types.
            unsafe { (api.mem_create)(&raw mut memory, bytes, &raw const prop, 0) }
        })?;
        let mapped = self.call("cuMemMap", |api| {
            // SAFETY: the caller's range is reserved and has no memory; the handle is new.
            unsafe { (api.mem_map)(address, bytes, 0, memory, 0) }
        });
        // The mapping keeps the memory; without one it goes back now.
        let released = self.call("cuMemRelease", |api| {
            // SAFETY: the handle was made above and is released once.
            unsafe { (api.mem_release)(memory) }
        });
        mapped?;
        let access = AccessDesc::read_write(self.location());
        let allowed = released.and_then(|()| {
            self.call("cuMemSetAccess", |api| {
                // SAFETY: the range was mapped above; one description is given.
                unsafe { (api.mem_set_access)(address, bytes, &raw const access, 1) }
            })?;
            self.call("cuMemsetD8", |api| {
                // SAFETY: the range is mapped and may be written.
                unsafe { (api.memset)(address, 0, bytes) }
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
        self.call("cuMemUnmap", |api| {
            // SAFETY: exactly one granule that `map` mapped.
            unsafe { (api.mem_unmap)(address, bytes) }
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
        self.call("cuMemAddressReserve", |api| {
            let granule = size(*granule_bytes);
            // SAFETY: the pointer is to a number of that type; no address is asked for.
            unsafe { (api.mem_address_reserve)(&raw mut base, size(bytes), granule, 0, 0) }
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
            // A second time, since there will not be another.
            drop(self.unmap(address).or_else(|_| self.unmap(address)));
        }
        let bytes = size(range.end - range.start);
        drop(self.call("cuMemAddressFree", |api| {
            // SAFETY: the caller promises that exactly this was reserved.
            unsafe { (api.mem_address_free)(range.start, bytes) }
        }));
    }

    unsafe fn write(&self, to: u64, from: &[u8]) -> Result<()> {
        self.call("cuMemcpyHtoD", |api| {
            // SAFETY: the caller promises that the bytes at `to` are committed and unused.
            unsafe { (api.memcpy_to_device)(to, from.as_ptr().cast(), from.len()) }
        })
    }

    unsafe fn read(&self, from: u64, to: &mut [u8]) -> Result<()> {
        self.call("cuMemcpyDtoH", |api| {
            // SAFETY: the caller promises that the bytes at `from` are committed and not written.
            unsafe { (api.memcpy_to_host)(to.as_mut_ptr().cast(), from, to.len()) }
        })
    }

    unsafe fn copy(&self, from: u64, to: u64, bytes: u64) -> Result<()> {
        self.call("cuMemcpyDtoD", |api| {
            // SAFETY: the caller promises that both pieces are committed, apart, and unused.
            unsafe { (api.memcpy_in_device)(to, from, size(bytes)) }
        })
    }

    fn sync(&self) -> Result<()> {
        self.call("cuCtxSynchronize", |api| {
            // SAFETY: the context is current.
            unsafe { (api.ctx_synchronize)() }
        })
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        // SAFETY: retained once when this was made.
        unsafe { (self.api.primary_ctx_release)(self.ordinal) };
    }
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).expect("sizes of a GPU fit the host's pointers")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logical::{Environment, GpuOptions, configure};
    use crate::{Arena, Growth, Region, conformance};

    const MIB: u64 = 1 << 20;

    fn two_gpus(capacities: &'static [u64]) -> Vec<Arc<Cuda>> {
        let api = Arc::new(fake::api(capacities));
        gpus(&api).unwrap().into_iter().map(Arc::new).collect()
    }

    #[test]
    fn every_gpu_is_a_driver() {
        let _turn = fake::turn();
        for gpu in two_gpus(&[64 * MIB, 32 * MIB]) {
            assert_eq!(gpu.compute_capability(), (8, 0));
            assert_eq!(gpu.properties().granule_bytes, 2 * MIB);
            conformance::check(&(gpu.clone() as Arc<dyn Driver>));
            assert_eq!(gpu.free_bytes().unwrap(), gpu.properties().capacity_bytes);
        }
        assert_eq!(fake::n_contexts(), 0, "contexts are given back");
    }

    #[test]
    fn without_a_driver_or_a_device_there_are_no_gpus() {
        let _turn = fake::turn();
        assert!(gpus(&Arc::new(fake::api(&[]))).unwrap().is_empty());
        assert!(Api::load(|_| None).is_none(), "a library without the calls is of no use");
    }

    #[test]
    fn memory_of_others_is_not_available() {
        let _turn = fake::turn();
        let [gpu, _] = &two_gpus(&[64 * MIB, 64 * MIB])[..] else { panic!("two were faked") };
        fake::take_away(0, 62 * MIB);
        assert_eq!(gpu.available_bytes(), 2 * MIB);
        let error = Region::committed(gpu.clone(), 4 * MIB).unwrap_err();
        assert!(matches!(error, Error::Exhausted { .. }), "{error}");
        assert_eq!(gpu.free_bytes().unwrap(), 2 * MIB, "what was mapped by then went back");
    }

    /// The limit that TensorFlow computes for a GPU of 8 GiB, of which others hold some.
    #[track_caller]
    fn check_limit(major: i32, taken_mib: u64, expected_mib: u64) {
        let api = Arc::new(fake::api(&[8 << 30]));
        fake::set_majors([major; 4]);
        fake::take_away(0, taken_mib * MIB);
        let found: Vec<Physical> =
            gpus(&api).unwrap().iter().map(|gpu| gpu.physical().unwrap()).collect();
        let made = configure(&GpuOptions::unset(), &Environment::unset(), &found).unwrap();
        assert_eq!(made.devices[0].limit_bytes / MIB, expected_mib, "{major} {taken_mib}");
    }

    #[test]
    fn the_limit_is_what_is_free_less_a_reserve_for_its_generation() {
        let _turn = fake::turn();
        for (major, reserve_mib) in [(6, 500), (7, 1050), (8, 1536), (9, 1800), (10, 1800)] {
            check_limit(major, 0, 8192 - reserve_mib);
            check_limit(major, 1000, 7192 - reserve_mib);
            check_limit(major, 8192 - 2047, 2047 - 225);
            check_limit(major, 8192 - 225, 225);
        }
    }

    /// Grows, moves, trims and frees while the `n`-th call fails; whether there was such a call.
    fn loses_nothing(gpu: &Arc<Cuda>, n: u64) -> bool {
        let driver = Arc::clone(gpu) as Arc<dyn Driver>;
        let before = fake::n_calls();
        fake::fail_call(n);
        let mut arena = Arena::new(driver, Growth::OnDemand { step_bytes: MIB }).unwrap();
        let sizes = [MIB, 3 * MIB, 5 * MIB, 700, 6 * MIB];
        let mut chunks: Vec<_> = sizes.iter().filter_map(|s| arena.allocate(*s).ok()).collect();
        drop(arena.trim(0));
        arena.free(chunks.remove(0));
        chunks.extend(arena.allocate(2 * MIB));
        chunks.into_iter().for_each(|chunk| arena.free(chunk));
        arena.check();
        drop(arena.trim(0));
        arena.check();
        drop(arena);
        let was_reached = fake::n_calls() - before > n;
        fake::fail_call(u64::MAX);
        assert_eq!(gpu.free_bytes().unwrap(), 16 * MIB, "call {n}");
        assert_eq!(gpu.held_bytes(), 0);
        was_reached
    }

    #[test]
    fn any_call_may_fail_and_nothing_is_lost() {
        let _turn = fake::turn();
        let gpu = two_gpus(&[16 * MIB]).remove(0);
        let n_failed = (0..).take_while(|n| loses_nothing(&gpu, *n)).count();
        assert!(n_failed > 30, "only {n_failed} calls");
    }
}
