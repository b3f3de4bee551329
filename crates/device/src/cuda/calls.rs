//! The calls of CUDA's driver API that are made, as they are found in the library.
//!
//! Each answers with a plain number: cudarc's own declarations answer with an enum, and a driver
//! that is newer than it may have codes that the enum does not know.

use std::ffi::{c_int, c_uchar, c_uint, c_ulonglong, c_void};
use std::sync::OnceLock;

use cudarc::driver::sys;
use sys::{CUcontext, CUdevice, CUdeviceptr, CUmemAllocationProp, CUmemGenericAllocationHandle};

/// The result of a call.
pub(super) type Code = c_int;

/// The codes that mean something here.
pub(super) const SUCCESS: Code = 0;
pub(super) const OUT_OF_MEMORY: Code = 2;
pub(super) const STUB_LIBRARY: Code = 34;
pub(super) const NO_DEVICE: Code = 100;

/// The calls of the driver; `None` if there is none, or if it is too old to have them all.
pub(super) fn calls() -> Option<&'static Calls> {
    static CALLS: OnceLock<Option<Calls>> = OnceLock::new();
    // SAFETY: what a library does when it is loaded is its own; that of CUDA's name is CUDA's.
    let is_present = || unsafe { sys::is_culib_present() };
    CALLS.get_or_init(|| is_present().then(Calls::find).flatten()).as_ref()
}

/// Makes a table of functions, each with its name in the library and what it takes.
macro_rules! table {
    ($($name:ident: $symbol:literal($($argument:ty),*);)*) => {
        /// The functions that are called, with the types of CUDA's headers.
        #[derive(Debug)]
        pub(super) struct Calls {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) -> Code,)*
        }

        impl Calls {
            /// Looks for all of them in a library that is there.
            fn find() -> Option<Calls> {
                // SAFETY: the caller saw that it is there, so that this does not panic. It is
                // never closed, and neither are its functions ever gone.
                let library = unsafe { sys::culib() };
                Some(Calls {
                    // SAFETY: CUDA's functions of these names are declared so in its headers.
                    $($name: *unsafe { library.get($symbol.as_bytes()) }.ok()?,)*
                })
            }
        }
    };
}

table! {
    init: "cuInit"(c_uint);
    device_get_count: "cuDeviceGetCount"(*mut c_int);
    device_get: "cuDeviceGet"(*mut CUdevice, c_int);
    device_get_attribute: "cuDeviceGetAttribute"(*mut c_int, sys::CUdevice_attribute, CUdevice);
    device_total_mem: "cuDeviceTotalMem_v2"(*mut usize, CUdevice);
    primary_ctx_retain: "cuDevicePrimaryCtxRetain"(*mut CUcontext, CUdevice);
    primary_ctx_release: "cuDevicePrimaryCtxRelease_v2"(CUdevice);
    ctx_create: "cuCtxCreate_v2"(*mut CUcontext, c_uint, CUdevice);
    ctx_destroy: "cuCtxDestroy_v2"(CUcontext);
    ctx_set_current: "cuCtxSetCurrent"(CUcontext);
    ctx_synchronize: "cuCtxSynchronize"();
    mem_get_info: "cuMemGetInfo_v2"(*mut usize, *mut usize);
    mem_get_granularity: "cuMemGetAllocationGranularity"(
        *mut usize, *const CUmemAllocationProp, sys::CUmemAllocationGranularity_flags
    );
    mem_address_reserve: "cuMemAddressReserve"(
        *mut CUdeviceptr, usize, usize, CUdeviceptr, c_ulonglong
    );
    mem_address_free: "cuMemAddressFree"(CUdeviceptr, usize);
    mem_create: "cuMemCreate"(
        *mut CUmemGenericAllocationHandle, usize, *const CUmemAllocationProp, c_ulonglong
    );
    mem_release: "cuMemRelease"(CUmemGenericAllocationHandle);
    mem_map: "cuMemMap"(CUdeviceptr, usize, usize, CUmemGenericAllocationHandle, c_ulonglong);
    mem_unmap: "cuMemUnmap"(CUdeviceptr, usize);
    mem_set_access: "cuMemSetAccess"(CUdeviceptr, usize, *const sys::CUmemAccessDesc, usize);
    memset: "cuMemsetD8_v2"(CUdeviceptr, c_uchar, usize);
    memcpy_to_device: "cuMemcpyHtoD_v2"(CUdeviceptr, *const c_void, usize);
    memcpy_to_host: "cuMemcpyDtoH_v2"(*mut c_void, CUdeviceptr, usize);
    memcpy_on_device: "cuMemcpyDtoD_v2"(CUdeviceptr, CUdeviceptr, usize);
}
