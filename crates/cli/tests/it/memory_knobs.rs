//! Settings of models and devices, and the reports on them: in both shapes of the model config, by
//! `tensord plan` before, by `tensord memory` and `top` while serving.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use pages::{DeviceKind, DeviceMemory, MemoryPage, PlanPage, SchedulerPage, VersionMemory};
use prost::Message as _;
use proto::tensorflow::{SavedModel, attr_value};
use serde_json::json;

use crate::memory::{MIB, device, model, predict, reload, start, write};
use crate::page::{Page as _, Shown as _, named};
use crate::support::{Server, tensord};

const GROWTH: [(&str, &str); 1] = [("TF_FORCE_GPU_ALLOW_GROWTH", "true")];

/// Writes a model that multiplies rows of `width` numbers with weights of its own.
fn write_dense(base: &Path, seed: u32, width: u32) -> String {
    let text = format!(
        "saved_model_schema_version: 1 meta_graphs {{ meta_info_def {{ tags: 'serve' }}
         graph_def {{ versions {{ producer: 1395 }}
           node {{ name: 'x' op: 'Placeholder' attr {{ key: 'dtype' value {{ type: DT_FLOAT }} }}
             attr {{ key: 'shape' value {{
               shape {{ dim {{ size: -1 }} dim {{ size: {width} }} }} }} }} }}
           node {{ name: 'w' op: 'Const' attr {{ key: 'dtype' value {{ type: DT_FLOAT }} }}
             attr {{ key: 'value' value {{ tensor {{ dtype: DT_FLOAT
               tensor_shape {{ dim {{ size: {width} }} dim {{ size: {width} }} }} }} }} }} }}
           node {{ name: 'y' op: 'MatMul' input: 'x' input: 'w'
             attr {{ key: 'T' value {{ type: DT_FLOAT }} }} }} }}
         signature_def {{ key: 'serving_default' value {{ method_name: 'tensorflow/serving/predict'
           inputs {{ key: 'x' value {{ name: 'x:0' dtype: DT_FLOAT
             tensor_shape {{ dim {{ size: -1 }} dim {{ size: {width} }} }} }} }}
           outputs {{ key: 'y' value {{ name: 'y:0' dtype: DT_FLOAT
             tensor_shape {{ dim {{ size: -1 }} dim {{ size: {width} }} }} }} }} }} }} }}"
    );
    let mut saved: SavedModel = proto::text::parse(&text).unwrap();
    // No two models have a weight in common.
    let weight = |at: u32| (at.wrapping_mul(2_654_435_761) >> 12) as f32 + seed as f32;
    let content: Vec<u8> = (0..width * width).flat_map(|at| weight(at).to_le_bytes()).collect();
    let nodes = &mut saved.meta_graphs[0].graph_def.as_mut().unwrap().node;
    let value = nodes[1].attr.get_mut("value").unwrap().value.as_mut().unwrap();
    let attr_value::Value::Tensor(tensor) = value else { panic!("it is a tensor") };
    tensor.tensor_content = content.into();
    fs::create_dir_all(base.join("1")).unwrap();
    fs::write(base.join("1/saved_model.pb"), saved.encode_to_vec()).unwrap();
    base.to_string_lossy().into_owned()
}

/// The devices that a model is on, and what each says of it.
fn on(server: &Server, name: &str) -> Vec<(String, VersionMemory)> {
    let memory = MemoryPage::get(server);
    let gpus = memory.devices.iter().filter(|one| one.kind == DeviceKind::Gpu);
    let of = |one: &DeviceMemory| {
        let mut models = one.models.iter();
        let found = models.find(|model| model.name == name)?.clone();
        Some((one.name.clone(), found))
    };
    gpus.filter_map(of).collect()
}

fn names(on: &[(String, VersionMemory)]) -> Vec<&str> {
    on.iter().map(|(name, _)| name.as_str()).collect()
}

