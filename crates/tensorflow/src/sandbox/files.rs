//! The files of a worker, kept to by Landlock. Every table of paths stands here.
//!
//! A folder that is listed is readable with all below it, a file by itself. A path that is not
//! there needs no rule. Links lead to where they lead: `/proc/self/root/etc` is `/etc`.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, LandlockStatus,
    PathBeneath, PathFd, Ruleset, RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, Scope,
};

use super::{GpuRules, Rules};

/// The version whose rights are asked for; of a kernel that has fewer, those are used.
const WANTED: ABI = ABI::V6;

/// The version from which on no file can be changed, opened for truncation included (Linux 6.2).
/// Later rights are of devices, sockets and signals, which seccomp and the tables here refuse.
const NEEDED: ABI = ABI::V3;

/// The libraries of the system, and what the dynamic linker and the C library read.
const SYSTEM: &[&str] = &[
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/local/lib",
    "/nix/store",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/usr/share/zoneinfo",
];

/// Files that say how many processors there are, and which, and how large pages are.
const MACHINE: &[&str] = &[
    "/sys/bus/cpu",
    "/sys/bus/node",
    "/sys/devices/system/cpu",
    "/sys/devices/system/node",
    "/sys/kernel/mm/hugepages",
    "/sys/kernel/mm/transparent_hugepage",
];

/// The files of `/proc` that are read: those of this very process, but for what its `net` and its
/// `task` tell of the network, and what says which machine it is.
const PROC: &[&str] = &[
    "/proc/self/auxv",
    "/proc/self/cgroup",
    "/proc/self/cmdline",
    "/proc/self/comm",
    "/proc/self/cpuset",
    "/proc/self/environ",
    "/proc/self/fd",
    "/proc/self/limits",
    "/proc/self/maps",
    "/proc/self/mountinfo",
    "/proc/self/mounts",
    "/proc/self/smaps",
    "/proc/self/stat",
    "/proc/self/statm",
    "/proc/self/status",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/sys/vm/overcommit_memory",
];

/// The devices that hold nothing.
const DEVICES: &[&str] = &["/dev/null", "/dev/zero"];

/// The devices that give random numbers.
const RANDOM: &[&str] = &["/dev/urandom", "/dev/random"];

/// The libraries of CUDA and of its driver, and what the driver says of GPUs.
const CUDA: &[&str] = &[
    "/usr/local/cuda",
    "/usr/local/nvidia",
    "/opt/cuda",
    "/sys/bus/pci",
    "/sys/devices",
    "/sys/module/nvidia",
    "/sys/module/nvidia_uvm",
];

/// Files of the GPU driver in `/proc`.
const CUDA_PROC: &[&str] = &[
    "/proc/driver/nvidia",
    "/proc/driver/nvidia-uvm",
    "/proc/driver/nvidia-caps",
    "/proc/devices",
    "/proc/modules",
    "/proc/sys/vm/mmap_min_addr",
];

/// The compilers of GPU code that TensorFlow starts, below a folder of CUDA.
const COMPILERS: &[&str] = &[
    "bin/ptxas",
    "bin/nvlink",
    "bin/fatbinary",
    "cuda_nvcc/bin/ptxas",
    "cuda_nvcc/bin/nvlink",
    "cuda_nvcc/bin/fatbinary",
];

/// The dynamic linkers, which the compilers are started with.
pub(super) const LINKERS: &[&str] = &["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"];

/// Allows only what the rules say. Fails, in words, where the kernel cannot hold a worker to them;
/// then those rules are in force that it knows.
pub(super) fn enter(rules: &Rules) -> Result<(), String> {
    let status = restrict(rules).map_err(|error| error.to_string())?;
    match status {
        LandlockStatus::NotEnabled => Err("it is turned off".to_owned()),
        LandlockStatus::NotImplemented => Err("the kernel has none".to_owned()),
        LandlockStatus::Available { effective_abi, .. } if effective_abi < NEEDED => {
            Err(format!("the kernel has its version {effective_abi}, needed is {NEEDED}"))
        }
        LandlockStatus::Available { .. } => Ok(()),
    }
}

