//! `Nvml`: the GPUs of this machine as NVIDIA's management library sees them, and who holds how
//! much of their memory. The library comes with the driver; without it there are none.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::path::Path;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

/// The name of the library where the driver is installed.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// The library's code for a call that succeeded.
const SUCCESS: c_int = 0;

/// The most processes on one GPU that are listed.
const PROCESSES_MAX: usize = 1024;

/// The library's value for a process whose memory it cannot tell.
const UNKNOWN: u64 = u64::MAX;

/// A GPU at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpu {
    /// The GPU's number, as in `CUDA_VISIBLE_DEVICES` and `visible_device_list`.
    pub index: u32,
    /// The model's name.
    pub name: String,
    /// The id that tells the GPU from all others.
    pub uuid: String,
    /// The GPU's memory in bytes.
    pub total_bytes: u64,
    /// The bytes of the GPU that are held, by all processes and the driver.
    pub used_bytes: u64,
    /// CUDA's compute capability, if the library tells.
    pub compute_capability: Option<(u32, u32)>,
    /// The processes that compute on the GPU.
    pub processes: Vec<GpuProcess>,
}

/// A process that computes on a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GpuProcess {
    /// The process id, as this machine counts them; inside a container it may be another.
    pub pid: u32,
    /// The bytes of the GPU's memory that the process holds, if the driver tells.
    pub used_bytes: Option<u64>,
}

