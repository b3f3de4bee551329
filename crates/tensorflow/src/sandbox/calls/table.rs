//! The system calls that a worker knows.

use std::ffi::c_long;

/// The calls of every worker: they read files, compute on threads, keep time and end. No call here
/// changes a file by its name, looks into another process, or makes anything that outlives this
/// one.
#[rustfmt::skip]
pub(super) const ALWAYS: &[c_long] = &[
    // Files. Landlock says which, and `OPENS` for what.
    libc::SYS_openat, libc::SYS_close, libc::SYS_close_range, libc::SYS_read, libc::SYS_readv,
    libc::SYS_pread64, libc::SYS_preadv, libc::SYS_preadv2, libc::SYS_write, libc::SYS_writev,
    libc::SYS_pwrite64, libc::SYS_pwritev, libc::SYS_pwritev2, libc::SYS_lseek, libc::SYS_fstat,
    libc::SYS_newfstatat, libc::SYS_statx, libc::SYS_statfs, libc::SYS_fstatfs,
    libc::SYS_getdents64, libc::SYS_readlinkat, libc::SYS_faccessat, libc::SYS_faccessat2,
    libc::SYS_getcwd, libc::SYS_chdir, libc::SYS_fchdir, libc::SYS_dup, libc::SYS_dup3,
    libc::SYS_fcntl, libc::SYS_flock, libc::SYS_fsync, libc::SYS_fdatasync, libc::SYS_ftruncate,
    libc::SYS_fallocate, libc::SYS_fadvise64, libc::SYS_readahead, libc::SYS_sendfile,
    libc::SYS_copy_file_range, libc::SYS_splice, libc::SYS_tee, libc::SYS_vmsplice,
    libc::SYS_sync_file_range, libc::SYS_ioctl, libc::SYS_umask,
    // Memory.
    libc::SYS_brk, libc::SYS_mmap, libc::SYS_munmap, libc::SYS_mprotect, libc::SYS_mremap,
    libc::SYS_madvise, libc::SYS_msync, libc::SYS_mincore, libc::SYS_mlock, libc::SYS_mlock2,
    libc::SYS_munlock, libc::SYS_mlockall, libc::SYS_munlockall, libc::SYS_memfd_create,
    libc::SYS_mbind, libc::SYS_get_mempolicy, libc::SYS_set_mempolicy, libc::SYS_pkey_alloc,
    libc::SYS_pkey_free, libc::SYS_pkey_mprotect, libc::SYS_membarrier,
    // Threads. `clone3` hides its flags from a filter, and is not there.
    libc::SYS_clone, libc::SYS_exit, libc::SYS_exit_group, libc::SYS_futex, libc::SYS_futex_waitv,
    libc::SYS_set_robust_list, libc::SYS_set_tid_address, libc::SYS_rseq, libc::SYS_gettid,
    libc::SYS_sched_yield, libc::SYS_sched_getaffinity, libc::SYS_sched_setaffinity,
    libc::SYS_sched_getscheduler, libc::SYS_sched_setscheduler, libc::SYS_sched_getparam,
    libc::SYS_sched_getattr, libc::SYS_sched_get_priority_max, libc::SYS_sched_get_priority_min,
    libc::SYS_sched_rr_get_interval, libc::SYS_getcpu, libc::SYS_getpriority,
    libc::SYS_setpriority, libc::SYS_prctl, libc::SYS_restart_syscall,
    // Waiting, and talking to itself and to the server.
    libc::SYS_ppoll, libc::SYS_pselect6, libc::SYS_epoll_create1, libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait, libc::SYS_epoll_pwait2, libc::SYS_eventfd2, libc::SYS_pipe2,
    libc::SYS_recvfrom, libc::SYS_recvmsg, libc::SYS_sendto, libc::SYS_sendmsg,
    libc::SYS_getsockopt, libc::SYS_shutdown,
    // Known so that they are refused as forbidden, not as missing: models say so to their users.
    libc::SYS_socket, libc::SYS_execve,
    // Time.
    libc::SYS_clock_gettime, libc::SYS_clock_getres, libc::SYS_clock_nanosleep,
    libc::SYS_gettimeofday, libc::SYS_nanosleep, libc::SYS_times, libc::SYS_getitimer,
    libc::SYS_setitimer, libc::SYS_timer_create, libc::SYS_timer_settime,
    libc::SYS_timer_gettime, libc::SYS_timer_getoverrun, libc::SYS_timer_delete,
    libc::SYS_timerfd_create, libc::SYS_timerfd_settime, libc::SYS_timerfd_gettime,
    // Signals, to itself.
    libc::SYS_kill, libc::SYS_tgkill, libc::SYS_rt_sigaction, libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn, libc::SYS_rt_sigpending, libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait, libc::SYS_sigaltstack, libc::SYS_signalfd4,
    // Questions.
    libc::SYS_getpid, libc::SYS_getppid, libc::SYS_getuid, libc::SYS_geteuid, libc::SYS_getgid,
    libc::SYS_getegid, libc::SYS_getresuid, libc::SYS_getresgid, libc::SYS_getgroups,
    libc::SYS_getpgid, libc::SYS_getsid, libc::SYS_capget, libc::SYS_uname, libc::SYS_sysinfo,
    libc::SYS_getrusage, libc::SYS_getrandom, libc::SYS_prlimit64,
    #[cfg(target_arch = "x86_64")] libc::SYS_open,
    #[cfg(target_arch = "x86_64")] libc::SYS_stat,
    #[cfg(target_arch = "x86_64")] libc::SYS_lstat,
    #[cfg(target_arch = "x86_64")] libc::SYS_access,
    #[cfg(target_arch = "x86_64")] libc::SYS_readlink,
    #[cfg(target_arch = "x86_64")] libc::SYS_getdents,
    #[cfg(target_arch = "x86_64")] libc::SYS_dup2,
    #[cfg(target_arch = "x86_64")] libc::SYS_pipe,
    #[cfg(target_arch = "x86_64")] libc::SYS_poll,
    #[cfg(target_arch = "x86_64")] libc::SYS_select,
    #[cfg(target_arch = "x86_64")] libc::SYS_epoll_create,
    #[cfg(target_arch = "x86_64")] libc::SYS_epoll_wait,
    #[cfg(target_arch = "x86_64")] libc::SYS_eventfd,
    #[cfg(target_arch = "x86_64")] libc::SYS_signalfd,
    #[cfg(target_arch = "x86_64")] libc::SYS_arch_prctl,
    #[cfg(target_arch = "x86_64")] libc::SYS_time,
    #[cfg(target_arch = "x86_64")] libc::SYS_alarm,
    #[cfg(target_arch = "x86_64")] libc::SYS_pause,
    #[cfg(target_arch = "x86_64")] libc::SYS_getpgrp,
    #[cfg(target_arch = "x86_64")] libc::SYS_getrlimit,
    #[cfg(target_arch = "x86_64")] libc::SYS_setrlimit,
];

