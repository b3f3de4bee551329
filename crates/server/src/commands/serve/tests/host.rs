//! The host's limit follows what the cgroups of the process leave it, while serving.

use device::logical::DeviceRule;
use device::{Amount, Category, Charge, Holder, Owner};
use tempfile::TempDir;

use super::*;

const MIB: u64 = 1 << 20;

/// The longest time that anything may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// The files of a machine of 64 MiB, on which this process is in a cgroup.
struct System(TempDir);

impl System {
    fn new(max: &str) -> System {
        let system = System(tempfile::tempdir().unwrap());
        system.write("proc/meminfo", "MemTotal: 65536 kB");
        system.write("proc/self/cgroup", "0::/pod/server");
        system.set_max(max);
        system
    }

    fn set_max(&self, max: &str) {
        self.write("sys/fs/cgroup/pod/server/memory.max", max);
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        // Whoever reads sees all of it or nothing, as of the system's own files.
        fs::write(path.with_extension("new"), format!("{text}\n")).unwrap();
        fs::rename(path.with_extension("new"), path).unwrap();
    }

    fn start(&self, rules: Option<Vec<DeviceRule>>) -> Inner {
        Inner::start_with(|config| {
            config.devices.system_root = self.0.path().to_owned();
            config.devices.rules = rules;
            config.lifecycle.load_retries_max = 0;
        })
    }
}

/// The figure that `/v1/memory` has for the host's limit.
fn limit(inner: &Inner) -> u64 {
    let host = memory::memory(&inner.devices).devices.swap_remove(0);
    assert_eq!(host.name, "cpu:0");
    assert!(host.reserved_bytes <= host.limit_bytes, "{host:?}");
    host.limit_bytes
}

/// Waits until the page shows a limit as wanted.
async fn until_limit(inner: &Inner, is_wanted: impl Fn(u64) -> bool) {
    let seen = async {
        while !is_wanted(limit(inner)) {
            tokio::task::yield_now().await;
        }
    };
    let outcome = tokio::time::timeout(PATIENCE, seen).await;
    assert!(outcome.is_ok(), "the limit stays {}", limit(inner));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_limit_of_the_host_follows_its_cgroup() {
    let system = System::new("33554432");
    let inner = system.start(None);
    let token = CancellationToken::new();
    let watch = tokio::spawn(memory::watch(Arc::clone(&inner.devices), token.clone()));
    assert_eq!(limit(&inner), 32 * MIB);
    system.set_max("16777216");
    until_limit(&inner, |limit| limit == 16 * MIB).await;
    system.write("sys/fs/cgroup/pod/memory.max", "15728640");
    until_limit(&inner, |limit| limit == 15 * MIB).await;
    system.set_max("max");
    system.write("sys/fs/cgroup/pod/memory.max", "max");
    until_limit(&inner, |limit| limit == 64 * MIB).await;
    token.cancel();
    watch.await.unwrap();
    inner.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_holds_more_than_it_may_takes_nothing_more() {
    let system = System::new("33554432");
    let inner = system.start(None);
    let host = inner.devices.host().unwrap();
    let owner = Owner::new(&host.space, Holder::Server, None);
    let charge = |bytes| Charge::new(&owner, Category::Requests, bytes);
    let held = charge(20 * MIB).unwrap();
    system.set_max("8388608");
    inner.devices.follow_host();
    assert_eq!(limit(&inner), host.space.account().held_bytes());
    assert!((20 * MIB..21 * MIB).contains(&limit(&inner)));
    assert!(charge(MIB).is_err(), "nothing more is taken");
    // Other devices may change meanwhile.
    inner.devices.change("{}").unwrap();
    inner.devices.follow_host();
    assert!(charge(MIB).is_err(), "nor after a change that says nothing of the host");
    drop(held);
    inner.devices.follow_host();
    assert_eq!(limit(&inner), 8 * MIB);
    assert!(charge(9 * MIB).is_err());
    drop(charge(7 * MIB).unwrap());
    inner.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_refused_is_loaded_when_the_cgroup_leaves_more() {
    let system = System::new("100");
    let inner = system.start(None);
    let refused = inner.lifecycle.set_config(vec![model("m", &half_plus_two())]).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("cpu:0 has no room"), "{refused}");
    system.set_max("33554432");
    inner.devices.follow_host();
    tokio::time::timeout(PATIENCE, inner.active.room()).await.expect("room is told of");
    inner.lifecycle.try_again().await;
    let is_there = |states: &[lifecycle::VersionStatus]| {
        states.iter().any(|status| status.state == State::Available)
    };
    let there = tokio::time::timeout(PATIENCE, inner.until("m", is_there)).await;
    let states = inner.lifecycle.models().status("m", None);
    assert!(there.is_ok(), "{states:?}");
    inner.ask("m").await;
    inner.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_that_was_asked_for_counts_if_it_is_less() {
    let system = System::new("33554432");
    let rule = |limit| DeviceRule {
        is_visible: true,
        device: "cpu:0".to_owned(),
        limit: Some(limit),
        growth: None,
        n_lanes: None,
        logical: Vec::new(),
    };
    let inner = system.start(Some(vec![rule(Amount::Bytes(20 * MIB))]));
    let check = |max: &str, expected: u64| {
        system.set_max(max);
        inner.devices.follow_host();
        assert_eq!(limit(&inner), expected, "{max}");
    };
    check("33554432", 20 * MIB);
    check("10485760", 10 * MIB);
    check("max", 20 * MIB);
    let half = r#"device { name: "cpu:0" memory_limit: "0.5" }"#;
    inner.devices.change(half).unwrap();
    check("max", 32 * MIB);
    check("33554432", 16 * MIB);
    inner.devices.change("{}").unwrap();
    check("33554432", 32 * MIB);
    inner.stop().await;
}
