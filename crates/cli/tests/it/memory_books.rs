//! The books of `/v1/memory`: what each byte is held for, by which name, and who shares it.

use std::collections::BTreeMap;

use pages::{DeviceMemory, MemoryCategory, PlanPage, PlannedModel};
use serde_json::Value;
use testkit::tight;

use crate::memory::{device, model, predict, reload, start, write};
use crate::page::{Page as _, bytes_for, named};
use crate::support::{Server, tensord};

const GROWTH: [(&str, &str); 1] = [("TF_FORCE_GPU_ALLOW_GROWTH", "true")];

fn config(name: &str, base: &str, more: &str) -> String {
    format!("config {{ name: \"{name}\" base_path: \"{base}\" {more} }}")
}

/// Adds what a device holds for each category to what was seen before, if it is more.
fn see(server: &Server, name: &str, seen: &mut BTreeMap<MemoryCategory, u64>) {
    let device = device(server, name);
    for (category, bytes) in device.categories {
        let most = seen.entry(category).or_insert(0);
        *most = bytes.max(*most);
    }
}

#[test]
fn every_category_is_booked() {
    let server = start(&["--simulated_gpus=1GiB"], &GROWTH);
    let names = ["half_plus_two", "digits", "sentiment"];
    let list = names.map(|name| config(name, &model(name), ""));
    // One whose kernels have scratch memory, too.
    let dir = tempfile::tempdir().unwrap();
    tight::write(&dir.path().join("tight/1"), 4096);
    let tight = config("tight", &dir.path().join("tight").to_string_lossy(), "");
    reload(&server, &format!("{} {tight}", list.join(" "))).unwrap();
    let mut seen = BTreeMap::new();
    ["cpu:0", "gpu:0"].iter().for_each(|name| see(&server, name, &mut seen));
    assert!(!seen.contains_key(&MemoryCategory::Activations), "nothing has run: {seen:?}");
    let row = format!("[{}]", ["[0.5]"; 8].join(","));
    let image = format!("[{}]", vec![row; 8].join(","));
    let body = format!("{{\"instances\": [{image},{image}]}}");
    let (status, answer) = server.rest("POST", "/v1/models/digits:predict", &body);
    assert_eq!(status, 200, "{answer}");
    let body = r#"{"instances": ["what a lovely film", "I was bored"]}"#;
    let (status, answer) = server.rest("POST", "/v1/models/sentiment:predict", body);
    assert_eq!(status, 200, "{answer}");
    assert_eq!(predict(&server, "tight").0, 200);
    ["cpu:0", "gpu:0"].iter().for_each(|name| see(&server, name, &mut seen));
    // Requests are shown while one is under way: see the tests of `native`.
    for category in [
        MemoryCategory::Weights,
        MemoryCategory::PackedWeights,
        MemoryCategory::Plans,
        MemoryCategory::Activations,
        MemoryCategory::Workspace,
        MemoryCategory::Fragmentation,
        MemoryCategory::Reserve,
    ] {
        assert!(seen.get(&category).is_some_and(|bytes| *bytes > 0), "no {category:?} in {seen:?}");
    }
    // What the lanes hold for runs is all of both, whatever part of it is scratch memory.
    let gpu = device(&server, "gpu:0");
    let of = |category| bytes_for(&gpu.categories, category);
    let runs = of(MemoryCategory::Activations) + of(MemoryCategory::Workspace);
    assert_eq!(gpu.workspaces.unwrap().bytes, runs);
}

/// The share of what is in use that carries the name of a tensor or a plan.
fn share_named(device: &DeviceMemory) -> f64 {
    let requests = bytes_for(&device.categories, MemoryCategory::Requests);
    device.named_bytes.unwrap() as f64 / (device.in_use_bytes - requests) as f64
}

#[test]
fn weights_carry_their_tensors_and_shared_ones_their_sharers() {
    let server = start(&["--simulated_gpus=1GiB"], &GROWTH);
    let list = ["a", "b"].map(|name| config(name, &model("digits"), ""));
    let half = config("half_plus_two", &model("half_plus_two"), "");
    reload(&server, &format!("{half} {}", list.join(" "))).unwrap();
    assert_eq!(predict(&server, "half_plus_two").0, 200);
    let gpu = device(&server, "gpu:0");
    assert!(share_named(&gpu) >= 0.999, "{gpu:#?}");
    let shared = &gpu.shared;
    let holders = &shared.holders;
    let names: Vec<&str> = holders.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["a", "b"], "{shared:#?}");
    assert!(holders.iter().all(|one| one.bytes == shared.bytes), "{shared:#?}");
    let largest = &shared.largest_tensors[0];
    assert_eq!(largest.sharers, ["a:2", "b:2"], "{shared:#?}");
    assert_eq!(largest.category, MemoryCategory::PackedWeights);
    // Each of them shows it among its own.
    let models = gpu.models.iter();
    for one in models.filter(|one| one.name != "half_plus_two") {
        assert_eq!(one.largest_tensors[0], *largest, "{one:#?}");
    }
    // One alone shares nothing any more.
    reload(&server, &format!("{half} {}", list[0])).unwrap();
    loop {
        let gpu = device(&server, "gpu:0");
        if gpu.models.len() == 2 {
            assert_eq!(gpu.shared.bytes, 0, "{gpu:#?}");
            assert_eq!(gpu.shared.holders, []);
            assert!(share_named(&gpu) >= 0.999, "{gpu:#?}");
            break;
        }
        std::thread::yield_now();
    }
}