/// Fails, in words, where the kernel could not hold a worker to the rules.
pub(super) fn probe() -> Result<(), String> {
    let needed = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    match needed.handle_access(AccessFs::from_all(NEEDED)) {
        Ok(_) => Ok(()),
        Err(_) => Err(format!("needed is its version {NEEDED}, which Linux has since 6.2")),
    }
}

fn restrict(rules: &Rules) -> Result<LandlockStatus, Box<dyn std::error::Error>> {
    let mut ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(WANTED))?
        .handle_access(AccessNet::from_all(WANTED))?
        .scope(Scope::from_all(WANTED))?
        .create()?;
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let write = AccessFs::WriteFile | AccessFs::Truncate;
    let readable = rules.readable.iter().map(PathBuf::as_path);
    ruleset = allow(ruleset, readable.chain(paths(SYSTEM)).chain(paths(MACHINE)), read)?;
    ruleset = allow_proc(ruleset, PROC)?;
    ruleset = allow(ruleset, paths(RANDOM), read)?;
    ruleset = allow(ruleset, paths(DEVICES), read | write)?;
    if let Some(gpu) = &rules.gpu {
        ruleset = allow_gpu(ruleset, gpu, &rules.readable)?;
    }
    Ok(ruleset.restrict_self()?.landlock)
}

/// Allows what CUDA needs: its driver's devices, its libraries, its compilers, and a folder for
/// what the compilers write.
fn allow_gpu(
    ruleset: RulesetCreated,
    gpu: &GpuRules,
    readable: &[PathBuf],
) -> Result<RulesetCreated, Box<dyn std::error::Error>> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let write = AccessFs::WriteFile | AccessFs::Truncate;
    let devices = gpu.devices.iter().map(PathBuf::as_path);
    let mut ruleset = allow(ruleset, devices, read | write | AccessFs::IoctlDev)?;
    ruleset = allow(ruleset, paths(CUDA), read)?;
    ruleset = allow_proc(ruleset, CUDA_PROC)?;
    let folders = paths(CUDA).chain(readable.iter().map(PathBuf::as_path));
    let compilers: Vec<PathBuf> =
        folders.flat_map(|folder| COMPILERS.iter().map(|name| folder.join(name))).collect();
    let programs = compilers.iter().map(PathBuf::as_path).chain(paths(LINKERS));
    ruleset = allow(ruleset, programs, read | AccessFs::Execute)?;
    let private = AccessFs::from_all(WANTED) & !AccessFs::Execute;
    let private = private & !(AccessFs::MakeBlock | AccessFs::MakeChar | AccessFs::IoctlDev);
    ruleset = allow(ruleset, [gpu.scratch.as_path()], private)?;
    Ok(allow(ruleset, gpu.mps.as_deref(), read | write)?)
}

fn paths<'a>(table: &'a [&'a str]) -> impl Iterator<Item = &'a Path> {
    table.iter().map(|path| Path::new(*path))
}

/// Allows `rights` to files and beneath folders. One that is not there needs no rule.
fn allow<'a>(
    ruleset: RulesetCreated,
    paths: impl IntoIterator<Item = &'a Path>,
    rights: impl Into<BitFlags<AccessFs>>,
) -> Result<RulesetCreated, landlock::RulesetError> {
    ruleset.add_rules(landlock::path_beneath_rules(paths, rights))
}

/// Allows reading files of `/proc`. The kernel makes a file there anew when it has dropped it from
/// its cache, and no rule is about the new one: the files stay open, so that they are not dropped.
fn allow_proc(
    mut ruleset: RulesetCreated,
    paths: &[&str],
) -> Result<RulesetCreated, landlock::RulesetError> {
    for path in paths {
        let Ok(file) = PathFd::new(path) else { continue };
        let is_folder = Path::new(path).is_dir();
        let mut rights = BitFlags::from(AccessFs::ReadFile);
        rights.set(AccessFs::ReadDir, is_folder);
        let file: &'static PathFd = Box::leak(Box::new(file));
        ruleset = ruleset.add_rule(PathBeneath::new(file, rights))?;
    }
    Ok(ruleset)
}
