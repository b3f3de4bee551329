//! `Fake`: loads the library and scripts it.

use std::env;
use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::OnceLock;

use parking_lot::{Mutex, MutexGuard};

use crate::control::{Control, Counters, Gpu};

/// One process has one CUDA: tests take turns, for as long as they have this.
pub struct Fake {
    control: &'static Control,
    _turn: MutexGuard<'static, ()>,
}

static TURN: Mutex<()> = Mutex::new(());

/// The name that programs ask for, which is also the one inside the library.
const NAME: &CStr = c"libcuda.so";

/// CUDA's code of an unknown error.
const UNKNOWN: i32 = 999;

impl Fake {
    /// Waits for its turn, and begins with GPUs like these. From the first time on, whoever in this
    /// process asks for CUDA's library gets the fake.
    ///
    /// # Panics
    /// If the library is not beside the test, or another CUDA was loaded before it.
    pub fn start(gpus: &[Gpu]) -> Fake {
        static CONTROL: OnceLock<&'static Control> = OnceLock::new();
        let turn = TURN.lock();
        let fake = Fake { control: CONTROL.get_or_init(load), _turn: turn };
        fake.reset(gpus);
        fake
    }

    /// Begins anew with GPUs like these.
    pub fn reset(&self, gpus: &[Gpu]) {
        // SAFETY: the pointer and the number are those of one slice.
        unsafe { (self.control.reset)(gpus.as_ptr(), gpus.len()) };
    }

    /// Lets the `n`-th call from now on fail, the next one being 0; the others are as ever. With
    /// `u64::MAX` none fails.
    pub fn fail_call(&self, n: u64) {
        self.answer_call(n, UNKNOWN);
    }

    /// Lets the `n`-th call from now on do nothing and answer with a code of CUDA's.
    pub fn answer_call(&self, n: u64, code: i32) {
        (self.control.fail_call)(n, code);
    }

    /// Returns the counters now.
    pub fn counters(&self) -> Counters {
        (self.control.counters)()
    }
}

/// Loads the library that was built beside the test. It stays: its calls may be known to others.
fn load() -> &'static Control {
    let path = path();
    let shown = path.display();
    let name = CString::new(path.as_os_str().as_bytes()).expect("paths have no nul");
    let flags = libc::RTLD_NOW | libc::RTLD_LOCAL;
    // SAFETY: the name ends with a nul, and loading our own library does nothing else.
    let library = unsafe { libc::dlopen(name.as_ptr(), flags) };
    assert!(!library.is_null(), "{shown} cannot be loaded");
    // SAFETY: the name ends with a nul; nothing new is loaded.
    let known = unsafe { libc::dlopen(NAME.as_ptr(), flags | libc::RTLD_NOLOAD) };
    assert_eq!(known, library, "another CUDA was loaded before {shown}");
    // SAFETY: the library is open, the name ends with a nul.
    let control = unsafe { libc::dlsym(library, c"FAKECUDA_CONTROL".as_ptr()) };
    assert!(!control.is_null(), "{shown} is not the fake");
    // SAFETY: the symbol is that static, built from this very source; the library stays loaded.
    unsafe { &*control.cast::<Control>() }
}

/// Returns the path of the library: cargo puts it beside the tests that depend on it.
fn path() -> PathBuf {
    let test = env::current_exe().expect("a test knows where it is");
    let folder = test.parent().expect("it is in a folder");
    let folders = [folder.to_owned(), folder.join("deps"), folder.join("../deps")];
    let mut paths = folders.iter().map(|folder| folder.join("libfakecuda.so"));
    let found = paths.find(|path| path.exists());
    found.unwrap_or_else(|| panic!("libfakecuda.so is not in {}", folder.display()))
}
