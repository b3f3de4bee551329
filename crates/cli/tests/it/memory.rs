//! Devices and memory, read back from `/v1/memory` and `/v1/devices`.

use std::fs;
use std::path::Path;

use pages::{
    DeviceKind, DeviceMemory, DevicesPage, GrowthMode, MemoryCategory, MemoryPage, PlanPage,
};
use proto::serving::model_server_config::Config;
use proto::serving::{ModelServerConfig, ReloadConfigRequest};

use crate::page::{Page as _, Shown as _, bytes_for, named};
use crate::support::{Server, block_on, root, tensord};
use crate::zoo::small_zoo;

pub(crate) const MIB: u64 = 1 << 20;

pub(crate) fn model(name: &str) -> String {
    root().join("models").join(name).to_string_lossy().into_owned()
}

pub(crate) fn start(args: &[&str], environment: &[(&str, &str)]) -> Server {
    let mut command = tensord();
    for name in
        ["TF_FORCE_GPU_ALLOW_GROWTH", "TF_PER_DEVICE_MEMORY_LIMIT_MB", "TF_CPU_ALLOCATOR_USE_BFC"]
    {
        command.env_remove(name);
    }
    command.envs(environment.iter().copied());
    let mut args = args.to_vec();
    let half = model("half_plus_two");
    if !args.iter().any(|arg| arg.starts_with("--model_config_file")) {
        args.push(&half);
    }
    Server::start(command, &args)
}

/// The device of this name, as `/v1/memory` shows it; asserts what holds for every device.
#[track_caller]
pub(crate) fn device(server: &Server, name: &str) -> DeviceMemory {
    let memory = MemoryPage::get(server);
    for device in &memory.devices {
        let sum: u64 = device.categories.values().sum();
        assert_eq!(sum, device.reserved_bytes, "{device:#?}");
        assert!(device.reserved_bytes <= device.limit_bytes, "{device:#?}");
        assert!(device.in_use_bytes <= device.reserved_bytes, "{device:#?}");
        let idle: u64 = device.idle.iter().map(|one| one.bytes).sum();
        let unused = device.reserved_bytes - device.in_use_bytes;
        assert_eq!(idle, unused, "each idle byte has a reason: {device:#?}");
        for model in &device.models {
            let same = device.models.iter().filter(|other| other.name == model.name);
            let bytes: u64 = same.map(|other| other.bytes).sum();
            assert!(bytes <= model.limit_bytes.unwrap(), "{device:#?}");
        }
    }
    named(&memory.devices, name).clone()
}

#[track_caller]
fn limits(server: &Server, expected: &[(&str, &str, u64)]) {
    let devices = DevicesPage::get(server);
    let logical = devices.logical.iter();
    let gpus: Vec<(String, String, u64)> = logical
        .filter(|device| device.kind == DeviceKind::Gpu)
        .map(|device| (device.name.clone(), device.physical.clone(), device.limit_bytes))
        .collect();
    let expected: Vec<(String, String, u64)> =
        expected.iter().map(|(a, b, n)| ((*a).to_owned(), (*b).to_owned(), *n)).collect();
    assert_eq!(gpus, expected);
    for (name, _, limit) in expected {
        assert_eq!(device(server, &name).limit_bytes, limit);
    }
}

pub(crate) fn write(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    fs::write(&path, text).unwrap();
    path.to_string_lossy().into_owned()
}

