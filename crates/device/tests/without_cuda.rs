//! A machine without CUDA, as most are. A process of its own: once a fake is loaded it stays.

use std::ffi::CStr;

/// Returns whether the machine has a CUDA driver, by the names that one goes by.
fn has_cuda() -> bool {
    let names: [&CStr; 3] = [c"libcuda.so", c"libcuda.so.1", c"libnvcuda.so"];
    names.iter().any(|name| {
        // SAFETY: the name ends with a nul; what CUDA's library does when it is loaded is its own.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
        !library.is_null()
    })
}

#[test]
fn without_cuda_there_are_no_gpus_and_that_is_no_error() {
    let found = device::cuda_gpus();
    if has_cuda() {
        // What it finds is the machine's, but it may not panic.
        return;
    }
    assert_eq!(found.expect("no CUDA is no error").len(), 0);
    assert_eq!(device::cuda_gpus().expect("nor is it the second time").len(), 0);
}
