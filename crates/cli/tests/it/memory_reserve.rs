//! Models for which less is set aside than they may hold.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use pages::{MemoryCategory, PlanPage, VersionMemory};
use serde_json::{Value, json};
use testkit::tight;

use crate::memory::{MIB, device, model, predict, reload, start, write};
use crate::page::{Page as _, bytes_for, named};
use crate::support::{Server, tensord, until};

const GROWTH: [(&str, &str); 1] = [("TF_FORCE_GPU_ALLOW_GROWTH", "true")];

/// A model whose runs take 17 MiB, however small their inputs are.
fn write_tight(dir: &std::path::Path) -> String {
    tight::write(&dir.join("tight/1"), 1 << 20);
    dir.join("tight").to_string_lossy().into_owned()
}

fn config(name: &str, base: &str, memory: &str) -> String {
    format!("config {{ name: '{name}' base_path: '{base}' memory {{ {memory} }} }}")
}

/// Returns the memory of a model on a device.
#[track_caller]
fn share(server: &Server, name: &str, model: &str) -> VersionMemory {
    named(&device(server, name).models, model).clone()
}

fn ask(server: &Server, name: &str) -> (u16, String) {
    let body = r#"{"instances": [1.0, 3.0]}"#;
    server.rest("POST", &format!("/v1/models/{name}:predict"), body)
}

#[test]
fn a_reserve_is_held_from_the_load_grows_to_the_limit_and_goes_back() {
    let dir = tempfile::tempdir().unwrap();
    let base = write_tight(dir.path());
    for (gpus, on) in [("64MiB", "gpu:0"), ("", "cpu:0")] {
        let gpus = format!("--simulated_gpus={gpus}");
        let server = start(&[&gpus, "--max_num_load_retries=0"], &GROWTH);
        let half = config("half_plus_two", &model("half_plus_two"), "");
        let with = |limit: &str| {
            let memory = format!("limit: '{limit}' reservation: '8MiB'");
            format!("{half} {}", config("m", &base, &memory))
        };
        reload(&server, &with("32MiB")).unwrap();
        let fresh = share(&server, on, "m");
        assert_eq!((fresh.bytes, fresh.limit_bytes), (8 * MIB, Some(32 * MIB)));
        assert!(bytes_for(&fresh.categories, MemoryCategory::Reserve) > 7 * MIB, "{fresh:#?}");
        assert!(device(&server, on).reserved_bytes >= 8 * MIB);

        // No look ever finds more than the limit, or less than was reserved.
        let is_done = AtomicBool::new(false);
        thread::scope(|scope| {
            let looks = scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    let bytes = share(&server, on, "m").bytes;
                    assert!((8 * MIB..=32 * MIB).contains(&bytes), "{bytes}");
                }
            });
            for _ in 0..20 {
                let (status, answer) = ask(&server, "m");
                assert_eq!(status, 200, "{answer}");
            }
            is_done.store(true, Ordering::Relaxed);
            looks.join().unwrap();
        });
        let (status, body) = server.manage("POST", "/v1/memory:trim", "");
        assert_eq!(status, 200, "{body}");
        assert_eq!(share(&server, on, "m").bytes, 8 * MIB);

        // Another limit holds from now on; what was reserved stays.
        reload(&server, &with("12MiB")).unwrap();
        assert_eq!(share(&server, on, "m").limit_bytes, Some(12 * MIB));
        let (status, body) = ask(&server, "m");
        assert_eq!(status, 429, "{body}");
        assert_eq!(predict(&server, "half_plus_two").0, 200);
        reload(&server, &with("32MiB")).unwrap();
        assert_eq!(ask(&server, "m").0, 200);

        reload(&server, &half).unwrap();
        let left = || device(&server, on).reserved_bytes;
        until("memory goes back", || left() <= 4 * MIB);
    }
}