pub(crate) fn predict(server: &Server, model: &str) -> (u16, String) {
    let path = format!("/v1/models/{model}:predict");
    server.rest("POST", &path, r#"{"instances": [1.0, 2.0, 5.0]}"#)
}

/// Replaces the list of models.
pub(crate) fn reload(server: &Server, list: &str) -> Result<(), String> {
    let list = proto::text::parse(list).unwrap();
    let config = ModelServerConfig { config: Some(Config::ModelConfigList(list)) };
    let request = ReloadConfigRequest { config: Some(config), metric_names: Vec::new() };
    block_on(async {
        let answer = server.model_client().await.handle_reload_config_request(request).await;
        let answer = answer.map_err(|status| status.message().to_owned())?.into_inner();
        let status = answer.status.unwrap_or_default();
        if status.error_code == 0 { Ok(()) } else { Err(status.error_message) }
    })
}

#[test]
fn without_gpus_models_are_on_the_host_which_holds_what_they_need() {
    let server = start(&[], &[]);
    let host = device(&server, "cpu:0");
    assert_eq!((host.kind, host.growth), (DeviceKind::Cpu, GrowthMode::OnDemand));
    let model = &host.models[0];
    assert_eq!((&*model.name, model.version), ("half_plus_two", 123));
    assert!(model.bytes > 0);
    assert_eq!(predict(&server, "half_plus_two").0, 200);
}

#[test]
fn a_gpu_is_held_whole_if_that_was_asked_for() {
    let server = start(&["--simulated_gpus=300MiB", "--gpu_memory=reserve"], &[]);
    // What is free, less the 225 MiB that TensorFlow leaves on small GPUs.
    let gpu = device(&server, "gpu:0");
    assert_eq!(gpu.limit_bytes, 75 * MIB);
    assert_eq!(gpu.reserved_bytes, 74 * MIB, "in whole granules of 2 MiB");
    assert_eq!(gpu.growth, GrowthMode::Reserved);
    assert_eq!(gpu.models[0].name, "half_plus_two");
    assert_eq!(predict(&server, "half_plus_two").0, 200);

    let server = start(&["--simulated_gpus=300MiB"], &[]);
    let gpu = device(&server, "gpu:0");
    assert_eq!((gpu.limit_bytes, gpu.growth), (75 * MIB, GrowthMode::OnDemand));
    assert!(gpu.reserved_bytes <= 8 * MIB, "{gpu:#?}");
    assert_eq!(predict(&server, "half_plus_two").0, 200);
}

#[test]
fn a_fraction_is_of_all_memory_and_the_flag_does_not_undo_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let config = "gpu_options { allow_growth: true per_process_gpu_memory_fraction: 0.5 }";
    let file = write(dir.path(), "session", config);
    let file = format!("--tensorflow_session_config_file={file}");
    let server = start(&["--simulated_gpus=4GiB,1GiB", &file], &[]);
    limits(&server, &[("gpu:0", "gpu:0", 2048 * MIB), ("gpu:1", "gpu:1", 512 * MIB)]);
    let flag = "--per_process_gpu_memory_fraction=0.25";
    let server = start(&["--simulated_gpus=4GiB", &file, flag], &[]);
    limits(&server, &[("gpu:0", "gpu:0", 1024 * MIB)]);
    let limit = [("TF_PER_DEVICE_MEMORY_LIMIT_MB", "100")];
    let server = start(&["--simulated_gpus=4GiB", &file], &limit);
    let physical = &DevicesPage::get(&server).physical;
    assert_eq!(physical[1].limit_bytes, Some(100 * MIB));
}

#[test]
fn limits_for_three_gpus_apply_to_as_many_as_there_are() {
    let dir = tempfile::tempdir().unwrap();
    let entry = |mb: u32| format!("virtual_devices {{ memory_limit_mb: {mb} }}");
    let entries = format!("{} {} {}", entry(1024), entry(4096), entry(2048));
    let text = format!("gpu_options {{ allow_growth: true experimental {{ {entries} }} }}");
    let file = write(dir.path(), "session", &text);
    let file = format!("--tensorflow_session_config_file={file}");
    let all = [1024 * MIB, 4096 * MIB, 2048 * MIB];
    let names = ["gpu:0", "gpu:1", "gpu:2"];
    for (n, gpus) in [(1, "8GiB"), (2, "8GiB,8GiB"), (3, "8GiB,8GiB,8GiB")] {
        let gpus = format!("--simulated_gpus={gpus}");
        let server = start(&[&gpus, &file], &[]);
        let expected: Vec<(&str, &str, u64)> =
            (0..n).map(|i| (names[i], names[i], all[i])).collect();
        limits(&server, &expected);
        let warnings = DevicesPage::get(&server).warnings.concat();
        assert_eq!(warnings.contains("Not enough GPUs to create virtual devices"), n < 3);
    }
}

