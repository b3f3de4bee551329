//! Every way out of the sandbox is tried, as root and as an ordinary user, without and with a GPU.

use std::ffi::{c_int, c_long};
use std::fs::{self, File};
use std::io::{Error, ErrorKind};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;

use super::files::LINKERS;
use super::*;

/// The user and the group called nobody.
const NOBODY: u32 = 65534;

/// The user that a worker runs as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum As {
    /// The user that runs the tests.
    Tester,
    /// An ordinary user, which only root can become.
    Nobody,
}

/// The users that there can be.
#[expect(clippy::print_stdout, reason = "a tester should know what was not tried")]
fn users() -> Vec<As> {
    // SAFETY: takes nothing.
    if unsafe { libc::geteuid() } == 0 {
        return vec![As::Tester, As::Nobody];
    }
    println!("the tests do not run as root: only what an ordinary user tries is tried");
    vec![As::Tester]
}

/// Rules without a GPU, and with one whose driver has the devices `null` and `zero`.
fn rules(readable: &[&Path], scratch: Option<&Path>) -> Rules {
    let gpu = |scratch: &Path| GpuRules {
        devices: vec!["/dev/null".into()],
        scratch: scratch.to_owned(),
        mps: None,
    };
    Rules {
        level: Sandbox::Required,
        readable: readable.iter().map(|folder| (*folder).to_owned()).collect(),
        gpu: scratch.map(gpu),
    }
}

/// Runs `work` on a thread in the sandbox, which holds for that thread and those that it starts.
#[track_caller]
fn inside<T: Send>(user: As, rules: &Rules, work: impl FnOnce() -> T + Send) -> T {
    let confined = move || {
        if user == As::Nobody {
            become_nobody();
        }
        let missing = enter(rules);
        assert!(missing.is_empty(), "this kernel lacks {missing:?}");
        work()
    };
    let ended = std::thread::scope(|scope| scope.spawn(confined).join());
    ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Makes this thread an ordinary user's. The C library would do that to all threads.
fn become_nobody() {
    let none = std::ptr::null::<u32>();
    // SAFETY: there is no list to be read.
    assert_eq!(unsafe { libc::syscall(libc::SYS_setgroups, 0, none) }, 0);
    // SAFETY: takes numbers only.
    assert_eq!(unsafe { libc::syscall(libc::SYS_setresgid, NOBODY, NOBODY, NOBODY) }, 0);
    // SAFETY: takes numbers only.
    assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) }, 0);
}

/// Makes a call with small numbers for arguments; gives the error, 0 if there is none.
fn call(number: c_long, arguments: [c_long; 5]) -> c_int {
    let [a, b, c, d, e] = arguments;
    // SAFETY: the calls that are tried are refused before they look at an argument; where one was
    // let through, it would find numbers that are no addresses.
    let result = unsafe { libc::syscall(number, a, b, c, d, e) };
    if result == -1 { Error::last_os_error().raw_os_error().unwrap_or(-1) } else { 0 }
}

/// Returns whether a call was refused by the sandbox.
fn is_refused(error: c_int) -> bool {
    [libc::EPERM, libc::EACCES, libc::ENOSYS].contains(&error)
}

