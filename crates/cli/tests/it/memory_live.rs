//! Limits and devices that change while requests run, and models that come when there is room.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use pages::{DeviceKind, DevicesPage, GrowthMode, MemoryCategory, MemoryPage, VersionMemory};
use serde_json::{Value, json};

use crate::memory::{MIB, device, model, predict, reload, start, write};
use crate::page::{Shown as _, bytes_for, named};
use crate::support::{Server, until};

const GROWTH: [(&str, &str); 1] = [("TF_FORCE_GPU_ALLOW_GROWTH", "true")];

/// A model's config, with more to say of it.
fn config(name: &str, base: &str, more: &str) -> String {
    format!("config {{ name: \"{name}\" base_path: \"{}\" {more} }}", model(base))
}

fn put(server: &Server, rules: &Value) -> (u16, String) {
    server.manage("PUT", "/v1/devices", &json!({ "device": rules }).to_string())
}

/// Asks for half of so many numbers.
fn ask(server: &Server, name: &str, n_rows: usize) -> (u16, String) {
    let body = format!("{{\"instances\": [{}]}}", vec!["1.0"; n_rows].join(","));
    server.rest("POST", &format!("/v1/models/{name}:predict"), &body)
}

/// Returns the memory of a model on a device.
#[track_caller]
fn share(server: &Server, name: &str, model: &str) -> VersionMemory {
    named(&device(server, name).models, model).clone()
}