#[test]
fn visible_devices_are_in_the_order_that_was_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let options = "allow_growth: true per_process_gpu_memory_fraction: 1";
    let text = format!("gpu_options {{ {options} visible_device_list: \"2,0\" }}");
    let file = write(dir.path(), "session", &text);
    let file = format!("--tensorflow_session_config_file={file}");
    let server = start(&["--simulated_gpus=1GiB,2GiB,3GiB,4GiB", &file], &[]);
    limits(&server, &[("gpu:0", "gpu:2", 3072 * MIB), ("gpu:1", "gpu:0", 1024 * MIB)]);
}

#[test]
fn a_platform_config_makes_of_devices_what_a_session_config_would() {
    let dir = tempfile::tempdir().unwrap();
    let platform = |session: &str| {
        let text = format!(
            "platform_configs {{ key: 'tensorflow' value {{ source_adapter_config {{
               [type.googleapis.com/tensorflow.serving.SavedModelBundleSourceAdapterConfig] {{
                 legacy_config {{ session_config {{ {session} }} }} }} }} }} }}"
        );
        format!("--platform_config_file={}", write(dir.path(), "platform", &text))
    };
    let gpus = "--simulated_gpus=1GiB,2GiB,3GiB,4GiB";
    let file = platform(
        "inter_op_parallelism_threads: 3 gpu_options { allow_growth: true
         per_process_gpu_memory_fraction: 0.5 visible_device_list: '2,0' }",
    );
    // What flags say of the same does not count.
    let flags = ["--per_process_gpu_memory_fraction=0.25", "--tensorflow_inter_op_parallelism=7"];
    let server = start(&[gpus, &file, flags[0], flags[1]], &[]);
    limits(&server, &[("gpu:0", "gpu:2", 1536 * MIB), ("gpu:1", "gpu:0", 512 * MIB)]);
    let gpu = device(&server, "gpu:0");
    assert_eq!((gpu.growth, gpu.workspaces.unwrap().lanes), (GrowthMode::OnDemand, 3));
    assert_eq!(predict(&server, "half_plus_two").0, 200);
    let file = platform(
        "gpu_options { allow_growth: false experimental {
           virtual_devices { memory_limit_mb: 100 memory_limit_mb: 200 } } }",
    );
    let server = start(&["--simulated_gpus=1GiB", &file], &[]);
    limits(&server, &[("gpu:0", "gpu:0", 100 * MIB), ("gpu:1", "gpu:0", 200 * MIB)]);
    assert_eq!(device(&server, "gpu:1").reserved_bytes, 200 * MIB);
}

#[test]
fn every_growth_and_release_is_in_the_metrics() {
    let dir = tempfile::tempdir().unwrap();
    let rules = "device { name: \"gpu:0\" memory_limit: \"64MiB\" allow_growth: false }";
    let file = format!("--device_config_file={}", write(dir.path(), "devices", rules));
    let server = start(&["--simulated_gpus=300MiB", &file], &[]);
    let (status, page) = server.rest("GET", "/metrics", "");
    assert_eq!(status, 200);
    let labels = "device=\"gpu:0\",change=\"growth\",cause=\"reservation\"";
    for line in [
        format!("tensord_device_memory_changed_bytes_total{{{labels}}} {}", 64 * MIB),
        format!("tensord_device_memory_change_seconds_count{{{labels}}} 1"),
        "tensord_device_memory_growths_total{device=\"gpu:0\"} 1".to_owned(),
    ] {
        assert!(page.lines().any(|other| other == line), "no {line} in {page}");
    }
}

