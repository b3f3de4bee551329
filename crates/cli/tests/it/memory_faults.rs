//! Failures for want of memory: nothing is left behind afterwards.

use std::fs;
use std::time::Duration;

use pages::{
    Categories, DeviceKind, DeviceMemory, DevicesPage, MemoryCategory, MemoryPage, SchedulerPage,
};
use prost::Message as _;
use proto::tensorflow::SavedModel;
use serde_json::json;

use crate::memory::{device, model, predict, reload, start, write};
use crate::page::{Shown as _, bytes_for};
use crate::support::{Server, copy, until, until_some};

const GROWTH: [(&str, &str); 1] = [("TF_FORCE_GPU_ALLOW_GROWTH", "true")];

fn config(name: &str, base: &str) -> String {
    format!("config {{ name: \"{name}\" base_path: \"{}\" }}", model(base))
}

/// Lets the n-th allocation on the GPU from now on fail; with 0 none.
fn fail(server: &Server, n: u64) {
    fail_on(server, "gpu:0", n);
}

/// The same on any device.
fn fail_on(server: &Server, name: &str, n: u64) {
    let rule = json!({"name": name, "simulation": {"fail_allocation": n}});
    let (status, body) =
        server.manage("PUT", "/v1/devices", &json!({"device": [rule]}).to_string());
    assert_eq!(status, 200, "{body}");
}

/// Returns whether the allocation that was to fail has not come yet.
fn is_pending(server: &Server) -> bool {
    let devices = DevicesPage::get(server);
    devices.logical.iter().any(|device| device.fails_in.is_some())
}

/// The memory of a device that a test looks at.
#[derive(Debug, Clone, PartialEq)]
enum Held {
    /// Of a GPU all: in use, reserved, and by category.
    Gpu(u64, u64, Categories),
    /// Of the host what is in use, but for plans: they are made as they are needed, and kept.
    Host(u64),
}

impl Held {
    fn new(device: &DeviceMemory) -> Self {
        let in_use = device.in_use_bytes;
        match device.kind {
            DeviceKind::Gpu => Self::Gpu(in_use, device.reserved_bytes, device.categories.clone()),
            DeviceKind::Cpu => {
                Self::Host(in_use - bytes_for(&device.categories, MemoryCategory::Plans))
            }
        }
    }
}

/// Returns the memory that the GPUs hold, and that of the host in use, when all that nobody uses
/// was given back and one model is there.
fn settled(server: &Server) -> Vec<Held> {
    until_some("memory settles", || {
        server.manage("POST", "/v1/memory:trim", "");
        device(server, "cpu:0");
        let devices = MemoryPage::get(server).devices;
        // A version goes when its last handle is gone, and a lane's memory when its turn has ended.
        let has_none = |device: &DeviceMemory| device.workspaces.as_ref().unwrap().bytes == 0;
        let is_idle = devices.iter().all(has_none);
        let mut models = devices.iter().flat_map(|device| &device.models);
        if models.all(|model| model.name == "half_plus_two") && is_idle {
            return Some(devices.iter().map(Held::new).collect());
        }
        None
    })
}

/// The same once it stays so: what has answered lets go shortly after.
fn at_rest(server: &Server) -> Vec<Held> {
    let (mut last, mut n_same) = (settled(server), 0);
    while n_same < 20 {
        std::thread::sleep(Duration::from_millis(5));
        let now = settled(server);
        n_same = if now == last { n_same + 1 } else { 0 };
        last = now;
    }
    last
}

/// Asserts that devices hold again what they held; what has answered lets go shortly after.
#[track_caller]
fn settles(server: &Server, before: &[Held], what: &str) {
    for _ in 0..1000 {
        if settled(server) == *before {
            return;
        }
    }
    assert_eq!(settled(server), *before, "{what} left something behind");
}

