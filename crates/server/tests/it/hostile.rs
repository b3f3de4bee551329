//! Requests and models that are made to take memory: a server whose host is limited holds no more
//! than its limit and a little, answers each of them, and serves the next request.
//!
//! A case is a function in [`CASES`]. Each is given the same server, one after another, and the
//! most memory that the server and its workers ever held is looked at behind each.

mod messages;
mod models;
mod wire;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::memory::{MIB, predict, write};
use crate::support::{Server, check_half_plus_two, root, tensord};

/// What the host may hold, and what the program may take besides.
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
    ("answers that nobody reads over gRPC", messages::unread_answers),
    ("messages that never end", messages::unfinished_messages),
    ("empty lists in JSON", wire::empty_lists),
    ("many small rows in JSON", wire::small_rows),
    ("numbers in JSON", wire::numbers),
    ("examples in JSON", wire::examples),
    ("a body that unfolds", wire::unfolding_body),
    ("bodies that never end", wire::unfinished_bodies),
    ("answers that nobody reads over REST", wire::unread_answers),
    ("graphs that ask for giant results", models::giant_results),
    ("a constant of giant size", models::giant_constant),
];

#[test]
fn a_limited_server_stays_within_its_limit_whatever_it_is_sent() {
    let dir = tempfile::tempdir().unwrap();
    let devices = write(
        dir.path(),
        "devices",
        &format!("device {{ name: \"cpu:0\" memory_limit: \"{LIMIT_BYTES}\" }}"),
    );
    let listed = |name: &str, folder: &str| {
        let path = root().join(folder);
        format!("config {{ name: \"{name}\" base_path: \"{}\" }}", path.display())
    };
    let models = [
        listed("half_plus_two", "models/half_plus_two"),
        listed("sentiment", "models/sentiment"),
        listed("giants", "testdata/hostile/giants"),
        listed("giant_const", "testdata/hostile/giant_const"),
    ];
    let models =
        write(dir.path(), "models", &format!("model_config_list {{ {} }}", models.join(" ")));
    let server = Server::start(
        tensord(),
        &[
            &format!("--model_config_file={models}"),
            &format!("--device_config_file={devices}"),
            "--engine=native",
            // A loop that takes long is stopped.
            "--rest_api_timeout_in_ms=10000",
        ],
    );
    let guard = Guard::new(server.id());
    check_half_plus_two(&server, "half_plus_two");
    let mut before = most_bytes(server.id());
    println!("{:>6} MiB before the first", before / MIB);
    for (name, attack) in CASES {
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

/// The next request is answered as soon as what the last ones held is gone.
#[track_caller]
fn recovers(server: &Server) {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while predict(server, "half_plus_two").0 == 429 {
        assert!(std::time::Instant::now() < end, "what was refused is still held");
        std::thread::yield_now();
    }
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
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Ends a process that takes far too much, until it is dropped.
struct Guard {
    is_over: Arc<AtomicBool>,
    has_ended: Arc<AtomicBool>,
}

impl Guard {
    fn new(id: u32) -> Self {
        let guard = Self { is_over: Arc::default(), has_ended: Arc::default() };
        let (is_over, has_ended) = (Arc::clone(&guard.is_over), Arc::clone(&guard.has_ended));
        std::thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                if status(id, "VmRSS:") > FATAL_BYTES {
                    has_ended.store(true, Ordering::Relaxed);
                    let mut kill = std::process::Command::new("kill");
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
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}