/// The buffers of the model are seventeen or, greedily, more than eighteen of these: 4.25 MiB or
/// more than 4.5.
const UNIT_BYTES: usize = 256 << 10;

#[test]
fn a_model_that_fits_only_by_a_search_is_loaded_and_answers() {
    let dir = tempfile::tempdir().unwrap();
    tight::write(&dir.path().join("tight/1"), UNIT_BYTES);
    let base = dir.path().join("tight").to_string_lossy().into_owned();
    let half = config("half_plus_two", &model("half_plus_two"), "");
    for (gpus, name) in [("", "cpu:0"), ("1GiB", "gpu:0")] {
        let gpus = format!("--simulated_gpus={gpus}");
        let server = start(&[&gpus, "--max_num_load_retries=0"], &GROWTH);
        let limited =
            |limit: &str| config("tight", &base, &format!("memory {{ limit: \"{limit}\" }}"));
        let error = reload(&server, &format!("{half} {}", limited("4MiB"))).unwrap_err();
        assert!(error.contains("no room"), "{error}");
        reload(&server, &half).unwrap();
        reload(&server, &format!("{half} {}", limited("4608KiB"))).unwrap();
        for _ in 0..2 {
            let body = r#"{"instances": [1.0, 3.0]}"#;
            let (status, answer) = server.rest("POST", "/v1/models/tight:predict", body);
            assert_eq!(status, 200, "{answer}");
            let answer: Value = serde_json::from_str(&answer).unwrap();
            let expected = [1.0 + tight::answer(4.0), 3.0 + tight::answer(4.0)];
            assert_eq!(answer["predictions"], serde_json::json!(expected));
        }
        let device = device(&server, name);
        let tight = named(&device.models, "tight");
        let largest = tight.largest_plan_bytes.unwrap();
        assert!(largest < 4608 << 10 && largest >= 17 * UNIT_BYTES as u64, "{tight:#?}");
    }
    // A file of models says the same as a reload.
    let text = format!("model_config_list {{ {half} {} }}", {
        config("tight", &base, "memory { limit: \"4608KiB\" }")
    });
    let file = format!("--model_config_file={}", write(dir.path(), "models", &text));
    let server = start(&[&file], &[]);
    let body = r#"{"instances": [0.0]}"#;
    assert_eq!(server.rest("POST", "/v1/models/tight:predict", body).0, 200);
}

/// Returns whether all fit by `tensord plan`, and the planned model called `tight`.
fn plan(args: &[&str]) -> (bool, PlannedModel) {
    let report = PlanPage::of_command(tensord().args(["plan", "--json"]).args(args));
    (report.fits, named(&report.models, "tight").planned().unwrap().clone())
}

#[test]
fn a_plan_says_that_a_model_fits_exactly_when_the_server_loads_it() {
    let dir = tempfile::tempdir().unwrap();
    tight::write(&dir.path().join("tight/1"), UNIT_BYTES);
    let base = dir.path().join("tight").to_string_lossy().into_owned();
    let file = dir.path().join("models").to_string_lossy().into_owned();
    let flag = format!("--model_config_file={file}");
    let retries = "--max_num_load_retries=0";
    let whole = "--per_process_gpu_memory_fraction=1";
    for gpus in ["--simulated_gpus=", "--simulated_gpus=1GiB"] {
        let greedy = {
            write(
                dir.path(),
                "models",
                &format!("model_config_list {{ {} }}", config("tight", &base, "")),
            );
            plan(&[&flag, gpus, whole]).1.total_bytes
        };
        let server = start(&[gpus, retries], &GROWTH);
        let half = config("half_plus_two", &model("half_plus_two"), "");
        let mut n_searched = 0;
        // From less than the best offsets take to what those take that are found at once.
        for kib in (4300..=4700).step_by(50) {
            let limited = config("tight", &base, &format!("memory {{ limit: \"{kib}KiB\" }}"));
            write(dir.path(), "models", &format!("model_config_list {{ {limited} }}"));
            let (fits, tight) = plan(&[&flag, gpus, whole]);
            let loaded = reload(&server, &format!("{half} {limited}"));
            assert_eq!(fits, loaded.is_ok(), "{gpus}, {kib} KiB: {tight:#?}, {loaded:?}");
            let total = tight.total_bytes;
            assert!(!fits || total <= kib << 10, "{tight:#?}");
            n_searched += usize::from(fits && kib << 10 < greedy);
            reload(&server, &half).unwrap();
        }
        assert!(n_searched > 0, "{greedy} bytes without a search");
    }
}