#[test]
fn both_shapes_of_the_model_config_say_where_how_often_and_how_much() {
    let dir = tempfile::tempdir().unwrap();
    let base = model("half_plus_two");
    // Numbers are bytes and counts as well as texts are.
    let text = format!(
        "model_config_list {{
           config {{ name: 'a' base_path: '{base}' memory {{ replicas: 2 limit: 1048576 }} }}
           config {{ name: 'b' base_path: '{base}' memory {{ replicas: '2' limit: '2MiB'
             devices: ['gpu:1', 'gpu:2'] priority: 1 }} }}
           config {{ name: 'c' base_path: '{base}' memory {{ reservation: 4194304
             devices: 'gpu:2' }} }} }}"
    );
    let file = write(dir.path(), "models", &text);
    let args = ["--simulated_gpus=64MiB,64MiB,64MiB", &format!("--model_config_file={file}")];
    let server = start(&args, &GROWTH);
    let check = |names_of: [&str; 3]| {
        let [a, b, c] = names_of.map(|name| on(&server, name));
        let limits = |on: &[(String, VersionMemory)]| -> Vec<u64> {
            on.iter().map(|(_, model)| model.limit_bytes.unwrap()).collect()
        };
        assert_eq!((a.len(), limits(&a)), (2, vec![MIB; 2]), "{a:?}");
        assert_eq!((names(&b), limits(&b)), (vec!["gpu:1", "gpu:2"], vec![2 * MIB; 2]));
        assert_eq!((names(&c), limits(&c)), (vec!["gpu:2"], vec![4 * MIB]));
        assert_eq!(c[0].1.bytes, 4 * MIB);
        for name in names_of {
            assert_eq!(predict(&server, name).0, 200);
        }
    };
    check(["a", "b", "c"]);

    let json = json!({"model_config_list": [
        {"name": "d", "base_path": base, "memory": {"replicas": 2, "limit": 1_048_576}},
        {"name": "e", "base_path": base, "memory": {"replicas": "2", "limit": "2MiB",
            "devices": ["gpu:1", "gpu:2"], "priority": 1}},
        {"name": "f", "base_path": base,
         "memory": {"reservation": 4_194_304, "devices": ["gpu:2"]}},
        {"name": "all", "base_path": base, "memory": {"replicas": "all"}},
        {"name": "lost", "base_path": base, "memory": {"devices": ["gpu:7"]}},
        {"name": "half", "base_path": base, "memory": {"devices": ["gpu:7", "gpu:1"]},
         "config": {"gpu_options": {"visible_device_list": "0"}}},
    ]});
    write(dir.path(), "models", &json.to_string());
    for name in ["d", "e", "f", "all", "lost", "half"] {
        server.rest_until(&format!("/v1/models/{name}"), "AVAILABLE");
    }
    check(["d", "e", "f"]);
    assert_eq!(names(&on(&server, "all")), ["gpu:0", "gpu:1", "gpu:2"]);
    // A device that is not there is a warning; without any other, the model may be on each.
    assert_eq!(on(&server, "lost").len(), 1);
    assert_eq!(names(&on(&server, "half")), ["gpu:1"]);
    let mut wanted = vec![
        "model lost may be on gpu:7, but there is no such device",
        "model half may be on gpu:7, but there is no such device",
        "model half: gpu_options.visible_device_list has no effect: `devices` of `memory` says",
    ];
    while !wanted.is_empty() {
        let line = server.logs("model ");
        wanted.retain(|text| !line.contains(text));
    }
}

/// Returns the page of `tensord plan` with these arguments.
fn plan(args: &[&str]) -> PlanPage {
    PlanPage::of_command(tensord().args(["plan", "--json"]).args(args))
}