#[test]
fn a_device_that_does_not_grow_lends_models_what_is_reserved_for_them() {
    let dir = tempfile::tempdir().unwrap();
    let base = write_tight(dir.path());
    let never = [("TF_FORCE_GPU_ALLOW_GROWTH", "false")];
    let server = start(&["--simulated_gpus=64MiB", "--max_num_load_retries=0"], &never);
    let held = || device(&server, "gpu:0").reserved_bytes;
    assert_eq!(held(), 64 * MIB);
    let half = config("half_plus_two", &model("half_plus_two"), "");
    let growing = config("grows", &base, "limit: '32MiB' reservation: '8MiB'");
    let fixed = config("fixed", &base, "reservation: '24MiB'");
    reload(&server, &format!("{half} {growing} {fixed}")).unwrap();
    for _ in 0..3 {
        for name in ["grows", "fixed"] {
            let (status, answer) = ask(&server, name);
            assert_eq!(status, 200, "{answer}");
        }
        assert_eq!(predict(&server, "half_plus_two").0, 200);
    }
    assert_eq!(held(), 64 * MIB);
    assert_eq!(share(&server, "gpu:0", "fixed").bytes, 24 * MIB);
    assert!(share(&server, "gpu:0", "grows").bytes >= 8 * MIB);
    // Reserved for another model than those that use it: refused, and nothing else changes.
    let much = config("much", &base, "reservation: '48MiB'");
    let error = reload(&server, &format!("{half} {growing} {fixed} {much}")).unwrap_err();
    assert!(error.to_string().contains("gpu:0"), "{error}");
    reload(&server, &format!("{half} {growing} {fixed}")).unwrap();
    assert_eq!(ask(&server, "grows").0, 200);
    // Who goes leaves it to those that stay.
    reload(&server, &format!("{half} {much}")).unwrap();
    assert_eq!(ask(&server, "much").0, 200);
    reload(&server, "").unwrap();
    until("all is let go", || device(&server, "gpu:0").in_use_bytes == 0);
    assert_eq!(held(), 64 * MIB);
}

#[test]
fn another_limit_does_not_wait_for_a_driver_that_gives_nothing_back() {
    let never = [("TF_FORCE_GPU_ALLOW_GROWTH", "false")];
    let server = start(&["--simulated_gpus=64MiB"], &never);
    let held = || device(&server, "gpu:0").reserved_bytes;
    let put = |rule: Value| {
        let (status, body) =
            server.manage("PUT", "/v1/devices", &json!({"device": [rule]}).to_string());
        assert_eq!(status, 200, "{body}");
    };
    reload(&server, &config("m", &model("half_plus_two"), "reservation: '8MiB'")).unwrap();
    assert_eq!(held(), 64 * MIB);
    let refuses = json!({"refuse_up_to": "8MiB"});
    put(json!({"name": "gpu:0", "allow_growth": false, "simulation": refuses}));
    reload(&server, "").unwrap();
    // What the model was lent does not come back, however often the driver is asked for it.
    until("the rest goes back", || held() <= 56 * MIB);
    assert_eq!(server.manage("POST", "/v1/memory:trim", "").0, 200);
    assert_eq!(held(), 56 * MIB);
    for mib in [32, 48] {
        let limit = format!("{mib}MiB");
        put(json!({"name": "gpu:0", "allow_growth": false, "memory_limit": limit}));
        assert_eq!(held(), mib * MIB);
    }
    // A driver that gives some again is a driver like any other.
    let limit = "48MiB";
    put(json!({"name": "gpu:0", "allow_growth": false, "memory_limit": limit, "simulation": {}}));
    reload(&server, &config("m", &model("half_plus_two"), "reservation: '8MiB'")).unwrap();
    assert_eq!(predict(&server, "m").0, 200);
    assert_eq!(held(), 48 * MIB);
}

