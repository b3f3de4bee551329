//! Landlock: which files may be opened (`linux/landlock.h`).

use std::ffi::{CString, c_long};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use super::Rules;

const EXECUTE: u64 = 1 << 0;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
const IOCTL_DEV: u64 = 1 << 15;
/// All rights of the first version: bits 0 to 12.
const FIRST: u64 = (1 << 13) - 1;
const REFER: u64 = 1 << 13;
const TRUNCATE: u64 = 1 << 14;
/// Binding and connecting of TCP, since the fourth version.
const TCP: u64 = 0b11;
/// Abstract UNIX sockets and signals to others, since the sixth version.
const SCOPES: u64 = 0b11;

const CREATE_RULESET_VERSION: u32 = 1;
const RULE_PATH_BENEATH: u32 = 1;

/// The folders of the system that a library needs to read.
const SYSTEM: &[&str] = &["/usr", "/lib", "/lib64", "/etc", "/opt", "/proc", "/sys"];

#[repr(C)]
struct Ruleset {
    fs: u64,
    net: u64,
    scoped: u64,
}

#[repr(C, packed)]
struct PathBeneath {
    allowed: u64,
    folder: i32,
}

/// Allows only what the rules say. Fails, in words, where the kernel has no Landlock.
pub(super) fn enter(rules: &Rules) -> Result<(), String> {
    let version = version()?;
    let ruleset = create(version)?;
    let read = READ_FILE | READ_DIR;
    let write = WRITE_FILE | if version >= 3 { TRUNCATE } else { 0 };
    let ioctl = if version >= 5 { IOCTL_DEV } else { 0 };
    // The loader maps libraries for execution, which Landlock takes for reading.
    let run = if rules.has_gpu { EXECUTE } else { 0 };
    for folder in SYSTEM {
        allow(&ruleset, Path::new(folder), read | run)?;
    }
    for folder in &rules.readable {
        allow(&ruleset, folder, read | run)?;
    }
    allow(&ruleset, Path::new("/dev"), read | write | ioctl)?;
    if rules.has_gpu {
        // Compilers of GPU code leave temporary files.
        let refer = if version >= 2 { REFER } else { 0 };
        let all = (FIRST & !EXECUTE) | refer | write;
        allow(&ruleset, Path::new("/tmp"), all)?;
    }
    // SAFETY: the ruleset is open; takes numbers only.
    let failed = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) };
    check(failed).map(drop)
}

fn version() -> Result<c_long, String> {
    let none = std::ptr::null::<Ruleset>();
    // SAFETY: asks for the version, for which there is no ruleset to read.
    let version = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, none, 0usize, CREATE_RULESET_VERSION)
    };
    check(version)
}

fn create(version: c_long) -> Result<OwnedFd, String> {
    let mut fs = FIRST;
    fs |= if version >= 2 { REFER } else { 0 };
    fs |= if version >= 3 { TRUNCATE } else { 0 };
    fs |= if version >= 5 { IOCTL_DEV } else { 0 };
    let net = if version >= 4 { TCP } else { 0 };
    let scoped = if version >= 6 { SCOPES } else { 0 };
    let ruleset = Ruleset { fs, net, scoped };
    // Older kernels know a shorter struct, and refuse a longer one unless the rest is zero; for
    // those, fields that they do not know are.
    let len = size_of::<Ruleset>();
    // SAFETY: the ruleset is there, and so long.
    let file =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, &raw const ruleset, len, 0u32) };
    let file = i32::try_from(check(file)?).map_err(|error| error.to_string())?;
    // SAFETY: it was opened just now and is nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(file) })
}

/// Allows `rights` beneath a folder. One that is not there needs no rule.
fn allow(ruleset: &OwnedFd, folder: &Path, rights: u64) -> Result<(), String> {
    let Ok(path) = CString::new(folder.as_os_str().as_bytes()) else {
        return Err("a path has a zero byte in it".to_owned());
    };
    // SAFETY: the path ends with a zero.
    let folder = unsafe { libc::open(path.as_ptr(), libc::O_PATH | libc::O_CLOEXEC) };
    if folder < 0 {
        return Ok(());
    }
    // SAFETY: it was opened just now and is nobody else's.
    let folder = unsafe { OwnedFd::from_raw_fd(folder) };
    let rule = PathBeneath { allowed: rights, folder: folder.as_raw_fd() };
    // SAFETY: the ruleset is open, and the rule is there and of the kind that is said.
    let failed = unsafe {
        libc::syscall(
            libc::SYS_landlock_add_rule,
            ruleset.as_raw_fd(),
            RULE_PATH_BENEATH,
            &raw const rule,
            0u32,
        )
    };
    check(failed).map(drop)
}

fn check(result: c_long) -> Result<c_long, String> {
    if result < 0 {
        return Err(std::io::Error::last_os_error().to_string());
    }
    Ok(result)
}
