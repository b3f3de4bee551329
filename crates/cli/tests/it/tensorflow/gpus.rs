//! GPUs that the NVIDIA driver knows, played by a library of our own: what is placed on them, what
//! workers see of them, and what the books say. TensorFlow itself finds no GPU here and computes on
//! the host.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use pages::{
    Categories, DevicesPage, EngineName, MemoryCategory, MemoryPage, PlanPage, WorkerEntry,
};

use super::{refused_at_once, with_tensorflow};
use crate::control::Files;
use crate::page::{Page as _, Shown as _, bytes_for, named};
use crate::support::{Server, check_half_plus_two, root, tensord, until_some};

const GIB: u64 = 1 << 30;

/// A machine with GPUs.
struct Machine {
    folder: tempfile::TempDir,
}

impl Machine {
    /// With GPUs of these sizes, of which nothing is used.
    fn new(gpus: &[u64]) -> Self {
        let machine = Self { folder: tempfile::tempdir().unwrap() };
        let source = root().join("crates/cli/tests/it/tensorflow/fake_nvml.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-o"]).arg(machine.path("nvml.so")).arg(source);
        assert!(compiler.status().unwrap().success());
        machine.write(gpus, &[]);
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Has processes hold memory: of which GPU, which process, how much.
    fn write(&self, gpus: &[u64], processes: &[(usize, u64, u64)]) {
        let mut text = String::new();
        for (number, total) in gpus.iter().enumerate() {
            let held = processes.iter().filter(|(gpu, ..)| *gpu == number);
            let used: u64 = held.map(|(_, _, bytes)| bytes).sum();
            writeln!(text, "gpu GPU-{number}{number}{number} {total} {used}").unwrap();
        }
        for (gpu, pid, bytes) in processes {
            writeln!(text, "process {gpu} {pid} {bytes}").unwrap();
        }
        fs::write(self.path("new"), text).unwrap();
        fs::rename(self.path("new"), self.path("gpus")).unwrap();
    }

    /// A program on this machine.
    fn on(&self, command: Command) -> Command {
        let mut command = with_tensorflow(command);
        command.env("TENSORD_NVML", self.path("nvml.so")).env("FAKE_NVML", self.path("gpus"));
        command.env_remove("CUDA_VISIBLE_DEVICES").env("TF_FORCE_GPU_ALLOW_GROWTH", "true");
        command
    }

    /// A flag with a config of models: their names and what is said of each beside.
    fn models(&self, models: &[(&str, &str)]) -> String {
        let mut text = String::from("model_config_list {\n");
        let base = root().join("models/half_plus_two");
        for (name, more) in models {
            let base = base.display();
            writeln!(text, "config {{ name: '{name}' base_path: '{base}' {more} }}").unwrap();
        }
        fs::write(self.path("models.config"), text + "}\n").unwrap();
        format!("--model_config_file={}", self.path("models.config").display())
    }
}

/// The worker of a model.
#[track_caller]
fn worker_of<'a>(page: &'a MemoryPage, model: &str) -> &'a WorkerEntry {
    let has = |worker: &&WorkerEntry| worker.models.iter().any(|one| one.name == model);
    let mut all = page.workers.iter();
    all.find(has).unwrap_or_else(|| panic!("no worker has {model}: {page:#?}"))
}

/// Looks at which GPUs a worker was told to see. Only root can: a worker hides its environment.
#[track_caller]
fn check_sees(worker: &WorkerEntry, expected: &str) {
    if !rustix::process::geteuid().is_root() {
        println!("the tests do not run as root: nobody sees the environment of a worker");
        return;
    }
    let environment = fs::read_to_string(format!("/proc/{}/environ", worker.pid.unwrap())).unwrap();
    // Its session config says whether it grows, and nothing has more to say than that.
    assert!(!environment.contains("TF_FORCE_GPU_ALLOW_GROWTH"), "{environment}");
    let mut all = environment.split('\0');
    let seen = all.find_map(|one| one.strip_prefix("CUDA_VISIBLE_DEVICES="));
    assert_eq!(seen, Some(expected));
}

