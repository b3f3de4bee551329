//! The host's memory: what the machine has, and what the cgroups of the process leave of it. That
//! changes while serving, and the host's limit follows it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result};
use device::logical::{Configured, DeviceRule};
use device::{Account, Amount, Kind};
use parking_lot::Mutex;

use super::{DeviceOptions, Devices, Logical, PhysicalDevice};

/// The source of the host's limit.
pub(super) struct HostLimit {
    /// The folder that the system's own files are in.
    root: PathBuf,
    asked: Mutex<Asked>,
}

/// The host's limit as it is to be.
struct Asked {
    /// The bytes that somebody said that it may hold at most.
    explicit: Option<Amount>,
    /// The limit as it is to be by now; it is more for as long as more is held.
    limit_bytes: u64,
}

impl HostLimit {
    /// The limit that it starts with, and what was said about it.
    pub(super) fn new(options: &DeviceOptions, limit_bytes: u64) -> HostLimit {
        let explicit = match &options.rules {
            Some(rules) => explicit(rules),
            None => options.environment.host_limit().map(Amount::Bytes),
        };
        let root = options.system_root.clone();
        HostLimit { root, asked: Mutex::new(Asked { explicit, limit_bytes }) }
    }

    /// Notes what new rules say of a host that has so many bytes.
    pub(super) fn change(&self, rules: &[DeviceRule], total_bytes: u64) {
        let explicit = explicit(rules);
        *self.asked.lock() = Asked { explicit, limit_bytes: limit(explicit, total_bytes) };
    }
}

/// The limit that rules have for the host.
fn explicit(rules: &[DeviceRule]) -> Option<Amount> {
    rules.iter().find(|rule| rule.device == HOST)?.limit
}

/// The host's name.
const HOST: &str = "cpu:0";

/// The most that the host may hold, if there is so much of it: the smaller of both counts.
fn limit(explicit: Option<Amount>, total_bytes: u64) -> u64 {
    explicit.map_or(total_bytes, |amount| amount.bytes_of(total_bytes).min(total_bytes))
}

impl Devices {
    /// Looks what the host has by now, and lets its limit follow. If more is held than that, what
    /// nobody uses goes back and nothing more is taken; the limit is reached at a later look.
    pub(crate) fn follow_host(&self) {
        // What cannot be read is as it was.
        let Ok(total) = host_bytes(&self.host_limit.root) else { return };
        let Some((at, one)) = self.physical_host() else { return };
        let leasing = self.placement.leasing();
        let all = self.all();
        let mut asked = self.host_limit.asked.lock();
        let wanted = limit(asked.explicit, total);
        let was_total = one.total_bytes.swap(total, Ordering::Relaxed);
        let hosts: Vec<&Arc<Logical>> =
            all.iter().filter(|logical| logical.device.lock().physical == at).collect();
        let accounts = hosts.iter().map(|logical| logical.space.account());
        let accounts: Vec<&Arc<Account>> = accounts.chain([one.driver.account()]).collect();
        let is_other = |account: &&Arc<Account>| account.limit_bytes() != wanted;
        if was_total == total && !accounts.iter().any(is_other) {
            return;
        }
        let is_more = accounts.iter().any(|account| account.limit_bytes() < wanted);
        if accounts.iter().any(|account| account.held_bytes() > wanted) {
            for logical in &hosts {
                logical.trim("limit");
            }
        }
        let is_over = accounts.iter().filter(|account| !lower(account, wanted)).count() > 0;
        hosts.iter().for_each(|logical| logical.device.lock().limit_bytes = wanted);
        if std::mem::replace(&mut asked.limit_bytes, wanted) != wanted {
            say(one, wanted, is_over);
        }
        drop((asked, leasing));
        // Limits of models may be shares of what there is.
        self.own().relimit();
        if is_more {
            self.active.make_room();
        }
    }

    /// Lets a host that holds more than it may by now keep that for the time being, unless rules
    /// have a limit for it: they are not what lowered it.
    pub(super) fn bear_with_host(&self, rules: &[DeviceRule], configured: &mut Configured) {
        let Some((at, one)) = self.physical_host().filter(|_| explicit(rules).is_none()) else {
            return;
        };
        let held = one.driver.account().held_bytes();
        let limits = configured.devices.iter_mut().filter(|device| device.physical == at);
        let limits = limits.map(|device| &mut device.limit_bytes);
        for limit in limits.chain(configured.physical_limit_bytes.get_mut(at)) {
            *limit = held.max(*limit);
        }
    }

