//! The memory that a GPU's driver takes for itself is in the books, and counts.

use pages::{Categories, DeviceKind, DeviceMemory, DevicesPage, MemoryCategory, MemoryPage};

use crate::memory::{MIB, device, predict, start, write};
use crate::page::{Shown as _, bytes_for};
use crate::support::Server;

/// Returns the bytes that a device holds for contexts, and those that the server itself holds.
#[track_caller]
fn contexts(server: &Server, name: &str) -> (u64, u64) {
    let device = device(server, name);
    let context = |categories: &Categories| bytes_for(categories, MemoryCategory::Context);
    (context(&device.categories), context(&device.server.categories))
}

#[test]
fn a_context_is_held_by_the_server_on_its_gpu_within_the_limit() {
    let gpus = "--simulated_gpus=1GiB@context=300MiB,1GiB";
    let server = start(&[gpus, "--gpu_memory=reserve"], &[]);
    assert_eq!(contexts(&server, "gpu:0"), (300 * MIB, 300 * MIB));
    assert_eq!(contexts(&server, "gpu:1"), (0, 0));
    // Both are held up to the limit that TensorFlow computes, the context being a part of it.
    for name in ["gpu:0", "gpu:1"] {
        let gpu = device(&server, name);
        assert_eq!(gpu.limit_bytes, (1024 - 225) * MIB, "{name}");
        assert!(gpu.limit_bytes - gpu.reserved_bytes < 2 * MIB, "{name}");
    }
    let physical = &DevicesPage::get(&server).physical;
    assert_eq!(physical[1].context_bytes, Some(300 * MIB));
    assert_eq!(physical[1].held_bytes, device(&server, "gpu:0").reserved_bytes);
    let (_, metrics) = server.rest("GET", "/metrics", "");
    let line = format!(
        "tensord_model_memory_bytes{{device=\"gpu:0\",model_name=\"\",version=\"server\",\
         category=\"context\"}} {}",
        300 * MIB
    );
    assert!(metrics.lines().any(|other| other == line), "no {line} in {metrics}");
    assert_eq!(predict(&server, "half_plus_two").0, 200);
}