/// Loads a model beside another, with each allocation on a device failing in turn; asserts that
/// only that load fails, and leaves nothing behind. Gives how many loads failed.
fn fail_each_of_a_load(gpus: &str, (base, memory): (&str, &str), on: &str) -> u64 {
    let gpus = format!("--simulated_gpus={gpus}");
    let server = start(&[&gpus, "--max_num_load_retries=0"], &GROWTH);
    let first = config("half_plus_two", "half_plus_two");
    let second = config("second", base).replace(" }", &format!(" {memory} }}"));
    let both = format!("{first} {second}");
    fail_on(&server, on, 0);
    assert_eq!(predict(&server, "half_plus_two").0, 200);
    let before = at_rest(&server);
    let (mut n, mut n_failed) = (1, 0);
    loop {
        fail_on(&server, on, n);
        let loaded = reload(&server, &both);
        if is_pending(&server) {
            assert!(loaded.is_ok(), "{loaded:?}");
            break;
        }
        // What could not be computed beforehand is left to the runs, and the load goes on.
        if let Err(text) = loaded {
            // Its state may be another by now: what is refused for want of memory is tried again.
            let is_refused = text.contains("due to error: RESOURCE_EXHAUSTED");
            assert!(is_refused, "{base} on {on}, allocation {n}: {text}");
            n_failed += 1;
        }
        assert_eq!(predict(&server, "half_plus_two").0, 200);
        reload(&server, &first).unwrap();
        settles(&server, &before, &format!("{base} on {on}, allocation {n}"));
        n += 1;
    }
    fail_on(&server, on, 0);
    reload(&server, &first).unwrap();
    settles(&server, &before, "all");
    n_failed
}

#[test]
fn every_allocation_of_a_load_fails_in_turn_and_leaves_nothing_behind() {
    let n_failed = fail_each_of_a_load("1GiB", ("digits", ""), "gpu:0");
    assert!(n_failed > 10, "a load has more than {n_failed} allocations");
    // What a model of numbers has of the host beside a GPU is little.
    fail_each_of_a_load("1GiB", ("digits", ""), "cpu:0");
    let n_failed = fail_each_of_a_load("", ("digits", ""), "cpu:0");
    assert!(n_failed > 10, "a load has more than {n_failed} allocations");
}

#[test]
fn every_allocation_of_strings_and_tables_fails_in_turn_and_leaves_nothing_behind() {
    for (gpus, on) in [("1GiB", "gpu:0"), ("1GiB", "cpu:0"), ("", "cpu:0")] {
        let n_failed = fail_each_of_a_load(gpus, ("sentiment", ""), on);
        assert!(n_failed > 0, "a load has allocations on {on}");
    }
}

#[test]
fn every_allocation_of_a_load_with_a_reservation_fails_in_turn_and_leaves_nothing_behind() {
    for (gpus, on) in [("1GiB", "gpu:0"), ("1GiB", "cpu:0"), ("", "cpu:0")] {
        for memory in ["reservation: \"32MiB\"", "reservation: \"2MiB\" limit: \"32MiB\""] {
            let memory = format!("memory {{ {memory} }}");
            let n_failed = fail_each_of_a_load(gpus, ("sentiment", &memory), on);
            assert!(n_failed > 0, "a load has allocations on {on}");
        }
    }
}

#[test]
fn every_allocation_of_replicas_fails_in_turn_and_leaves_nothing_behind() {
    for on in ["gpu:0", "gpu:1", "cpu:0"] {
        let all = ("digits", "memory { replicas: \"all\" }");
        let n_failed = fail_each_of_a_load("1GiB,1GiB", all, on);
        assert!(n_failed > 10 || on == "cpu:0", "{n_failed} loads failed on {on}");
    }
}

#[test]
fn every_allocation_of_a_request_fails_in_turn_and_only_that_request() {
    let server = start(&["--simulated_gpus=1GiB"], &GROWTH);
    fail(&server, 0);
    assert_eq!(predict(&server, "half_plus_two").0, 200);
    let before = at_rest(&server);
    let mut n = 1;
    loop {
        fail(&server, n);
        let (status, body) = predict(&server, "half_plus_two");
        if is_pending(&server) {
            assert_eq!(status, 200, "{body}");
            break;
        }
        assert_eq!(status, 429, "allocation {n}: {body}");
        assert!(body.contains("injected failure"), "{body}");
        assert_eq!(predict(&server, "half_plus_two").0, 200);
        settles(&server, &before, &format!("allocation {n}"));
        n += 1;
    }
    assert!(n > 1, "a request allocates something");
}

