//! Configs of devices and models that make no sense: each is a clear error, and nothing changes.

use pages::{DevicesPage, MemoryPage, PlanPage};
use serde_json::{Value, json};

use crate::memory::{MIB, device, model, predict, reload, start, write};
use crate::page::{Page as _, Shown as _, named};
use crate::support::{Server, tensord};

/// TensorFlow's messages about devices that are configured as they cannot be.
const CPU_LIMIT: &str = "Setting memory limit on CPU virtual devices is currently not supported";
const CPU_GROWTH: &str = "Cannot set memory growth on non-GPU and non-Pluggable devices";
const GPU_LIMIT: &str = "Setting memory limit is required for GPU virtual devices";
const PRIORITIES: &str = "priority must be specified for all virtual devices";
const ORDINALS: &str = "device_ordinals must be specified for all virtual devices";
const HIDDEN: &str = "Visible devices cannot be modified after being initialized";
const RENAMED: &str = "Virtual devices cannot be modified after being initialized";

/// Returns whether `tensord devices` succeeded with these arguments, and its output.
fn devices(args: &[String], environment: &[(&str, &str)]) -> (bool, String) {
    let mut command = tensord();
    command.arg("devices").args(args).envs(environment.iter().copied());
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

/// Asserts that each text in a file that `flag` names is refused with what is said beside it.
fn check_refused(flag: &str, cases: &[(String, &str)]) {
    let dir = tempfile::tempdir().unwrap();
    for (text, expected) in cases {
        let file = format!("{flag}={}", write(dir.path(), "config", text));
        let (is_fine, said) = devices(&[file, "--simulated_gpus=1GiB,1GiB".to_owned()], &[]);
        let shown = &text[..text.len().min(200)];
        assert!(!is_fine && said.contains(expected), "{shown}: {said}");
        assert!(said.starts_with("error: ") && said.lines().count() == 1, "{shown}: {said}");
    }
}

#[test]
fn device_configs_that_make_no_sense_are_refused_at_the_start() {
    let gpu = |more: &str| format!("device {{ name: \"gpu:0\" {more} }}");
    let cpu = |more: &str| format!("device {{ name: \"cpu:0\" {more} }}");
    let share = "logical_device { memory_limit: \"1B\" } ";
    let urgent = "logical_device { memory_limit: \"1B\" priority: -1 }";
    let cases = [
        (gpu("memory_limit: \"0\""), "a memory limit of gpu:0 is 0 bytes"),
        (gpu("memory_limit: \"-1\""), "-1 is neither a size"),
        (gpu("memory_limit: \"NaN\""), "NaN is neither a size"),
        (gpu("memory_limit: \"1e400\""), "1e400 is neither a size"),
        (gpu("memory_limit: \"99999999999TiB\""), "99999999999TiB is neither"),
        (gpu("memory_limit: \"4TiB\""), "but it has 1073741824"),
        (gpu("lanes: 4294967295"), "gpu:0 would have 4294967295 lanes, but 256 is the most"),
        (gpu("lanes: -1"), "1:31"),
        (gpu(&share.repeat(100_000)), "100000 logical devices are configured, but there may be"),
        (gpu("logical_device { memory_limit: \"1MiB\" priority: 7 }"), "Priority 7 is outside"),
        (gpu("") + &gpu(""), "there are two rules for gpu:0"),
        (gpu("colour: \"red\""), "colour"),
        ("device { name: \"\" }".to_owned(), "Unrecognized device: "),
        ("device { name: \"gpu:0:1\" }".to_owned(), "Unrecognized device: gpu:0:1"),
        ("device { name: \"GPU:0\" }".to_owned(), "Unrecognized device: GPU:0"),
        (cpu("logical_device { memory_limit: \"1GiB\" }"), CPU_LIMIT),
        (cpu("allow_growth: true"), CPU_GROWTH),
        (cpu("logical_device { allow_growth: false }"), CPU_GROWTH),
        (cpu("visible: false"), "cpu:0 cannot be hidden"),
        (gpu("logical_device { }"), GPU_LIMIT),
        (gpu(&format!("{share} {urgent}")), PRIORITIES),
        (gpu(&format!("{share} logical_device {{ memory_limit: \"1B\" ordinal: 0 }}")), ORDINALS),
        ("device { name: \"cpu:0\" simulation { copy_rate: \"1GB/s\" } }".to_owned(), "simulated"),
        ("device {".to_owned(), "end of input"),
        ("{\"device\": [null]}".to_owned(), "null"),
        ("{\"device\": {}}".to_owned(), "--device_config_file "),
        ("{".repeat(100_000), "--device_config_file "),
        ("device { ".repeat(100_000), "--device_config_file "),
        ("\u{0}\u{1}".to_owned(), "--device_config_file "),
    ];
    check_refused("--device_config_file", &cases);
}

#[test]
fn session_configs_that_make_no_sense_are_refused_at_the_start() {
    let gpu = |more: &str| format!("gpu_options {{ {more} }}");
    let virtually = |limits: &str| {
        gpu(&format!("experimental {{ virtual_devices {{ {limits} }} virtual_devices {{ }} }}"))
    };
    let cases = [
        (gpu("per_process_gpu_memory_fraction: nan"), "NaN, which is no fraction"),
        (gpu("per_process_gpu_memory_fraction: -0.1"), "-0.1, which is no fraction"),
        (gpu("visible_device_list: \"0,,1\""), "Could not parse entry in 'visible_device_list'"),
        (gpu("visible_device_list: \"99999999999\""), "Could not parse entry"),
        (gpu("visible_device_list: \"2\""), "listed an invalid Device id '2'"),
        (gpu("visible_device_list: \"0,0\""), "contained a duplicate entry"),
        (gpu("allocator_type: \"malloc\""), "Invalid allocator type: malloc"),
        (virtually("memory_limit_mb: nan"), "is NaN, which is no size"),
        (virtually("memory_limit_mb: -1"), "is -1, which is no size"),
        (virtually("memory_limit_mb: 1e30"), "but it has 1073741824"),
        (
            gpu("per_process_gpu_memory_fraction: 0.5 experimental { virtual_devices { } }"),
            "It's invalid to set per_process_gpu_memory_fraction when virtual_devices is set.",
        ),
        (
            gpu("visible_device_list: \"1,0\" experimental { virtual_devices { } }"),
            "The number of GPUs in visible_device_list doesn't match the number of elements in \
             the virtual_devices list. #GPUs in visible_device_list: 2 virtual_devices.size(): 1",
        ),
        (
            gpu("experimental { virtual_devices { } }"),
            "The number of valid GPUs doesn't match the number of elements in the \
             virtual_devices list. #valid GPUs: 2 virtual_devices.size(): 1",
        ),
        (
            gpu("experimental { num_virtual_devices_per_gpu: 2147483647 }"),
            "2147483647 logical devices are configured, but there may be 256 at most",
        ),
        (gpu("colour: 1"), "colour"),
    ];
    check_refused("--tensorflow_session_config_file", &cases);
    let wrong = ["0", "-1", "much", "1GiB@fails=x", "1GiB@0FLOPS", "16000000TiB", "1GiB,,x"];
    for text in wrong {
        let (is_fine, said) = devices(&[format!("--simulated_gpus={text}")], &[]);
        assert!(!is_fine && said.starts_with("error: "), "{text}: {said}");
    }
    let many = format!("--simulated_gpus={}", vec!["2MiB"; 1000].join(","));
    let (is_fine, said) = devices(&[many, "--memory_growth_step=x".to_owned()], &[]);
    assert!(!is_fine && said.contains("--memory_growth_step"), "{said}");
}

#[test]
fn what_a_device_config_takes_the_place_of_is_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let rules = write(dir.path(), "devices", "device { name: \"gpu:0\" allow_growth: false }");
    let args = [
        "--simulated_gpus=64MiB".to_owned(),
        "--per_process_gpu_memory_fraction=0.5".to_owned(),
        format!("--device_config_file={rules}"),
    ];
    let environment = [("TF_FORCE_GPU_ALLOW_GROWTH", "true"), ("TF_GPU_ALLOCATOR", "cuda_malloc")];
    let (is_fine, said) = devices(&args, &environment);
    assert!(is_fine, "{said}");
    let instead = "has no effect: --device_config_file takes its place";
    assert!(said.contains(&format!("warning: TF_FORCE_GPU_ALLOW_GROWTH {instead}")), "{said}");
    assert!(said.contains(&format!("or the fraction of the flag {instead}")), "{said}");
    assert!(said.contains("\"growth\": \"reserved\""), "{said}");
}

