//! Requests and models that are made to take memory: a server whose host is limited holds no more
//! than its limit and a little, answers each of them, and serves the next request.
//!
//! A case is a function in [`CASES`]. Each is given the same server, one after another, and the
//! most memory that the server and its workers ever held is looked at behind each.

mod messages;
mod models;
mod wire;

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::memory::{MIB, predict, write};
use crate::support::{Server, check_half_plus_two, root, tensord, until};
use crate::tensorflow::{with_tensorflow, workers};

/// The bytes that the host may hold, and that the program may take besides.
const LIMIT_BYTES: u64 = 1024 * MIB;
const SPARE_BYTES: u64 = 128 * MIB;

/// A server that has more than this is ended, so that a test that fails harms nobody.
const FATAL_BYTES: u64 = 3 * LIMIT_BYTES;

/// A name, and what is done to the server: it asserts what comes back.
type Case = (&'static str, fn(&Server));

/// All cases. What is added here is held to the limit with the others.
const CASES: &[Case] = &[
    ("one string for millions on an input of floats", messages::repeated_string_as_float),
    ("one string for millions", messages::repeated_string),
    ("one number for hundreds of millions", messages::repeated_number),
    ("entries of a map", messages::entries),
    ("entries of a map behind an unknown group", messages::entries_behind_a_group),
    ("empty strings", messages::empty_strings),
    ("empty strings in a packed message", messages::packed_strings),
    ("dimensions", messages::dimensions),
    ("numbers of a byte each", messages::narrow_numbers),
    ("a context for every example", messages::repeated_context),
    ("features", messages::features),
    ("a list of models", messages::list_of_models),
    ("smaller answers that nobody reads over gRPC", messages::smaller_unread_answers),
    ("messages that never end", messages::unfinished_messages),
    ("heads without messages", messages::heads_without_messages),
    ("empty lists in JSON", wire::empty_lists),
    ("many small rows in JSON", wire::small_rows),
    ("numbers in JSON", wire::numbers),
    ("examples in JSON", wire::examples),
    ("a body that unfolds", wire::unfolding_body),
    ("bodies that never end", wire::unfinished_bodies),
    ("answers that nobody reads over REST", wire::unread_answers),
    ("errors about long names that nobody reads", wire::long_names),
    ("large heads that never end", wire::large_heads),
];

/// Cases for our engine alone: answers so large that none fits beside TensorFlow, many large runs
/// at once, and models that are hostile themselves, since TensorFlow's own allocations are in no
/// books of ours.
const NATIVE: &[Case] = &[
    ("numbers of many clients that each fit", messages::numbers_at_once),
    ("strings of many clients that each fit", messages::strings_at_once),
    ("answers that nobody reads over gRPC", messages::unread_answers),
    ("graphs that ask for giant results", models::giant_results),
    ("a constant of giant size", models::giant_constant),
];

/// The settings of a server whose host is limited, and that serves these models.
struct Setup {
    _dir: tempfile::TempDir,
    flags: [String; 2],
}

impl Setup {
    fn new(models: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let devices = write(
            dir.path(),
            "devices",
            &format!("device {{ name: \"cpu:0\" memory_limit: \"{LIMIT_BYTES}\" }}"),
        );
        let listed = models.iter().map(|(name, folder)| {
            let path = root().join(folder);
            format!("config {{ name: \"{name}\" base_path: \"{}\" }}", path.display())
        });
        let listed: Vec<String> = listed.collect();
        let models =
            write(dir.path(), "models", &format!("model_config_list {{ {} }}", listed.join(" ")));
        let flags =
            [format!("--model_config_file={models}"), format!("--device_config_file={devices}")];
        Self { _dir: dir, flags }
    }

    fn start(&self, command: Command, engine: &str) -> Server {
        let [models, devices] = &self.flags;
        // A loop that takes long is stopped.
        let timeout = "--rest_api_timeout_in_ms=10000";
        Server::start(command, &[models, devices, engine, timeout])
    }
}

#[test]
fn a_limited_server_stays_within_its_limit_whatever_it_is_sent() {
    let setup = Setup::new(&[
        ("half_plus_two", "models/half_plus_two"),
        ("sentiment", "models/sentiment"),
        ("giants", "testdata/hostile/giants"),
        ("giant_const", "testdata/hostile/giant_const"),
    ]);
    let server = setup.start(tensord(), "--engine=native");
    let guard = Guard::new(server.id(), FATAL_BYTES);
    check_half_plus_two(&server, "half_plus_two");
    let mut before = most_bytes(server.id());
    println!("{:>6} MiB before the first", before / MIB);
    for (name, attack) in CASES.iter().chain(NATIVE) {
        attack(&server);
        recovers(&server);
        let most = most_bytes(server.id());
        println!("{:>6} MiB behind: {name}", most / MIB);
        assert!(!guard.has_ended(), "{name}: the server was ended");
        assert!(
            most <= LIMIT_BYTES + SPARE_BYTES,
            "{name}: {most} bytes, {before} before, at a limit of {LIMIT_BYTES}"
        );
        before = most;
    }
}

/// The same requests to models in TensorFlow's workers. Memory that the server and a worker share
/// counts once, and what a worker holds before the first request not at all.
#[test]
fn a_limited_server_and_its_workers_stay_within_the_limit_whatever_they_are_sent() {
    let setup =
        Setup::new(&[("half_plus_two", "models/half_plus_two"), ("sentiment", "models/sentiment")]);
    let server = setup.start(with_tensorflow(tensord()), "--engine=tensorflow");
    check_half_plus_two(&server, "half_plus_two");
    let sentiment = r#"{"instances": ["good"]}"#;
    let (status, body) = server.rest("POST", "/v1/models/sentiment:predict", sentiment);
    assert_eq!(status, 200, "{body}");
    let idle: u64 = workers(server.id()).into_iter().map(shared_bytes).sum();
    assert!(idle > 50 * MIB, "TensorFlow is in a worker: {idle} bytes");
    println!("{:>6} MiB of idle workers", idle / MIB);
    let guard = Guard::new(server.id(), FATAL_BYTES + idle);
    for (name, attack) in CASES {
        attack(&server);
        recovers(&server);
        let most = guard.most_bytes().saturating_sub(idle);
        println!("{:>6} MiB behind: {name}", most / MIB);
        assert!(!guard.has_ended(), "{name}: the server was ended");
        assert!(
            most <= LIMIT_BYTES + SPARE_BYTES,
            "{name}: {most} bytes and {idle} idle, at a limit of {LIMIT_BYTES}"
        );
    }
}

#[test]
fn a_worker_that_passes_the_limit_of_the_host_by_itself_is_ended_and_serves_again() {
    let setup = Setup::new(&[("giants", "testdata/hostile/giants")]);
    let server = setup.start(with_tensorflow(tensord()), "--engine=tensorflow");
    let fill = |size: u64| {
        let body = format!("{{\"signature_name\": \"fill\", \"inputs\": {size}}}");
        server.rest("POST", "/v1/models/giants:predict", &body)
    };
    assert_eq!(fill(3).0, 200);
    // 5 GB of strings at a limit of one.
    let (status, text) = fill(5_000_000);
    assert!(status == 503 && text.contains("bytes of at most"), "{status} {text}");
    until("it is started again", || fill(3).0 == 200);
}

/// The next request is answered as soon as what the last ones held is gone.
#[track_caller]
fn recovers(server: &Server) {
    until("what was refused is let go", || predict(server, "half_plus_two").0 != 429);
    check_half_plus_two(server, "half_plus_two");
}

/// The most memory that a process and its children ever held.
fn most_bytes(id: u32) -> u64 {
    let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
    let children = children.unwrap_or_default();
    let children = children.split_whitespace().filter_map(|id| id.parse().ok());
    status(id, "VmHWM:") + children.map(most_bytes).sum::<u64>()
}

/// A number of bytes in the status of a process.
fn status(id: u32, key: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    bytes_of(&text, key)
}

/// A number of bytes in a text of the kernel, which has it in KiB.
fn bytes_of(text: &str, key: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// The bytes that a process holds now; those that it shares with others in equal parts.
fn shared_bytes(id: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{id}/smaps_rollup")).unwrap_or_default();
    bytes_of(&text, "Pss:")
}

/// Looks at what a server and its workers hold, and ends the server if it is far too much, until it
/// is dropped.
struct Guard {
    is_over: Arc<AtomicBool>,
    has_ended: Arc<AtomicBool>,
    most: Arc<AtomicU64>,
}

impl Guard {
    fn new(id: u32, fatal_bytes: u64) -> Self {
        let guard =
            Self { is_over: Arc::default(), has_ended: Arc::default(), most: Arc::default() };
        let (is_over, has_ended) = (Arc::clone(&guard.is_over), Arc::clone(&guard.has_ended));
        let most = Arc::clone(&guard.most);
        std::thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                let all = std::iter::once(id).chain(workers(id));
                let bytes = all.map(shared_bytes).sum();
                most.fetch_max(bytes, Ordering::Relaxed);
                if bytes > fatal_bytes {
                    has_ended.store(true, Ordering::Relaxed);
                    let mut kill = Command::new("kill");
                    drop(kill.arg("-9").arg(id.to_string()).status());
                    return;
                }
                // Often enough: it takes a second to touch as much again.
                std::thread::park_timeout(std::time::Duration::from_millis(20));
            }
        });
        guard
    }

    fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }

    /// The most that was seen.
    fn most_bytes(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}