#[test]
fn our_own_config_allows_what_tensorflow_forbids() {
    let dir = tempfile::tempdir().unwrap();
    let text = r#"{"device": [
        {"name": "gpu:0", "allow_growth": true, "logical_device": [
            {"memory_limit": "512MiB"}, {"memory_limit": "0.25", "allow_growth": false}]},
        {"name": "gpu:1", "allow_growth": false, "memory_limit": "256MiB", "lanes": 3}]}"#;
    let file = write(dir.path(), "devices.json", text);
    let file = format!("--device_config_file={file}");
    let server = start(&["--simulated_gpus=1GiB,1GiB", &file], &[]);
    limits(
        &server,
        &[
            ("gpu:0", "gpu:0", 512 * MIB),
            ("gpu:1", "gpu:0", 256 * MIB),
            ("gpu:2", "gpu:1", 256 * MIB),
        ],
    );
    let growth = |name: &str| device(&server, name).growth;
    assert_eq!(
        [growth("gpu:0"), growth("gpu:1"), growth("gpu:2")],
        [GrowthMode::OnDemand, GrowthMode::Reserved, GrowthMode::Reserved]
    );
    assert_eq!(device(&server, "gpu:2").reserved_bytes, 256 * MIB);
    assert_eq!(DevicesPage::get(&server).logical[3].lanes, Some(3));
}

#[test]
fn what_cannot_be_is_refused_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let too_much = "device { name: \"gpu:0\" memory_limit: \"2GiB\" }";
    let cases = [
        (write(dir.path(), "a", too_much), "--device_config_file", "but it has 1073741824"),
        (
            write(dir.path(), "b", "gpu_options { visible_device_list: \"7\" }"),
            "--tensorflow_session_config_file",
            "'visible_device_list' listed an invalid Device id '7' but visible device count is 1",
        ),
    ];
    for (file, flag, expected) in cases {
        let args = [format!("{flag}={file}"), "--simulated_gpus=1GiB".to_owned()];
        let output = tensord().args(args).arg(model("half_plus_two")).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(expected), "{said}");
    }
}

#[test]
fn the_options_of_a_model_are_its_limit() {
    let dir = tempfile::tempdir().unwrap();
    let base = model("half_plus_two");
    let text = format!(
        r#"{{"model_config_list": [
            {{"name": "my_model", "base_path": "{base}", "model_platform": "tensorflow",
              "model_version_policy": {{"specific": {{"versions": [123]}}}},
              "config": {{"gpu_options": {{"allow_growth": true,
                                          "per_process_gpu_memory_fraction": 0.7}}}}}},
            {{"name": "fixed", "base_path": "{base}",
              "memory": {{"reservation": "64MiB"}}}}]}}"#
    );
    let file = write(dir.path(), "models.json", &text);
    let args = [format!("--model_config_file={file}"), "--simulated_gpus=1GiB".to_owned()];
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let server = start(&args, &[("TF_FORCE_GPU_ALLOW_GROWTH", "true")]);
    let gpu = device(&server, "gpu:0");
    assert_eq!(named(&gpu.models, "my_model").limit_bytes, Some(751_619_276));
    let fixed = named(&gpu.models, "fixed");
    assert_eq!((fixed.limit_bytes, fixed.bytes), (Some(64 * MIB), 64 * MIB));
    assert_eq!(predict(&server, "my_model").0, 200);
    assert_eq!(predict(&server, "fixed").0, 200);
}

