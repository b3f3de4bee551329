//! The calls of CUDA's driver API that are used, found by name in a library.

use std::ffi::{CStr, c_void};

/// Where memory is: `CUmemLocation`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Location {
    kind: i32,
    id: i32,
}

impl Location {
    /// On a device, which is `CU_MEM_LOCATION_TYPE_DEVICE`.
    pub(super) fn device(ordinal: i32) -> Location {
        Location { kind: 1, id: ordinal }
    }

    #[cfg(test)]
    pub(super) fn id(self) -> i32 {
        self.id
    }
}

/// What memory is to be like: `CUmemAllocationProp`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct AllocationProp {
    kind: i32,
    handle_types: i32,
    location: Location,
    windows: usize,
    flags: u64,
}

impl AllocationProp {
    /// Memory of a device that stays there, which is `CU_MEM_ALLOCATION_TYPE_PINNED`.
    pub(super) fn pinned(location: Location) -> AllocationProp {
        AllocationProp { kind: 1, handle_types: 0, location, windows: 0, flags: 0 }
    }

    #[cfg(test)]
    pub(super) fn location(&self) -> Location {
        self.location
    }
}

/// Who may use memory: `CUmemAccessDesc`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct AccessDesc {
    location: Location,
    flags: i32,
}

impl AccessDesc {
    /// Reading and writing, which is `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
    pub(super) fn read_write(location: Location) -> AccessDesc {
        AccessDesc { location, flags: 3 }
    }
}

macro_rules! calls {
    ($($field:ident $symbol:literal ($($arg:ty),*))*) => {
        /// The calls. They stay valid for ever: the library is never closed.
        #[derive(Debug)]
        pub(super) struct Api {
            $(pub(super) $field: unsafe extern "C" fn($($arg),*) -> i32,)*
        }

        impl Api {
            /// The calls that `find` finds by their names; `None` if one is missing.
            pub(super) fn load(find: impl Fn(&CStr) -> Option<*mut c_void>) -> Option<Api> {
                Some(Api {
                    $($field: {
                        let symbol = find($symbol)?;
                        assert!(!symbol.is_null());
                        // SAFETY: CUDA's header declares the call of this name with this type, and
                        // a pointer to a function is as wide as one to anything.
                        unsafe {
                            std::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($arg),*) -> i32,
                            >(symbol)
                        }
                    },)*
                })
            }
        }
    };
}

calls! {
    init c"cuInit" (u32)
    device_get_count c"cuDeviceGetCount" (*mut i32)
    device_get c"cuDeviceGet" (*mut i32, i32)
    device_get_attribute c"cuDeviceGetAttribute" (*mut i32, i32, i32)
    device_total_mem c"cuDeviceTotalMem_v2" (*mut usize, i32)
    primary_ctx_retain c"cuDevicePrimaryCtxRetain" (*mut usize, i32)
    primary_ctx_release c"cuDevicePrimaryCtxRelease_v2" (i32)
    ctx_set_current c"cuCtxSetCurrent" (usize)
    ctx_synchronize c"cuCtxSynchronize" ()
    mem_get_info c"cuMemGetInfo_v2" (*mut usize, *mut usize)
    mem_granularity c"cuMemGetAllocationGranularity" (*mut usize, *const AllocationProp, i32)
    mem_address_reserve c"cuMemAddressReserve" (*mut u64, usize, usize, u64, u64)
    mem_address_free c"cuMemAddressFree" (u64, usize)
    mem_create c"cuMemCreate" (*mut u64, usize, *const AllocationProp, u64)
    mem_release c"cuMemRelease" (u64)
    mem_map c"cuMemMap" (u64, usize, usize, u64, u64)
    mem_unmap c"cuMemUnmap" (u64, usize)
    mem_set_access c"cuMemSetAccess" (u64, usize, *const AccessDesc, usize)
    memset c"cuMemsetD8_v2" (u64, u8, usize)
    memcpy_to_device c"cuMemcpyHtoD_v2" (u64, *const c_void, usize)
    memcpy_to_host c"cuMemcpyDtoH_v2" (*mut c_void, u64, usize)
    memcpy_in_device c"cuMemcpyDtoD_v2" (u64, u64, usize)
}

impl Api {
    /// The calls of the CUDA driver that is installed; `None` if there is none, or it is too old.
    pub(super) fn open() -> Option<Api> {
        let names = [c"libcuda.so.1", c"libcuda.so"];
        let library = names.iter().find_map(|name| {
            // SAFETY: the name ends with a nul; what the library does when it is loaded is its own.
            let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
            (!library.is_null()).then_some(library)
        })?;
        Api::load(|symbol| {
            // SAFETY: the library is open and never closed; the name ends with a nul.
            let found = unsafe { libc::dlsym(library, symbol.as_ptr()) };
            (!found.is_null()).then_some(found)
        })
    }
}
