//! `TfTensor`: a tensor of the library.

use std::alloc::Layout;
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

use status::Code;
use tensor::DType;

use super::Api;
use super::functions::{Functions, Opaque, STRING_BYTES};
use crate::error::{Error, Result};

/// An owner that must live as long as the library may read a tensor's memory.
pub(crate) type Keep = Arc<dyn std::any::Any + Send + Sync>;

/// The alignment at which the library takes memory as it is, without copying it.
const ALIGNMENT: usize = 64;

/// A tensor that the library made or took over. Dropping it gives up our reference to it.
pub(crate) struct TfTensor<'a> {
    api: &'a Api,
    tensor: Opaque,
}

impl<'a> TfTensor<'a> {
    /// A tensor over memory that stays where it is; `keep` is dropped when the library is done with
    /// it, which may be long after this is.
    ///
    /// # Safety
    /// `bytes` are valid for reading and writing for as long as `keep` lives.
    pub(crate) unsafe fn wrap(
        api: &'a Api,
        dtype: DType,
        dims: &[i64],
        bytes: NonNull<[u8]>,
        keep: Keep,
    ) -> Result<Self> {
        let keep = Box::into_raw(Box::new(keep)).cast();
        let new = api.functions.TF_NewTensor;
        let (start, len) = (bytes.cast::<c_void>().as_ptr(), bytes.len());
        // SAFETY: the caller promises that the memory outlives `keep`, which `forget` drops when
        // the library no longer needs it.
        let tensor =
            unsafe { new(dtype.number(), dims.as_ptr(), rank(dims), start, len, forget, keep) };
        if tensor.is_null() {
            let text = format!("TensorFlow takes no {dtype} tensor of shape {dims:?}");
            return Err(Error::TensorFlow { code: Code::InvalidArgument, text });
        }
        Ok(Self { api, tensor })
    }

    /// A tensor with copies of strings.
    pub(crate) fn strings<'s>(
        api: &'static Api,
        dims: &[i64],
        strings: impl ExactSizeIterator<Item = &'s [u8]>,
    ) -> Result<Self> {
        let elements = Elements::new(&api.functions, strings)?;
        let (start, len) = (elements.start.as_ptr().cast(), elements.layout.size());
        let n_bytes = elements.count * STRING_BYTES;
        assert!(n_bytes <= len);
        let owner = Box::into_raw(Box::new(elements)).cast();
        let (number, new) = (DType::String.number(), api.functions.TF_NewTensor);
        // SAFETY: the elements live in memory that `forget_strings` frees with them, and that is at
        // least `n_bytes` long (asserted above).
        let tensor = unsafe {
            new(number, dims.as_ptr(), rank(dims), start, n_bytes, forget_strings, owner)
        };
        if tensor.is_null() {
            let text = format!("TensorFlow takes no strings of shape {dims:?}");
            return Err(Error::TensorFlow { code: Code::InvalidArgument, text });
        }
        Ok(Self { api, tensor })
    }

    /// Takes over a tensor that the library made.
    pub(super) fn own(api: &'a Api, tensor: Opaque) -> Self {
        assert!(!tensor.is_null());
        Self { api, tensor }
    }

    /// For a call to read.
    pub(super) fn get(&self) -> Opaque {
        self.tensor
    }

    /// The number of its dtype.
    pub(crate) fn dtype(&self) -> i32 {
        // SAFETY: the tensor lives until this is dropped.
        unsafe { (self.api.functions.TF_TensorType)(self.tensor) }
    }

    /// Its dimensions.
    pub(crate) fn dims(&self) -> Vec<i64> {
        // SAFETY: the tensor lives until this is dropped.
        let rank = unsafe { (self.api.functions.TF_NumDims)(self.tensor) };
        // SAFETY: as above, and the index is below the rank.
        (0..rank).map(|i| unsafe { (self.api.functions.TF_Dim)(self.tensor, i) }).collect()
    }

    /// The memory of its elements.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the tensor lives until this is dropped.
        let len = unsafe { (self.api.functions.TF_TensorByteSize)(self.tensor) };
        // SAFETY: as above.
        let start = unsafe { (self.api.functions.TF_TensorData)(self.tensor) };
        if len == 0 || start.is_null() {
            return &[];
        }
        // SAFETY: the library says that so many bytes are there, and they live as long as the
        // tensor does.
        unsafe { std::slice::from_raw_parts(start.cast(), len) }
    }

    /// The elements of a string tensor.
    pub(crate) fn each_string(&self, mut take: impl FnMut(&[u8])) {
        assert_eq!(self.dtype(), DType::String.number());
        for element in self.bytes().chunks_exact(STRING_BYTES) {
            let element: *const c_void = element.as_ptr().cast();
            // SAFETY: it is an element of a string tensor that lives.
            let len = unsafe { (self.api.functions.TF_StringGetSize)(element) };
            // SAFETY: as above.
            let start = unsafe { (self.api.functions.TF_StringGetDataPointer)(element) };
            if len == 0 || start.is_null() {
                take(&[]);
                continue;
            }
            // SAFETY: the library says that so many bytes are there; they live as long as the
            // element does.
            take(unsafe { std::slice::from_raw_parts(start.cast(), len) });
        }
    }
}

