//! The functions of TensorFlow's C API that we call, as `tensorflow/c/c_api.h` declares them.
#![allow(non_snake_case, reason = "the names are those of the library")]

use std::ffi::{c_char, c_int, c_void};

/// An object of the library that only it can look into.
pub(crate) type Opaque = *mut c_void;

/// One output of an operation.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    pub(crate) operation: Opaque,
    pub(crate) index: c_int,
}

/// Bytes that pass the border of the library.
#[repr(C)]
pub(crate) struct Bytes {
    pub(crate) start: *const c_void,
    pub(crate) len: usize,
    pub(crate) deallocate: Option<unsafe extern "C" fn(*mut c_void, usize)>,
}

/// Called by the library when it no longer needs the memory of a tensor.
pub(crate) type Deallocate = unsafe extern "C" fn(*mut c_void, usize, *mut c_void);

macro_rules! functions {
    ($($name:ident: fn($($arg:ty),*) $(-> $ret:ty)?;)*) => {
        /// The addresses of the functions. They are valid as long as the library is loaded, and it
        /// is never unloaded.
        pub(crate) struct Functions {
            $(pub(crate) $name: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)*
        }

        impl Functions {
            /// Looks all of them up.
            ///
            /// # Safety
            /// The library is TensorFlow's, so that the functions have these types.
            pub(crate) unsafe fn of(
                library: &libloading::os::unix::Library,
            ) -> Result<Self, libloading::Error> {
                Ok(Self {
                    $($name: {
                        let name = concat!(stringify!($name), "\0").as_bytes();
                        // SAFETY: the caller promises that the type is right.
                        *unsafe { library.get(name) }?
                    },)*
                })
            }
        }
    };
}

functions! {
    TF_Version: fn() -> *const c_char;

    TF_NewStatus: fn() -> Opaque;
    TF_DeleteStatus: fn(Opaque);
    TF_GetCode: fn(*const c_void) -> c_int;
    TF_Message: fn(*const c_void) -> *const c_char;

    TF_NewTensor: fn(
        c_int, *const i64, c_int, *mut c_void, usize, Deallocate, *mut c_void
    ) -> Opaque;
    TF_DeleteTensor: fn(Opaque);
    TF_TensorType: fn(*const c_void) -> c_int;
    TF_NumDims: fn(*const c_void) -> c_int;
    TF_Dim: fn(*const c_void, c_int) -> i64;
    TF_TensorByteSize: fn(*const c_void) -> usize;
    TF_TensorData: fn(*const c_void) -> *mut c_void;

    TF_StringInit: fn(*mut c_void);
    TF_StringDealloc: fn(*mut c_void);
    TF_StringCopy: fn(*mut c_void, *const c_char, usize);
    TF_StringGetDataPointer: fn(*const c_void) -> *const c_char;
    TF_StringGetSize: fn(*const c_void) -> usize;

    TF_NewGraph: fn() -> Opaque;
    TF_DeleteGraph: fn(Opaque);
    TF_GraphOperationByName: fn(Opaque, *const c_char) -> Opaque;
    TF_OperationNumOutputs: fn(Opaque) -> c_int;

    TF_NewSessionOptions: fn() -> Opaque;
    TF_DeleteSessionOptions: fn(Opaque);
    TF_SetConfig: fn(Opaque, *const c_void, usize, Opaque);
    TF_LoadSessionFromSavedModel: fn(
        *const c_void, *const Bytes, *const c_char, *const *const c_char, c_int, Opaque,
        *mut Bytes, Opaque
    ) -> Opaque;
    TF_CloseSession: fn(Opaque, Opaque);
    TF_DeleteSession: fn(Opaque, Opaque);
    TF_SessionRun: fn(
        Opaque, *const Bytes, *const Output, *const Opaque, c_int, *const Output, *mut Opaque,
        c_int, *const Opaque, c_int, *mut Bytes, Opaque
    );
    TF_SessionListDevices: fn(Opaque, Opaque) -> Opaque;
    TF_DeleteDeviceList: fn(Opaque);
    TF_DeviceListCount: fn(*const c_void) -> c_int;
    TF_DeviceListName: fn(*const c_void, c_int, Opaque) -> *const c_char;
}

/// The width of a `TF_TString`, which is what a string tensor's elements are.
pub(crate) const STRING_BYTES: usize = 24;