#[test]
fn models_that_come_and_go_leave_nothing_behind() {
    let server = start(&["--simulated_gpus=1GiB"], &GROWTH);
    let first = config("half_plus_two", "half_plus_two");
    let names = ["digits", "half_plus_two_tf2", "sentiment", "clicks"];
    let all: Vec<String> = names.iter().map(|name| config(name, name)).collect();
    let all = format!("{first} {}", all.join(" "));
    assert_eq!(predict(&server, "half_plus_two").0, 200);
    let before = at_rest(&server);
    let resident = || MemoryPage::get(&server).resident_bytes.unwrap();
    let mut resident_before = 0;
    const N_CYCLES: usize = 40;
    for cycle in 0..N_CYCLES {
        reload(&server, &all).unwrap();
        assert_eq!(predict(&server, "half_plus_two_tf2").0, 200);
        reload(&server, &first).unwrap();
        settles(&server, &before, &format!("cycle {cycle}"));
        if cycle == N_CYCLES / 2 {
            resident_before = resident();
        }
    }
    let grown = resident().saturating_sub(resident_before);
    assert!(grown * 20 < resident_before, "{grown} bytes more than {resident_before} are resident");
}

/// Four requests at once, which are one batch: it leaves when it is full.
fn ask_together(server: &Server) -> Vec<(u16, String)> {
    std::thread::scope(|scope| {
        let ask = |_| {
            scope.spawn(|| {
                let body = r#"{"instances": [2.0]}"#;
                server.rest("POST", "/v1/models/half_plus_two:predict", body)
            })
        };
        let all: Vec<_> = (0..4).map(ask).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    })
}

#[test]
fn every_allocation_of_a_batch_fails_in_turn_and_all_of_its_requests_are_answered() {
    let dir = tempfile::tempdir().unwrap();
    let text = "max_batch_size { value: 4 } batch_timeout_micros { value: 10000000 }";
    let file = format!("--batching_parameters_file={}", write(dir.path(), "batching", text));
    let server = start(&["--simulated_gpus=1GiB", "--enable_batching", &file], &GROWTH);
    fail(&server, 0);
    ask_together(&server);
    let before = at_rest(&server);
    let batches = || -> u64 {
        let queues = SchedulerPage::get(&server).queues;
        queues.iter().map(|queue| queue.batches.run).sum()
    };
    let mut n = 1;
    loop {
        fail(&server, n);
        let answers = ask_together(&server);
        let is_over = is_pending(&server);
        for (status, body) in answers {
            // The batch is split, and each request tried once more.
            assert_eq!(status, 200, "allocation {n}: {body}");
            assert!(body.contains("3.0"), "{body}");
        }
        if is_over {
            break;
        }
        settles(&server, &before, &format!("allocation {n}"));
        n += 1;
    }
    assert!(n > 1, "a batch allocates something");
    fail(&server, 0);
    let run = batches();
    ask_together(&server);
    assert_eq!(batches(), run + 1, "four requests are one batch");
}

/// Waits until requests have let go of their memory, and the host holds the same as `before`.
#[track_caller]
fn host_settles(server: &Server, before: u64, what: &str) {
    let used = || device(server, "cpu:0").in_use_bytes;
    until(&format!("{what} leaves nothing behind"), || {
        server.manage("POST", "/v1/memory:trim", "");
        used() == before
    });
}