/// The calls that open files by name, and which of their arguments says for what. `openat2` hides
/// that from a filter, and is not there.
pub(super) const OPENS: &[(c_long, u8)] = &[
    (libc::SYS_openat, 2),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 1),
];

/// The calls of CUDA besides: TensorFlow starts compilers, which write to the worker's own folder,
/// and libcuda binds a socket for its own use.
#[rustfmt::skip]
pub(super) const FOR_CUDA: &[c_long] = &[
    libc::SYS_wait4, libc::SYS_waitid,
    libc::SYS_mkdirat, libc::SYS_unlinkat, libc::SYS_renameat2,
    libc::SYS_bind, libc::SYS_listen, libc::SYS_accept4, libc::SYS_getsockname,
    libc::SYS_getpeername, libc::SYS_setsockopt, libc::SYS_socketpair,
    #[cfg(target_arch = "x86_64")] libc::SYS_vfork,
    #[cfg(target_arch = "x86_64")] libc::SYS_fork,
    #[cfg(target_arch = "x86_64")] libc::SYS_mkdir,
    #[cfg(target_arch = "x86_64")] libc::SYS_rmdir,
    #[cfg(target_arch = "x86_64")] libc::SYS_unlink,
    #[cfg(target_arch = "x86_64")] libc::SYS_rename,
    #[cfg(target_arch = "x86_64")] libc::SYS_accept,
    libc::SYS_renameat,
];

/// The call of CUDA's multi-process service: its clients talk to a daemon over UNIX sockets. The
/// filter cannot see to which.
pub(super) const FOR_MPS: &[c_long] = &[libc::SYS_connect];
