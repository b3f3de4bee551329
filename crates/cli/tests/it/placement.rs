//! The places of models when models, their configs and devices change: read back from `/v1/memory`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use pages::{PlanEntry, PlanPage};
use serde_json::json;

use crate::memory::{device, model, predict, reload, start, write};
use crate::page::Page as _;
use crate::serving::ask_counter;
use crate::support::{Server, root, tensord};

/// A server with a GPU for each limit, and nothing on them but `half_plus_two`, which is on the
/// host.
fn server(limits: &[&str]) -> Server {
    let dir = tempfile::tempdir().unwrap();
    let rules: Vec<_> = limits
        .iter()
        .enumerate()
        .map(|(n, limit)| json!({"name": format!("gpu:{n}"), "memory_limit": limit}))
        .collect();
    let rules = json!({ "device": rules }).to_string();
    let devices = format!("--device_config_file={}", write(dir.path(), "devices", &rules));
    let text = format!("model_config_list {{ {} }}", config("host", "devices: \"cpu:0\""));
    let models = format!("--model_config_file={}", write(dir.path(), "models", &text));
    let gpus = format!("--simulated_gpus={}", vec!["128MiB"; limits.len()].join(","));
    start(&[&gpus, &devices, &models, "--max_num_load_retries=0"], &[])
}

fn config(name: &str, memory: &str) -> String {
    let base = model("half_plus_two");
    format!("config {{ name: \"{name}\" base_path: \"{base}\" memory {{ {memory} }} }}")
}

/// The models on each GPU, `a b | c`.
fn places(server: &Server, n_gpus: usize) -> String {
    let on = |n: usize| {
        let device = device(server, &format!("gpu:{n}"));
        let mut names: Vec<&str> = device.models.iter().map(|model| model.name.as_str()).collect();
        names.sort_unstable();
        names.join(" ")
    };
    (0..n_gpus).map(on).collect::<Vec<_>>().join(" | ")
}

/// Waits until the models are where they should be.
#[track_caller]
fn until(server: &Server, expected: &str) {
    let n_gpus = expected.split('|').count();
    crate::support::until(&format!("models are {expected}"), || places(server, n_gpus) == expected);
}

/// Asks a model again and again while `work` is done: all requests are answered.
fn while_asked(server: &Server, name: &str, work: impl FnOnce()) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let client = scope.spawn(|| {
            let mut n_answers = 0;
            while !is_over.load(Ordering::Relaxed) || n_answers == 0 {
                let (status, body) = predict(server, name);
                assert_eq!(status, 200, "{body}");
                n_answers += 1;
            }
        });
        work();
        is_over.store(true, Ordering::Relaxed);
        client.join().unwrap();
    });
}

#[test]
fn a_model_that_serves_moves_for_one_that_fits_nowhere_else() {
    let server = server(&["40MiB", "60MiB"]);
    let small = config("small", "reservation: \"16MiB\"");
    reload(&server, &small).unwrap();
    until(&server, " | small");
    let large = config("large", "reservation: \"50MiB\"");
    while_asked(&server, "small", || reload(&server, &format!("{small} {large}")).unwrap());
    until(&server, "small | large");
    assert_eq!(predict(&server, "small").0, 200);
    assert_eq!(predict(&server, "large").0, 200);
    let third = config("third", "reservation: \"30MiB\"");
    let refused = reload(&server, &format!("{small} {large} {third}")).unwrap_err();
    assert!(refused.contains("has no room"), "{refused}");
    until(&server, "small | large");
}

