use super::*;
use crate::{PhysicalEntry, PlanBytes, SharedBytes, SharedMemory, WorkerModel, WorkspaceMemory};

fn route() -> ManagementRoute {
    ManagementRoute { address: Some("127.0.0.1:8502".to_owned()), key_words: String::new() }
}

fn device(name: &str) -> DeviceMemory {
    let name = name.to_owned();
    let (limit_bytes, reserved_bytes) = (800 * MIB, 4 * MIB);
    let limit_setting = NOT_SET[0].to_owned();
    let physical = name.clone();
    DeviceMemory {
        physical,
        name,
        limit_bytes,
        reserved_bytes,
        limit_setting,
        ..Default::default()
    }
}

fn found(name: &str) -> PhysicalEntry {
    PhysicalEntry { name: name.to_owned(), ..PhysicalEntry::default() }
}

fn share(name: &str, physical: &str, lanes: usize) -> LogicalEntry {
    LogicalEntry {
        name: name.to_owned(),
        physical: physical.to_owned(),
        kind: if name == "cpu:0" { DeviceKind::Cpu } else { DeviceKind::Gpu },
        limit_bytes: 64 * MIB,
        limit_setting: "memory_limit of the device config".to_owned(),
        lanes: Some(lanes),
        ..LogicalEntry::default()
    }
}

fn idle(kind: IdleKind, bytes: u64, reason: &str) -> IdleBytes {
    IdleBytes { kind, bytes, reason: reason.to_owned() }
}

/// The reasons for a device, each as `holder bytes: why` and its lines.
fn of_device(device: DeviceMemory, route: &ManagementRoute) -> Vec<String> {
    let memory = MemoryPage { devices: vec![device], ..MemoryPage::default() };
    let devices = DevicesPage {
        physical: vec![found("gpu:0")],
        logical: vec![LogicalEntry {
            limit_setting: NOT_SET[0].to_owned(),
            ..share("gpu:0", "gpu:0", 2)
        }],
        ..DevicesPage::default()
    };
    let all = reasons(&memory, &devices, route);
    let lines = all.iter().flat_map(|reason| {
        let head = format!("{} {}: {}", reason.holder, reason.bytes, reason.why);
        let remedies = reason.remedies.iter().map(|one| format!("  {}: {}", one.does, one.line));
        std::iter::once(head).chain(remedies)
    });
    lines.collect()
}

#[test]
fn each_holder_has_its_reason_and_the_line_that_changes_it() {
    let categories = Categories::from([(MemoryCategory::PackedWeights, 3 * MIB)]);
    let model = VersionMemory {
        name: "a/b".to_owned(),
        version: 2,
        bytes: 3 * MIB,
        limit_bytes: Some(8 * MIB),
        largest_plan_bytes: Some(1024),
        categories,
        ..VersionMemory::default()
    };
    let plan = PlanBytes { name: "a/b".to_owned(), version: 2, largest_plan_bytes: 1024 };
    let holder = SharedBytes { name: "c".to_owned(), version: 1, bytes: 10 };
    let device = DeviceMemory {
        models: vec![model],
        workspaces: Some(WorkspaceMemory { bytes: 2048, lanes: 2, models: vec![plan] }),
        shared: SharedMemory {
            bytes: 10,
            holders: vec![holder],
            saved_bytes: 5,
            ..Default::default()
        },
        idle: vec![idle(IdleKind::Kept, MIB, "kept for a while"), idle(IdleKind::Rounding, 9, "x")],
        ..device("gpu:0")
    };
    let body =
        r#"{"device":[{"allow_growth":true,"lanes":2,"memory_limit":419430400,"name":"gpu:0"}]}"#;
    assert_eq!(
        of_device(device, &route()),
        [
            "a/b:2 on gpu:0 3145728: Held because version 2 is served, most of it packed weights. \
             A run needs up to 1.0 KiB of a lane's memory. Its limit is 8.0 MiB.",
            "  Let it grow no further, in the model config: \
             config { name: \"a/b\" memory { limit: \"4MiB\" } }",
            "  Unload it (where --model_roots is set): \
             curl -X DELETE http://127.0.0.1:8502/v1/models/a%2Fb",
            "idle on gpu:0 1048576: Kept for a while.",
            "  Give it back now: curl -X POST http://127.0.0.1:8502/v1/memory:trim",
            "lanes of gpu:0 2048: 2 lanes share it among all models; a/b:2 needs most, \
             1.0 KiB each.",
            "  Run one batch at a time, in the device config: device { name: \"gpu:0\" lanes: 1 }",
            "shared on gpu:0 10: Equal weights of c:1, held once, which saves 5 B.",
            "limit of gpu:0 838860800: The most that it may hold (default).",
            &format!(
                "  Let it hold no more than 400.0 MiB: curl -X PUT \
                 -H 'Content-Type: application/json' -d '{body}' http://127.0.0.1:8502/v1/devices"
            ),
        ]
    );
}