#[test]
fn a_plan_says_of_odd_limits_of_devices_what_the_server_does() {
    let dir = tempfile::tempdir().unwrap();
    // 4 MiB of weights, and a run takes a little more; a GPU gives out 2 MiB at a time.
    let limits_kib = [4096 + 300, 6144 - 1, 6144, 6144 + 1, 8192 - 1, 8192 + 1, 9000];
    let (mut rules, mut models) = (String::new(), Vec::new());
    for growth in [true, false] {
        for limit in limits_kib {
            let at = models.len();
            rules += &format!(
                "device {{ name: 'gpu:{at}' allow_growth: {growth} memory_limit: '{limit}KiB' }} "
            );
            let base = write_dense(&dir.path().join(format!("m{at}")), 1, 1024);
            let memory = format!("memory {{ devices: 'gpu:{at}' }}");
            models.push(format!("config {{ name: 'm{at}' base_path: '{base}' {memory} }}"));
        }
    }
    let n = models.len();
    let list = format!("model_config_list {{ {} }}", models.concat());
    let list = format!("--model_config_file={}", write(dir.path(), "models", &list));
    let rules = format!("--device_config_file={}", write(dir.path(), "devices", &rules));
    let gpus = format!("--simulated_gpus={}", vec!["16MiB"; n].join(","));
    let report = plan(&[&list, &rules, &gpus]);

    let server = start(&[&rules, &gpus, "--max_num_load_retries=0"], &[]);
    let mut loaded: Vec<&str> = Vec::new();
    for (at, config) in models.iter().enumerate() {
        let name = format!("gpu:{at}");
        let before = device(&server, &name);
        let planned = named(&report.devices, &name);
        let planned_model = named(&report.models, &format!("m{at}")).planned().unwrap();
        let fits = planned_model.refused.is_none();
        // With runs on all lanes.
        let taken = planned_model.promised_bytes.filter(|_| fits).unwrap_or(0);
        let free = planned.left_bytes + taken;
        assert_eq!(planned.limit_bytes, before.limit_bytes, "{name}");
        assert_eq!(before.free_bytes, free, "{name}: {planned:?} {planned_model:#?}");
        let answer = reload(&server, &format!("{} {config}", loaded.join(" ")));
        assert_eq!(fits, answer.is_ok(), "{before:?}: {planned_model:#?} {answer:?}");
        if fits {
            loaded.push(config);
            let body = json!({"instances": [vec![1.0; 1024]]}).to_string();
            let (status, body) = server.rest("POST", &format!("/v1/models/m{at}:predict"), &body);
            assert_eq!(status, 200, "{name}: {}", &body[..body.len().min(300)]);
        }
    }
    assert!(!loaded.is_empty() && loaded.len() < n, "{} of {n} fit", loaded.len());
}

#[test]
fn as_many_models_with_weights_of_their_own_are_loaded_as_the_plan_said() {
    let dir = tempfile::tempdir().unwrap();
    // 4 MiB of weights each, and ten of them beside what a run takes.
    let base = |number: u32| write_dense(&dir.path().join(format!("m{number}")), number, 1024);
    let bases: Vec<String> = (0..12).map(base).collect();
    let gpus = "--simulated_gpus=44MiB,9MiB";
    let config = |number: usize, more: &str| {
        format!("config {{ name: \"m{number}\" base_path: \"{}\" {more} }}", bases[number])
    };
    let planned = |more: &str| {
        let text = format!("model_config_list {{ {} }}", config(0, more));
        let file = format!("--model_config_file={}", write(dir.path(), "models", &text));
        let report = plan(&[&file, gpus, "--per_process_gpu_memory_fraction=1"]);
        let copies = &report.models[0].planned().unwrap().copies_alone;
        let copies: Vec<u64> = copies.iter().map(|one| one.copies).collect();
        (report, copies)
    };
    let (report, copies) = planned("memory { devices: \"gpu:0\" }");
    assert!(copies[0] >= 8 && copies[1] == 0, "{report:#?}");
    assert_eq!(planned("").1[0], copies[0]);
    assert!((1..=2).contains(&planned("").1[1]), "{:?}", planned("").1);
    // What is set aside, what a model itself may hold, and what the host has are counted.
    assert_eq!(planned("memory { reservation: \"10MiB\" }").1, [4, 0]);
    assert_eq!(planned("memory { limit: \"1MiB\" }").1, [0, 0]);
    let (report, _) = planned("memory { replicas: 3 }");
    let model = report.models[0].planned().unwrap();
    assert_eq!((model.replicas, model.replicas_asked), (2, 3));
    let fewer = "2 of the 3 replicas asked for: it may be on 2 devices";
    assert_eq!(model.fewer_replicas.as_deref(), Some(fewer));

    let n = usize::try_from(copies[0]).unwrap();
    let server =
        start(&[gpus, "--max_num_load_retries=0", "--per_process_gpu_memory_fraction=1"], &GROWTH);
    let pinned = "memory { devices: \"gpu:0\" }";
    let list = |n: usize| (0..n).map(|at| config(at, pinned)).collect::<Vec<_>>().join(" ");
    // One after another, as the plan has them: loads side by side take more at once.
    (1..=n).for_each(|n| reload(&server, &list(n)).unwrap());
    let ask = |number: usize| {
        let body = json!({"instances": [vec![1.0; 1024]]}).to_string();
        server.rest("POST", &format!("/v1/models/m{number}:predict"), &body)
    };
    for number in 0..n {
        let (status, body) = ask(number);
        assert_eq!(status, 200, "{number} of {n}: {}", &body[..body.len().min(300)]);
    }
    assert!(reload(&server, &list(n + 1)).is_err(), "{n} copies were said to fit");
    let states = server.rest_until(&format!("/v1/models/m{n}"), "END");
    assert!(states.contains("RESOURCE_EXHAUSTED"), "{states}");
    assert!(states.contains("gpu:0 has no room"), "{states}");
    assert_eq!(ask(0).0, 200);
    assert_eq!(device(&server, "gpu:0").models.len(), n);
}