    /// Notes what new rules say of the host.
    pub(super) fn note_host(&self, rules: &[DeviceRule]) {
        let total = self.physical_host().map_or(0, |(_, one)| one.total_bytes());
        self.host_limit.change(rules, total);
    }

    /// The host among what was found, and its number.
    fn physical_host(&self) -> Option<(usize, &PhysicalDevice)> {
        self.physical.iter().enumerate().find(|(_, one)| one.found.kind == Kind::Cpu)
    }
}

/// Gives an account its limit, or, while it holds more, one that lets it take nothing more. Whether
/// it has it.
fn lower(account: &Account, limit_bytes: u64) -> bool {
    let is_lower = account.set_limit(limit_bytes).is_ok();
    if !is_lower {
        // More may be given back meanwhile; then the next look lowers it further.
        drop(account.set_limit(account.held_bytes()));
    }
    is_lower
}

fn say(host: &PhysicalDevice, limit_bytes: u64, is_over: bool) {
    let (name, held) = (&host.found.name, host.driver.account().held_bytes());
    if is_over {
        tracing::warn!(
            "{name} may hold {limit_bytes} bytes now, but holds {held}: nothing more is taken"
        );
    } else {
        tracing::info!("{name} may hold {limit_bytes} bytes now");
    }
}

/// The bytes that this process may have of the host's memory: all of it, or what its cgroup allows.
pub(crate) fn host_bytes(root: &Path) -> Result<u64> {
    let total = machine_bytes(root)?;
    let cgroup = std::fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let limit = cgroup_limit(&root.join("sys/fs/cgroup"), &cgroup);
    Ok(limit.map_or(total, |limit| limit.min(total)))
}

/// All memory of the machine.
pub(crate) fn machine_bytes(root: &Path) -> Result<u64> {
    let text = std::fs::read_to_string(root.join("proc/meminfo"));
    let text = text.context("cannot read /proc/meminfo")?;
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let total = total.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    Ok(total.context("/proc/meminfo does not say how much memory there is")? << 10)
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

    #[test]
    fn what_somebody_said_counts_if_it_is_less() {
        let check = |explicit: Option<Amount>, total, expected| {
            assert_eq!(limit(explicit, total), expected, "{explicit:?} of {total}");
        };
        check(None, 500, 500);
        check(Some(Amount::Bytes(200)), 500, 200);
        check(Some(Amount::Bytes(900)), 500, 500);
        check(Some(Amount::Fraction(0.5)), 500, 250);
    }

    /// The bytes that a process may have of a machine of 8 MiB, where these files say so.
    #[track_caller]
    fn check_host(files: &[(&str, &str)], expected: u64) {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), &[("proc/meminfo", "MemTotal:  8192 kB\nMemFree:  17 kB\n")]);
        write(root.path(), files);
        assert_eq!(host_bytes(root.path()).unwrap(), expected, "{files:?}");
        assert_eq!(machine_bytes(root.path()).unwrap(), 8 << 20);
    }

    #[test]
    fn the_host_has_what_the_machine_has_and_the_cgroups_leave() {
        let cgroup = ("proc/self/cgroup", "0::/a\n");
        check_host(&[], 8 << 20);
        check_host(&[("sys/fs/cgroup/a/memory.max", "1048576\n")], 8 << 20);
        check_host(&[cgroup, ("sys/fs/cgroup/a/memory.max", "1048576\n")], 1 << 20);
        check_host(&[cgroup, ("sys/fs/cgroup/a/memory.max", "99999999\n")], 8 << 20);
        let older = [
            ("proc/self/cgroup", "4:memory:/a\n"),
            ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "2097152\n"),
        ];
        check_host(&older, 2 << 20);
        let nothing = tempfile::tempdir().unwrap();
        assert!(host_bytes(nothing.path()).is_err());
        write(nothing.path(), &[("proc/meminfo", "MemTotal: much\n")]);
        assert!(host_bytes(nothing.path()).is_err());
    }

    fn write(root: &Path, files: &[(&str, &str)]) {
        for (path, text) in files {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
    }

    /// The limit of a process in `cgroup`, where these files say so.
    #[track_caller]
    fn check(files: &[(&str, &str)], cgroup: &str, expected: Option<u64>) {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), files);
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