#[test]
fn what_tensorflow_would_refuse_or_means_nothing_here_is_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let warned = |flag: &str, text: &str| {
        let file = format!("{flag}={}", write(dir.path(), "config", text));
        let (is_fine, said) = devices(&[file, "--simulated_gpus=1GiB,1GiB".to_owned()], &[]);
        assert!(is_fine, "{text}: {said}");
        let page = said.find('{').map(|start| &said[start..]).unwrap();
        let mut pages = serde_json::Deserializer::from_str(page).into_iter::<DevicesPage>();
        let warnings = pages.next().unwrap().unwrap().warnings;
        for warning in &warnings {
            assert!(said.contains(&format!("warning: {warning}\n")), "{warning} in {said}");
        }
        warnings
    };
    let rules =
        "device { name: \"gpu:0\" allow_growth: true logical_device { memory_limit: \"9B\" } }
                 device { name: \"gpu:1\" allow_growth: false memory_limit: \"2MiB\" }
                 device { name: \"gpu:2\" visible: false }";
    assert_eq!(
        warned("--device_config_file", rules),
        [
            "gpu:2 was not found, its rule has no effect",
            "TensorFlow refuses this: Memory growth cannot differ between GPU devices",
            "TensorFlow refuses this: Cannot set memory growth on device when virtual devices \
             configured",
        ]
    );
    let session = "gpu_options { allow_growth: true deferred_deletion_bytes: 1
                   experimental { num_dev_to_dev_copy_streams: 9 use_cuda_malloc_async: true
                   gpu_host_mem_limit_in_mb: 7 gpu_host_mem_disallow_growth: true
                   timestamped_allocator: true internal_fragmentation_fraction: 0.5
                   disallow_retry_on_allocation_failure: true use_unified_memory: true } }";
    let warnings = warned("--tensorflow_session_config_file", session);
    let unified = |gpu: u32| {
        format!("unified memory is not used: gpu:{gpu} is limited to its own 1073741824 bytes")
    };
    let (others, last) = warnings.split_at(warnings.len() - 2);
    assert_eq!(last, [unified(0), unified(1)]);
    let start = |text: &String| text.split(" has no effect: ").next().unwrap().to_owned();
    let options = |names: &[&str]| -> Vec<String> {
        names.iter().map(|name| format!("gpu_options.{name}")).collect()
    };
    let mut expected = options(&["deferred_deletion_bytes=1"]);
    expected.push(
        "Illegal GPUOptions.experimental.num_dev_to_dev_copy_streams=9 set to 1 instead."
            .to_owned(),
    );
    expected.extend(options(&[
        "experimental.timestamped_allocator=true",
        "experimental.internal_fragmentation_fraction=0.5",
        "experimental.use_cuda_malloc_async=true",
        "experimental.disallow_retry_on_allocation_failure=true",
        "experimental.gpu_host_mem_limit_in_mb=7",
        "experimental.gpu_host_mem_disallow_growth=true",
    ]));
    assert_eq!(others.iter().map(start).collect::<Vec<_>>(), expected);
}