#[test]
fn memory_and_top_show_what_the_page_says() {
    let server = start(&["--simulated_gpus=64MiB"], &GROWTH);
    let base = model("digits");
    let list = format!(
        "config {{ name: \"half_plus_two\" base_path: \"{}\" }}
         config {{ name: \"digits\" base_path: \"{base}\" memory {{ limit: \"8MiB\" }} }}",
        model("half_plus_two")
    );
    reload(&server, &list).unwrap();
    assert_eq!(predict(&server, "half_plus_two").0, 200);
    let url = format!("localhost:{}", server.rest);
    let run = |args: &[&str]| {
        let output = tensord().args(args).arg(&url).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    // What changes by itself is out of the way: nobody asks while they look.
    server.manage("POST", "/v1/memory:trim", "");
    let (page, table, top) = loop {
        let look = || {
            let mut page = MemoryPage::get(&server).devices;
            page.remove(0);
            page
        };
        let before = look();
        let said = (run(&["memory"]), run(&["top", "--times=1"]));
        if look() == before {
            break (before, said.0, said.1);
        }
    };
    let json = MemoryPage::read(&run(&["memory", "--json"]));
    assert_eq!(json.devices[1].limit_bytes, page[0].limit_bytes);
    for text in [&table, &top] {
        check_table(text, &page[0]);
    }
    // Besides the memory, top shows the lanes and the queues.
    assert!(top.contains("gpu:0 lane 0") && top.contains("% busy"), "{top}");
    assert!(top.contains("half_plus_two:123 serving_default gpu:0"), "{top}");
    assert!(!table.contains("lane 0"), "{table}");
    assert!(!top.contains('\u{1b}'), "codes of a terminal in {top}");
    let gone = tensord().args(["memory", "localhost:1"]).output().unwrap();
    let said = String::from_utf8_lossy(&gone.stderr).into_owned();
    assert!(!gone.status.success() && said.contains("no server answers at localhost:1"), "{said}");
}

/// Asserts that a table has a line with a bar for a device, its models and their categories, with
/// the bytes that the page says.
#[track_caller]
fn check_table(table: &str, device: &DeviceMemory) {
    let name = device.name.as_str();
    // Behind the lines of the device before it.
    let start = table.find(&format!("{name}    on {name}")).unwrap_or_else(|| panic!("{table}"));
    let table = &table[start..];
    let line = |start: &str, bytes: u64| {
        let mut lines = table.lines().filter(|line| line.trim_start().starts_with(start));
        let bytes = human(bytes);
        let found = lines.find(|line| line.contains(&format!(" {bytes}")));
        let found = found.unwrap_or_else(|| panic!("no {start} with {bytes} in {table}"));
        assert!(found.contains('[') && found.contains(']'), "no bar: {found}");
        found
    };
    let whole = line(name, device.reserved_bytes);
    assert!(whole.contains('#'), "{whole}");
    assert!(whole.contains(&human(device.limit_bytes)), "{whole}");
    for bytes in [device.in_use_bytes, device.peak_in_use_bytes] {
        let use_line = table.lines().nth(1).unwrap_or_default();
        assert!(use_line.contains(&human(bytes)), "{bytes} in {use_line}");
    }
    assert_eq!(device.models.len(), 2);
    for model in &device.models {
        let name = format!("{}:{}", model.name, model.version);
        let shown = line(&name, model.bytes);
        assert!(shown.contains('#'), "{shown}");
        assert_eq!(shown.contains("of 8.0 MiB"), name == "digits:2", "{shown}");
        for (category, bytes) in &model.categories {
            line(category.name(), *bytes);
        }
    }
}

/// A number of bytes as the tables have it.
fn human(bytes: u64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let unit = units.iter().find(|(_, bits)| bytes >> bits > 0);
    match unit {
        None => format!("{bytes} B"),
        Some((unit, bits)) => format!("{:.1} {unit}", bytes as f64 / (1_u64 << bits) as f64),
    }
}

#[test]
fn a_logical_device_answers_while_another_of_the_same_gpu_is_busy() {
    let dir = tempfile::tempdir().unwrap();
    let busy = write_dense(&dir.path().join("busy"), 1, 256);
    // A row takes 2 × 256 × 256 operations, so that 512 rows take over half a minute.
    let rules = json!({"device": [{"name": "gpu:0", "lanes": 1,
        "simulation": {"compute_rate": "2MFLOPS"},
        "logical_device": [{"memory_limit": "24MiB"}, {"memory_limit": "24MiB"}]}]});
    let devices = write(dir.path(), "devices", &rules.to_string());
    let half = model("half_plus_two");
    let text = format!(
        "model_config_list {{
           config {{ name: 'busy' base_path: '{busy}' memory {{ devices: 'gpu:0' }} }}
           config {{ name: 'other' base_path: '{half}' memory {{ devices: 'gpu:1' }} }} }}"
    );
    let models = format!("--model_config_file={}", write(dir.path(), "models", &text));
    let devices = format!("--device_config_file={devices}");
    let server = start(&["--simulated_gpus=64MiB", &devices, &models], &[]);
    let row = format!("[{}]", vec!["1"; 256].join(","));
    let body = format!("{{\"instances\": [{}]}}", vec![row; 512].join(","));
    let is_answered = Arc::new(AtomicBool::new(false));
    let asked = {
        let (is_answered, port) = (Arc::clone(&is_answered), server.rest);
        thread::spawn(move || {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
            let length = body.len();
            let head = "POST /v1/models/busy:predict HTTP/1.1\r\nHost: localhost\r\n";
            write!(stream, "{head}Content-Length: {length}\r\n\r\n{body}").unwrap();
            // The first byte of an answer, or the end of the server.
            let n_read = stream.read(&mut [0]).unwrap_or(0);
            is_answered.store(n_read > 0, Ordering::Relaxed);
        })
    };
    let is_busy = |name: &str| {
        let page = SchedulerPage::get(&server);
        let mut lanes = page.lanes.iter();
        lanes.any(|lane| lane.device == name && lane.is_busy)
    };
    while !is_busy("gpu:0") {
        assert!(!asked.is_finished(), "it was never seen to be busy");
    }
    for _ in 0..3 {
        assert_eq!(predict(&server, "other").0, 200);
    }
    assert!(is_busy("gpu:0") && !is_answered.load(Ordering::Relaxed));
    // Nobody waits for the long run.
    drop(server);
    asked.join().unwrap();
    assert!(!is_answered.load(Ordering::Relaxed));
}