impl Drop for TfTensor<'_> {
    fn drop(&mut self) {
        // SAFETY: the reference is ours and given up once.
        unsafe { (self.api.functions.TF_DeleteTensor)(self.tensor) }
    }
}

fn rank(dims: &[i64]) -> c_int {
    c_int::try_from(dims.len()).expect("a shape has few dimensions")
}

/// Drops what was kept for a tensor.
unsafe extern "C" fn forget(_: *mut c_void, _: usize, keep: *mut c_void) {
    // SAFETY: `wrap` made it of a box of this type, and the library calls this once.
    drop(unsafe { Box::<Keep>::from_raw(keep.cast()) });
}

/// Drops the elements of a string tensor.
unsafe extern "C" fn forget_strings(_: *mut c_void, _: usize, elements: *mut c_void) {
    // SAFETY: `strings` made it of a box of this type, and the library calls this once.
    drop(unsafe { Box::<Elements>::from_raw(elements.cast()) });
}

/// The elements of a string tensor, as the library lays them out.
struct Elements {
    functions: &'static Functions,
    start: NonNull<u8>,
    layout: Layout,
    count: usize,
}

impl Elements {
    fn new<'s>(
        functions: &'static Functions,
        strings: impl ExactSizeIterator<Item = &'s [u8]>,
    ) -> Result<Self> {
        let wanted = strings.len().saturating_mul(STRING_BYTES);
        let full = || Error::Full { wanted, limit: isize::MAX.unsigned_abs() };
        let layout =
            Layout::from_size_align(wanted.max(ALIGNMENT), ALIGNMENT).map_err(|_| full())?;
        // SAFETY: the layout's size is not zero.
        let start = unsafe { std::alloc::alloc_zeroed(layout) };
        let start = NonNull::new(start).ok_or_else(full)?;
        let mut elements = Self { functions, start, layout, count: 0 };
        for string in strings {
            let element = elements.element(elements.count);
            // SAFETY: the element lies in our memory, which nothing else uses yet.
            unsafe { (functions.TF_StringInit)(element) };
            elements.count += 1;
            // SAFETY: it was initialised above, and the library copies the bytes.
            unsafe { (functions.TF_StringCopy)(element, string.as_ptr().cast(), string.len()) };
        }
        Ok(elements)
    }

    fn element(&self, index: usize) -> *mut c_void {
        assert!((index + 1) * STRING_BYTES <= self.layout.size());
        // SAFETY: the assertion keeps it inside our memory.
        unsafe { self.start.as_ptr().add(index * STRING_BYTES) }.cast()
    }
}

impl Drop for Elements {
    fn drop(&mut self) {
        for index in 0..self.count {
            // SAFETY: the first `count` elements were initialised, and are freed once.
            unsafe { (self.functions.TF_StringDealloc)(self.element(index)) };
        }
        // SAFETY: it came from `alloc_zeroed` with this layout and is freed once.
        unsafe { std::alloc::dealloc(self.start.as_ptr(), self.layout) }
    }
}

// SAFETY: the memory is owned by this value alone; the library frees it from any of its threads.
unsafe impl Send for Elements {}