#[test]
fn what_was_held_beyond_a_reserve_goes_back_after_a_rest() {
    let dir = tempfile::tempdir().unwrap();
    let base = write_tight(dir.path());
    let server = start(&["--simulated_gpus=64MiB"], &GROWTH);
    reload(&server, &config("m", &base, "limit: '32MiB' reservation: '8MiB'")).unwrap();
    assert_eq!(ask(&server, "m").0, 200);
    until("the rest goes back", || share(&server, "gpu:0", "m").bytes <= 8 * MIB);
    assert_eq!(ask(&server, "m").0, 200);
}

#[test]
fn reserves_count_when_models_are_placed_and_limits_do_not() {
    let server = start(&["--simulated_gpus=64MiB", "--max_num_load_retries=0"], &GROWTH);
    let base = model("half_plus_two");
    // In all shapes: sizes, numbers and fractions. Limits may add up to more than there is.
    let text = [
        config("half_plus_two", &base, ""),
        config("a", &base, "limit: '48MiB' reservation: '16MiB'"),
        config("b", &base, "limit: 0.75 reservation: 16777216"),
        config("c", &base, "limit: 50331648 reservation: 0.25"),
    ];
    reload(&server, &text.join(" ")).unwrap();
    for name in ["a", "b", "c"] {
        let share = share(&server, "gpu:0", name);
        assert_eq!((share.bytes, share.limit_bytes), (16 * MIB, Some(48 * MIB)));
        assert_eq!(predict(&server, name).0, 200);
    }
    let more = config("d", &base, "limit: '48MiB' reservation: '16MiB'");
    let refused = reload(&server, &format!("{} {more}", text.join(" "))).unwrap_err();
    assert!(refused.contains("16777216 bytes are needed"), "{refused}");
    let states = server.rest_until("/v1/models/d", "END");
    assert!(states.contains("RESOURCE_EXHAUSTED"), "{states}");
    // Without one of them there is room, and what was refused comes by itself.
    reload(&server, &format!("{} {} {more}", text[0], text[1])).unwrap();
    server.rest_until("/v1/models/d", "AVAILABLE");
    assert_eq!(share(&server, "gpu:0", "d").bytes, 16 * MIB);
}

#[test]
fn a_file_of_models_as_json_says_what_is_reserved_and_a_plan_counts_it() {
    let dir = tempfile::tempdir().unwrap();
    let base = model("half_plus_two");
    let one =
        |name: &str, memory: Value| json!({"name": name, "base_path": base, "memory": memory});
    let write_all = |reservation: Value| {
        let json = json!({"model_config_list": [
            one("a", json!({"limit": "48MiB", "reservation": reservation})),
            one("b", json!({"limit": 50_331_648, "reservation": reservation})),
        ]});
        write(dir.path(), "models", &json.to_string())
    };
    let file = format!("--model_config_file={}", write_all(json!(25_165_824)));
    let gpus = "--simulated_gpus=64MiB";
    let plan = || {
        let mut command = tensord();
        command.args(["plan", "--json", &file, gpus, "--per_process_gpu_memory_fraction=1"]);
        PlanPage::of_command(&mut command)
    };
    let report = plan();
    assert_eq!((report.fits, report.devices[0].left_bytes), (true, 16 * MIB));
    let copies = &report.models[0].planned().unwrap().copies_alone;
    assert_eq!(copies[0].copies, 2, "{report:#?}");
    let server = start(&[&file, gpus], &GROWTH);
    assert_eq!(share(&server, "gpu:0", "a").bytes, 24 * MIB);
    assert_eq!(share(&server, "gpu:0", "b").bytes, 24 * MIB);
    drop(server);
    write_all(json!(0.625));
    let report = plan();
    assert!(!report.fits);
    let refused = report.models[1].planned().unwrap().refused.as_deref().unwrap();
    assert!(refused.starts_with("41943040 bytes are needed"), "{refused}");
    fs::remove_file(dir.path().join("models")).unwrap();
}