/// The system calls of escapes.
#[expect(clippy::too_many_lines, reason = "a table")]
fn calls() -> Vec<(&'static str, c_long, [c_long; 5])> {
    let parent = c_long::from(std::os::unix::process::parent_id());
    let user = c_long::from(libc::CLONE_NEWUSER);
    vec![
        (
            "ptrace the server",
            libc::SYS_ptrace,
            [c_long::from(libc::PTRACE_ATTACH), parent, 0, 0, 0],
        ),
        ("read the server's memory", libc::SYS_process_vm_readv, [parent, 0, 0, 0, 0]),
        ("write the server's memory", libc::SYS_process_vm_writev, [parent, 0, 0, 0, 0]),
        ("take the server's files", libc::SYS_pidfd_open, [parent, 0, 0, 0, 0]),
        ("take a file by a pidfd", libc::SYS_pidfd_getfd, [0, 0, 0, 0, 0]),
        ("compare processes", libc::SYS_kcmp, [parent, parent, 0, 0, 0]),
        ("limit the server", libc::SYS_prlimit64, [parent, 7, 0, 0, 0]),
        ("slow the server down", libc::SYS_setpriority, [0, parent, 19, 0, 0]),
        ("move the server", libc::SYS_sched_setaffinity, [parent, 0, 0, 0, 0]),
        ("signal the server", libc::SYS_kill, [parent, 0, 0, 0, 0]),
        ("signal all", libc::SYS_kill, [-1, 0, 0, 0, 0]),
        ("signal a thread of the server", libc::SYS_tgkill, [parent, parent, 0, 0, 0]),
        ("signal a thread", libc::SYS_tkill, [parent, 0, 0, 0, 0]),
        ("signal by a queue", libc::SYS_rt_sigqueueinfo, [parent, 0, 0, 0, 0]),
        (
            "have the server signalled",
            libc::SYS_fcntl,
            [1, c_long::from(libc::F_SETOWN), parent, 0, 0],
        ),
        ("outlive the server", libc::SYS_prctl, [c_long::from(libc::PR_SET_PDEATHSIG), 0, 0, 0, 0]),
        ("leave the group", libc::SYS_setsid, [0; 5]),
        ("leave the group", libc::SYS_setpgid, [0; 5]),
        ("make namespaces", libc::SYS_unshare, [user, 0, 0, 0, 0]),
        ("clone with namespaces", libc::SYS_clone, [user, 0, 0, 0, 0]),
        ("clone with hidden flags", libc::SYS_clone3, [0; 5]),
        ("enter namespaces", libc::SYS_setns, [0; 5]),
        ("mount", libc::SYS_mount, [0; 5]),
        ("mount anew", libc::SYS_fsopen, [0; 5]),
        ("move a mount", libc::SYS_move_mount, [0; 5]),
        ("open a tree", libc::SYS_open_tree, [0; 5]),
        ("unmount", libc::SYS_umount2, [0; 5]),
        ("pivot the root", libc::SYS_pivot_root, [0; 5]),
        ("change the root", libc::SYS_chroot, [0; 5]),
        ("make a device", libc::SYS_mknodat, [0; 5]),
        ("become root", libc::SYS_setuid, [0; 5]),
        ("become root", libc::SYS_setresuid, [0; 5]),
        ("become root's group", libc::SYS_setgid, [0; 5]),
        ("gain capabilities", libc::SYS_capset, [0; 5]),
        ("queue I/O past the filter", libc::SYS_io_uring_setup, [1, 0, 0, 0, 0]),
        ("handle faults", libc::SYS_userfaultfd, [0; 5]),
        ("load a BPF program", libc::SYS_bpf, [0; 5]),
        ("read keys", libc::SYS_keyctl, [0; 5]),
        ("add a key", libc::SYS_add_key, [0; 5]),
        ("request a key", libc::SYS_request_key, [0; 5]),
        ("count events", libc::SYS_perf_event_open, [0; 5]),
        ("load a module", libc::SYS_init_module, [0; 5]),
        ("load a module", libc::SYS_finit_module, [0; 5]),
        ("load a kernel", libc::SYS_kexec_load, [0; 5]),
        ("reboot", libc::SYS_reboot, [0; 5]),
        ("set the clock", libc::SYS_clock_settime, [0; 5]),
        ("read the kernel's log", libc::SYS_syslog, [3, 0, 0, 0, 0]),
        ("open by handle", libc::SYS_open_by_handle_at, [0; 5]),
        ("name a handle", libc::SYS_name_to_handle_at, [0; 5]),
        ("open with hidden flags", libc::SYS_openat2, [0; 5]),
        ("truncate by name", libc::SYS_truncate, [0; 5]),
        ("change a mode", libc::SYS_fchmodat, [0; 5]),
        ("change an owner", libc::SYS_fchownat, [0; 5]),
        ("change a time", libc::SYS_utimensat, [0; 5]),
        ("change an attribute", libc::SYS_setxattr, [0; 5]),
        ("link", libc::SYS_linkat, [0; 5]),
        ("link softly", libc::SYS_symlinkat, [0; 5]),
        ("watch folders", libc::SYS_inotify_init1, [0; 5]),
        ("watch all files", libc::SYS_fanotify_init, [0; 5]),
        ("take shared memory", libc::SYS_shmget, [0; 5]),
        ("take a message queue", libc::SYS_mq_open, [0; 5]),
        ("run a file by its number", libc::SYS_execveat, [0; 5]),
        ("connect", libc::SYS_connect, [0; 5]),
        ("open a TCP socket", libc::SYS_socket, [2, 1, 0, 0, 0]),
        ("open a UDP socket", libc::SYS_socket, [2, 2, 0, 0, 0]),
        ("open a TCP socket of IPv6", libc::SYS_socket, [10, 1, 0, 0, 0]),
        ("open a netlink socket", libc::SYS_socket, [16, 3, 0, 0, 0]),
        ("open a packet socket", libc::SYS_socket, [17, 3, 0, 0, 0]),
        ("open a socket of datagrams", libc::SYS_socket, [1, 2, 0, 0, 0]),
        ("open a socket of virtual machines", libc::SYS_socket, [40, 1, 0, 0, 0]),
        ("restrict itself anew", libc::SYS_seccomp, [0; 5]),
    ]
}

