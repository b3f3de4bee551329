//! Checks without serving: `--check_config` under both names, `doctor`, and `migrate`.

use std::process::{Command, Output};

use crate::support::{model_server, root, tensord};

fn run(mut program: Command, args: &[&str]) -> Output {
    program.args(args).current_dir(root()).output().unwrap()
}

fn printed(output: &Output) -> String {
    let text = [&*output.stdout, &*output.stderr].concat();
    String::from_utf8_lossy(&text).into_owned()
}

#[test]
fn a_config_is_checked_under_both_names_and_nothing_is_served() {
    let good = format!("--model_base_path={}", root().join("models/half_plus_two").display());
    let args: [&[&str]; 3] = [
        &["--check_config", &good],
        &["--check_config", "--model_base_path=/nowhere"],
        &["--check_config", &good, "--tensorflow_session_parallelism=1", "--port=0", "--engine=x"],
    ];
    for (args, code) in args.into_iter().zip([0, 1, 1]) {
        for program in [tensord(), model_server()] {
            let output = run(program, args);
            assert_eq!(output.status.code(), Some(code), "{args:?}: {}", printed(&output));
        }
    }
    let text = printed(&run(tensord(), args[0]));
    assert!(text.starts_with("the config is right: flags, "), "{text}");
    let text = printed(&run(tensord(), args[1]));
    assert!(text.contains("problem  model default: cannot read the folder /nowhere"), "{text}");
    assert!(text.ends_with("the config is wrong: 1 to mend\n"), "{text}");
}

#[test]
fn all_that_is_wrong_is_told_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("models.config");
    let model = |name: &str| format!("config {{ name: '{name}' base_path: '/nowhere/{name}' }}");
    let text = format!("model_config_list {{ {} {} }}", model("a"), model("b"));
    std::fs::write(&file, text).unwrap();
    let flag = format!("--model_config_file={}", file.display());
    let text = printed(&run(tensord(), &["--check_config", &flag, "--api_keys_file=/nowhere"]));
    for part in ["model a: ", "model b: ", "TLS, API keys and monitoring: ", "3 to mend"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// Flags of a server without ports, so that none can be in use.
const NO_PORTS: [&str; 3] = ["--port=0", "--rest_api_port=0", "--management_address=off"];

#[test]
fn doctor_checks_the_machine_and_ends_with_1_for_a_problem() {
    let args = [&["doctor", "models"], &NO_PORTS[..]].concat();
    let output = run(tensord(), &args);
    let text = printed(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    for about in ["file descriptors: ", "memory: ", "GPU", "TensorFlow: ", "sandbox of workers: "] {
        assert!(text.contains(about), "{about}: {text}");
    }
    assert!(text.contains("ok       model half_plus_two: versions 123"), "{text}");
    let output = run(tensord(), &[&args[..], &["--model_base_path=/nowhere"]].concat());
    assert_eq!(output.status.code(), Some(1), "{}", printed(&output));
}

#[test]
fn doctor_prints_json_for_programs() {
    let output = run(tensord(), &[&["doctor", "--json", "models"], &NO_PORTS[..]].concat());
    let page: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = page["findings"].as_array().unwrap();
    assert!(findings.len() > 5, "{page}");
    for finding in findings {
        let verdict = finding["verdict"].as_str().unwrap();
        assert!(["ok", "warning", "problem"].contains(&verdict), "{finding}");
        assert!(finding["about"].is_string() && finding["text"].is_string(), "{finding}");
    }
}

#[test]
fn migrate_prints_our_command_line_and_notes_apart_from_it() {
    let line = ["migrate", "--", "tensorflow_model_server", "--port=8500", "--grpc_max_threads=4"];
    let output = run(tensord(), &line);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.starts_with("tensord \\\n  serve \\\n  --port=8500"), "{text}");
    let notes = String::from_utf8_lossy(&output.stderr);
    assert!(notes.contains("note: command line: --grpc_max_threads is left out"), "{notes}");
    let output = run(tensord(), &["migrate", "testdata/migrate/ovms.json"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.starts_with("# models.config\nmodel_config_list"), "{text}");
    let output = run(tensord(), &["migrate", "nowhere"]);
    assert_eq!(output.status.code(), Some(1), "{}", printed(&output));
}