/// A device config with one rule.
fn of(name: &str, more: Value) -> String {
    let mut rule = more;
    rule["name"] = json!(name);
    json!({ "device": [rule] }).to_string()
}

/// Changes that make no sense where there are two GPUs of 64 MiB and the first is in use, and what
/// is said of them.
fn nonsense() -> Vec<(String, &'static str)> {
    let shares = |n: usize| json!({"logical_device": vec![json!({"memory_limit": "1B"}); n]});
    // Of two shares only one says so much.
    let mixed = |key: &str| {
        let (said, silent) = (json!({"memory_limit": "1B", key: 0}), json!({"memory_limit": "1B"}));
        json!({"logical_device": [said, silent]})
    };
    vec![
        (of("gpu:1", json!({"memory_limit": "NaN"})), "neither a size"),
        (of("gpu:1", json!({"memory_limit": "-5MiB"})), "neither a size"),
        (of("gpu:1", json!({"memory_limit": "65MiB"})), "but it has 67108864"),
        (of("gpu:1", json!({"memory_limit": -5})), "neither a size"),
        (of("gpu:1", json!({"memory_limit": [5]})), "expected a string"),
        (of("gpu:1", shares(100_000)), "100000 logical devices are configured"),
        (of("gpu:1", json!({"lanes": 100_000})), "gpu:1 would have 100000 lanes"),
        (of("gpu:1", json!({"lanes": 1e30})), "device config"),
        (of("", json!({})), "Unrecognized device: "),
        (of("tpu:0", json!({})), "Unrecognized device: tpu:0"),
        (of("cpu:0", json!({"allow_growth": true})), "Cannot set memory growth on non-GPU"),
        (of("cpu:0", json!({"logical_device": [{"allow_growth": true}]})), CPU_GROWTH),
        (of("cpu:0", json!({"logical_device": [{"memory_limit": "1GiB"}]})), CPU_LIMIT),
        (of("cpu:0", json!({"visible": false})), "cpu:0 cannot be hidden"),
        (of("gpu:1", json!({"logical_device": [{}]})), GPU_LIMIT),
        (of("gpu:1", mixed("priority")), PRIORITIES),
        (of("gpu:1", mixed("ordinal")), ORDINALS),
        (of("gpu:0", json!({"visible": false})), HIDDEN),
        // It would be gpu:0 then.
        (of("gpu:1", json!({"logical_device": [{"memory_limit": "1B", "ordinal": -1}]})), RENAMED),
        (of("cpu:0", json!({"memory_limit": "1B"})), "more than a limit of 1"),
        (of("cpu:0", json!({"lanes": 77})), "Physical devices cannot be modified after being"),
        (of("gpu:0", json!({"memory_limit": "1B"})), "gpu:0 holds"),
        (of("gpu:0", json!({"allow_growth": false})), "Physical devices cannot be modified"),
        (of("gpu:0", json!({"lanes": 77})), "Physical devices cannot be modified"),
        (json!({"device": 3}).to_string(), "device config"),
        (json!({"devices": []}).to_string(), "unrecognized field name 'devices'"),
        (String::new(), "the body is empty"),
        (" \n".to_owned(), "the body is empty"),
        ("[]".to_owned(), "device config"),
        ("null".to_owned(), "device config"),
        ("{".to_owned(), "device config"),
        ("device { name: \"gpu:0\" ".to_owned(), "device config"),
        ("{".repeat(100_000), "device config"),
        ("\u{0}".to_owned(), "device config"),
        // The first would do, the second does not.
        (
            json!({"device": [{"name": "gpu:1", "memory_limit": "32MiB"},
                              {"name": "gpu:0", "memory_limit": "1B"}]})
            .to_string(),
            "gpu:0 holds",
        ),
    ]
}