type Device = *mut c_void;

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Running {
    pid: c_uint,
    used: u64,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

/// NVIDIA's management library.
pub struct Nvml {
    shutdown: unsafe extern "C" fn() -> c_int,
    count: unsafe extern "C" fn(*mut c_uint) -> c_int,
    device: unsafe extern "C" fn(c_uint, *mut Device) -> c_int,
    name: unsafe extern "C" fn(Device, *mut c_char, c_uint) -> c_int,
    uuid: unsafe extern "C" fn(Device, *mut c_char, c_uint) -> c_int,
    memory: unsafe extern "C" fn(Device, *mut Memory) -> c_int,
    running: unsafe extern "C" fn(Device, *mut c_uint, *mut Running) -> c_int,
    /// Old libraries do not have it.
    capability: Option<unsafe extern "C" fn(Device, *mut c_int, *mut c_int) -> c_int>,
    // Last, so that nothing of the library outlives it.
    _library: Library,
}

impl Nvml {
    /// Opens the library of the driver; `None` without one.
    pub fn open() -> Option<Self> {
        Self::open_at(Path::new(LIBRARY))
    }

    /// Opens a library that has NVML's functions; `None` if it is not there or does not start.
    pub fn open_at(path: &Path) -> Option<Self> {
        // SAFETY: the library comes with the driver, and loading it has no effect of its own.
        let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.ok()?;
        // SAFETY: the type is that of `nvml.h`.
        let init: unsafe extern "C" fn() -> c_int =
            *unsafe { library.get(b"nvmlInit_v2\0") }.ok()?;
        let nvml = Self {
            // SAFETY: the types, here and below, are those of `nvml.h`.
            shutdown: *unsafe { library.get(b"nvmlShutdown\0") }.ok()?,
            // SAFETY: as above.
            count: *unsafe { library.get(b"nvmlDeviceGetCount_v2\0") }.ok()?,
            // SAFETY: as above.
            device: *unsafe { library.get(b"nvmlDeviceGetHandleByIndex_v2\0") }.ok()?,
            // SAFETY: as above.
            name: *unsafe { library.get(b"nvmlDeviceGetName\0") }.ok()?,
            // SAFETY: as above.
            uuid: *unsafe { library.get(b"nvmlDeviceGetUUID\0") }.ok()?,
            // SAFETY: as above.
            memory: *unsafe { library.get(b"nvmlDeviceGetMemoryInfo\0") }.ok()?,
            // SAFETY: as above.
            running: *unsafe { library.get(b"nvmlDeviceGetComputeRunningProcesses_v3\0") }.ok()?,
            // SAFETY: as above.
            capability: unsafe { library.get(b"nvmlDeviceGetCudaComputeCapability\0") }
                .ok()
                .map(|function| *function),
            _library: library,
        };
        // SAFETY: takes nothing; the library is loaded.
        if unsafe { init() } != SUCCESS {
            // Not started, so not to be shut down.
            std::mem::forget(nvml);
            return None;
        }
        Some(nvml)
    }

    /// The GPUs at this moment. One that does not answer is left out.
    pub fn snapshot(&self) -> Vec<Gpu> {
        let mut count = 0;
        // SAFETY: a number is there to be written.
        if unsafe { (self.count)(&raw mut count) } != SUCCESS {
            return Vec::new();
        }
        (0..count).filter_map(|index| self.gpu(index)).collect()
    }

    fn gpu(&self, index: u32) -> Option<Gpu> {
        let mut device = std::ptr::null_mut();
        // SAFETY: a pointer is there to be written.
        if unsafe { (self.device)(index, &raw mut device) } != SUCCESS {
            return None;
        }
        let mut memory = Memory::default();
        // SAFETY: the device is there, and so is the struct to be written.
        if unsafe { (self.memory)(device, &raw mut memory) } != SUCCESS {
            return None;
        }
        Some(Gpu {
            index,
            name: text(|start, len| {
                // SAFETY: the device is there, and so many bytes to be written.
                unsafe { (self.name)(device, start, len) }
            }),
            uuid: text(|start, len| {
                // SAFETY: as above.
                unsafe { (self.uuid)(device, start, len) }
            }),
            total_bytes: memory.total,
            used_bytes: memory.used,
            compute_capability: self.capability(device),
            processes: self.processes(device),
        })
    }

    fn capability(&self, device: Device) -> Option<(u32, u32)> {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: the device is there, and so are two numbers to be written.
        let code = unsafe { self.capability?(device, &raw mut major, &raw mut minor) };
        let known = (code == SUCCESS).then_some((major, minor))?;
        Some((u32::try_from(known.0).ok()?, u32::try_from(known.1).ok()?))
    }

    fn processes(&self, device: Device) -> Vec<GpuProcess> {
        let mut running = vec![Running::default(); PROCESSES_MAX];
        let mut count = PROCESSES_MAX as c_uint;
        // SAFETY: the device is there, and `count` structs to be written.
        if unsafe { (self.running)(device, &raw mut count, running.as_mut_ptr()) } != SUCCESS {
            return Vec::new();
        }
        // The pid of a process in another namespace may be missing or zero.
        running.truncate(count as usize);
        running.retain(|running| running.pid != 0);
        let process = |running: &Running| GpuProcess {
            pid: running.pid,
            used_bytes: (running.used != UNKNOWN).then_some(running.used),
        };
        running.iter().map(process).collect()
    }
}

impl Drop for Nvml {
    fn drop(&mut self) {
        // What it says then is of no use to anybody.
        // SAFETY: it was started, and is shut down once.
        let _ = unsafe { (self.shutdown)() };
    }
}

/// A text that the library writes; empty if it does not.
fn text(write: impl FnOnce(*mut c_char, c_uint) -> c_int) -> String {
    let mut bytes = [0u8; 96];
    if write(bytes.as_mut_ptr().cast(), bytes.len() as c_uint) != SUCCESS {
        return String::new();
    }
    let text = CStr::from_bytes_until_nul(&bytes).unwrap_or_default();
    text.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// A library that says what NVML would say on a machine with two GPUs.
    const FAKE: &str = r#"
        #include <string.h>
        typedef struct { unsigned long long total, free, used; } memory;
        typedef struct { unsigned pid; unsigned long long used; unsigned a, b; } running;
        static int devices[2];
        int nvmlInit_v2(void) { return 0; }
        int nvmlShutdown(void) { return 0; }
        int nvmlDeviceGetCount_v2(unsigned *n) { *n = 3; return 0; }
        int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) {
            if (i > 1) return 15;
            *d = &devices[i];
            return 0;
        }
        int nvmlDeviceGetName(void *d, char *s, unsigned n) { strncpy(s, "Fake GPU", n); return 0; }
        int nvmlDeviceGetUUID(void *d, char *s, unsigned n) {
            strncpy(s, d == devices ? "GPU-0" : "GPU-1", n);
            return 0;
        }
        int nvmlDeviceGetCudaComputeCapability(void *d, int *major, int *minor) {
            *major = 8; *minor = 6;
            return 0;
        }
        int nvmlDeviceGetMemoryInfo(void *d, memory *m) {
            m->total = 16ull << 30; m->used = 3ull << 30; m->free = 13ull << 30;
            return 0;
        }
        int nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned *n, running *r) {
            if (d != devices) { *n = 0; return 0; }
            *n = 2;
            r[0].pid = 7; r[0].used = 1ull << 30;
            r[1].pid = 8; r[1].used = ~0ull;
            return 0;
        }
    "#;

    #[test]
    fn gpus_and_their_processes_are_listed() {
        let folder = tempfile::tempdir().unwrap();
        let (source, library) = (folder.path().join("nvml.c"), folder.path().join("nvml.so"));
        std::fs::write(&source, FAKE).unwrap();
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source);
        assert!(compiler.status().unwrap().success());
        let gpus = Nvml::open_at(&library).unwrap().snapshot();
        assert_eq!(gpus.len(), 2);
        assert_eq!((gpus[0].name.as_str(), gpus[1].uuid.as_str()), ("Fake GPU", "GPU-1"));
        assert_eq!((gpus[0].total_bytes, gpus[0].used_bytes), (16 << 30, 3 << 30));
        assert_eq!(gpus[0].compute_capability, Some((8, 6)));
        let known = GpuProcess { pid: 7, used_bytes: Some(1 << 30) };
        assert_eq!(gpus[0].processes, [known, GpuProcess { pid: 8, used_bytes: None }]);
        assert!(gpus[1].processes.is_empty());
    }

    #[test]
    fn without_the_driver_there_are_none() {
        assert!(Nvml::open_at(Path::new("no/such/library.so")).is_none());
    }
}