/// Asks a model until its worker is on a device; no answer is missing meanwhile.
#[track_caller]
fn until_on(server: &Server, model: &str, device: &str) {
    let start = std::time::Instant::now();
    loop {
        check_half_plus_two(server, model);
        let workers = MemoryPage::get(server).workers;
        let has = |worker: &&WorkerEntry| worker.models.iter().any(|one| one.name == model);
        let on: Vec<&str> = workers.iter().filter(has).map(|worker| &*worker.device).collect();
        if on == [device] {
            return;
        }
        assert!(start.elapsed().as_secs() < 120, "{model} is on {on:?}, not on {device}");
    }
}

#[test]
fn a_model_in_a_worker_follows_its_devices_while_it_serves() {
    let machine = Machine::new(&[16 * GIB, 8 * GIB]);
    let on = |device: &str| format!("memory {{ devices: '{device}' }}");
    let write = |moves: &str| machine.models(&[("stays", &on("gpu:1")), ("moves", &on(moves))]);
    let models = write("gpu:1");
    let server = Server::start(machine.on(tensord()), &[&models, "--engine=tensorflow"]);
    until_on(&server, "moves", "gpu:1");
    for device in ["gpu:0", "cpu:0", "gpu:1"] {
        write(device);
        until_on(&server, "moves", device);
        until_on(&server, "stays", "gpu:1");
    }
    let page = MemoryPage::get(&server);
    check_sees(worker_of(&page, "moves"), "GPU-111");
    let gpu = named(&page.devices, "gpu:0");
    assert!(gpu.models.is_empty(), "{gpu:#?}");
}

#[test]
fn what_is_reserved_for_a_model_in_a_worker_is_promised_to_nobody_else() {
    // Of which 4.5 GiB are for TensorFlow.
    let machine = Machine::new(&[6 * GIB]);
    let some = "memory { limit: '3GiB' reservation: '2GiB' }";
    let models = machine.models(&[("one", some), ("two", some)]);
    let args = [models.as_str(), "--engine=tensorflow", "--max_num_load_retries=0"];
    let server = Server::start(machine.on(tensord()), &args);
    check_half_plus_two(&server, "one");
    check_half_plus_two(&server, "two");
    machine.models(&[("one", some), ("two", some), ("three", some)]);
    let states = server.rest_until("/v1/models/three", "END");
    assert!(states.contains("RESOURCE_EXHAUSTED") && states.contains("2147483648"), "{states}");
}

