//! Batches, warm-up, requests that are given up, workers that are killed, and what the page says.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use pages::{MemoryCategory, MemoryPage, SchedulerPage, WorkerModelPhase, WorkerPhase};
use tensor::Tensor;

use super::{fallback, is_alive, predict, spec, until, with_tensorflow, workers};
use crate::page::{Shown as _, bytes_for};
use crate::support::{Server, check_half_plus_two, copy, half_plus_two, root, tensord};
use crate::versions::{WARMUP, record};

fn demo() -> String {
    root().join("models/half_plus_two").to_string_lossy().into_owned()
}

fn spin() -> String {
    fallback().join("spin").to_string_lossy().into_owned()
}

fn memory(server: &Server) -> MemoryPage {
    MemoryPage::get(server)
}

/// The batch is complete only with the last of them: each waits for the others.
#[test]
fn runs_are_merged_where_batching_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("parameters");
    let text = "max_batch_size { value: 4 } batch_timeout_micros { value: 3600000000 }";
    fs::write(&file, text).unwrap();
    let parameters = format!("--batching_parameters_file={}", file.display());
    let flags = ["--engine=tensorflow", "--enable_batching", &parameters, &demo()];
    let server = Server::start(with_tensorflow(tensord()), &flags);
    let ask = |rows: &str| {
        let body = format!("{{\"instances\": [{rows}]}}");
        server.rest("POST", "/v1/models/half_plus_two:predict", &body)
    };
    std::thread::scope(|scope| {
        let asked: Vec<_> = ["1.0", "2.0, 3.0", "4.0"]
            .map(|rows| scope.spawn(move || ask(rows)))
            .into_iter()
            .collect();
        let expected = ["[2.5", "[3.0, 3.5", "[4.0"];
        for (asked, expected) in asked.into_iter().zip(expected) {
            let (status, body) = asked.join().unwrap();
            assert_eq!((status, body.contains(expected)), (200, true), "{body}");
        }
    });
    let (status, body) = ask("1.0, 2.0, 3.0, 4.0, 5.0");
    assert_eq!(status, 400);
    assert!(body.contains("Task size 5 is larger than maximum input batch size 4"), "{body}");
    let page = SchedulerPage::get(&server);
    assert!(page.queues.iter().any(|queue| queue.is_batched), "{page:?}");
}

#[test]
fn a_version_is_warmed_up_in_its_worker() {
    let folder = tempfile::tempdir().unwrap();
    let version = folder.path().join("m/1");
    copy(&half_plus_two(), &version);
    fs::create_dir_all(version.join("assets.extra")).unwrap();
    fs::write(version.join(WARMUP), record("")).unwrap();
    let base = folder.path().join("m").to_string_lossy().into_owned();
    let server = Server::spawn(with_tensorflow(tensord()), &["--engine=tensorflow", &base]);
    assert!(server.logs("warmed up").contains("n_requests=1"));
    server.logs("Exporting HTTP/REST API at");
    check_half_plus_two(&server, "m");
}

#[test]
fn what_workers_hold_is_in_the_page_and_gone_with_them() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("--model_roots={}", folder.path().display());
    copy(&half_plus_two(), &folder.path().join("m/1"));
    let base = folder.path().join("m").to_string_lossy().into_owned();
    let limit = "--tensorflow_worker_memory_limit_mb=1";
    let flags = ["--engine=tensorflow", limit, &store, &base];
    let server = Server::start(with_tensorflow(tensord()), &flags);
    check_half_plus_two(&server, "m");
    let page = memory(&server);
    let worker = &page.workers[0];
    let (resident, base) = (worker.resident_bytes, worker.base_bytes);
    assert!(base > 100 << 20, "{page:#?}");
    assert_eq!((worker.over_limit, worker.state), (true, WorkerPhase::Up));
    let model = &worker.models[0];
    assert_eq!((&*model.name, model.state), ("m", WorkerModelPhase::Loaded));
    // On the host its variables are booked to the model, and the rest as shared.
    let host = &page.devices[0];
    assert_eq!(bytes_for(&host.models[0].categories, MemoryCategory::Weights), model.weights_bytes);
    let shared = host.shared.bytes;
    assert!(shared >= base && shared <= resident + (64 << 20), "{page:#?}");
    let total = model.weights_bytes + shared;
    assert!(host.reserved_bytes >= total);
    let (_, metrics) = server.rest("GET", "/metrics", "");
    assert!(metrics.contains("tensord_worker_memory_bytes{worker=\"shared\""), "{metrics}");
    let (status, answer) = server.manage("DELETE", "/v1/models/m", "");
    assert_eq!(status, 200, "{answer}");
    until("the worker is gone", || memory(&server).workers.is_empty());
    let page = memory(&server);
    assert_eq!(page.devices[0].shared.bytes, 0, "{page:#?}");
    until("its process is gone", || workers(server.id()).is_empty());
}