#[test]
fn limits_hold_while_requests_run_and_limits_change() {
    let dir = tempfile::tempdir().unwrap();
    let shares = |first: &str, second: &str| {
        json!([{"name": "gpu:0", "logical_device":
            [{"memory_limit": first}, {"memory_limit": second}]}])
    };
    let rules = json!({"device": shares("24MiB", "24MiB")}).to_string();
    let devices = format!("--device_config_file={}", write(dir.path(), "devices", &rules));
    let limited = "memory { limit: \"1MiB\" devices: \"gpu:0\" }";
    let text = [config("a", "half_plus_two", limited), {
        config("b", "half_plus_two", "memory { devices: \"gpu:1\" }")
    }];
    let text = format!("model_config_list {{ {} }}", text.join(" "));
    let models = format!("--model_config_file={}", write(dir.path(), "models", &text));
    let server = start(&["--simulated_gpus=64MiB", &devices, &models], &[]);
    let (is_over, n_fine, n_refused) =
        (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let client = |name: &str, sizes: [usize; 3]| {
        for n_rows in sizes.iter().cycle().take(60) {
            let (status, body) = ask(&server, name, *n_rows);
            assert!(matches!(status, 200 | 429), "{status} {}", &body[..body.len().min(300)]);
            let count = if status == 200 { &n_fine } else { &n_refused };
            count.fetch_add(1, Ordering::Relaxed);
        }
    };
    thread::scope(|scope| {
        let clients = [
            scope.spawn(|| client("a", [3, 20_000, 200_000])),
            scope.spawn(|| client("a", [50_000, 1, 200_000])),
            scope.spawn(|| client("b", [100_000, 7, 30_000])),
        ];
        let changes = scope.spawn(|| {
            let all = [("8MiB", "40MiB"), ("24MiB", "24MiB"), ("1B", "24MiB"), ("16MiB", "10MiB")];
            for (first, second) in all.iter().cycle() {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let (status, body) = put(&server, &shares(first, second));
                // More is held than one byte, and at times more than the others.
                let texts = ["more than a limit of", "has no room"];
                let is_refused = status == 400 && texts.iter().any(|text| body.contains(text));
                assert!(status == 200 || is_refused, "{status} {body}");
                assert!(*first != "1B" || is_refused, "{body}");
            }
        });
        let reader = scope.spawn(|| {
            let mut n_looks = 0;
            while n_looks < 30 || !is_over.load(Ordering::Relaxed) {
                // Every sum and every limit is checked there.
                device(&server, "gpu:1");
                let physical = &DevicesPage::get(&server).physical[1];
                assert!(physical.held_bytes <= physical.limit_bytes.unwrap());
                n_looks += 1;
            }
        });
        clients.into_iter().for_each(|client| client.join().unwrap());
        is_over.store(true, Ordering::Relaxed);
        changes.join().unwrap();
        reader.join().unwrap();
    });
    assert!(n_fine.into_inner() > 60 && n_refused.into_inner() > 20);
    assert_eq!(put(&server, &shares("24MiB", "24MiB")).0, 200);
    for name in ["a", "b"] {
        assert_eq!(predict(&server, name).0, 200);
    }
}

#[test]
fn the_limit_of_a_model_changes_with_its_config_and_with_its_device() {
    let server = start(&["--simulated_gpus=1GiB"], &GROWTH);
    let limited = |name: &str, limit: &str| {
        let more = if limit.is_empty() { String::new() } else { format!("limit: \"{limit}\"") };
        config(name, "half_plus_two", &format!("memory {{ {more} }}"))
    };
    let list = |limit: &str| format!("{} {}", limited("m", limit), limited("free", ""));
    reload(&server, &list("64MiB")).unwrap();
    assert_eq!(share(&server, "gpu:0", "m").limit_bytes, Some(64 * MIB));
    assert_eq!(ask(&server, "m", 100_000).0, 200);
    // Less than it holds: it keeps that, and gets no more.
    reload(&server, &list("1B")).unwrap();
    let tight = share(&server, "gpu:0", "m");
    assert!(tight.limit_bytes.unwrap() < 1000, "{tight:#?}");
    let (status, body) = ask(&server, "m", 100_000);
    assert_eq!(status, 429, "{body}");
    assert_eq!(ask(&server, "free", 100_000).0, 200);
    reload(&server, &list("2MiB")).unwrap();
    assert_eq!(share(&server, "gpu:0", "m").limit_bytes, Some(2 * MIB));
    assert_eq!(ask(&server, "m", 100_000).0, 200);
    assert_eq!(ask(&server, "m", 400_000).0, 429);
    reload(&server, &list("")).unwrap();
    assert_eq!(ask(&server, "m", 400_000).0, 200);
    // Without one of its own a model may hold what its device may.
    for limit in [900 * MIB, 500 * MIB, 1024 * MIB] {
        let rule = json!([{"name": "gpu:0", "memory_limit": limit.to_string()}]);
        let (status, body) = put(&server, &rule);
        assert_eq!(status, 200, "{body}");
        assert_eq!(device(&server, "gpu:0").limit_bytes, limit);
        assert_eq!(share(&server, "gpu:0", "free").limit_bytes, Some(limit));
    }
}

#[test]
fn what_was_refused_is_loaded_when_devices_models_or_limits_have_changed() {
    let args = ["--simulated_gpus=64MiB", "--max_num_load_retries=0"];
    let server = start(&args, &GROWTH);
    let half = config("half_plus_two", "half_plus_two", "");
    let reserved = |name: &str, mib: u64| {
        config(name, "half_plus_two", &format!("memory {{ reservation: \"{mib}MiB\" }}"))
    };
    let (first, second) = (reserved("first", 40), reserved("second", 40));
    reload(&server, &format!("{half} {first}")).unwrap();
    let refusal = reload(&server, &format!("{half} {first} {second}")).unwrap_err();
    assert!(refusal.contains("second"), "{refusal}");
    let states = server.rest_until("/v1/models/second", "END");
    assert!(states.contains("RESOURCE_EXHAUSTED"), "{states}");
    // What is needed, what is free, what others hold and who.
    assert!(states.contains("gpu:0 has no room: 41943040 bytes are needed, "), "{states}");
    assert!(states.contains(" are free and 4194"), "{states}");
    assert!(states.contains("held by first:123 41943040"), "{states}");

    // Another model goes.
    reload(&server, &format!("{half} {second}")).unwrap();
    server.rest_until("/v1/models/second", "AVAILABLE");
    assert_eq!(share(&server, "gpu:0", "second").bytes, 40 * MIB);
    assert_eq!(predict(&server, "second").0, 200);

    // Its own limit is raised.
    let small =
        |limit: &str| config("small", "digits", &format!("memory {{ limit: \"{limit}\" }}"));
    assert!(reload(&server, &format!("{half} {second} {}", small("1000B"))).is_err());
    let states = server.rest_until("/v1/models/small", "END");
    assert!(states.contains("the model itself may hold 1000 there at most"), "{states}");
    reload(&server, &format!("{half} {second} {}", small("8MiB"))).unwrap();
    server.rest_until("/v1/models/small", "AVAILABLE");

    // The device is given more.
    let limit = |mib: u64| json!([{"name": "gpu:0", "memory_limit": format!("{mib}MiB")}]);
    assert_eq!(put(&server, &limit(56)).0, 200);
    let third = reserved("third", 16);
    assert!(reload(&server, &format!("{half} {second} {third}")).is_err());
    server.rest_until("/v1/models/third", "END");
    assert_eq!(put(&server, &limit(64)).0, 200);
    server.rest_until("/v1/models/third", "AVAILABLE");
    assert_eq!(predict(&server, "third").0, 200);
}

#[test]
fn gpu_options_of_a_model_are_a_ceiling_or_set_aside() {
    let server = start(&["--simulated_gpus=64MiB", "--max_num_load_retries=0"], &GROWTH);
    let half = config("half_plus_two", "half_plus_two", "");
    let options = |name: &str, growth: &str, fraction: f64| {
        let options = format!("{growth} per_process_gpu_memory_fraction: {fraction}");
        config(name, "half_plus_two", &format!("config {{ gpu_options {{ {options} }} }}"))
    };
    // Ceilings may add up to more than there is.
    let ceilings = [options("a", "allow_growth: true", 0.75), options("b", "", 0.75)].join(" ");
    reload(&server, &format!("{half} {ceilings}")).unwrap();
    for name in ["a", "b"] {
        let share = share(&server, "gpu:0", name);
        assert_eq!(share.limit_bytes, Some(48 * MIB));
        assert!(share.bytes < MIB, "{share:#?}");
        assert_eq!(predict(&server, name).0, 200);
    }
    // What is set aside is held at once, or the load is refused.
    let fixed = |name: &str| options(name, "allow_growth: false", 0.375);
    let both = format!("{half} {ceilings} {}", fixed("c"));
    reload(&server, &both).unwrap();
    let aside = share(&server, "gpu:0", "c");
    assert_eq!((aside.bytes, aside.limit_bytes), (24 * MIB, Some(24 * MIB)));
    reload(&server, &format!("{both} {}", fixed("d"))).unwrap();
    assert!(reload(&server, &format!("{both} {} {}", fixed("d"), fixed("e"))).is_err());
    let states = server.rest_until("/v1/models/e", "END");
    assert!(states.contains("25165824 bytes are needed"), "{states}");
    for name in ["half_plus_two", "a", "b", "c", "d"] {
        assert_eq!(predict(&server, name).0, 200);
    }
}

#[test]
fn models_are_loaded_while_devices_become_others() {
    let server = start(&["--simulated_gpus=64MiB,64MiB"], &GROWTH);
    let half = config("half_plus_two", "half_plus_two", "memory { devices: \"gpu:0\" }");
    reload(&server, &half).unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let whole = json!([{"name": "gpu:1", "lanes": 1}]);
            let split = json!([{"name": "gpu:1", "logical_device":
                [{"memory_limit": "20MiB"}, {"memory_limit": "30MiB"}]}]);
            for rules in [whole, split, json!([])].iter().cycle() {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let (status, body) = put(&server, rules);
                let is_refused = status == 400 && body.contains("modified after being initialized");
                assert!(status == 200 || is_refused, "{status} {body}");
            }
        });
        for cycle in 0..25 {
            let name = format!("m{cycle}");
            let own = config(&name, "half_plus_two", "memory { replicas: \"all\" }");
            reload(&server, &format!("{half} {own}")).unwrap();
            assert_eq!(predict(&server, &name).0, 200);
            // It is on devices that there are.
            let memory = MemoryPage::get(&server);
            let devices = memory.devices.iter();
            let on = devices.filter(|device| {
                device.kind == DeviceKind::Gpu
                    && device.models.iter().any(|model| model.name == name)
            });
            let on = on.count();
            assert!(on >= 2, "{on} devices for {name}: {memory:#?}");
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn in_steady_state_no_request_makes_a_device_grow() {
    let server = start(&["--simulated_gpus=1GiB"], &GROWTH);
    let changes = || {
        ["cpu:0", "gpu:0"].map(|name| {
            let device = device(&server, name);
            (device.growths.unwrap(), device.releases.unwrap())
        })
    };
    for _ in 0..20 {
        assert_eq!(ask(&server, "half_plus_two", 20_000).0, 200);
    }
    // What was given back meanwhile, after seconds without a request, is taken again.
    let is_steady = (0..50).any(|_| {
        let before = changes();
        for _ in 0..50 {
            assert_eq!(ask(&server, "half_plus_two", 20_000).0, 200);
        }
        let after = changes();
        let is_comparable = (0..2).all(|at| before[at].1 == after[at].1);
        assert!(!is_comparable || before == after, "{before:?} {after:?}");
        is_comparable
    });
    assert!(is_steady, "memory was given back in every round");
}

#[test]
fn devices_grow_by_the_step_that_was_asked_for_and_every_change_is_told() {
    let args = ["--simulated_gpus=1GiB", "--memory_growth_step=16MiB"];
    let [growth] = GROWTH;
    let server = start(&args, &[growth, ("TENSORD_LOG", "info,server=debug")]);
    assert_eq!(ask(&server, "half_plus_two", 400_000).0, 200);
    // A growth and a release, each with its device, its bytes, its cause and how long it took.
    let told = |what: &str, causes: &[&str]| loop {
        let line = server.logs(&format!("{what} device=\"gpu:0\""));
        let field = |name: &str| {
            let value = line.split(&format!(" {name}=")).nth(1);
            value.unwrap_or_else(|| panic!("no {name} in {line}")).split(' ').next().unwrap()
        };
        assert!(field("duration").ends_with('s'), "{line}");
        if causes.contains(&field("cause").trim_matches('"')) {
            break field("bytes").parse::<i64>().unwrap();
        }
    };
    let grown = told("memory grew", &["activations"]);
    assert!(grown >= 16 << 20 && grown % (2 << 20) == 0, "{grown}");
    server.manage("POST", "/v1/memory:trim", "");
    // Whichever comes first: nobody has used it for a while, or it was asked for.
    assert!(told("memory went back", &["asked", "idle"]) <= -(16 << 20));
    reload(&server, &config("other", "digits", "")).unwrap();
    assert_eq!(put(&server, &json!([{"name": "gpu:0", "memory_limit": "512MiB"}])).0, 200);
    server.manage("POST", "/v1/memory:trim", "");
    let page = server.rest_until("/metrics", "change=\"release\"");
    let value = |series: &str| -> u64 {
        let line = page.lines().find(|line| line.starts_with(series));
        let line = line.unwrap_or_else(|| panic!("no {series} in {page}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    let of = |name: &str, labels: &str| {
        value(&format!("tensord_device_memory_{name}{{device=\"gpu:0\",{labels}}}"))
    };
    let grown = "change=\"growth\",cause=\"activations\"";
    let (bytes, n) = (of("changed_bytes_total", grown), of("change_seconds_count", grown));
    assert!(n > 0 && bytes >= n * 16 * MIB, "{n} growths of {bytes} bytes");
    // Gauges of devices and models.
    assert_eq!(of("bytes", "kind=\"limit\""), 512 * MIB);
    for kind in ["reserved", "in_use", "peak_in_use"] {
        assert!(of("bytes", &format!("kind=\"{kind}\"")) > 0, "{kind}");
    }
    let other = share(&server, "gpu:0", "other");
    let series = "tensord_model_memory_bytes{device=\"gpu:0\",model_name=\"other\",version=\"2\"";
    let weights = value(&format!("{series},category=\"weights\"}}"));
    assert_eq!(bytes_for(&other.categories, MemoryCategory::Weights), weights);
}

#[test]
fn memory_that_nobody_uses_goes_back_by_itself() {
    let server = start(&["--simulated_gpus=1GiB"], &GROWTH);
    assert_eq!(ask(&server, "half_plus_two", 400_000).0, 200);
    server.rest_until("/metrics", "device=\"gpu:0\",change=\"release\",cause=\"idle\"");
    let reserved = || device(&server, "gpu:0").reserved_bytes;
    until("memory goes back", || reserved() <= 4 * MIB);
}

#[test]
fn the_page_has_every_key_down_to_the_largest_tensors() {
    let server = start(&["--simulated_gpus=1GiB"], &GROWTH);
    let list = [config("half_plus_two", "half_plus_two", ""), config("digits", "digits", "")];
    reload(&server, &list.join(" ")).unwrap();
    let gpu = device(&server, "gpu:0");
    assert_eq!((&*gpu.name, gpu.kind, &*gpu.physical), ("gpu:0", DeviceKind::Gpu, "gpu:0"));
    let bytes = [gpu.limit_bytes, gpu.reserved_bytes, gpu.in_use_bytes, gpu.peak_in_use_bytes];
    assert!(bytes.iter().all(|bytes| *bytes > 0) && gpu.free_bytes > 0, "{gpu:#?}");
    assert!(gpu.peak_reserved_bytes > Some(0) && gpu.largest_free_bytes > Some(0), "{gpu:#?}");
    assert!(gpu.peak_in_use_bytes >= gpu.in_use_bytes);
    assert!(gpu.fragmentation.is_some_and(|share| (0.0..=1.0).contains(&share)));
    assert!(gpu.idle.iter().all(|idle| !idle.reason.is_empty()));
    assert_eq!(gpu.growth, GrowthMode::OnDemand);
    let digits = share(&server, "gpu:0", "digits");
    assert_eq!(digits.version, 2);
    assert_eq!(digits.bytes, digits.categories.values().sum::<u64>());
    let tensors = &digits.largest_tensors;
    let sizes: Vec<u64> = tensors.iter().map(|one| one.bytes).collect();
    assert!(sizes.len() > 1 && sizes.is_sorted_by(|a, b| a >= b), "{digits:#?}");
    assert!(tensors.iter().all(|one| !one.name.is_empty()), "{digits:#?}");
}
