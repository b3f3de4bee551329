//! What happens when memory is out, and what is left behind afterwards: nothing.

use std::fs;

use prost::Message as _;
use proto::tensorflow::SavedModel;
use serde_json::{Value, json};

use crate::memory::{device, get, model, predict, reload, start, write};
use crate::support::{Server, copy};

const GROWTH: [(&str, &str); 1] = [("TF_FORCE_GPU_ALLOW_GROWTH", "true")];

fn config(name: &str, base: &str) -> String {
    format!("config {{ name: \"{name}\" base_path: \"{}\" }}", model(base))
}

/// Lets the n-th allocation on the GPU from now on fail; with 0 none.
fn fail(server: &Server, n: u64) {
    let rule = json!({"name": "gpu:0", "simulation": {"fail_allocation": n}});
    let (status, body) = server.rest("PUT", "/v1/devices", &json!({"device": [rule]}).to_string());
    assert_eq!(status, 200, "{body}");
}

/// Whether the allocation that was to fail has not come yet.
fn is_pending(server: &Server) -> bool {
    let devices = get(server, "/v1/devices");
    let logical = devices["logical"].as_array().unwrap();
    logical.iter().any(|device| device["fails_in"].as_u64().is_some())
}

/// What the GPU holds when all that nobody uses was given back and one model is there.
fn settled(server: &Server) -> Value {
    loop {
        server.rest("POST", "/v1/memory:trim", "");
        let gpu = device(server, "gpu:0");
        // A version goes when its last handle is gone, and a lane's memory when its turn has ended.
        let is_idle = gpu["workspaces"]["bytes"] == 0;
        if gpu["models"].as_array().unwrap().len() == 1 && is_idle {
            return json!([gpu["in_use_bytes"], gpu["reserved_bytes"], gpu["categories"]]);
        }
        std::thread::yield_now();
    }
}

/// Asserts that the GPU holds again what it held; what has answered lets go shortly after.
#[track_caller]
fn settles(server: &Server, before: &Value, what: &str) {
    for _ in 0..1000 {
        if settled(server) == *before {
            return;
        }
    }
    assert_eq!(settled(server), *before, "{what} left something behind");
}

#[test]
fn every_allocation_of_a_load_fails_in_turn_and_leaves_nothing_behind() {
    let server = start(&["--simulated_gpus=1GiB", "--max_num_load_retries=0"], &GROWTH);
    let first = config("half_plus_two", "half_plus_two");
    let both = format!("{first} {}", config("digits", "digits"));
    fail(&server, 0);
    assert_eq!(predict(&server, "half_plus_two").0, 200);
    let before = settled(&server);
    let (mut n, mut n_failed) = (1, 0);
    loop {
        fail(&server, n);
        let loaded = reload(&server, &both);
        if is_pending(&server) {
            assert!(loaded.is_ok(), "{loaded:?}");
            break;
        }
        // What could not be computed beforehand is left to the runs, and the load goes on.
        n_failed += u64::from(loaded.is_err());
        let (_, states) = server.rest("GET", "/v1/models/digits", "");
        let is_refused = states.contains("RESOURCE_EXHAUSTED");
        assert_eq!(loaded.is_err(), is_refused, "allocation {n}: {states}");
        assert_eq!(predict(&server, "half_plus_two").0, 200);
        reload(&server, &first).unwrap();
        settles(&server, &before, &format!("allocation {n}"));
        n += 1;
    }
    fail(&server, 0);
    assert!(n_failed > 10, "a load has more than {n_failed} allocations");
    reload(&server, &first).unwrap();
    settles(&server, &before, "all");
}

#[test]
fn every_allocation_of_a_request_fails_in_turn_and_only_that_request() {
    let server = start(&["--simulated_gpus=1GiB"], &GROWTH);
    fail(&server, 0);
    assert_eq!(predict(&server, "half_plus_two").0, 200);
    let before = settled(&server);
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
    let before = settled(&server);
    let resident = || get(&server, "/v1/memory")["resident_bytes"].as_u64().unwrap();
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
    assert!(grown * 6 < resident_before, "{grown} bytes more than {resident_before} are resident");
}

#[test]
fn a_model_exported_for_eight_gpus_serves_on_one_or_none() {
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("m/1");
    copy(&crate::support::half_plus_two(), &to);
    let path = to.join("saved_model.pb");
    let mut saved = SavedModel::decode(&*fs::read(&path).unwrap()).unwrap();
    for meta in &mut saved.meta_graphs {
        for node in &mut meta.graph_def.as_mut().unwrap().node {
            node.device = "/job:localhost/replica:0/task:0/device:GPU:7".to_owned();
        }
    }
    fs::write(&path, saved.encode_to_vec()).unwrap();
    let base = dir.path().join("m");
    let text = format!(
        "model_config_list {{ config {{ name: \"m\" base_path: \"{}\" }} }}",
        base.display()
    );
    let file = format!("--model_config_file={}", write(dir.path(), "models", &text));
    for (gpus, expected) in [("", "cpu:0"), ("1GiB", "gpu:0")] {
        let gpus = format!("--simulated_gpus={gpus}");
        let server = start(&[&file, &gpus], &GROWTH);
        assert_eq!(predict(&server, "m").0, 200);
        assert_eq!(device(&server, expected)["models"][0]["name"], "m");
    }
}
