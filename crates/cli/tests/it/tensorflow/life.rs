//! Workers begin, end, are killed, and are begun again.

use tensor::Tensor;

use super::{fallback, is_alive, predict, spec, ticks, until, with_tensorflow, workers};
use crate::support::{Server, half_plus_two, model_server, root, tensord};
use crate::versions::{check_half_with, remove};

/// A run that takes for ever.
fn forever() -> Tensor {
    Tensor::scalar(i64::MAX).unwrap()
}

fn serve(models: &[&str], flags: &[&str]) -> Server {
    let mut args: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
    for model in models {
        let fallback = fallback().join(model);
        let demo = root().join("models").join(model);
        let folder = if fallback.is_dir() { fallback } else { demo };
        args.push(folder.to_string_lossy().into_owned());
    }
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    Server::start(with_tensorflow(tensord()), &args)
}

#[track_caller]
fn check_spin(server: &Server, n: i64) {
    let n = Tensor::scalar(n).unwrap();
    let outputs = predict(server, spec("spin", ""), &[("n", n.clone())]).unwrap();
    assert_eq!(outputs["last"].as_slice::<i64>(), n.as_slice::<i64>());
}

#[track_caller]
fn check_native(server: &Server) {
    let body = r#"{"instances": [1.0, 2.0, 5.0]}"#;
    let (status, body) = server.rest("POST", "/v1/models/half_plus_two:predict", body);
    assert_eq!((status, body.contains("[2.5, 3.0, 4.5")), (200, true), "{body}");
}

fn kill(pid: u32) {
    let killed = std::process::Command::new("kill").args(["-KILL", &pid.to_string()]).status();
    assert!(killed.unwrap().success());
}

#[test]
fn a_killed_worker_fails_what_it_runs_and_serves_again() {
    let server = serve(&["spin", "half_plus_two"], &[]);
    check_spin(&server, 5);
    let [worker] = workers(server.id())[..] else { panic!("one worker is shared") };
    let before = ticks(worker);
    std::thread::scope(|scope| {
        let spin = scope.spawn(|| predict(&server, spec("spin", ""), &[("n", forever())]));
        until("the worker runs", || ticks(worker) > before + 20);
        kill(worker);
        let (code, text) = spin.join().unwrap().unwrap_err();
        assert_eq!(code, tonic::Code::Unavailable, "{text}");
        check_native(&server);
    });
    // Waits for the next process, within its own time.
    check_spin(&server, 6);
    assert!(!is_alive(worker));
    assert_eq!(workers(server.id()).len(), 1);
    check_native(&server);
}

#[test]
fn no_worker_outlives_a_server_that_is_killed() {
    let server = serve(&["spin"], &[]);
    let all = workers(server.id());
    assert_eq!(all.len(), 1);
    kill(server.id());
    until("the worker is gone", || all.iter().all(|pid| !is_alive(*pid)));
}

#[test]
fn time_that_runs_out_ends_a_run_and_nothing_else() {
    let server = serve(&["spin"], &["--rest_api_timeout_in_ms=300"]);
    let before = workers(server.id());
    for _ in 0..3 {
        let body = format!("{{\"inputs\": {}}}", i64::MAX);
        let (status, text) = server.rest("POST", "/v1/models/spin:predict", &body);
        assert_eq!(status, 504, "{text}");
    }
    check_spin(&server, 5);
    assert_eq!(workers(server.id()), before, "the worker is the same");
}

#[test]
fn native_models_and_tensorflows_are_served_side_by_side() {
    let server = serve(&["spin", "half_plus_two", "crossed"], &["--engine=auto"]);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let server = &server;
            scope.spawn(move || {
                for i in 0..25 {
                    if thread % 2 == 0 { check_spin(server, i) } else { check_native(server) }
                }
            });
        }
    });
}