#[test]
fn models_go_to_different_gpus_and_replicas_to_all() {
    let base = model("half_plus_two");
    let dir = tempfile::tempdir().unwrap();
    let config = |name: &str, more: &str| {
        format!("config {{ name: \"{name}\" base_path: \"{base}\" {more} }}")
    };
    let text = [
        config("a", "memory { devices: \"gpu:1\" }"),
        config("b", "memory { devices: [\"gpu:0\"] }"),
        config("all", "memory { replicas: \"all\" }"),
        config("host", "memory { devices: \"cpu:0\" }"),
    ];
    let text = format!("model_config_list {{ {} }}", text.join(" "));
    let file = format!("--model_config_file={}", write(dir.path(), "models", &text));
    let server = start(&["--simulated_gpus=1GiB,1GiB", &file], &[]);
    let on = |name: &str| {
        let device = device(&server, name);
        let models = device.models.iter();
        let mut names: Vec<String> = models.map(|model| model.name.clone()).collect();
        names.sort();
        names
    };
    // Replicas may still be on their way: while one is loaded, its model is there twice.
    let check = |name: &str, expected: &[&str]| {
        let is_so = (0..1000).any(|_| on(name) == expected);
        assert!(is_so, "{name} has {:?}, not {expected:?}", on(name));
    };
    check("gpu:0", &["all", "b"]);
    check("gpu:1", &["a", "all"]);
    // Those on GPUs parse examples, and so have names of features, which are strings.
    check("cpu:0", &["a", "all", "b", "host"]);
    for name in ["a", "b", "all", "host"] {
        assert_eq!(predict(&server, name).0, 200);
    }
}

#[test]
fn a_model_that_does_not_fit_is_refused_and_unloading_gives_everything_back() {
    let growth = [("TF_FORCE_GPU_ALLOW_GROWTH", "true")];
    let args = ["--simulated_gpus=1GiB", "--max_num_load_retries=0"];
    let server = start(&args, &growth);
    let (half, digits) = (model("half_plus_two"), model("digits"));
    let first = format!("config {{ name: \"half_plus_two\" base_path: \"{half}\" }}");
    server.manage("POST", "/v1/memory:trim", "");
    let before = device(&server, "gpu:0");
    let second = format!("config {{ name: \"digits\" base_path: \"{digits}\" }}");
    reload(&server, &format!("{first} {second}")).unwrap();
    let with = device(&server, "gpu:0");
    assert!(with.in_use_bytes > before.in_use_bytes);
    let digits_on = named(&with.models, "digits");
    assert!(bytes_for(&digits_on.categories, MemoryCategory::Weights) > 0, "{digits_on:#?}");
    reload(&server, &first).unwrap();
    let n_models = || device(&server, "gpu:0").models.len();
    // The old version goes when its last handle is gone, shortly after the list has changed.
    while n_models() > 1 {
        std::thread::yield_now();
    }
    server.manage("POST", "/v1/memory:trim", "");
    let after = device(&server, "gpu:0");
    assert_eq!(after.in_use_bytes, before.in_use_bytes);
    assert_eq!(after.categories, before.categories);
    let small = format!(
        "{first} config {{ name: \"d\" base_path: \"{digits}\" memory {{ limit: \"1000B\" }} }}"
    );
    assert!(reload(&server, &small).is_err());
    let states = server.rest_until("/v1/models/d", "has no room");
    assert!(states.contains("are needed"), "{states}");
    assert_eq!(predict(&server, "half_plus_two").0, 200);
    // A lane gives its memory back when it is told to, and its turn has ended.
    while device(&server, "gpu:0").in_use_bytes != before.in_use_bytes {
        server.manage("POST", "/v1/memory:trim", "");
    }
}

