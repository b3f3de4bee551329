//! seccomp: which system calls are refused (`linux/seccomp.h`).

use std::ffi::c_long;

use libc::{sock_filter, sock_fprog};

use super::Rules;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

/// Where the number of the call, the architecture and the arguments stand.
const CALL: u32 = 0;
const ARCH: u32 = 4;
const ARGUMENT: u32 = 16;

const LOAD: u16 = 0x20;
const EQUAL: u16 = 0x15;
const AT_LEAST: u16 = 0x35;
const RETURN: u16 = 0x06;

const ALLOW: u32 = 0x7fff_0000;
const KILL: u32 = 0x8000_0000;
const REFUSE: u32 = 0x0005_0000;

/// Calls of the other way to call on x86-64 begin here.
const OTHER_WAY: u32 = 0x4000_0000;

/// Calls that look into other processes, change the system, or get around this filter.
const NEVER: &[c_long] = &[
    libc::SYS_ptrace,
    libc::SYS_tkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_kexec_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_open_by_handle_at,
    libc::SYS_userfaultfd,
];

/// Refuses what the rules do not allow. Fails, in words, where the kernel has no seccomp.
pub(super) fn enter(rules: &Rules) -> Result<(), String> {
    let mut program = filter(rules, std::process::id());
    let len = u16::try_from(program.len()).map_err(|error| error.to_string())?;
    let program = sock_fprog { len, filter: program.as_mut_ptr() };
    // SAFETY: the program is there, and so long.
    let failed =
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    if failed == 0 {
        return Ok(());
    }
    Err(std::io::Error::last_os_error().to_string())
}

fn filter(rules: &Rules, own_pid: u32) -> Vec<sock_filter> {
    let mut program = vec![
        step(LOAD, ARCH),
        jump(EQUAL, ARCHITECTURE, 1, 0),
        step(RETURN, KILL),
        step(LOAD, CALL),
        jump(AT_LEAST, OTHER_WAY, 0, 1),
        step(RETURN, refuse(libc::EPERM)),
    ];
    let mut never: Vec<c_long> = NEVER.to_vec();
    if !rules.has_gpu {
        never.extend([libc::SYS_execve, libc::SYS_execveat]);
    }
    for call in never {
        program.extend([jump(EQUAL, number(call), 0, 1), step(RETURN, refuse(libc::EPERM))]);
    }
    // The drivers of GPUs talk to their services over UNIX sockets; nothing else needs any.
    program.extend(if rules.has_gpu {
        vec![
            jump(EQUAL, number(libc::SYS_socket), 0, 4),
            step(LOAD, ARGUMENT),
            jump(EQUAL, libc::AF_UNIX.unsigned_abs(), 1, 0),
            step(RETURN, refuse(libc::EACCES)),
            step(RETURN, ALLOW),
        ]
    } else {
        vec![jump(EQUAL, number(libc::SYS_socket), 0, 1), step(RETURN, refuse(libc::EACCES))]
    });
    // A signal may go to this process only, as when it aborts itself.
    for call in [libc::SYS_kill, libc::SYS_tgkill] {
        program.extend([
            jump(EQUAL, number(call), 0, 4),
            step(LOAD, ARGUMENT),
            jump(EQUAL, own_pid, 1, 0),
            step(RETURN, refuse(libc::EPERM)),
            step(RETURN, ALLOW),
        ]);
    }
    program.push(step(RETURN, ALLOW));
    program
}

fn number(call: c_long) -> u32 {
    u32::try_from(call).expect("numbers of calls are small")
}

fn refuse(error: i32) -> u32 {
    REFUSE | error.unsigned_abs()
}

fn step(code: u16, k: u32) -> sock_filter {
    sock_filter { code, jt: 0, jf: 0, k }
}

fn jump(code: u16, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code, jt, jf, k }
}
