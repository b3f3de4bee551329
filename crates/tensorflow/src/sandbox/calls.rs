//! The system calls of a worker, kept to by seccomp. Every table of calls stands here.
//!
//! Two filters: one knows the calls that computing takes, and to a worker no other call exists
//! (`ENOSYS`, so that the C library falls back to an older one); the other refuses some of those
//! by their arguments (`EPERM`). Both hold where there is no Landlock: without a GPU nothing is
//! opened for writing.

mod table;

use std::collections::BTreeMap;
use std::ffi::{c_int, c_long};

use seccompiler::SeccompCmpArgLen::Dword;
use seccompiler::SeccompCmpOp::{self, Eq, MaskedEq, Ne};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCondition, SeccompFilter, SeccompRule,
};

use super::Rules;
use table::{ALWAYS, FOR_CUDA, FOR_MPS};

/// The calls that are refused, and for which arguments; any if there is no rule.
type Refused = BTreeMap<i64, Vec<SeccompRule>>;

/// Namespaces of its own would give a worker capabilities in them.
const NEW_NAMESPACES: c_int = libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWUTS;

/// Commands of `fcntl` that the C library of this crate does not name.
const F_SETSIG: c_int = 10;
const F_SETOWN_EX: c_int = 15;

/// Commands of `ioctl` (`asm-generic/sockios.h`, `asm-generic/ioctls.h`): who is signalled when a
/// file can be read, and typing for a person at a terminal.
const FIOSETOWN: u64 = 0x8901;
const SIOCSPGRP: u64 = 0x8902;

/// The kinds of a socket, without its flags.
const SOCKET_KINDS: u64 = 0xf;

/// Refuses what the rules do not allow. Fails, in words, where the kernel has no seccomp.
pub(super) fn enter(rules: &Rules) -> Result<(), String> {
    let refused = refused(rules).map_err(|error| error.to_string())?;
    let filters = [
        filter(refused, SeccompAction::Allow, SeccompAction::Errno(code(libc::EPERM))),
        // The last one of all: it does not know how to make a filter.
        filter(known(rules), SeccompAction::Errno(code(libc::ENOSYS)), SeccompAction::Allow),
    ];
    for filter in filters {
        let program = filter.map_err(|error| error.to_string())?;
        seccompiler::apply_filter(&program).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Fails, in words, where the kernel has no seccomp, or no filters.
pub(super) fn probe() -> Result<(), String> {
    let refuse = libc::SECCOMP_RET_ERRNO;
    // SAFETY: the action is there to be read, and the call changes nothing.
    let failed = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0, &raw const refuse)
    };
    if failed == 0 {
        return Ok(());
    }
    Err(std::io::Error::last_os_error().to_string())
}

fn filter(
    calls: Refused,
    otherwise: SeccompAction,
    listed: SeccompAction,
) -> Result<BpfProgram, BackendError> {
    let architecture = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(calls, otherwise, listed, architecture)?.try_into()
}

/// The calls that there are.
fn known(rules: &Rules) -> Refused {
    let mut calls: Vec<c_long> = ALWAYS.to_vec();
    if let Some(gpu) = &rules.gpu {
        calls.extend(FOR_CUDA);
        calls.extend(gpu.mps.iter().flat_map(|_| FOR_MPS));
    }
    calls.into_iter().map(|call| (call, Vec::new())).collect()
}

