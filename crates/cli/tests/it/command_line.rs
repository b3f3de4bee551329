//! The command line as a person meets it: help, mistakes, and the status that commands end with.

use std::process::Output;

use crate::support::{root, tensord};

fn run(args: &[&str]) -> Output {
    tensord().args(args).current_dir(root()).output().unwrap()
}

/// The text that a command prints when it ends with 0.
#[track_caller]
fn printed(args: &[&str]) -> String {
    let output = run(args);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn check_failed(args: &[&str], status: i32, text: &str) {
    let output = run(args);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{errors}");
    assert!(errors.contains(text), "{errors}");
}

#[test]
fn help_is_one_screen_and_each_command_has_its_own() {
    let screen = std::fs::read_to_string(root().join("testdata/screens/help.txt")).unwrap();
    for args in [["-h"].as_slice(), &["--help"], &["help"]] {
        assert_eq!(printed(args), screen, "{args:?}");
    }
    assert_eq!(printed(&["help", "memory"]), printed(&["memory", "--help"]));
    assert!(!printed(&["help", "memory"]).contains("--every"), "that is a flag of top");
    assert!(printed(&["help", "keys", "new"]).contains("--rights"));
    let (serve, plan) = (printed(&["serve", "--help"]), printed(&["help", "plan"]));
    for group in ["gRPC:", "REST:", "Models:", "Devices:"] {
        assert!(serve.contains(group) && plan.contains(group), "{group}");
    }
    assert!(plan.contains("the flags of `serve`"), "{plan}");
    let is_narrow = |line: &str| line.chars().count() <= 100;
    assert!(serve.lines().all(is_narrow), "{serve}");
    let n_lone = serve.lines().filter(|line| line.starts_with("    ")).count();
    let is_word = |line: &&str| line.split_whitespace().count() == 1 && !line.contains('-');
    let n_words = serve.lines().filter(is_word).count();
    assert!(n_words * 10 < n_lone, "{n_words} of {n_lone} lines are one word");
}

#[test]
fn a_mistyped_command_or_flag_names_the_nearest_one() {
    let text = "no command or folder is called `insepct`; did you mean `inspect`?";
    check_failed(&["insepct", "x"], 2, text);
    check_failed(&["help", "insepct"], 2, "no command is called `insepct`; did you mean");
    check_failed(&["nowhere"], 2, "`tensord help` lists the commands");
    check_failed(&["serve", "--modle_name=a"], 2, "'--model_name'");
    check_failed(&["predict", "--sginature=a", "models/half_plus_two"], 2, "'--signature'");
    check_failed(&["bench", "--timeout_mz=1", "--target=x", "--model=y"], 2, "'--timeout_ms'");
}

#[test]
fn a_word_that_is_a_path_is_a_folder_to_serve() {
    check_failed(&["testdata"], 1, "testdata is no SavedModel");
    check_failed(&["models/nowhere"], 1, "cannot open models/nowhere");
}

#[test]
fn hyphens_stand_for_underscores_in_the_flags_of_every_command() {
    let devices = printed(&["devices", "--simulated-gpus=8MiB"]);
    assert_eq!(devices, printed(&["devices", "--simulated_gpus=8MiB"]));
    check_failed(&["bench", "--timeout-ms=1", "--target=127.0.0.1:0", "--model=y"], 1, "");
}

#[test]
fn completions_and_man_pages_are_made() {
    let script = printed(&["completions", "bash"]);
    let output = std::process::Command::new("bash").args(["-n", "-c", &script]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let folder = tempfile::tempdir().unwrap();
    printed(&["completions", "man", "--out", &folder.path().to_string_lossy()]);
    assert!(folder.path().join("tensord-serve.1").is_file());
    check_failed(&["completions", "bahs"], 2, "'bash'");
    assert!(printed(&["serve", "--version"]).starts_with("tensord "));
}

/// The table of statuses in `docs/commands.md`.
#[test]
fn commands_end_with_0_when_all_is_well_1_when_they_fail_and_2_when_misused() {
    let model = "models/half_plus_two";
    printed(&["plan", model]);
    printed(&["inspect", "--quick", model]);
    let small = ["plan", "--simulated_gpus=1MiB", "models/digits"];
    assert_eq!(run(&small).status.code(), Some(1), "a model that does not fit");
    check_failed(&["inspect", "nowhere"], 1, "nowhere");
    check_failed(&["memory", "127.0.0.1:1"], 1, "no server answers");
    check_failed(&["inspect"], 2, "<DIR>");
    check_failed(&["plan", "--length=0", model], 2, "--length");
    check_failed(&["keys"], 2, "Usage");
}