#[test]
fn a_model_that_no_worker_could_ever_hold_is_refused_at_once_with_the_reason() {
    let files = Files::new();
    let machine = Machine::new(&[6 * GIB]);
    fs::write(machine.path("devices"), "device { name: 'cpu:0' memory_limit: '64MiB' }").unwrap();
    let flags = [
        files.list(&["a"]),
        format!("--model_roots={}", files.path("models")),
        format!("--device_config_file={}", machine.path("devices").display()),
        "--engine=tensorflow,a=native".to_owned(),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let server = Server::start(machine.on(tensord()), &flags);
    let path = files.path("models/b");
    // More than the GPU has, which the placement knows; and a worker that is more than the host
    // may hold, which is known when it has started.
    let on_gpu = ", \"memory\": {\"limit\": \"9GiB\", \"reservation\": \"8GiB\"}";
    let answer = refused_at_once(&server, ("on_gpu", &path), on_gpu, 429);
    assert!(answer.contains("gpu:0 has no room"), "{answer}");
    let other = files.path("models/a");
    let on_host = ", \"memory\": {\"devices\": [\"cpu:0\"]}";
    let answer = refused_at_once(&server, ("on_host", &other), on_host, 429);
    assert!(answer.contains("cpu:0 has no room"), "{answer}");
}

/// The states of a model, as text.
fn states(server: &Server, model: &str) -> String {
    server.rest("GET", &format!("/v1/models/{model}"), "").1
}

#[test]
fn models_in_workers_give_way_to_those_of_a_higher_priority_and_come_back() {
    // Of which 4.5 GiB are for TensorFlow.
    let machine = Machine::new(&[6 * GIB]);
    let some = |priority: i32| {
        format!("memory {{ limit: '3GiB' reservation: '2GiB' priority: {priority} }}")
    };
    let (low, high) = (some(0), some(1));
    let models = machine.models(&[("one", &low), ("two", &low)]);
    let args = [models.as_str(), "--engine=tensorflow", "--max_num_load_retries=0"];
    let server = Server::start(machine.on(tensord()), &args);
    machine.models(&[("one", &low), ("two", &low), ("three", &high)]);
    server.rest_until("/v1/models/three", "AVAILABLE");
    check_half_plus_two(&server, "three");
    // It is tried again when it is gone, and refused.
    let stays = until_some("one of two goes", || {
        let is_gone = ["one", "two"].map(|one| states(&server, one).contains("RESOURCE_EXHAUSTED"));
        match is_gone {
            [true, false] => Some("two"),
            [false, true] => Some("one"),
            [true, true] | [false, false] => None,
        }
    });
    check_half_plus_two(&server, stays);
    // One of the same priority gets nothing of theirs.
    machine.models(&[("one", &low), ("two", &low), ("three", &high), ("four", &high)]);
    server.rest_until("/v1/models/four", "AVAILABLE");
    machine.models(&[("three", &high), ("four", &high), ("five", &high)]);
    let refused = server.rest_until("/v1/models/five", "END");
    assert!(refused.contains("RESOURCE_EXHAUSTED"), "{refused}");
    check_half_plus_two(&server, "three");
    check_half_plus_two(&server, "four");
    machine.models(&[("one", &low), ("four", &high)]);
    server.rest_until("/v1/models/one", "AVAILABLE");
    check_half_plus_two(&server, "one");
}

#[test]
fn a_model_in_a_worker_moves_to_make_room_and_gets_the_replicas_asked_for() {
    let machine = Machine::new(&[6 * GIB, 6 * GIB]);
    let some = "memory { limit: '3GiB' reservation: '2GiB' }";
    let models = machine.models(&[("moves", some)]);
    let server = Server::start(machine.on(tensord()), &[&models, "--engine=tensorflow"]);
    let memory = MemoryPage::get(&server);
    let first = worker_of(&memory, "moves").device.clone();
    let second = if first == "gpu:0" { "gpu:1" } else { "gpu:0" };
    let large = format!("memory {{ limit: '4GiB' reservation: '4GiB' devices: '{first}' }}");
    machine.models(&[("moves", some), ("large", &large)]);
    until_on(&server, "moves", second);
    server.rest_until("/v1/models/large", "AVAILABLE");
    until_on(&server, "large", &first);
    // More replicas, and fewer, while it serves.
    let devices = |n: usize| {
        let start = std::time::Instant::now();
        loop {
            check_half_plus_two(&server, "moves");
            let memory = MemoryPage::get(&server);
            let has = |worker: &&WorkerEntry| worker.models.iter().any(|one| one.name == "moves");
            let n_workers = memory.workers.iter().filter(has).count();
            if n_workers == n {
                return;
            }
            assert!(start.elapsed().as_secs() < 120, "{n_workers} workers, not {n}");
        }
    };
    let replicas =
        |n: &str| format!("memory {{ limit: '3GiB' reservation: '2GiB' replicas: {n} }}");
    for (text, n) in [("2", 2), ("1", 1), ("'all'", 2)] {
        machine.models(&[("moves", &replicas(text))]);
        devices(n);
    }
}

#[test]
fn on_the_host_a_worker_has_what_is_reserved_for_it_and_gives_way_like_others() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        fs::write(folder.path().join("new"), text).unwrap();
        fs::rename(folder.path().join("new"), folder.path().join(name)).unwrap();
        folder.path().join(name).display().to_string()
    };
    let base = root().join("models/half_plus_two");
    let list = |models: &[(&str, i32)]| {
        let one = |(name, priority): &(&str, i32)| {
            let memory = format!("memory {{ reservation: '1GiB' priority: {priority} }}");
            format!("config {{ name: '{name}' base_path: '{}' {memory} }} ", base.display())
        };
        let all: String = models.iter().map(one).collect();
        write("models", &format!("model_config_list {{ {all} }}"))
    };
    let models = format!("--model_config_file={}", list(&[("one", 0)]));
    let devices = write("devices", "device { name: 'cpu:0' memory_limit: '1500MiB' }");
    let devices = format!("--device_config_file={devices}");
    let args =
        [models.as_str(), &devices, "--engine=tensorflow,four=native", "--max_num_load_retries=0"];
    let server = Server::start(with_tensorflow(tensord()), &args);
    check_half_plus_two(&server, "one");
    let memory = MemoryPage::get(&server);
    let host = named(&memory.devices, "cpu:0");
    let one = named(&host.models, "one");
    assert_eq!(one.bytes, GIB, "{one:#?}");
    // What it has not taken is nobody else's, and what its worker has is booked once.
    let context = bytes_for(&one.categories, MemoryCategory::Context);
    assert!(context > 100 << 20, "{one:#?}");
    let reserve = GIB - 12 - context;
    let categories = Categories::from([
        (MemoryCategory::Weights, 12),
        (MemoryCategory::Context, context),
        (MemoryCategory::Reserve, reserve),
    ]);
    assert_eq!(one.categories, categories);
    assert_eq!(host.shared.bytes, 0);
    list(&[("one", 0), ("two", 0)]);
    let refused = server.rest_until("/v1/models/two", "END");
    assert!(refused.contains("RESOURCE_EXHAUSTED"), "{refused}");
    assert!(refused.contains("cpu:0 has no room: 1073741824 bytes are needed"), "{refused}");
    list(&[("one", 0), ("three", 1)]);
    server.rest_until("/v1/models/three", "AVAILABLE");
    check_half_plus_two(&server, "three");
    server.rest_until("/v1/models/one", "RESOURCE_EXHAUSTED");
    // One of our own engine is no other than they are.
    list(&[("three", 1), ("four", 2)]);
    server.rest_until("/v1/models/four", "AVAILABLE");
    check_half_plus_two(&server, "four");
    server.rest_until("/v1/models/three", "RESOURCE_EXHAUSTED");
    list(&[("four", 2), ("five", 2)]);
    let refused = server.rest_until("/v1/models/five", "END");
    assert!(refused.contains("held by four:123 1073741824"), "{refused}");
    list(&[("one", 0)]);
    server.rest_until("/v1/models/one", "AVAILABLE");
    check_half_plus_two(&server, "one");
}

