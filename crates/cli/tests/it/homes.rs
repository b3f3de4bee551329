//! A text model on a GPU: its strings and its vocabulary on the host, its weights on the GPU.

use std::process::Command;

use pages::{MemoryCategory, PlanPage, PlannedModel, VersionMemory};
use serde_json::Value;

use crate::memory::{device, model, predict, reload, start};
use crate::page::{Page as _, bytes_for};
use crate::support::Server;

const GROWTH: [(&str, &str); 1] = [("TF_FORCE_GPU_ALLOW_GROWTH", "true")];

/// Returns the memory that a device holds for a model, if it holds anything.
fn share(server: &Server, name: &str, model: &str) -> Option<VersionMemory> {
    device(server, name).models.into_iter().find(|one| one.name == model)
}

fn ask(server: &Server) -> Value {
    let body = r#"{"instances": ["what a lovely film", "I was bored", ""]}"#;
    let (status, body) = server.rest("POST", "/v1/models/sentiment:predict", body);
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

#[test]
fn a_text_model_on_a_gpu_has_its_strings_on_the_host_and_leaves_nothing_on_either() {
    let half =
        format!("config {{ name: \"half_plus_two\" base_path: \"{}\" }}", model("half_plus_two"));
    let text = format!("config {{ name: \"sentiment\" base_path: \"{}\" }}", model("sentiment"));
    let alone = start(&[], &[]);
    reload(&alone, &format!("{half} {text}")).unwrap();
    let expected = ask(&alone);
    drop(alone);

    let server = start(&["--simulated_gpus=1GiB"], &GROWTH);
    server.manage("POST", "/v1/memory:trim", "");
    let used = |name: &str| device(&server, name).in_use_bytes;
    let before = (used("cpu:0"), used("gpu:0"));
    let digits = format!("config {{ name: \"digits\" base_path: \"{}\" }}", model("digits"));
    reload(&server, &format!("{half} {text} {digits}")).unwrap();
    let (host, gpu) = (share(&server, "cpu:0", "sentiment"), share(&server, "gpu:0", "sentiment"));
    let (host, gpu) = (host.unwrap(), gpu.unwrap());
    let weights = |share: &VersionMemory| bytes_for(&share.categories, MemoryCategory::Weights);
    // The vocabulary is the host's; what it is not is the GPU's.
    assert!(weights(&host) > 1000, "{host:#?}");
    assert!(weights(&gpu) > weights(&host), "{gpu:#?}");
    // It has no strings, but its plans are the host's, as they are of every model.
    let digits = share(&server, "cpu:0", "digits").unwrap();
    let categories: Vec<&MemoryCategory> = digits.categories.keys().collect();
    assert_eq!(categories, [&MemoryCategory::Plans], "{digits:#?}");

    // What was predicted is what is held.
    let planned = plan(&["--simulated_gpus=1GiB", &model("sentiment")]);
    let bytes = |share: &VersionMemory| {
        let plans = bytes_for(&share.categories, MemoryCategory::Plans);
        share.bytes - plans
    };
    let resident = planned.weights_bytes + planned.packed_weights_bytes + planned.other_bytes;
    assert_eq!((resident, planned.host_resident_bytes), (bytes(&gpu), Some(bytes(&host))));

    assert_eq!(ask(&server), expected);
    assert!(share(&server, "gpu:0", "sentiment").unwrap().largest_plan_bytes > Some(0));
    assert!(share(&server, "cpu:0", "sentiment").unwrap().largest_plan_bytes > Some(0));

    reload(&server, &half).unwrap();
    let is_gone =
        || ["cpu:0", "gpu:0"].iter().all(|name| share(&server, name, "sentiment").is_none());
    // The version goes when its last handle is gone, and a lane's memory when its turn has ended.
    while !is_gone() || (used("cpu:0"), used("gpu:0")) != before {
        server.manage("POST", "/v1/memory:trim", "");
    }
    assert_eq!(predict(&server, "half_plus_two").0, 200);
}

#[test]
fn a_share_that_does_not_fit_is_refused_with_the_name_of_its_device() {
    let planned = plan(&["--simulated_gpus=1GiB", &model("sentiment")]);
    let (on_gpu, on_host) = (planned.total_bytes, planned.host_bytes.unwrap());
    assert!(on_gpu < on_host, "the limits below are between the two");
    let server = start(&["--simulated_gpus=1GiB", "--max_num_load_retries=0"], &GROWTH);
    let shares = [("gpu:0", on_gpu - 1, on_gpu), ("cpu:0", on_host - 1, on_host)];
    for (number, (device, limit, needed)) in shares.into_iter().enumerate() {
        let (base, half) = (model("sentiment"), model("half_plus_two"));
        let list = format!(
            "config {{ name: \"half_plus_two\" base_path: \"{half}\" }} \
             config {{ name: \"m{number}\" base_path: \"{base}\" \
             memory {{ limit: \"{limit}B\" }} }}"
        );
        assert!(reload(&server, &list).is_err());
        let states = server.rest_until(&format!("/v1/models/m{number}"), "has no room");
        assert!(states.contains("RESOURCE_EXHAUSTED"), "{states}");
        let text = format!("{device} has no room: {needed} bytes are needed, {limit} are free");
        assert!(states.contains(&text), "{text} in {states}");
    }
    assert_eq!(predict(&server, "half_plus_two").0, 200);
}

/// Returns the only model on the page of `tensord plan --json`.
fn plan(args: &[&str]) -> PlannedModel {
    let mut plan = Command::new(env!("CARGO_BIN_EXE_tensord"));
    let page = PlanPage::of_command(plan.arg("plan").arg("--json").args(args));
    page.models[0].planned().unwrap().clone()
}

#[test]
fn copies_between_the_host_and_a_gpu_are_steps_of_a_profile() {
    let mut profile = Command::new(env!("CARGO_BIN_EXE_tensord"));
    profile.args(["profile", "--gpu", "--runs", "1", "--batch", "4"]);
    let output = profile.arg(model("sentiment")).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let has = |name: &str| text.lines().any(|line| line.starts_with(name));
    assert!(has("_Copy") && has("host ") && has("gpu "), "{text}");
}