#[test]
fn a_request_that_does_not_fit_the_model_has_tensorflows_code() {
    let server = serve(&["half_plus_two"], &["--engine=tensorflow"]);
    let strings = Tensor::from_strings(
        tensor::Shape::of(&[1]),
        tensor::Strings::collect([b"no number"]).unwrap(),
    );
    let answer = predict(&server, spec("half_plus_two", ""), &[("x", strings.unwrap())]);
    let (code, text) = answer.unwrap_err();
    assert_eq!(code, tonic::Code::InvalidArgument, "{text}");
    assert!(text.contains("to be float but string is provided"), "{text}");
    check_native(&server);
    let answer = predict(&server, spec("half_plus_two", "no_such"), &[]);
    assert_eq!(answer.unwrap_err().0, tonic::Code::FailedPrecondition);
}

#[test]
fn what_a_variable_keeps_of_a_request_stays_what_it_was() {
    let server = serve(&["keeper"], &[]);
    let tensor =
        |x: f32| Tensor::from_slice(tensor::Shape::of(&[4, 1024]), &vec![x; 4096]).unwrap();
    for round in 1..10u8 {
        let x = f32::from(round);
        predict(&server, spec("keeper", "put"), &[("x", tensor(x))]).unwrap();
        // Others use the memory of requests meanwhile.
        let other = predict(&server, spec("keeper", "put"), &[("x", tensor(-x))]).unwrap();
        assert_eq!(other["sum"].as_slice::<f32>(), [-x * 4096.0]);
        let kept = predict(&server, spec("keeper", ""), &[]).unwrap();
        assert!(kept["kept"].as_slice::<f32>().iter().all(|kept| *kept == -x));
    }
}

/// The command of the requirement documents: several models by name and base path.
#[test]
fn several_models_by_name_and_path_share_a_worker() {
    let mut command = with_tensorflow(model_server());
    command.env("TF_FORCE_GPU_ALLOW_GROWTH", "true");
    let path = |model: &str| root().join("models").join(model).display().to_string();
    let args = [
        "--model_name=model1".to_owned(),
        format!("--model_base_path={}", path("half_plus_two")),
        "--model_name=model2".to_owned(),
        format!("--model_base_path={}", path("half_plus_two_tf2")),
        "--engine=tensorflow".to_owned(),
    ];
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let server = Server::start(command, &args);
    for model in ["model1", "model2"] {
        let body = r#"{"instances": [1.0, 2.0, 5.0]}"#;
        let (status, body) = server.rest("POST", &format!("/v1/models/{model}:predict"), body);
        assert_eq!((status, body.contains("[2.5, 3.0, 4.5")), (200, true), "{body}");
    }
    assert_eq!(workers(server.id()).len(), 1);
}

/// The config file of the requirement documents: a model with memory settings of its own.
#[test]
fn a_model_with_gpu_options_of_its_own_has_a_worker_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model_server_config.json");
    let path = |model: &str| root().join("models").join(model).display().to_string();
    let config = serde_json::json!({"model_config_list": [
        {
            "name": "my_model",
            "base_path": path("half_plus_two_tf2"),
            "model_platform": "tensorflow",
            "model_version_policy": {"specific": {"versions": [1]}},
            "config": {"gpu_options": {
                "allow_growth": true,
                "per_process_gpu_memory_fraction": 0.7
            }}
        },
        {
            "name": "half_plus_two",
            "base_path": path("half_plus_two"),
            "model_platform": "tensorflow"
        }
    ]});
    std::fs::write(&file, config.to_string()).unwrap();
    let flag = format!("--model_config_file={}", file.display());
    let flags = [flag.as_str(), "--intra_op_parallelism_threads=8", "--engine=tensorflow"];
    let server = Server::start(with_tensorflow(model_server()), &flags);
    check_native(&server);
    let body = r#"{"instances": [1.0]}"#;
    let (status, body) = server.rest("POST", "/v1/models/my_model:predict", body);
    assert_eq!(status, 200, "{body}");
    assert_eq!(workers(server.id()).len(), 2);
}

#[test]
fn a_half_uploaded_version_is_not_served_by_a_worker_either() {
    let start =
        |base: &str| Server::start(with_tensorflow(tensord()), &[base, "--engine=tensorflow"]);
    let index = remove("variables/variables.index");
    check_half_with(start, &half_plus_two(), index, "variables/variables.index is missing");
}
