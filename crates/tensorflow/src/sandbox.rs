//! What a worker may do: a SavedModel is a program, and need not be trusted.
//!
//! It gains no privileges, ever. Where the kernel has Landlock it reads only the library, the system's
//! folders and its models, writes nothing but devices, and signals nobody; where it has seccomp it
//! opens no socket, starts no program and looks into no other process.

mod landlock;
mod seccomp;

use std::path::PathBuf;

/// What is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rules {
    /// Whether there is more than `no_new_privs`.
    pub(crate) is_on: bool,
    /// Whether drivers of GPUs are used, which need temporary files and programs of their own.
    pub(crate) has_gpu: bool,
    /// The folders that may be read.
    pub(crate) readable: Vec<PathBuf>,
}

/// Enters the sandbox, before any thread is started and anything foreign is loaded. Gives what of
/// it could not be had, in words.
pub(crate) fn enter(rules: &Rules) -> Vec<String> {
    let mut missing = Vec::new();
    if let Err(error) = no_new_privileges() {
        missing.push(format!("no_new_privs ({error})"));
    }
    if !rules.is_on {
        return missing;
    }
    if let Err(why) = landlock::enter(rules) {
        missing.push(format!("Landlock ({why})"));
    }
    if let Err(why) = seccomp::enter(rules) {
        missing.push(format!("seccomp ({why})"));
    }
    missing
}

fn no_new_privileges() -> std::io::Result<()> {
    // SAFETY: takes numbers only.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } == 0 {
        return Ok(());
    }
    Err(std::io::Error::last_os_error())
}