#[test]
fn a_change_of_devices_that_makes_no_sense_changes_nothing() {
    let growth = [("TF_FORCE_GPU_ALLOW_GROWTH", "true")];
    let server = start(&["--simulated_gpus=64MiB,64MiB"], &growth);
    let half = |on: &str| {
        let base = model("half_plus_two");
        format!("config {{ name: \"half_plus_two\" base_path: \"{base}\" memory {{ {on} }} }}")
    };
    reload(&server, &half("devices: \"gpu:0\"")).unwrap();
    let before = DevicesPage::get(&server);
    for (body, expected) in nonsense() {
        let shown = body[..body.len().min(200)].to_owned();
        let (status, answer) = server.manage("PUT", "/v1/devices", &body);
        assert_eq!(status, 400, "{shown}: {answer}");
        let answer: Value = serde_json::from_str(&answer).unwrap();
        let error = answer["error"].as_str().unwrap();
        assert!(error.contains(expected), "{shown}: {error}");
        let after = DevicesPage::get(&server);
        assert_eq!(after.logical, before.logical, "{shown}");
        let limits = |page: &DevicesPage| {
            page.physical.iter().map(|one| one.limit_bytes).collect::<Vec<_>>()
        };
        assert_eq!(limits(&after), limits(&before), "{shown}");
    }
    assert_eq!(predict(&server, "half_plus_two").0, 200);
    check_sense(&server);
}

