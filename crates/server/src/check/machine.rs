//! Checks of the machine: ports, limits of the process, memory, GPUs and their drivers, TensorFlow
//! and the confinement of its workers.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;

use config::{Address, Config, Flags, Persona, engines};
use rustix::process::{Resource, Rlimit, getrlimit};
use tensorflow::Nvml;

use super::Finding;
use crate::devices::{host_bytes, machine_bytes};

/// The fewest files that a server should be able to open.
const FILES_MIN: u64 = 4096;

/// The least memory that a server should have.
const MEMORY_MIN: u64 = 256 << 20;

/// Checks the machine for a server with these flags.
pub fn machine_findings(persona: Persona, flags: &Flags) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Ok(config) = Config::new(persona, flags) {
        findings.extend(ports(&config));
    }
    findings.push(files(getrlimit(Resource::Nofile), flags.max_connections.get() as u64));
    findings.push(locked(getrlimit(Resource::As)));
    findings.push(memory(Path::new("/")));
    findings.extend(gpus());
    findings.push(library(flags));
    findings.push(sandbox(&tensorflow::sandbox_lacks()));
    findings
}

/// Tries to listen on each port of a server, and lets it go again.
fn ports(config: &Config) -> Vec<Finding> {
    let address = config.bind_address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    let at = |port: u16| SocketAddr::from((address, port)).to_string();
    let mut wanted = Vec::new();
    wanted.extend(config.grpc_port.map(|port| ("gRPC", "--port", at(port))));
    wanted.extend(config.rest_port.map(|port| ("REST", "--rest_api_port", at(port))));
    if let Some(Address::Tcp(address)) = &config.management.address {
        wanted.push(("management", "--management_address", address.clone()));
    }
    let check = |(what, flag, address): (&str, &str, String)| {
        let port = address.rsplit(':').next().unwrap_or_default();
        let about = format!("{what} port {port}");
        match TcpListener::bind(&address) {
            Ok(_) => Finding::ok(about, "free"),
            Err(error) => Finding::problem(about, format!("cannot listen on {address}: {error}"))
                .mended_by(format!("stop what listens there, or choose another with {flag}")),
        }
    };
    wanted.into_iter().map(check).collect()
}

/// The files that the process may open, of which each connection is one.
fn files(limit: Rlimit, connections_max: u64) -> Finding {
    let about = "file descriptors";
    let Some(most) = limit.current else { return Finding::ok(about, "no limit") };
    let text = format!("{most} at most");
    if most < FILES_MIN {
        return Finding::warning(about, text)
            .mended_by("raise it: `ulimit -n 65536`, or LimitNOFILE=65536 of a systemd unit");
    }
    if most < connections_max {
        return Finding::warning(about, format!("{text}, and {connections_max} connections"))
            .mended_by("raise `ulimit -n`, or lower --max_connections");
    }
    Finding::ok(about, text)
}

/// The addresses that the process may use.
fn locked(limit: Rlimit) -> Finding {
    let about = "address space";
    match limit.current {
        None => Finding::ok(about, "no limit"),
        Some(bytes) => Finding::warning(about, format!("{} MiB at most", bytes >> 20))
            .mended_by("`ulimit -v unlimited`: memory is reserved before it is used"),
    }
}

/// The memory of the machine, and what the cgroups of the process leave of it.
fn memory(root: &Path) -> Finding {
    let about = "memory";
    let (machine, own) = match (machine_bytes(root), host_bytes(root)) {
        (Ok(machine), Ok(own)) => (machine, own),
        (Err(error), _) | (_, Err(error)) => return Finding::problem(about, format!("{error:#}")),
    };
    let text = match own < machine {
        true => format!("{} MiB by memory.max of the cgroup, of {}", own >> 20, machine >> 20),
        false => format!("{} MiB", machine >> 20),
    };
    if own < MEMORY_MIN {
        return Finding::warning(about, text)
            .mended_by("raise memory.max, or the container's limit");
    }
    Finding::ok(about, text)
}