#[test]
fn every_allocation_on_the_host_fails_in_turn_and_only_that_request() {
    let half = config("half_plus_two", "half_plus_two");
    let server = start(&[], &[]);
    reload(&server, &format!("{half} {}", config("sentiment", "sentiment"))).unwrap();
    let large = vec!["1.0"; 20_000].join(",");
    let asks = [
        ("half_plus_two", format!("{{\"instances\": [{large}]}}")),
        ("sentiment", r#"{"instances": ["what a lovely film", "", "I was bored"]}"#.to_owned()),
    ];
    for (model, body) in asks {
        let ask = || server.rest("POST", &format!("/v1/models/{model}:predict"), &body);
        assert_eq!(ask().0, 200);
        server.manage("POST", "/v1/memory:trim", "");
        while device(&server, "cpu:0").workspaces.unwrap().bytes != 0 {
            server.manage("POST", "/v1/memory:trim", "");
        }
        let before = device(&server, "cpu:0").in_use_bytes;
        let expected = ask().1;
        let (mut n, mut n_failed) = (1, 0);
        loop {
            fail_on(&server, "cpu:0", n);
            let (status, answer) = ask();
            let is_over = is_pending(&server);
            match status {
                // Room that is asked for beforehand can be done without.
                200 => assert_eq!(answer, expected),
                _ => {
                    assert_eq!(status, 429, "{model}, allocation {n}: {answer}");
                    assert!(answer.contains("injected failure"), "{answer}");
                    n_failed += 1;
                }
            }
            if is_over {
                assert_eq!(status, 200, "{answer}");
                break;
            }
            assert_eq!(ask().1, expected);
            host_settles(&server, before, &format!("{model}, allocation {n}"));
            n += 1;
        }
        fail_on(&server, "cpu:0", 0);
        assert!(n_failed > 1, "a request to {model} allocates something");
    }
}

#[test]
fn a_model_exported_for_eight_gpus_serves_on_one_or_none() {
    // One without functions and one that is all functions; devices as `tf.device` takes them.
    let cases = [
        ("half_plus_two", "/job:localhost/replica:0/task:0/device:GPU:7"),
        ("half_plus_two_tf2", "/job:worker/replica:3/task:2/device:GPU:1"),
        ("half_plus_two_tf2", "/GPU:7"),
        ("half_plus_two", "/gpu:2"),
        ("half_plus_two_tf2", "/device:TPU:0"),
    ];
    let dir = tempfile::tempdir().unwrap();
    let mut configs = Vec::new();
    for (number, (base, device)) in cases.into_iter().enumerate() {
        let to = dir.path().join(format!("m{number}"));
        copy(std::path::Path::new(&model(base)), &to);
        let n_placed: usize = versions(&to).iter().map(|path| place(path, device)).sum();
        assert!(n_placed > 2, "{base} has nodes");
        configs.push(format!("config {{ name: \"m{number}\" base_path: \"{}\" }}", to.display()));
    }
    let text = format!("model_config_list {{ {} }}", configs.join(" "));
    let file = format!("--model_config_file={}", write(dir.path(), "models", &text));
    for (gpus, expected) in [("", "cpu:0"), ("1GiB", "gpu:0")] {
        let gpus = format!("--simulated_gpus={gpus}");
        let server = start(&[&file, &gpus], &GROWTH);
        let on = device(&server, expected).models;
        for number in 0..cases.len() {
            let name = format!("m{number}");
            let (status, body) = predict(&server, &name);
            assert_eq!(status, 200, "{body}");
            assert!(body.contains("2.5") && body.contains("4.5"), "{body}");
            assert!(on.iter().any(|model| model.name == name), "{name} on {expected}");
        }
    }
}

/// The files of a model's versions.
fn versions(base: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(base).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|version| version.join("saved_model.pb")).filter(|path| path.is_file()).collect()
}

/// Has every node of a model's graph and functions on a device; how many there are.
fn place(path: &std::path::Path, device: &str) -> usize {
    let mut saved = SavedModel::decode(&*fs::read(path).unwrap()).unwrap();
    let mut n_nodes = 0;
    for meta in &mut saved.meta_graphs {
        let graph = meta.graph_def.as_mut().unwrap();
        let functions = graph.library.iter_mut().flat_map(|library| &mut library.function);
        let nodes = functions.flat_map(|function| &mut function.node_def).chain(&mut graph.node);
        for node in nodes {
            node.device = device.to_owned();
            n_nodes += 1;
        }
    }
    fs::write(path, saved.encode_to_vec()).unwrap();
    n_nodes
}
