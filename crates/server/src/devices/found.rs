//! Which devices there are: the host, and the GPUs that are simulated.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use device::logical::Physical;
use device::{Driver, Host, Kind, Limited, Simulated};
use native::Pace;

use super::{DeviceOptions, PhysicalDevice};

/// A device and its driver, before it is limited.
pub(super) struct Found {
    pub(super) found: Physical,
    driver_name: &'static str,
    driver: Arc<dyn Driver>,
    pace: Option<Arc<Pace>>,
}

impl Found {
    fn new(driver: Arc<dyn Driver>, driver_name: &'static str) -> Found {
        let properties = driver.properties();
        let found = Physical {
            name: properties.name.clone(),
            kind: properties.kind,
            total_bytes: properties.capacity_bytes,
            free_bytes: driver.available_bytes(),
            compute_capability: None,
            // As CUDA says of its streams.
            priorities: (0, if properties.kind == Kind::Gpu { -5 } else { 0 }),
        };
        Found { found, driver_name, driver, pace: None }
    }

    /// The same with a limit for all of it.
    pub(super) fn limited(self, limit_bytes: u64) -> PhysicalDevice {
        let driver = Limited::new(self.driver, self.found.name.clone(), limit_bytes);
        let Found { found, driver_name, pace, .. } = self;
        PhysicalDevice { found, driver_name, driver: Arc::new(driver), pace }
    }
}

/// Finds the devices: the host first.
pub(super) fn find(options: &DeviceOptions) -> Result<Vec<Found>> {
    let host = Host::new("cpu:0", host_bytes()?);
    let mut found = vec![Found::new(Arc::new(host), "host")];
    for (number, gpu) in options.simulated_gpus.iter().enumerate() {
        let driver = Simulated::gpu(format!("gpu:{number}"), gpu.bytes);
        let pace = Some(Arc::new(Pace::new(gpu.simulation.rates)));
        found.push(Found { pace, ..Found::new(Arc::new(driver), "simulated") });
    }
    Ok(found)
}

/// What this process may have of the host's memory: all of it, or what its cgroup allows.
fn host_bytes() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").context("cannot read /proc/meminfo")?;
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let total = total.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    let total = total.context("/proc/meminfo does not say how much memory there is")? << 10;
    let cgroup = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    Ok(cgroup_limit(Path::new("/sys/fs/cgroup"), &cgroup).map_or(total, |limit| limit.min(total)))
}

/// The least `memory.max` of the process's cgroup and those around it; for the older hierarchy its
/// `memory.limit_in_bytes`. Lines that make no sense say nothing.
fn cgroup_limit(root: &Path, cgroup: &str) -> Option<u64> {
    let read = |path: &Path| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let mut least: Option<u64> = None;
    for line in cgroup.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let (root, file) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            _ if controllers.split(',').any(|one| one == "memory") => {
                (root.join(controllers), "memory.limit_in_bytes")
            }
            _ => continue,
        };
        // In a container the path may be the host's, of which only the root is seen here.
        let group = root.join(path.trim_start_matches('/'));
        for dir in group.ancestors().take_while(|dir| dir.starts_with(&root)) {
            least = [least, read(&dir.join(file))].into_iter().flatten().min();
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The limit of a process in `cgroup`, where these files say so.
    #[track_caller]
    fn check(files: &[(&str, &str)], cgroup: &str, expected: Option<u64>) {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        assert_eq!(cgroup_limit(root.path(), cgroup), expected, "{files:?} {cgroup}");
    }

    #[test]
    fn the_least_limit_of_the_cgroups_around_counts() {
        let own = ("a/b/memory.max", "5000\n");
        check(&[], "0::/a/b\n", None);
        check(&[("a/b/memory.max", "max\n")], "0::/a/b\n", None);
        check(&[own], "0::/a/b\n", Some(5000));
        check(&[own, ("a/memory.max", "4000\n")], "0::/a/b\n", Some(4000));
        check(&[own, ("a/memory.max", "6000\n")], "0::/a/b\n", Some(5000));
        check(&[own, ("a/memory.max", "max\n")], "0::/a/b\n", Some(5000));
        check(&[("memory.max", "7000\n")], "0::/\n", Some(7000));
    }

    #[test]
    fn a_container_sees_its_own_cgroup_as_the_root() {
        check(&[("memory.max", "7000\n")], "0::/kubepods/pod1/abc\n", Some(7000));
        check(&[("memory.max", "7000\n")], "0::/../../elsewhere\n", Some(7000));
    }

    #[test]
    fn the_older_hierarchy_counts_as_well() {
        let unlimited = "9223372036854771712\n";
        let lines = "12:cpu,cpuacct:/a\n4:memory:/a/b\n1:name=systemd:/a/b\n";
        let own = ("memory/a/b/memory.limit_in_bytes", "3000\n");
        check(&[own], lines, Some(3000));
        check(&[own, ("memory/a/memory.limit_in_bytes", "2000\n")], lines, Some(2000));
        let root = ("memory/memory.limit_in_bytes", unlimited);
        check(&[own, root], lines, Some(3000));
        check(&[root], lines, Some(9_223_372_036_854_771_712));
        check(&[("cpu,memory/a/memory.limit_in_bytes", "10\n")], "3:cpu,memory:/a\n", Some(10));
        // Both at once, as while a system changes from one to the other.
        check(&[own, ("a/memory.max", "2500\n")], "4:memory:/a/b\n0::/a\n", Some(2500));
    }

    #[test]
    fn lines_that_make_no_sense_say_nothing() {
        check(&[], "nonsense", None);
        check(&[("a/memory.max", "5\n")], "nonsense\n0::/a\n1:x\n", Some(5));
        check(&[("a/memory.max", "five\n")], "0::/a\n", None);
        check(&[], "0::/elsewhere", None);
    }
}