/// The GPUs that NVIDIA's library sees, and the driver by which they are used.
fn gpus() -> Vec<Finding> {
    let has_device = Path::new("/dev/nvidiactl").exists();
    let Some(nvml) = Nvml::open() else {
        return vec![match has_device {
            true => Finding::problem("GPUs", "there is an NVIDIA GPU, but no libnvidia-ml.so.1")
                .mended_by("install the driver's libraries, or run the container with --gpus all"),
            false => Finding::ok("GPUs", "none"),
        }];
    };
    let seen = nvml.snapshot();
    if seen.is_empty() {
        return vec![
            Finding::warning("GPUs", "the driver sees none")
                .mended_by("`nvidia-smi` says why; in a container, run it with --gpus all"),
        ];
    }
    let gpu = |gpu: &tensorflow::Gpu| {
        let (used, total) = (gpu.used_bytes >> 20, gpu.total_bytes >> 20);
        let text = format!("{}, {used} of {total} MiB in use", gpu.name);
        match gpu.used_bytes * 2 > gpu.total_bytes {
            true => Finding::warning(format!("GPU {}", gpu.index), text)
                .mended_by("others hold most of it: `nvidia-smi` shows them"),
            false => Finding::ok(format!("GPU {}", gpu.index), text),
        }
    };
    let mut findings: Vec<Finding> = seen.iter().map(gpu).collect();
    findings.push(match device::cuda_gpus() {
        Ok(found) if found.is_empty() => Finding::warning("CUDA", "libcuda.so.1 finds no GPU")
            .mended_by("look at CUDA_VISIBLE_DEVICES, and install the driver's libcuda.so.1"),
        Ok(found) => Finding::ok("CUDA", format!("{} GPUs", found.len())),
        Err(error) => Finding::problem("CUDA", error.to_string())
            .mended_by("the driver and its library must be of one version: reboot after an update"),
    });
    findings
}

/// TensorFlow's library, for models with ops that our own engine lacks.
fn library(flags: &Flags) -> Finding {
    let about = "TensorFlow";
    match engines::find(&flags.tensorflow_library) {
        Ok(Some(path)) => Finding::ok(about, path.display().to_string()),
        Ok(None) => Finding::ok(about, "not found: models are served by our own engine alone")
            .mended_by(format!("for others, {}", tensorflow::HOW_TO_INSTALL)),
        Err(error) => Finding::problem(about, format!("{error:#}")),
    }
}

/// The parts of the workers' sandbox that the kernel lacks.
fn sandbox(lacking: &[String]) -> Finding {
    let about = "sandbox of workers";
    if lacking.is_empty() {
        return Finding::ok(about, "Landlock and seccomp");
    }
    Finding::warning(about, format!("the kernel lacks {}", lacking.join(", ")))
        .mended_by("use Linux 6.2 or later with Landlock; --worker_sandbox=required insists")
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn few_file_descriptors_are_a_warning() {
        let check = |most: Option<u64>, connections, expected| {
            let found = files(Rlimit { current: most, maximum: None }, connections);
            assert_eq!(found.verdict, expected, "{}", found.line());
        };
        check(None, 10_000, Verdict::Ok);
        check(Some(1024), 100, Verdict::Warning);
        check(Some(8192), 10_000, Verdict::Warning);
        check(Some(65_536), 10_000, Verdict::Ok);
    }

    #[test]
    fn a_small_cgroup_is_a_warning_with_its_size() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("proc/meminfo", "MemTotal:       8388608 kB\n");
        write("proc/self/cgroup", "0::/a\n");
        assert_eq!(memory(root.path()).verdict, Verdict::Ok);
        write("sys/fs/cgroup/a/memory.max", "104857600\n");
        let found = memory(root.path());
        assert_eq!(found.verdict, Verdict::Warning);
        assert!(found.text.starts_with("100 MiB by memory.max"), "{}", found.line());
    }

    #[test]
    fn a_kernel_without_parts_of_the_sandbox_is_a_warning() {
        assert_eq!(sandbox(&[]).verdict, Verdict::Ok);
        let found = sandbox(&["Landlock (not in the kernel)".to_owned()]);
        assert!(found.line().contains("lacks Landlock (not in the kernel)"), "{}", found.line());
    }
}