#[test]
fn limits_change_while_serving_and_what_is_in_use_stays() {
    let server = start(&["--simulated_gpus=1GiB,1GiB"], &[("TF_FORCE_GPU_ALLOW_GROWTH", "true")]);
    let devices = MemoryPage::get(&server).devices;
    let mut gpus = devices.iter().filter(|device| device.kind == DeviceKind::Gpu);
    let used = gpus.find(|gpu| !gpu.models.is_empty()).unwrap().name.clone();
    let put = |text: &str| server.manage("PUT", "/v1/devices", text);
    let (status, body) =
        put(&format!(r#"{{"device": [{{"name": "{used}", "memory_limit": "100MiB"}}]}}"#));
    assert_eq!(status, 200, "{body}");
    assert_eq!(device(&server, &used).limit_bytes, 100 * MIB);
    let (status, body) =
        put(&format!(r#"{{"device": [{{"name": "{used}", "allow_growth": false}}]}}"#));
    assert_eq!(status, 400);
    assert!(body.contains("Physical devices cannot be modified after being initialized"), "{body}");
    let (status, body) = put(r#"{"device": [{"name": "gpu:0", "memory_limit": "1"}]}"#);
    let is_used = used == "gpu:0";
    assert_eq!(status == 200, !is_used, "{body}");
    assert_eq!(put("{\"device\": 3}").0, 400);
    assert_eq!(predict(&server, "half_plus_two").0, 200);
}

#[test]
fn a_device_in_use_cannot_become_another() {
    let dir = tempfile::tempdir().unwrap();
    let base = model("half_plus_two");
    let text = format!(
        "model_config_list {{ config {{ name: \"m\" base_path: \"{base}\" \
         memory {{ devices: \"gpu:1\" }} }} }}"
    );
    let file = format!("--model_config_file={}", write(dir.path(), "models", &text));
    let growth = [("TF_FORCE_GPU_ALLOW_GROWTH", "true")];
    let server = start(&["--simulated_gpus=1GiB,1GiB", &file], &growth);
    let split = |name: &str| {
        let shares = r#"[{"memory_limit": "128MiB"}, {"memory_limit": "0.5"}]"#;
        let rule = format!(r#"{{"name": "{name}", "logical_device": {shares}}}"#);
        server.manage("PUT", "/v1/devices", &format!(r#"{{"device": [{rule}]}}"#))
    };
    let before = DevicesPage::get(&server).logical;
    let (status, body) = split("gpu:0");
    assert_eq!(status, 400, "{body}");
    let text = "Virtual devices cannot be modified after being initialized";
    assert!(body.contains(text), "{body}");
    assert_eq!(DevicesPage::get(&server).logical, before, "nothing has changed");
    // The device in use keeps its name and its place, so that its own can be divided.
    assert_eq!(split("gpu:1").0, 200);
    limits(
        &server,
        &[
            ("gpu:0", "gpu:0", 1 << 30),
            ("gpu:1", "gpu:1", 128 * MIB),
            ("gpu:2", "gpu:1", 512 * MIB),
        ],
    );
    assert_eq!(predict(&server, "m").0, 200);
}

#[test]
fn a_request_that_needs_too_much_fails_alone() {
    let dir = tempfile::tempdir().unwrap();
    let base = model("half_plus_two");
    let text = format!(
        "model_config_list {{ config {{ name: \"m\" base_path: \"{base}\" \
         memory {{ limit: \"1MiB\" }} }} }}"
    );
    let file = format!("--model_config_file={}", write(dir.path(), "models", &text));
    let server = start(&["--simulated_gpus=1GiB", &file], &[]);
    let large = vec!["1.0"; 400_000].join(",");
    let body = format!("{{\"instances\": [{large}]}}");
    let (status, answer) = server.rest("POST", "/v1/models/m:predict", &body);
    assert_eq!(status, 429, "{}", &answer[..answer.len().min(300)]);
    assert!(answer.contains("model m on gpu:0 has no room"), "{answer}");
    assert_eq!(predict(&server, "m").0, 200);
}

#[test]
fn as_many_gpus_are_listed_as_there_are() {
    for n in 0..=4 {
        let sizes: Vec<String> = (1..=n).map(|i| format!("{i}GiB")).collect();
        let gpus = format!("--simulated_gpus={}", sizes.join(","));
        let server = start(&[&gpus], &[("TF_FORCE_GPU_ALLOW_GROWTH", "true")]);
        let devices = MemoryPage::get(&server).devices;
        let names: Vec<&str> = devices.iter().map(|one| one.name.as_str()).collect();
        let expected: Vec<String> = (0..n).map(|i| format!("gpu:{i}")).collect();
        assert_eq!(names[0], "cpu:0");
        assert_eq!(names[1..], expected);
        let physical = DevicesPage::get(&server).physical;
        assert_eq!(physical.len(), n + 1);
        for (gpu, gib) in physical[1..].iter().zip(1..) {
            assert_eq!((gpu.total_bytes, &*gpu.driver), (gib * 1024 * MIB, "simulated"));
        }
        assert_eq!(predict(&server, "half_plus_two").0, 200);
    }
}

#[test]
fn two_logical_devices_of_one_gpu_serve_side_by_side() {
    let dir = tempfile::tempdir().unwrap();
    let virtual_devices = "virtual_devices { memory_limit_mb: [256, 512] }";
    let text = format!("gpu_options {{ allow_growth: true experimental {{ {virtual_devices} }} }}");
    let file = write(dir.path(), "session", &text);
    let file = format!("--tensorflow_session_config_file={file}");
    let base = model("half_plus_two");
    let config = |name: &str| format!("config {{ name: \"{name}\" base_path: \"{base}\" }}");
    let list = format!("model_config_list {{ {} {} }}", config("a"), config("b"));
    let models = format!("--model_config_file={}", write(dir.path(), "models", &list));
    let server = start(&["--simulated_gpus=1GiB", &file, &models], &[]);
    limits(&server, &[("gpu:0", "gpu:0", 256 * MIB), ("gpu:1", "gpu:0", 512 * MIB)]);
    for name in ["gpu:0", "gpu:1"] {
        assert_eq!(device(&server, name).models.len(), 1, "on {name}");
    }
    let held: u64 =
        ["gpu:0", "gpu:1"].iter().map(|name| device(&server, name).reserved_bytes).sum();
    assert_eq!(DevicesPage::get(&server).physical[1].held_bytes, held);
    assert_eq!(predict(&server, "a").0, 200);
    assert_eq!(predict(&server, "b").0, 200);
}

#[test]
fn a_plan_says_what_fits_where_and_reads_no_weights() {
    let run = |args: &[&str]| {
        let output = tensord().arg("plan").args(args).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let digits = model("digits");
    let args = [&digits, "--simulated_gpus=1GiB", "--per_process_gpu_memory_fraction=0.5"];
    let table = run(&args);
    assert!(table.contains("gpu:0") && table.contains("digits"), "{table}");
    let plan = PlanPage::read(&run(&["--json", args[0], args[1], args[2]]));
    let need = plan.models[0].planned().unwrap();
    assert_eq!((plan.fits, &*need.devices[0]), (true, "gpu:0"));

    // What is loaded then holds what was said, to the byte.
    let config =
        format!("model_config_list {{ config {{ name: \"d\" base_path: \"{digits}\" }} }}");
    let dir = tempfile::tempdir().unwrap();
    let file = format!("--model_config_file={}", write(dir.path(), "models", &config));
    let server = start(&[&file, args[1]], &[("TF_FORCE_GPU_ALLOW_GROWTH", "true")]);
    let loaded = &device(&server, "gpu:0").models[0];
    assert_eq!(bytes_for(&loaded.categories, MemoryCategory::Weights), need.weights_bytes);
    assert_eq!(
        bytes_for(&loaded.categories, MemoryCategory::PackedWeights),
        need.packed_weights_bytes
    );
}

#[test]
fn a_plan_takes_what_a_signature_leaves_open_for_as_long_as_it_is_told() {
    let minilm = small_zoo().join("minilm");
    let run = |arg: &str| {
        let mut plan = tensord();
        plan.args(["plan", "--json", arg]).arg(&minilm).output().unwrap()
    };
    let bytes = |arg: &str| {
        let plan = PlanPage::read(std::str::from_utf8(&run(arg).stdout).unwrap());
        plan.models[0].planned().unwrap().plans[0].activation_bytes
    };
    let [one, some] = [bytes("--length=1"), bytes("--length=16")];
    assert!(some > 8 * one, "sequences of 16 take {some} bytes, those of one {one}");
    let refused = run("--length=0");
    let text = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{text}");
    assert!(text.contains("'--length <N>': a number of elements from 1 is wanted"), "{text}");
}