/// Checks that changes which do make sense are done.
fn check_sense(server: &Server) {
    // The device is not in use, and has other lanes now.
    let (status, answer) = server.manage("PUT", "/v1/devices", &of("gpu:1", json!({"lanes": 7})));
    assert_eq!(status, 200, "{answer}");
    assert_eq!(DevicesPage::get(server).logical[2].lanes, Some(7));
    // It is hidden, so that nobody can be on it, and seen again.
    let hidden = of("gpu:1", json!({"visible": false}));
    let (status, answer) = server.manage("PUT", "/v1/devices", &hidden);
    assert_eq!(status, 200, "{answer}");
    assert_eq!(DevicesPage::get(server).logical.len(), 2);
    assert_eq!(DevicesPage::get(server).physical[2].name, "gpu:1");
    assert_eq!(MemoryPage::get(server).devices.len(), 2);
    assert_eq!(predict(server, "half_plus_two").0, 200);
    // What TensorFlow refuses is done, and said.
    let split = json!({"name": "gpu:0", "allow_growth": true,
        "logical_device": [{"memory_limit": "32MiB"}]});
    let differs = json!({"device": [split, {"name": "gpu:1", "allow_growth": false}]});
    let (status, answer) = server.manage("PUT", "/v1/devices", &differs.to_string());
    assert_eq!(status, 200, "{answer}");
    assert_eq!(
        DevicesPage::read(&answer).warnings,
        [
            "TensorFlow refuses this: Memory growth cannot differ between GPU devices",
            "TensorFlow refuses this: Cannot set memory growth on device when virtual devices \
             configured",
        ]
    );
    let nothing = json!({"device": []}).to_string();
    assert_eq!(server.manage("PUT", "/v1/devices", &nothing).0, 200, "nothing is said of any");
    assert_ne!(DevicesPage::get(server).logical[2].lanes, Some(7));
}