#[test]
fn what_a_worker_held_is_free_for_the_next_when_its_model_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let base = root().join("models/half_plus_two");
    let list = |name: &str| {
        let memory = "memory { reservation: '1GiB' }";
        let one = format!("config {{ name: '{name}' base_path: '{}' {memory} }}", base.display());
        fs::write(path("new"), format!("model_config_list {{ {one} }}")).unwrap();
        fs::rename(path("new"), path("models")).unwrap();
    };
    list("a");
    // Room for one reservation and no worker besides.
    fs::write(path("devices"), "device { name: 'cpu:0' memory_limit: '1100MiB' }").unwrap();
    let models = format!("--model_config_file={}", path("models").display());
    let devices = format!("--device_config_file={}", path("devices").display());
    let args = [models.as_str(), &devices, "--engine=tensorflow", "--max_num_load_retries=0"];
    let server = Server::start(with_tensorflow(tensord()), &args);
    for name in ["b", "c", "d"] {
        list(name);
        server.rest_until(&format!("/v1/models/{name}"), "AVAILABLE");
        check_half_plus_two(&server, name);
    }
}

#[test]
fn on_the_host_beside_gpus_workers_and_our_own_engine_give_way_to_each_other() {
    let machine = Machine::new(&[6 * GIB]);
    fs::write(machine.path("devices"), "device { name: 'cpu:0' memory_limit: '1500MiB' }").unwrap();
    let devices = format!("--device_config_file={}", machine.path("devices").display());
    let some = |priority: i32| {
        format!("memory {{ devices: 'cpu:0' reservation: '1GiB' priority: {priority} }}")
    };
    let (low, middle, high) = (some(0), some(1), some(2));
    let models = machine.models(&[("low", &low)]);
    let engines = "--engine=tensorflow,own=native,more=native";
    let args = [models.as_str(), &devices, engines, "--max_num_load_retries=0"];
    let server = Server::start(machine.on(tensord()), &args);
    until_on(&server, "low", "cpu:0");
    // Those of the same priority do not.
    machine.models(&[("low", &low), ("more", &low)]);
    let refused = server.rest_until("/v1/models/more", "END");
    assert!(refused.contains("cpu:0 has no room: 1073741824 bytes are needed"), "{refused}");
    machine.models(&[("low", &low), ("own", &middle)]);
    server.rest_until("/v1/models/own", "AVAILABLE");
    check_half_plus_two(&server, "own");
    server.rest_until("/v1/models/low", "RESOURCE_EXHAUSTED");
    machine.models(&[("own", &middle), ("high", &high)]);
    server.rest_until("/v1/models/high", "AVAILABLE");
    until_on(&server, "high", "cpu:0");
    server.rest_until("/v1/models/own", "RESOURCE_EXHAUSTED");
    machine.models(&[("own", &middle)]);
    server.rest_until("/v1/models/own", "AVAILABLE");
    check_half_plus_two(&server, "own");
}

