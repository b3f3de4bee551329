//! The screen that a person sees when the server is up, and whether it works when pasted.

use std::process::{Command, Output};

use pages::{EngineName, ModelListPage, VersionState};

use crate::doors::write_keys;
use crate::page::Shown as _;
use crate::support::{Server, copy, model_server, root, tensord};
use crate::versions::{WARMUP, record_of};

/// Pastes a line into a shell.
fn paste(line: &str) -> Output {
    let line = line.trim().replacen("curl ", "curl -sS -w '\\n%{http_code}' ", 1);
    Command::new("sh").arg("-c").arg(line).output().unwrap()
}

#[track_caller]
fn answers(line: &str) {
    let run = paste(line);
    let text = String::from_utf8_lossy(&run.stdout).into_owned();
    let error = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(text.trim_end().ends_with("\n200"), "{line}: {text}{error}");
}

/// The line for a model.
fn line_for(server: &Server, model: &str) -> String {
    server.says(&format!("/v1/models/{model}:predict"))
}

#[test]
fn every_line_is_answered_when_it_is_pasted() {
    let server = Server::start(tensord(), &[&root().join("models").to_string_lossy()]);
    let table = server.says("engine");
    assert!(table.contains("device") && table.contains("signatures"), "{table}");
    // The bodies of digits are written to a file.
    let digits = line_for(&server, "digits");
    assert!(digits.contains("-d '@/"), "{digits}");
    answers(&digits);
    for model in ["half_plus_two", "half_plus_two_tf2", "sentiment"] {
        answers(&line_for(&server, model));
    }
}

#[test]
fn lines_are_answered_under_the_other_name_and_have_names_as_urls_do() {
    let model = root().join("models/half_plus_two").to_string_lossy().into_owned();
    let args = ["--model_name=half & two's", &format!("--model_base_path={model}")];
    let server = Server::start(model_server(), &args);
    let row = server.says("half & two's");
    let cells: Vec<&str> = row.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
    assert_eq!(&cells[1..5], ["123", "available", "native", "cpu:0"], "{row}");
    assert!(cells[5].ends_with('B') && cells[6].starts_with("serving_default"), "{row}");
    answers(&line_for(&server, "half%20%26%20two%27s"));
}

#[test]
fn lines_are_answered_over_tls() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ssl.config");
    drop(write_keys(&file));
    let flag = format!("--ssl_config_file={}", file.display());
    let model = root().join("models/half_plus_two").to_string_lossy().into_owned();
    let server = Server::start(tensord(), &[&flag, &model]);
    let line = line_for(&server, "half_plus_two");
    assert!(line.contains("curl -k ") && line.contains(" https://localhost:"), "{line}");
    answers(&line);
    server.says("--cacert FILE");
}

#[test]
fn many_models_have_a_few_lines_and_the_number_of_the_others() {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..8 {
        let model = root().join("models/half_plus_two");
        std::os::unix::fs::symlink(model, folder.path().join(format!("m{number}"))).unwrap();
    }
    let server = Server::start(tensord(), &[&folder.path().to_string_lossy()]);
    line_for(&server, "m4");
    let more = server.says("more models");
    assert!(more.contains("3 more models"), "{more}");
}

#[test]
fn one_line_of_the_log_tells_of_a_load_and_none_of_memory() {
    let model = root().join("models/half_plus_two").to_string_lossy().into_owned();
    let server = Server::spawn(tensord(), &[&model]);
    server.says("/v1/models/half_plus_two:predict");
    server.signal("TERM");
    let mut log = Vec::new();
    while log.last().is_none_or(|line: &String| !line.contains("unloading all models")) {
        log.push(server.logs(""));
    }
    let loads = log.iter().filter(|line| line.contains("\"half_plus_two\""));
    let loads: Vec<&String> = loads.collect();
    assert!(loads.len() == 1 && loads[0].contains("loaded"), "{log:#?}");
    assert!(!log.iter().any(|line| line.contains("memory grew")), "{log:#?}");
}

#[test]
fn the_page_follows_a_load_through_its_phases() {
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().join("slow");
    copy(&root().join("testdata/models/checks/1"), &base.join("1"));
    std::fs::create_dir_all(base.join("1/assets.extra")).unwrap();
    // A warm-up that never ends: it counts down to zero in steps of one from a half.
    std::fs::write(base.join("1").join(WARMUP), record_of("count_down", &[0.5])).unwrap();
    let (good, base) = (root().join("models/half_plus_two"), base.to_string_lossy().into_owned());
    let good = good.to_string_lossy().into_owned();
    let server = Server::start(tensord(), &["--start_when=any", &good, &base]);
    server.rest_until("/v1/models:list", "warming up");
    let page = ModelListPage::get(&server);
    let slow = &page.models.iter().find(|model| model.name == "slow").unwrap().versions[0];
    assert_eq!((slow.state, slow.engine), (VersionState::Loading, None));
    let progress = slow.progress.as_ref().unwrap();
    assert_eq!((&*progress.phase, progress.total_bytes), ("warming up", 0));
    let good = &page.models.iter().find(|model| model.name != "slow").unwrap().versions[0];
    assert_eq!((good.engine, good.progress.as_ref()), (Some(EngineName::Native), None));
    // The table comes all the same.
    assert!(server.says("slow").contains("loading"));
    line_for(&server, "half_plus_two");
}