#[test]
fn a_reserved_device_is_told_the_setting_that_makes_it_grow() {
    let reserved = |setting: &str| DeviceMemory {
        growth: GrowthMode::Reserved,
        growth_setting: setting.to_owned(),
        idle: vec![idle(IdleKind::Reserved, MIB, "held up to the limit")],
        ..device("gpu:0")
    };
    let lines = of_device(reserved("--gpu_memory=reserve"), &route());
    assert_eq!(lines[0], "idle on gpu:0 1048576: Held up to the limit (--gpu_memory=reserve).");
    assert_eq!(lines[1], "  Take memory as it is needed, at the start: --gpu_memory=grow");
    let lines = of_device(reserved("allow_growth of the device config"), &route());
    assert!(lines[1].ends_with("device { name: \"gpu:0\" allow_growth: true }"), "{lines:?}");
}

#[test]
fn without_a_management_address_there_are_only_lines_of_configs() {
    let kept = DeviceMemory { idle: vec![idle(IdleKind::Kept, 5, "kept")], ..device("gpu:0") };
    let lines = of_device(kept.clone(), &ManagementRoute::default());
    assert_eq!(lines[0], "idle on gpu:0 5: Kept.");
    assert!(lines[2].ends_with("device { name: \"gpu:0\" memory_limit: \"400MiB\" }"), "{lines:?}");
    let unix = ManagementRoute {
        address: Some("unix:/run/it's.sock".to_owned()),
        key_words: "-H \"Authorization: Bearer $KEY\"".to_owned(),
    };
    let lines = of_device(kept, &unix);
    assert_eq!(
        lines[1],
        "  Give it back now: curl -X POST --unix-socket '/run/it'\\''s.sock' \
         -H \"Authorization: Bearer $KEY\" http://localhost/v1/memory:trim"
    );
}

#[test]
fn a_config_with_one_limit_keeps_all_other_settings() {
    let page = DevicesPage {
        physical: ["cpu:0", "gpu:0", "gpu:1", "gpu:2"].map(found).into(),
        logical: vec![
            LogicalEntry { limit_setting: NOT_SET[0].to_owned(), ..share("cpu:0", "cpu:0", 2) },
            share("gpu:0", "gpu:0", 1),
            LogicalEntry { priority: -1, ..share("gpu:1", "gpu:0", 1) },
            LogicalEntry { growth: GrowthMode::Reserved, ..share("gpu:2", "gpu:2", 4) },
        ],
        ..DevicesPage::default()
    };
    let rule = |bytes: u64| json!({"allow_growth": true, "memory_limit": bytes, "lanes": 1});
    let mut last = rule(64 * MIB);
    last["priority"] = json!(-1);
    assert_eq!(
        config_with(&page, "gpu:0", 32 * MIB),
        json!({"device": [
            {"name": "cpu:0", "lanes": 2},
            {"name": "gpu:0", "logical_device": [rule(32 * MIB), last]},
            {"name": "gpu:1", "visible": false},
            {"name": "gpu:2", "allow_growth": false, "memory_limit": 64 * MIB, "lanes": 4},
        ]})
    );
}

#[test]
fn a_worker_names_its_models_with_their_bytes() {
    let model = |name: &str, mib: u64| WorkerModel {
        name: name.to_owned(),
        version: 1,
        weights_bytes: mib * MIB,
        ..WorkerModel::default()
    };
    let worker = WorkerEntry {
        name: "shared".to_owned(),
        device: "cpu:0".to_owned(),
        resident_bytes: 600 * MIB,
        base_bytes: 300 * MIB,
        models: vec![model("a", 100), model("b", 200)],
        ..WorkerEntry::default()
    };
    let memory = MemoryPage { workers: vec![worker], ..MemoryPage::default() };
    let reason = reasons(&memory, &DevicesPage::default(), &route()).remove(0);
    assert_eq!((reason.holder.as_str(), reason.bytes), ("worker shared on cpu:0", 600 * MIB));
    assert!(reason.why.contains("300.0 MiB of it without a model"), "{}", reason.why);
    assert!(reason.why.contains("a:1 (weights 100.0 MiB), b:1 (weights 200.0 MiB)"));
    assert!(reason.remedies[1].line.ends_with("/v1/models/b"), "{:?}", reason.remedies);
}