#[test]
fn a_model_goes_to_the_gpu_that_it_is_placed_on_and_is_booked_there() {
    let sizes = [16 * GIB, 8 * GIB];
    let machine = Machine::new(&sizes);
    let models = machine.models(&[
        ("one", "memory { devices: 'gpu:1' }"),
        ("two", "memory { devices: 'gpu:1' }"),
        ("own", "memory { devices: 'gpu:0' limit: '2GiB' }"),
        ("host", "memory { devices: 'cpu:0' }"),
    ]);
    let server = Server::start(machine.on(tensord()), &[&models]);
    ["one", "two", "own", "host"].iter().for_each(|model| check_half_plus_two(&server, model));
    let before = MemoryPage::get(&server);
    let (shared, own) = (worker_of(&before, "one"), worker_of(&before, "own"));
    assert_eq!(worker_of(&before, "two"), shared, "models on a GPU share its worker");
    assert_eq!((&*shared.device, &*own.device), ("gpu:1", "gpu:0"));
    check_sees(shared, "GPU-111");
    check_sees(own, "GPU-000");
    assert_eq!((shared.shared, own.shared), (true, false));
    assert_eq!(before.workers.len(), 2, "our own engine has the ops of the model on the host");
    // The driver says what each worker holds.
    let pid = |worker: &WorkerEntry| u64::from(worker.pid.unwrap());
    machine.write(&sizes, &[(1, pid(shared), GIB), (0, pid(own), 2 * GIB), (0, 1, 5 * GIB)]);
    let after = MemoryPage::get(&server);
    let (first, second) = (named(&after.devices, "gpu:0"), named(&after.devices, "gpu:1"));
    assert_eq!(first.reserved_bytes, 2 * GIB);
    assert_eq!(first.others_bytes, Some(5 * GIB));
    assert_eq!(named(&first.models, "own").bytes, 2 * GIB);
    let weights = bytes_for(&named(&second.models, "one").categories, MemoryCategory::Weights);
    assert!(weights > 0);
    assert_eq!(second.reserved_bytes, GIB);
    assert_eq!(second.shared.bytes, GIB - 2 * weights);
    assert_eq!(worker_of(&after, "own").gpu_memory[0].bytes, 2 * GIB);
    // What a worker costs a GPU is known from now on.
    assert_eq!(second.worker_bytes, Some(GIB - 2 * weights));
    check_devices(&server);
}

