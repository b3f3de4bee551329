//! The web page: where it is, and what headless Chromium sees of it.

use std::fs;
use std::path::Path;

use crate::support::{Server, ask, copy, half_plus_two, model_server, python, root, tensord};

/// Runs a scenario of the browser script; its checks must all pass.
#[track_caller]
fn check(arguments: &[&str]) {
    let mut command = python();
    command.current_dir(root()).arg("tools/clients/dashboard.py").args(arguments);
    let run = command.output().expect("Python runs");
    let text = String::from_utf8_lossy(&run.stdout);
    let errors = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{arguments:?} failed:\n{text}\n{errors}");
    println!("{text}");
}

fn url(port: u16) -> String {
    format!("http://localhost:{port}")
}

/// Makes a folder of the smallest demo model under a name.
fn add_model(models: &Path, name: &str) {
    copy(&half_plus_two(), &models.join(name).join("1"));
}

#[test]
fn the_page_draws_what_the_server_says() {
    let folder = tempfile::tempdir().unwrap();
    let (models, all) = (folder.path().join("served"), folder.path());
    copy(&root().join("models/digits"), &models.join("digits"));
    add_model(&models, "<img src=x onerror=alert(1)>");
    add_model(all, "spare");
    let served = models.to_string_lossy();
    let roots = format!("--model_roots={}", all.display());
    let server = Server::start(tensord(), &[&served, &roots, "--simulated_gpus=1GiB,256MiB"]);
    let all = all.to_string_lossy();
    check(&["page", &url(server.rest), &url(server.management()), &all]);
}

#[test]
fn the_page_asks_for_a_key_where_keys_are_set() {
    let folder = tempfile::tempdir().unwrap();
    let run = tensord().args(["keys", "new", "bob", "--rights", "read"]).output().unwrap();
    let said = String::from_utf8(run.stderr).unwrap();
    let key = said.split_whitespace().find(|word| word.starts_with("tensord_")).unwrap();
    let file = folder.path().join("keys.config");
    fs::write(&file, run.stdout).unwrap();
    let models = folder.path().join("models");
    add_model(&models, "a");
    let flag = format!("--api_keys_file={}", file.display());
    let server = Server::start(tensord(), &[&flag, &models.to_string_lossy()]);
    for path in ["/", "/ui", "/ui/app.js"] {
        assert_eq!(server.rest("GET", path, "").0, 200, "{path} needs no key");
    }
    assert_eq!(server.rest("GET", "/ui/server.json", "").0, 401);
    check(&["key", &url(server.rest), key]);
}

#[test]
fn sixty_models_on_four_gpus_are_drawn() {
    let folder = tempfile::tempdir().unwrap();
    for n in 0..30 {
        add_model(folder.path(), &format!("half_plus_two_{n:02}"));
        copy(&root().join("models/digits/2"), &folder.path().join(format!("digits_{n:02}/1")));
    }
    let flags = [&*folder.path().to_string_lossy(), "--simulated_gpus=1GiB,1GiB,512MiB,256MiB"];
    let server = Server::start(tensord(), &flags);
    check(&["many", &url(server.rest), "60", "5"]);
}

#[test]
fn the_name_of_the_program_and_a_flag_say_where_the_page_is() {
    let model = format!("--model_base_path={}", root().join("models/half_plus_two").display());
    let off = "--ui=off";
    for (command, flags, codes) in [
        (tensord(), vec![&*model], [200, 200, 200, 200]),
        (tensord(), vec![&*model, off], [404, 404, 404, 404]),
        (model_server(), vec![&*model], [404, 200, 200, 200]),
        (model_server(), vec![&*model, off], [404, 404, 404, 404]),
    ] {
        let server = Server::start(command, &flags);
        let look = |path: &str| ask(server.rest, &["GET", path, "Host: localhost"], "");
        for (path, code) in ["/", "/ui", "/ui/app.js", "/ui/server.json"].into_iter().zip(codes) {
            assert_eq!(look(path).0, code, "{flags:?} {path}");
        }
        if codes[1] == 200 {
            let (_, head, body) = look("/ui");
            let head = head.to_lowercase();
            for header in [
                "content-type: text/html",
                "content-security-policy: default-src 'none'; script-src 'self'",
                "frame-ancestors 'none'",
                "x-content-type-options: nosniff",
                "etag: ",
            ] {
                assert!(head.contains(header), "{header} in {head}");
            }
            assert!(body.starts_with("<!doctype html>"), "{body}");
        }
    }
}