#[test]
fn a_worker_that_passes_its_limit_is_reported_and_started_anew_if_asked() {
    let limit = ["--tensorflow_worker_memory_limit_mb=1", "--tensorflow_worker_restart_over_limit"];
    let flags = ["--engine=tensorflow", limit[0], limit[1], &demo()];
    let server = Server::start(with_tensorflow(tensord()), &flags);
    let before = workers(server.id());
    // One that has run nothing would hold no less afterwards.
    check_half_plus_two(&server, "half_plus_two");
    until("it is reported", || memory(&server).workers[0].over_limit);
    server.logs("started anew");
    // Whoever asks meanwhile waits.
    check_half_plus_two(&server, "half_plus_two");
    assert!(before.iter().all(|pid| !is_alive(*pid)));
    assert_eq!(memory(&server).workers[0].restarts, 0, "it did not fail");
}

#[test]
fn the_self_test_passes_on_a_machine_without_a_gpu() {
    let output = with_tensorflow(tensord()).arg("selftest").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    for step in ["a model without settings", "a model with a limit", "memory comes back"] {
        assert!(said.contains(&format!("ok        {step}: ")), "{said}");
    }
    let output = with_tensorflow(tensord()).args(["selftest", "--json"]).output().unwrap();
    let page: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let steps = page["steps"].as_array().unwrap();
    assert!(steps.len() == 3 && steps.iter().all(|step| step["is_ok"] == true), "{page}");
}

#[test]
fn lines_of_a_worker_have_the_name_of_the_model_that_they_are_about() {
    let mut command = with_tensorflow(tensord());
    command.env("TF_CPP_MIN_LOG_LEVEL", "0");
    let server = Server::spawn(command, &["--engine=tensorflow", &spin()]);
    let line = server.logs("Reading SavedModel from");
    assert!(line.contains("worker=\"shared\"") && line.contains("model=\"spin\""), "{line}");
}

/// Requests meanwhile are answered, or told that the model is not available now.
#[test]
fn a_worker_may_be_killed_at_any_moment() {
    let server = Server::start(with_tensorflow(tensord()), &[&demo(), &spin()]);
    let has_ended = AtomicBool::new(false);
    let n_answers = std::thread::scope(|scope| {
        let ask = || {
            let mut n_answers = 0;
            while !has_ended.load(Ordering::Relaxed) {
                check_half_plus_two(&server, "half_plus_two");
                let n = Tensor::scalar(5i64).unwrap();
                match predict(&server, spec("spin", ""), &[("n", n)]) {
                    Ok(_) => n_answers += 1,
                    Err((code, text)) => assert_eq!(code, tonic::Code::Unavailable, "{text}"),
                }
            }
            n_answers
        };
        let asked = scope.spawn(ask);
        let mut last = 0;
        // As soon as it is there, and a little later each time: while it starts, while it loads the
        // library, while it loads the model.
        for round in 0..4u64 {
            let find = || workers(server.id()).into_iter().find(|pid| *pid != last);
            until("there is another worker", || find().is_some());
            last = find().unwrap();
            until("it has begun", || super::ticks(last) >= round * 10 || !is_alive(last));
            // It may have ended by itself, as one that cannot load does.
            let mut kill = std::process::Command::new("kill");
            drop(kill.args(["-KILL", &last.to_string()]).status());
        }
        until("it serves again", || {
            let n = Tensor::scalar(6i64).unwrap();
            predict(&server, spec("spin", ""), &[("n", n)]).is_ok()
        });
        has_ended.store(true, Ordering::Relaxed);
        asked.join().unwrap()
    });
    assert!(n_answers > 0);
    assert_eq!(memory(&server).workers[0].restarts, 4);
}