/// The calls that are refused for some of their arguments.
fn refused(rules: &Rules) -> Result<Refused, BackendError> {
    let own = u64::from(std::process::id());
    let is_not = |argument: u8, value: u64| condition(argument, Ne, value);
    let mut refused = Refused::new();
    // A signal may go to this process only, as when it aborts itself.
    for call in [libc::SYS_kill, libc::SYS_tgkill] {
        refused.insert(call, vec![all([is_not(0, own)?])?]);
    }
    // Limits, processors and priorities of other processes are theirs.
    refused.insert(libc::SYS_prlimit64, vec![all([is_not(0, 0)?, is_not(0, own)?])?]);
    for call in [libc::SYS_sched_setaffinity, libc::SYS_sched_setscheduler] {
        refused.insert(call, vec![all([is_not(0, 0)?])?]);
    }
    let of_itself = [is_not(0, u64::from(libc::PRIO_PROCESS))?, is_not(1, 0)?];
    let [which, who] = of_itself;
    refused.insert(libc::SYS_setpriority, vec![all([which])?, all([who])?]);
    // A file that is readable would signal its owner, which may be any process of the same user.
    let owners = [libc::F_SETOWN, F_SETOWN_EX, F_SETSIG];
    refused.insert(libc::SYS_fcntl, commands(owners.map(word))?);
    let owners = [FIOSETOWN, SIOCSPGRP, libc::TIOCSTI];
    refused.insert(libc::SYS_ioctl, commands(owners)?);
    // A worker ends with the server.
    let unbound = condition(0, Eq, word(libc::PR_SET_PDEATHSIG))?;
    refused.insert(libc::SYS_prctl, vec![all([unbound])?]);
    refused.insert(libc::SYS_clone, clones(rules)?);
    match &rules.gpu {
        None => {
            for (call, flags) in table::OPENS {
                refused.insert(*call, writes(*flags)?);
            }
            refused.insert(libc::SYS_socket, Vec::new());
            refused.insert(libc::SYS_execve, Vec::new());
        }
        Some(_) => drop(refused.insert(libc::SYS_socket, sockets()?)),
    }
    Ok(refused)
}

/// Some commands of a call whose second argument is a command.
fn commands(commands: [u64; 3]) -> Result<Vec<SeccompRule>, BackendError> {
    commands.into_iter().map(|command| all([condition(1, Eq, command)?])).collect()
}

/// Threads only; beside a GPU also the processes of compilers.
fn clones(rules: &Rules) -> Result<Vec<SeccompRule>, BackendError> {
    let mut refused = Vec::new();
    for bit in (0..i32::BITS).map(|bit| 1 << bit).filter(|bit| NEW_NAMESPACES & bit != 0) {
        refused.push(has(0, bit)?);
    }
    if rules.gpu.is_none() {
        let thread = word(libc::CLONE_THREAD);
        refused.push(all([condition(0, MaskedEq(thread), 0)?])?);
    }
    Ok(refused)
}

/// Opening a file to write to it, where `flags` is the number of the argument that says so.
fn writes(flags: u8) -> Result<Vec<SeccompRule>, BackendError> {
    let mut refused = vec![has(flags, libc::O_CREAT)?, has(flags, libc::O_TRUNC)?];
    let mode = MaskedEq(word(libc::O_ACCMODE));
    // The third is that of nothing that has a name, and is taken for both by some drivers.
    for access in [libc::O_WRONLY, libc::O_RDWR, libc::O_ACCMODE] {
        refused.push(all([condition(flags, mode.clone(), word(access))?])?);
    }
    Ok(refused)
}

/// All sockets but UNIX ones that must be connected before they carry anything, which only
/// `FOR_MPS` allows: libcuda binds one for its own use.
fn sockets() -> Result<Vec<SeccompRule>, BackendError> {
    let mut refused = vec![all([condition(0, Ne, word(libc::AF_UNIX))?])?];
    for kind in [libc::SOCK_DGRAM, libc::SOCK_RAW] {
        refused.push(all([condition(1, MaskedEq(SOCKET_KINDS), word(kind))?])?);
    }
    Ok(refused)
}

/// A rule for calls whose argument has all bits of a flag.
fn has(argument: u8, flag: c_int) -> Result<SeccompRule, BackendError> {
    all([condition(argument, MaskedEq(word(flag)), word(flag))?])
}

fn condition(
    argument: u8,
    comparison: SeccompCmpOp,
    value: u64,
) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, Dword, comparison, value)
}

/// A rule for calls of which all of these hold.
fn all(
    conditions: impl IntoIterator<Item = SeccompCondition>,
) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(conditions.into_iter().collect())
}

/// The 32 bits of a number, as the kernel compares them.
fn word(number: c_int) -> u64 {
    u64::from(number.cast_unsigned())
}

fn code(error: c_int) -> u32 {
    error.unsigned_abs()
}