#[test]
fn a_context_leaves_less_for_models_and_stays_when_devices_change() {
    let dir = tempfile::tempdir().unwrap();
    let rules = r#"
        device { name: "gpu:0" simulation { context: "300MiB" }
                 logical_device { memory_limit: "400MiB" } logical_device { memory_limit: "0.5" } }
        device { name: "gpu:1" simulation { context: "100MiB" } }"#;
    let file = format!("--device_config_file={}", write(dir.path(), "devices", rules));
    let server = start(&["--simulated_gpus=1GiB@context=50MiB,1GiB", &file], &[]);
    let check = |expected: &[(&str, u64)]| {
        for (name, mib) in expected {
            assert_eq!(contexts(&server, name), (mib * MIB, mib * MIB), "{name}");
        }
        let physical = DevicesPage::get(&server).physical;
        let memory = MemoryPage::get(&server).devices;
        for one in physical.iter().filter(|one| one.kind == DeviceKind::Gpu) {
            let of = |device: &&DeviceMemory| device.physical == one.name;
            let shares = memory.iter().filter(of);
            let held: u64 = shares.map(|device| device.reserved_bytes).sum();
            assert_eq!(one.held_bytes, held, "its shares have all of it: {memory:#?}");
        }
    };
    let put = |rules: &str| server.manage("PUT", "/v1/devices", rules);
    // The first of a GPU's shares has it, once.
    check(&[("gpu:0", 300), ("gpu:1", 0), ("gpu:2", 100)]);
    let room = |name: &str| {
        let device = device(&server, name);
        let is_empty = device.models.is_empty();
        is_empty.then_some(device.free_bytes)
    };
    assert!([None, Some(100 * MIB)].contains(&room("gpu:0")));
    assert!([None, Some(512 * MIB)].contains(&room("gpu:1")));
    assert!([None, Some(924 * MIB)].contains(&room("gpu:2")));
    // Another is refused, and the same is not.
    let (status, body) = put(r#"device { name: "gpu:1" simulation { context: "1GiB" } }"#);
    assert_eq!(status, 400, "{body}");
    assert!(body.contains("the context of gpu:1 has 104857600 bytes since the start"), "{body}");
    let same = rules.replace("400MiB", "350MiB");
    assert_eq!(put(&same).0, 200);
    check(&[("gpu:0", 300), ("gpu:1", 0), ("gpu:2", 100)]);
    // Less than the context itself cannot be.
    let (status, body) = put(&rules.replace("400MiB", "200MiB"));
    assert!(status != 200, "{body}");
    check(&[("gpu:0", 300), ("gpu:1", 0), ("gpu:2", 100)]);
    assert_eq!(predict(&server, "half_plus_two").0, 200);
}

/// A model stays on one device, and the others become what rules say.
#[test]
fn a_context_goes_to_another_share_with_its_gpu() {
    let dir = tempfile::tempdir().unwrap();
    let base = crate::memory::model("half_plus_two");
    let text = format!(
        "model_config_list {{ config {{ name: \"half_plus_two\" base_path: \"{base}\" \
         memory {{ devices: \"gpu:2\" }} }} }}"
    );
    let models = format!("--model_config_file={}", write(dir.path(), "models", &text));
    let share = r#"logical_device { memory_limit: "400MiB" }"#;
    let rules = format!(r#"device {{ name: "gpu:1" {share} {share} }}"#);
    let file = format!("--device_config_file={}", write(dir.path(), "devices", &rules));
    let gpus = "--simulated_gpus=1GiB@context=60MiB,1GiB@context=100MiB";
    let server = start(&[gpus, &file, &models], &[]);
    let all = |expected: [u64; 3]| {
        for (number, mib) in expected.into_iter().enumerate() {
            let name = format!("gpu:{number}");
            assert_eq!(contexts(&server, &name), (mib * MIB, mib * MIB), "{name}");
        }
    };
    all([60, 100, 0]);
    // The first GPU is two now, so that the second has only the share that the model is on.
    let rules =
        format!(r#"device {{ name: "gpu:0" {share} {share} }} device {{ name: "gpu:1" {share} }}"#);
    let (status, body) = server.manage("PUT", "/v1/devices", &rules);
    assert_eq!(status, 200, "{body}");
    all([60, 0, 100]);
    // A GPU that is held as a whole and then grows has it once, all the time.
    let whole = format!(
        r#"device {{ name: "gpu:0" allow_growth: false {share} {share} }}
           device {{ name: "gpu:1" {share} }}"#
    );
    for rules in [&whole, &rules] {
        let (status, body) = server.manage("PUT", "/v1/devices", rules);
        assert_eq!(status, 200, "{body}");
        all([60, 0, 100]);
    }
    assert_eq!(predict(&server, "half_plus_two").0, 200);
}

#[test]
fn a_context_that_has_no_room_is_refused_at_the_start() {
    let check = |gpus: &str, rules: &str, expected: &str| {
        let dir = tempfile::tempdir().unwrap();
        let file = format!("--device_config_file={}", write(dir.path(), "devices", rules));
        let mut command = crate::support::tensord();
        let output = command.arg("devices").arg(gpus).arg(&file).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success());
        assert!(text.contains(expected), "{text}");
    };
    check("--simulated_gpus=1GiB@context=2GiB", "", "gpu:0 has 1073741824 bytes: its context");
    let limit = r#"device { name: "gpu:0" memory_limit: "200MiB" }"#;
    check("--simulated_gpus=1GiB@context=300MiB", limit, "gpu:0");
    let host = r#"device { name: "cpu:0" simulation { context: "1MiB" } }"#;
    check("--simulated_gpus=1GiB", host, "the context of cpu:0 has 0 bytes since the start");
}