#[test]
fn a_device_that_is_held_up_to_its_limit_gets_another_at_once_if_nobody_uses_it() {
    let dir = tempfile::tempdir().unwrap();
    let text = format!(
        "model_config_list {{ config {{ name: \"m\" base_path: \"{}\" \
         memory {{ devices: \"gpu:0\" }} }} }}",
        model("half_plus_two")
    );
    let file = format!("--model_config_file={}", write(dir.path(), "models", &text));
    let server = start(&["--simulated_gpus=64MiB,64MiB", "--gpu_memory=reserve", &file], &[]);
    let put = |first: &str, second: Value| {
        let first = json!({"name": "gpu:0", "allow_growth": false, "memory_limit": first});
        let mut second = second;
        second["name"] = json!("gpu:1");
        let rules = json!({"device": [first, second]});
        server.manage("PUT", "/v1/devices", &rules.to_string())
    };
    let held = || {
        ["gpu:0", "gpu:1"].map(|name| {
            let device = device(&server, name);
            (device.limit_bytes / MIB, device.reserved_bytes / MIB)
        })
    };
    assert_eq!(held(), [(64, 64), (64, 64)]);
    let smaller = json!({"allow_growth": false, "memory_limit": "32MiB"});
    let shares = json!({"allow_growth": false, "logical_device": [{"memory_limit": "16MiB"}]});
    for (other, mib) in [(&smaller, 32), (&shares, 16), (&json!({"allow_growth": false}), 64)] {
        let (status, body) = put("64MiB", other.clone());
        assert_eq!(status, 200, "{body}");
        assert_eq!(held(), [(64, 64), (mib, mib)]);
    }
    let (status, body) = put("32MiB", json!({"allow_growth": false}));
    assert_eq!(status, 400, "{body}");
    assert!(body.contains("Physical devices cannot be modified after being initialized"), "{body}");
    assert_eq!(held(), [(64, 64), (64, 64)]);
    assert_eq!(put("64MiB", json!({"allow_growth": true})).0, 200);
    assert_eq!(held(), [(64, 64), (64, 0)]);
    // What was held goes back when the last who looks at it has looked.
    while put("64MiB", smaller.clone()).0 == 429 {
        std::thread::yield_now();
    }
    assert_eq!(held(), [(64, 64), (32, 32)]);
    assert_eq!(predict(&server, "m").0, 200);
}

#[test]
fn models_whose_memory_settings_make_no_sense_are_refused_and_the_others_serve() {
    let growth = [("TF_FORCE_GPU_ALLOW_GROWTH", "true")];
    let server = start(&["--simulated_gpus=64MiB", "--max_num_load_retries=0"], &growth);
    let config = |name: &str, more: &str| {
        format!("config {{ name: \"{name}\" base_path: \"{}\" {more} }}", model("half_plus_two"))
    };
    let fraction = |value: &str| {
        format!("config {{ gpu_options {{ per_process_gpu_memory_fraction: {value} }} }}")
    };
    let cases = [
        (fraction("nan"), "NaN, not from 0 to 1"),
        (fraction("-1"), "-1, not from 0 to 1"),
        (fraction("1.01"), "1.01, not from 0 to 1"),
        ("memory { limit: \"lots\" }".to_owned(), "neither a size"),
        ("memory { limit: \"0\" }".to_owned(), "has no room"),
        ("memory { reservation: \"65MiB\" }".to_owned(), "68157440 bytes are needed"),
        ("memory { reservation: \"2MiB\" limit: \"1MiB\" }".to_owned(), "INVALID_ARGUMENT"),
        (
            "memory { reservation: 0.5 limit: \"1MiB\" }".to_owned(),
            "more is reserved than its limit allows on gpu:0: 33554432 bytes of 1048576",
        ),
        ("memory { replicas: \"-1\" }".to_owned(), "replicas is a number from 1 on, or all"),
    ];
    let half = config("half_plus_two", "");
    for (number, (more, expected)) in cases.iter().enumerate() {
        let name = format!("m{number}");
        let refused = reload(&server, &format!("{half} {}", config(&name, more)));
        assert!(refused.is_err(), "{more}");
        let states = server.rest_until(&format!("/v1/models/{name}"), "END");
        assert!(states.contains(expected), "{more}: {states}");
        assert_eq!(predict(&server, "half_plus_two").0, 200);
    }
    assert!(device(&server, "gpu:0").reserved_bytes <= 8 * MIB);
}

