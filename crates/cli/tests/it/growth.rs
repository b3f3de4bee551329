//! The growth of GPUs: the settings of it, and the promises to models that grow.

use pages::{DevicesPage, GrowthMode};
use serde_json::json;

use crate::memory::{MIB, device, model, predict, reload, start, write};
use crate::page::{Shown as _, named};
use crate::support::{Server, model_server, tensord};

/// The environment variable that has the last word.
const FORCE: &str = "TF_FORCE_GPU_ALLOW_GROWTH";

/// Asserts how a GPU of 1 GiB takes its memory, which setting says so, and that the log, the page
/// of memory and that of devices agree.
#[track_caller]
fn check(started: &Started, growth: GrowthMode, setting: &str) {
    let Started { server, line } = started;
    let how = if growth == GrowthMode::OnDemand { "grow as models need it" } else { "reserve all" };
    assert!(line.contains(how) && line.contains(&format!("({setting})")), "{line}");
    let gpu = device(server, "gpu:0");
    assert_eq!((gpu.growth, &*gpu.growth_setting), (growth, setting));
    let is_whole = gpu.reserved_bytes + 2 * MIB > gpu.limit_bytes;
    assert_eq!(is_whole, growth == GrowthMode::Reserved, "{gpu:#?}");
    assert!(is_whole || gpu.reserved_bytes <= 8 * MIB, "{gpu:#?}");
    let devices = DevicesPage::get(server);
    assert_eq!(named(&devices.logical, "gpu:0").growth_setting, setting);
}

/// A server that listens, and what it logged of the memory of its GPU.
struct Started {
    server: Server,
    line: String,
}

/// A server under TensorFlow Serving's name or ours, with a GPU of 1 GiB, and a session config.
fn serve(ours: bool, args: &[&str], session: &str, forced: Option<&str>) -> Started {
    let dir = tempfile::tempdir().unwrap();
    let mut command = if ours { tensord() } else { model_server() };
    command.env_remove(FORCE).envs(forced.map(|value| (FORCE, value)));
    let session = match session {
        "" => None,
        text => {
            Some(format!("--tensorflow_session_config_file={}", write(dir.path(), "session", text)))
        }
    };
    let base = model("half_plus_two");
    let named = ["--model_name=half_plus_two".to_owned(), format!("--model_base_path={base}")];
    let mut all: Vec<&str> = vec!["--simulated_gpus=1GiB"];
    all.extend(args);
    all.extend(session.as_deref());
    all.extend(named.iter().map(String::as_str));
    let server = Server::spawn(command, &all);
    let line = server.logs("memory: gpu:0 ");
    server.logs("Exporting HTTP/REST API at");
    Started { server, line }
}

#[test]
fn memory_grows_under_both_names_unless_a_reservation_was_asked_for() {
    for ours in [true, false] {
        check(&serve(ours, &[], "", None), GrowthMode::OnDemand, "default");
        let server = serve(ours, &["--gpu_memory=reserve"], "", None);
        check(&server, GrowthMode::Reserved, "--gpu_memory=reserve");
        let server = serve(ours, &[], "", Some("false"));
        check(&server, GrowthMode::Reserved, "TF_FORCE_GPU_ALLOW_GROWTH=false");
    }
}

#[test]
fn the_session_config_and_the_fraction_say_whether_memory_grows() {
    let fraction = "--per_process_gpu_memory_fraction=0.5";
    let server = serve(false, &[fraction], "", None);
    check(&server, GrowthMode::Reserved, "per_process_gpu_memory_fraction without allow_growth");
    let server = serve(false, &[fraction, "--gpu_memory=grow"], "", None);
    check(&server, GrowthMode::OnDemand, "--gpu_memory=grow");
    let written = "gpu_options { allow_growth: false }";
    check(
        &serve(true, &[], written, None),
        GrowthMode::Reserved,
        "gpu_options.allow_growth: false",
    );
    let growing = "gpu_options { allow_growth: true per_process_gpu_memory_fraction: 0.5 }";
    let server = serve(true, &[], growing, None);
    check(&server, GrowthMode::OnDemand, "gpu_options.allow_growth: true");
    assert_eq!(device(&server.server, "gpu:0").limit_bytes, 512 * MIB);
}

#[test]
fn a_refusal_names_the_settings_that_caused_it() {
    let args = ["--simulated_gpus=64MiB", "--max_num_load_retries=0"];
    let fraction = "--per_process_gpu_memory_fraction=0.5";
    let server = start(&[&args[..], &[fraction]].concat(), &[]);
    let config = |name: &str, memory: &str| {
        let base = model("digits");
        format!("config {{ name: \"{name}\" base_path: \"{base}\" {memory} }}")
    };
    let refused = reload(&server, &config("m", "memory { reservation: \"40MiB\" }")).unwrap_err();
    for said in [
        "gpu:0 may hold 33554432 (per_process_gpu_memory_fraction)",
        "reserved at the start (per_process_gpu_memory_fraction without allow_growth)",
        "41943040 are to be set aside for the model (its reservation)",
    ] {
        assert!(refused.contains(said), "{refused}");
    }
    let refused = reload(&server, &config("n", "memory { limit: \"2000B\" }")).unwrap_err();
    assert!(refused.contains("may hold 2000 there at most (its memory.limit)"), "{refused}");
}

#[test]
fn what_runs_take_is_promised_to_the_models_that_are_there() {
    let server = start(&["--simulated_gpus=1GiB", "--max_num_load_retries=0"], &[]);
    assert_eq!(predict(&server, "half_plus_two").0, 200);
    let promised = || device(&server, "gpu:0").promised_bytes;
    let text = format!("config {{ name: \"digits\" base_path: \"{}\" }}", model("digits"));
    reload(&server, &text).unwrap();
    let image = vec![vec![[0.5]; 8]; 8];
    let ask = |rows: usize| {
        let body = json!({ "instances": vec![&image; rows] }).to_string();
        server.rest("POST", "/v1/models/digits:predict", &body)
    };
    let (status, body) = ask(1);
    assert_eq!(status, 200, "{body}");
    // What a run took is promised for good, though its memory goes back meanwhile.
    let (status, body) = ask(512);
    assert_eq!(status, 200, "{body}");
    let (status, body) = server.manage("POST", "/v1/memory:trim", "");
    assert_eq!(status, 200, "{body}");
    let gpu = device(&server, "gpu:0");
    let largest = gpu.models[0].largest_plan_bytes.unwrap();
    let workspaces = gpu.workspaces.as_ref().unwrap();
    let (lanes, held) = (workspaces.lanes as u64, workspaces.bytes);
    assert!(largest > 0 && promised() + held >= lanes * largest, "{gpu:#?}");
    // Nobody else is given it.
    let room = gpu.limit_bytes - gpu.in_use_bytes;
    let other = format!(
        "config {{ name: \"other\" base_path: \"{}\" memory {{ reservation: {room} }} }}",
        model("half_plus_two")
    );
    let refused = reload(&server, &format!("{text} {other}")).unwrap_err();
    assert!(refused.contains("promised to runs of the models there: "), "{refused}");
}