#[track_caller]
fn check_devices(server: &Server) {
    let devices = DevicesPage::get(server);
    let gpu = named(&devices.physical, "gpu:0");
    assert_eq!((&*gpu.driver, gpu.total_bytes), ("nvml", 16 * GIB));
    assert_eq!(gpu.uuid.as_deref(), Some("GPU-000"));
    assert_eq!(gpu.description.as_deref(), Some("Fake GPU"));
    assert_eq!(named(&devices.logical, "gpu:1").engine, Some(EngineName::TensorFlow));
    let rule = r#"{"device": [{"name": "gpu:1", "memory_limit": "3GiB"}]}"#;
    let (status, changed) = server.manage("PUT", "/v1/devices", rule);
    assert_eq!(status, 200, "{changed}");
    let changed = DevicesPage::read(&changed);
    assert_eq!(named(&changed.logical, "gpu:1").limit_bytes, 3 * GIB);
    assert_eq!(changed.warnings.len(), 0, "{changed:#?}");
    // A change that either kind of device refuses changes nothing.
    let before = DevicesPage::get(server).logical;
    for refused in [
        r#"{"device": [{"name": "cpu:0", "memory_limit": "8GiB"},
            {"name": "gpu:1", "memory_limit": "1"}]}"#,
        r#"{"device": [{"name": "gpu:1", "memory_limit": "2GiB"},
            {"name": "cpu:0", "memory_limit": "1"}]}"#,
        // Workers were told what they have.
        r#"{"device": [{"name": "gpu:1", "visible": false}]}"#,
        r#"{"device": [{"name": "gpu:0", "logical_device":
            [{"memory_limit": "1GiB"}, {"memory_limit": "1GiB"}]}]}"#,
    ] {
        let (status, body) = server.manage("PUT", "/v1/devices", refused);
        assert_eq!(status, 400, "{body}");
        assert_eq!(DevicesPage::get(server).logical, before, "{refused}");
    }
}

#[test]
fn a_gpu_without_room_refuses_a_model_and_says_what_is_needed() {
    let machine = Machine::new(&[7]);
    let mut command = machine.on(tensord());
    command.args(["--port=0", "--rest_api_port=0", "--max_num_load_retries=0"]);
    let output = command.arg(machine.models(&[("m", "")])).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{text}");
    assert!(text.contains("gpu:0 has no room: 12 bytes are needed"), "{text}");
    assert!(text.contains("7 are free; promised to nobody"), "{text}");
}

#[test]
fn the_flags_and_the_environment_say_which_gpus_there_are() {
    let machine = Machine::new(&[16 * GIB, 8 * GIB]);
    let devices = |variable: Option<&str>, flags: &[&str]| {
        let mut command = machine.on(tensord());
        if let Some(list) = variable {
            command.env("CUDA_VISIBLE_DEVICES", list);
        }
        let page = DevicesPage::of_command(command.arg("devices").args(flags));
        page.physical.into_iter().filter_map(|one| one.uuid).collect::<Vec<_>>()
    };
    assert_eq!(devices(None, &[]), ["GPU-000", "GPU-111"]);
    assert_eq!(devices(Some("1"), &[]), ["GPU-111"]);
    assert!(devices(Some(""), &[]).is_empty());
    assert!(devices(None, &["--simulated_gpus=1GiB"]).is_empty(), "GPUs are played instead");
}

#[test]
fn inspect_says_that_a_gpu_is_for_tensorflow() {
    let machine = Machine::new(&[16 * GIB]);
    let mut command = machine.on(tensord());
    let output = command.arg("inspect").arg(root().join("models/half_plus_two")).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let expected = "engine      tensorflow: it would be placed on gpu:0 (Fake GPU)";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn plan_says_what_a_model_and_its_worker_need() {
    let machine = Machine::new(&[16 * GIB]);
    let mut command = machine.on(tensord());
    let command = command.args(["plan", "--json"]).arg(machine.models(&[("m", "")]));
    let plan = PlanPage::of_command(command);
    let model = named(&plan.models, "m").planned().unwrap();
    assert_eq!((model.engine, &*model.devices[0]), (EngineName::TensorFlow, "gpu:0"));
    assert_eq!(model.weights_bytes, 12);
    assert!(model.worker.as_ref().unwrap().base_bytes > 100 << 20, "{plan:#?}");
    assert_eq!(named(&plan.devices, "gpu:0").engine, EngineName::TensorFlow);
}