#[test]
fn a_lower_priority_gives_way_and_comes_back_when_there_is_room() {
    let server = server(&["40MiB"]);
    let low = config("low", "reservation: \"30MiB\" priority: 1");
    let equal = config("equal", "reservation: \"30MiB\" priority: 1");
    let high = config("high", "reservation: \"30MiB\" priority: 2");
    reload(&server, &low).unwrap();
    assert!(reload(&server, &format!("{low} {equal}")).is_err(), "equals do not give way");
    until(&server, "low");
    reload(&server, &format!("{low} {high}")).unwrap();
    until(&server, "high");
    let states = server.rest_until("/v1/models/low", "RESOURCE_EXHAUSTED");
    assert!(states.contains("has no room") || states.contains("gave way to high"), "{states}");
    assert_eq!(predict(&server, "high").0, 200);
    assert_ne!(predict(&server, "low").0, 200);
    reload(&server, &low).unwrap();
    until(&server, "low");
    server.rest_until("/v1/models/low", "AVAILABLE");
    assert_eq!(predict(&server, "low").0, 200);
}

#[test]
fn replicas_give_way_to_a_model_without_a_place_and_come_back() {
    let server = server(&["40MiB", "40MiB", "40MiB"]);
    let all = config("all", "reservation: \"20MiB\" replicas: \"all\"");
    reload(&server, &all).unwrap();
    until(&server, "all | all | all");
    let one = config("one", "reservation: \"30MiB\"");
    while_asked(&server, "all", || reload(&server, &format!("{all} {one}")).unwrap());
    until(&server, "one | all | all");
    while_asked(&server, "all", || {
        reload(&server, &all).unwrap();
        until(&server, "all | all | all");
    });
    let two = config("all", "reservation: \"20MiB\" replicas: \"2\"");
    reload(&server, &two).unwrap();
    until(&server, " | all | all");
}

#[test]
fn models_follow_their_devices_while_they_serve_but_not_those_with_a_state() {
    let server = server(&["40MiB", "40MiB"]);
    let folder = root().join("testdata/models/counter").to_string_lossy().into_owned();
    let list = |device: &str| {
        let pin = format!("devices: \"{device}\"");
        let counter =
            format!("config {{ name: \"counter\" base_path: \"{folder}\" memory {{ {pin} }} }}");
        format!("{} {counter}", config("m", &pin))
    };
    reload(&server, &list("gpu:0")).unwrap();
    until(&server, "counter m | ");
    ask_counter(&server, &["reset_counter", "incr_counter", "incr_counter"]);
    while_asked(&server, "m", || {
        reload(&server, &list("gpu:1")).unwrap();
        until(&server, "counter | m");
    });
    assert_eq!(ask_counter(&server, &["get_counter"]), 2.0, "it still counts");
}

#[test]
fn a_device_that_gets_room_gets_one_of_those_that_crowd_another() {
    let server = server(&["60MiB", "4MiB"]);
    let (a, b) = (config("a", "reservation: \"16MiB\""), config("b", "reservation: \"20MiB\""));
    reload(&server, &format!("{a} {b}")).unwrap();
    until(&server, "a b | ");
    let rules = json!({"device": [{"name": "gpu:0", "memory_limit": "60MiB"},
                                  {"name": "gpu:1", "memory_limit": "50MiB"}]});
    while_asked(&server, "b", || {
        let (status, body) = server.manage("PUT", "/v1/devices", &rules.to_string());
        assert_eq!(status, 200, "{body}");
        until(&server, "a | b");
    });
}

/// Returns whether all of some models fit on two GPUs of 60 MiB by `tensord plan`, and those that
/// it would refuse.
fn planned(models: &[String]) -> (bool, Vec<String>) {
    let dir = tempfile::tempdir().unwrap();
    let text = format!("model_config_list {{ {} }}", models.join(" "));
    let file = format!("--model_config_file={}", write(dir.path(), "models", &text));
    let limits = ["gpu:0", "gpu:1"].map(|name| json!({"name": name, "memory_limit": "60MiB"}));
    let rules = json!({ "device": limits }).to_string();
    let rules = format!("--device_config_file={}", write(dir.path(), "devices", &rules));
    let mut command = tensord();
    command.args(["plan", "--json", "--simulated_gpus=128MiB,128MiB", &file, &rules]);
    let report = PlanPage::of_command(&mut command);
    let all = report.models.iter().filter_map(PlanEntry::planned);
    let refused = all.filter(|model| model.refused.is_some());
    let names = refused.map(|model| model.name.clone());
    (report.fits, names.collect())
}