#[test]
fn no_call_leads_out() {
    let scratch = tempfile::tempdir().unwrap();
    for user in users() {
        for scratch in [None, Some(scratch.path())] {
            let let_through: Vec<(&str, c_int)> = inside(user, &rules(&[], scratch), || {
                let tried = calls()
                    .into_iter()
                    .map(|(name, number, arguments)| (name, call(number, arguments)));
                tried.filter(|(_, error)| !is_refused(*error)).collect()
            });
            assert!(let_through.is_empty(), "{user:?} {scratch:?}: {let_through:?}");
        }
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn the_other_numbers_of_calls_lead_nowhere() {
    const X32: c_long = 0x4000_0000;
    inside(As::Tester, &rules(&[], None), || {
        for number in [libc::SYS_ptrace, libc::SYS_socket, libc::SYS_openat, libc::SYS_getpid] {
            assert_eq!(call(X32 | number, [0; 5]), libc::ENOSYS, "{number}");
        }
    });
}

#[test]
fn no_process_is_started_without_a_gpu_and_only_compilers_with_one() {
    let scratch = tempfile::tempdir().unwrap();
    let cuda = tempfile::tempdir().unwrap();
    fs::create_dir(cuda.path().join("bin")).unwrap();
    for name in ["ptxas", "other"] {
        fs::copy("/bin/true", cuda.path().join("bin").join(name)).unwrap();
    }
    open_to_all(cuda.path());
    let run = |path: &Path| Command::new(path).status().map_err(|error| error.kind());
    let (compiler, other) = (cuda.path().join("bin/ptxas"), cuda.path().join("bin/other"));
    for user in users() {
        inside(user, &rules(&[cuda.path()], None), || {
            let flags = c_long::from(libc::SIGCHLD);
            assert_eq!(call(libc::SYS_clone, [flags, 0, 0, 0, 0]), libc::EPERM);
            for path in [&compiler, Path::new("/bin/true")] {
                assert!(run(path).is_err(), "{}", path.display());
            }
        });
        inside(user, &rules(&[cuda.path()], Some(scratch.path())), || {
            assert!(run(&compiler).is_ok_and(|status| status.success()));
            for path in [other.as_path(), Path::new("/bin/true"), Path::new("/bin/sh")] {
                assert_eq!(run(path), Err(ErrorKind::PermissionDenied), "{}", path.display());
            }
            // Nor by way of the compilers' own linker.
            let linker = LINKERS.iter().find(|path| Path::new(path).exists()).unwrap();
            let status = Command::new(linker).arg("/bin/true").status();
            assert!(!status.is_ok_and(|status| status.success()));
        });
    }
}

/// Lets everybody read a folder and what is in it.
fn open_to_all(folder: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn files_are_the_models_and_few_of_the_system() {
    let (model, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for folder in [&model, &other] {
        fs::write(folder.path().join("file"), "text").unwrap();
        open_to_all(folder.path());
    }
    let secret = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    let server = std::os::unix::process::parent_id();
    let root = format!("/proc/self/root{}", other.path().join("file").display());
    let mut shut: Vec<String> = [
        "/etc/passwd",
        "/etc/shadow",
        "/etc/hostname",
        "/proc/1/environ",
        "/proc/1/maps",
        "/proc/1/status",
        "/proc/version",
        "/proc/kallsyms",
        "/proc/keys",
        "/proc/net/tcp",
        "/proc/thread-self/net/tcp",
        "/proc/sys/kernel/core_pattern",
        "/proc/sysrq-trigger",
        "/proc/self/root/etc/passwd",
        "/proc/self/../1/environ",
        "/proc/thread-self/root/etc/shadow",
        "/proc/self/task/../root/etc/shadow",
        "/proc/kcore",
        "/proc/self/pagemap",
        "/proc/self/mem",
        "/sys/class/net/lo/address",
        "/sys/firmware/dmi/tables/DMI",
        "/proc/self/exe",
        "/proc/self/cwd/Cargo.toml",
        "/sys/kernel/uevent_helper",
        "/bin/sh",
        "/dev/vda",
        "/dev/sda",
        "/dev/mem",
        "/dev/kmsg",
        "/dev/tty",
        "/dev/ptmx",
        "/dev/fuse",
    ]
    .map(str::to_owned)
    .into();
    for name in ["environ", "maps", "mem", "cmdline", "status", "root/etc/passwd", "fd/0"] {
        shut.push(format!("/proc/{server}/{name}"));
    }
    shut.push(secret.path().display().to_string());
    shut.push(other.path().join("file").display().to_string());
    shut.push(root);
    for user in users() {
        inside(user, &rules(&[model.path()], None), || {
            assert_eq!(fs::read(model.path().join("file")).unwrap(), b"text");
            for path in ["/proc/self/status", "/proc/self/maps", "/proc/cpuinfo", "/dev/urandom"] {
                assert!(File::open(path).is_ok(), "{path}");
            }
            for path in &shut {
                assert!(File::open(path).is_err(), "{user:?} opened {path}");
            }
            for folder in ["/", "/etc", "/proc", "/dev", "/dev/shm", "/tmp", "/home", "/root"] {
                assert!(fs::read_dir(folder).is_err(), "{user:?} listed {folder}");
            }
        });
    }
}

#[test]
fn nothing_is_written_but_a_folder_of_a_gpu_s_worker() {
    let (model, scratch) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let everybody = |path: &Path| {
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    };
    fs::write(model.path().join("file"), "text").unwrap();
    for path in [model.path(), &model.path().join("file"), scratch.path()] {
        everybody(path);
    }
    let open = |path: &Path| File::options().write(true).create(true).truncate(true).open(path);
    let shut = [
        "/tmp/new",
        "/dev/shm/new",
        "/var/tmp/new",
        "/dev/vda",
        "/dev/zero/new",
        "/proc/self/mem",
        "/proc/self/oom_score_adj",
        "/proc/sys/kernel/core_pattern",
    ];
    for user in users() {
        for gpu in [None, Some(scratch.path())] {
            inside(user, &rules(&[model.path()], gpu), || {
                for path in shut
                    .map(Path::new)
                    .into_iter()
                    .chain([model.path().join("new").as_path(), &model.path().join("file")])
                {
                    assert!(open(path).is_err(), "{user:?} wrote {}", path.display());
                }
                assert!(fs::remove_file(model.path().join("file")).is_err());
                assert!(
                    fs::rename(model.path().join("file"), scratch.path().join("file")).is_err()
                );
                assert!(fs::create_dir(model.path().join("folder")).is_err());
                let new = scratch.path().join("new");
                assert_eq!(fs::write(&new, "text").is_ok(), gpu.is_some());
                assert_eq!(fs::remove_file(&new).is_ok(), gpu.is_some());
            });
        }
    }
    assert_eq!(fs::read(model.path().join("file")).unwrap(), b"text");
}

#[test]
fn no_socket_reaches_anybody() {
    let folder = tempfile::tempdir().unwrap();
    open_to_all(folder.path());
    let path = folder.path().join("socket");
    let _listener = UnixListener::bind(&path).unwrap();
    for user in users() {
        inside(user, &rules(&[], None), || {
            assert!(UnixStream::connect(&path).is_err());
            assert!(UnixDatagram::unbound().is_err());
            assert!(UnixStream::pair().is_err());
        });
        inside(user, &rules(&[folder.path()], Some(folder.path())), || {
            assert!(UnixStream::connect(&path).is_err());
            assert!(UnixDatagram::unbound().is_err());
            assert!(std::net::TcpListener::bind("127.0.0.1:0").is_err());
            // As libcuda does.
            let pair = UnixStream::pair().unwrap();
            assert!(pair.0.as_raw_fd() > 2);
        });
    }
}

#[test]
fn with_the_multi_process_service_a_worker_connects() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("control");
    let _listener = UnixListener::bind(&path).unwrap();
    let mut rules = rules(&[], Some(folder.path()));
    rules.gpu.as_mut().unwrap().mps = Some(folder.path().to_owned());
    inside(As::Tester, &rules, || assert!(UnixStream::connect(&path).is_ok()));
}

#[test]
fn a_worker_has_no_capability_and_hides_its_memory() {
    use rustix::thread::{CapabilitySet, capabilities, capability_is_in_bounding_set};
    for user in users() {
        let is_root = user == As::Tester && users().len() > 1;
        inside(user, &rules(&[], None), || {
            let held = capabilities(None).unwrap();
            let all = held.effective | held.permitted | held.inheritable;
            assert_eq!(all, CapabilitySet::empty(), "{user:?}");
            let one = CapabilitySet::SYS_ADMIN;
            assert!(!is_root || !capability_is_in_bounding_set(one).unwrap());
            // SAFETY: takes numbers only.
            let ask = |what: c_int| unsafe { libc::prctl(what, 0, 0, 0, 0) };
            assert_eq!(ask(libc::PR_GET_NO_NEW_PRIVS), 1);
            assert_eq!(ask(libc::PR_GET_DUMPABLE), 0);
        });
    }
}

#[test]
fn a_worker_computes() {
    inside(As::Tester, &rules(&[], None), || {
        let sum = std::thread::spawn(|| (0..10).sum::<i32>()).join().unwrap();
        assert_eq!(sum, 45);
        let own = c_long::from(std::process::id());
        assert_eq!(call(libc::SYS_kill, [own, 0, 0, 0, 0]), 0);
        assert!(fs::read("/dev/null").is_ok());
        assert!(std::io::pipe().is_ok());
    });
}
