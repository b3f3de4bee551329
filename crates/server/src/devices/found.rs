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
/// `memory.limit_in_bytes`.
fn cgroup_limit(root: &Path, cgroup: &str) -> Option<u64> {
    let read = |path: &Path| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let mut least: Option<u64> = None;
    for line in cgroup.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?.trim_start_matches('/'));
        let (root, file) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            "memory" => (root.join("memory"), "memory.limit_in_bytes"),
            _ => continue,
        };
        // In a container the path may be the host's, of which only the root is seen here.
        let group = root.join(path);
        for dir in group.ancestors().take_while(|dir| dir.starts_with(&root)) {
            least = [least, read(&dir.join(file))].into_iter().flatten().min();
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_of_the_cgroups_around_counts() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("a/b");
        std::fs::create_dir_all(&inner).unwrap();
        let check = |expected| assert_eq!(cgroup_limit(root.path(), "0::/a/b\n"), expected);
        check(None);
        std::fs::write(inner.join("memory.max"), "max\n").unwrap();
        check(None);
        std::fs::write(inner.join("memory.max"), "5000\n").unwrap();
        check(Some(5000));
        std::fs::write(root.path().join("a/memory.max"), "4000\n").unwrap();
        check(Some(4000));
        assert_eq!(cgroup_limit(root.path(), "nonsense"), None);
        assert_eq!(cgroup_limit(root.path(), "0::/elsewhere"), None);
    }
}