#[test]
fn virtual_devices_have_their_priorities_and_their_places() {
    let dir = tempfile::tempdir().unwrap();
    let entry = |limits: &str, priorities: &str| {
        let ordinals = "device_ordinal: [20, 10]";
        format!(
            "virtual_devices {{ memory_limit_mb: [{limits}] priority: [{priorities}] {ordinals} }}"
        )
    };
    let entries = format!("{} {}", entry("16, 32", "-1, -2"), entry("24, 8", "0, -5"));
    let text = format!(
        "gpu_options {{ allow_growth: true visible_device_list: \"1,0\" \
         experimental {{ {entries} }} }}"
    );
    let file = write(dir.path(), "session", &text);
    let file = format!("--tensorflow_session_config_file={file}");
    let server = start(&["--simulated_gpus=64MiB,128MiB", &file], &[]);
    let page = DevicesPage::get(&server);
    let gpus: Vec<String> = page.logical[1..]
        .iter()
        .map(|one| {
            let limit = one.limit_bytes / MIB;
            format!("{} {} {limit} {}", one.name, one.physical, one.priority)
        })
        .collect();
    let expected = ["0 1 32 -2", "1 0 8 -5", "2 1 16 -1", "3 0 24 0"];
    let expected = expected.map(|text| {
        let (name, rest) = text.split_once(' ').unwrap();
        let (of, rest) = rest.split_once(' ').unwrap();
        format!("gpu:{name} gpu:{of} {rest}")
    });
    assert_eq!(gpus, expected);
    let memory = MemoryPage::get(&server);
    let limits = memory.devices.iter().skip(1);
    let limits: Vec<u64> = limits.map(|one| one.limit_bytes / MIB).collect();
    assert_eq!(limits, [32, 8, 16, 24]);
}

#[test]
fn a_plan_refuses_what_the_server_would_and_says_what_to_change() {
    let dir = tempfile::tempdir().unwrap();
    let config = |name: &str, more: &str| {
        format!("config {{ name: \"{name}\" base_path: \"{}\" {more} }}", model("digits"))
    };
    let text = [
        config("small", "memory { limit: \"1000B\" }"),
        config("aside", "memory { reservation: \"65MiB\" }"),
        config("pinned", "memory { devices: \"gpu:1\" reservation: \"3MiB\" }"),
        config("fits", "memory { reservation: \"60MiB\" }"),
        config("few", "memory { limit: \"1MiB\" }"),
    ];
    let text = format!("model_config_list {{ {} }}", text.join(" "));
    let file = format!("--model_config_file={}", write(dir.path(), "models", &text));
    let plan = |more: &[&str]| {
        let mut plan = tensord();
        plan.args(["plan", &file, "--simulated_gpus=64MiB,2MiB"]).args(more);
        let output = plan.args(["--per_process_gpu_memory_fraction=1"]).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let report = PlanPage::read(&plan(&["--json"]));
    assert!(!report.fits);
    let refused = |name: &str| named(&report.models, name).planned().unwrap().refused.clone();
    assert!(refused("small").unwrap().contains("but the model itself may hold 1000: raise its"));
    assert!(refused("aside").unwrap().starts_with("68157440 bytes are needed, but no device that"));
    assert!(refused("pinned").unwrap().contains("3145728 bytes are needed, but no device that"));
    // No more than gpu:1 has: what gpu:0 has is of no use to it.
    let left = refused("pinned").unwrap();
    let left = left.split(" more than ").nth(1).unwrap().split(' ').next().unwrap().to_owned();
    assert!(left.parse::<u64>().unwrap() <= 2 * MIB, "{left}");
    assert_eq!((refused("fits"), refused("few")), (None, None));
    let rows = |at: usize| report.models[at].planned().unwrap().batch_size_max.unwrap();
    // 64 rows take 1.6 MiB.
    assert_eq!((rows(3), rows(4)), (64, 32), "{report:#?}");
    let table = plan(&[]);
    assert!(table.contains("\nsmall would be refused: ") && table.contains("nowhere"), "{table}");
}