/// Models with reservations of so many MiB, and what else is said of each.
fn fleet(reservations: &[(u64, &str)]) -> Vec<String> {
    let one = |(number, (mib, more)): (usize, &(u64, &str))| {
        config(&format!("m{number}"), &format!("reservation: \"{mib}MiB\" {more}"))
    };
    reservations.iter().enumerate().map(one).collect()
}

/// Asserts that a plan and a server to which the models come in this order, and all at once, refuse
/// the same models.
#[track_caller]
fn check_fleet(reservations: &[(u64, &str)], refused: &[&str]) {
    let models = fleet(reservations);
    let plan = planned(&models);
    assert_eq!((plan.0, plan.1 == refused), (refused.is_empty(), true), "{plan:?} {models:?}");
    let server = server(&["60MiB", "60MiB"]);
    for n in 1..=models.len() {
        // Who is refused is asked below.
        drop(reload(&server, &models[..n].join(" ")));
    }
    served(&server, models.len(), refused);
}

/// Waits until all models but those that are refused are available.
#[track_caller]
fn served(server: &Server, n_models: usize, refused: &[&str]) {
    for number in 0..n_models {
        let name = format!("m{number}");
        let path = format!("/v1/models/{name}");
        if refused.contains(&&*name) {
            server.rest_until(&path, "RESOURCE_EXHAUSTED");
        } else {
            server.rest_until(&path, "AVAILABLE");
            let (status, body) = predict(server, &name);
            assert_eq!(status, 200, "{name}: {body}");
        }
    }
}

#[test]
fn a_fleet_that_the_plan_says_fits_is_served_in_whatever_order_it_comes() {
    check_fleet(&[(30, ""), (30, ""), (20, ""), (20, ""), (20, "")], &[]);
    check_fleet(&[(20, ""), (20, ""), (30, ""), (20, ""), (30, "")], &[]);
}

#[test]
fn a_plan_refuses_whom_the_server_refuses() {
    check_fleet(&[(30, ""), (30, ""), (30, ""), (20, ""), (20, "")], &["m4"]);
    check_fleet(&[(40, "priority: 1"), (30, ""), (30, "priority: 2"), (30, "")], &["m3"]);
    let pinned = "devices: \"gpu:1\"";
    check_fleet(&[(40, pinned), (40, pinned), (50, "replicas: \"all\"")], &["m1"]);
}

/// Fleets that may just fit, with pins and priorities, the same in every run.
#[test]
fn fleets_at_random_are_served_as_planned() {
    let mut state = 18u64;
    let mut below = |n: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % n
    };
    let mut n_refused = 0;
    for _ in 0..6 {
        let mut left = 130;
        let mut reservations = Vec::new();
        while left >= 10 && reservations.len() < 7 {
            let mib = (10 + 5 * below(8)).min(left);
            left -= mib;
            let more = match below(4) {
                0 => format!("devices: \"gpu:{}\"", below(2)),
                1 => format!("priority: {}", 1 + reservations.len()),
                _ => String::new(),
            };
            reservations.push((mib, more));
        }
        let reservations: Vec<(u64, &str)> =
            reservations.iter().map(|(mib, more)| (*mib, more.as_str())).collect();
        let (_, refused) = planned(&fleet(&reservations));
        n_refused += refused.len();
        let refused: Vec<&str> = refused.iter().map(String::as_str).collect();
        check_fleet(&reservations, &refused);
    }
    assert!(n_refused > 0, "every fleet fits");
}

#[test]
fn a_fleet_that_comes_all_at_once_is_served_as_planned() {
    let models = fleet(&[(30, ""), (30, ""), (20, ""), (20, ""), (20, "")]);
    let server = server(&["60MiB", "60MiB"]);
    while_asked(&server, "host", || {
        drop(reload(
            &server,
            &format!("{} {}", config("host", "devices: \"cpu:0\""), models.join(" ")),
        ));
    });
    served(&server, models.len(), &[]);
}
