//! `tensord bench DIR` and `tensord profile DIR`: what a model takes in this process, and where.

use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::support::{root, tensord};

/// Runs a subcommand on a demo model.
fn measured(command: &str, args: &[&str], model: &str) -> Output {
    let mut tensord = tensord();
    tensord.arg(command).args(args).arg(root().join("models").join(model));
    tensord.output().expect("it runs")
}

/// Its standard output, if it succeeded.
#[track_caller]
fn said(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The figures of `tensord bench --json` with more arguments.
#[track_caller]
fn bench(args: &[&str]) -> Value {
    let args = [&["--json", "--seconds", "0.01"], args].concat();
    serde_json::from_str(&said(&measured("bench", &args, "digits"))).expect("JSON")
}

#[test]
fn a_model_is_measured_in_process_with_all_its_figures() {
    let figures = bench(&["--signature", "serve", "--batch", "3", "--threads", "2"]);
    let keys: Vec<&String> = figures.as_object().expect("an object").keys().collect();
    let expected = [
        "first_us",
        "load_ms",
        "median_us",
        "p99_us",
        "planned_peak_bytes",
        "rss_bytes",
        "weights_bytes",
    ];
    assert_eq!(keys, expected);
    let number = |key: &str| figures[key].as_f64().expect("a number");
    for key in expected {
        assert!(number(key) > 0.0, "{key} of {figures}");
    }
    assert!(number("p99_us") >= number("median_us"), "{figures}");
    assert!(number("rss_bytes") > number("weights_bytes"), "{figures}");
    // The memory of the activations follows the batch, that of the weights does not.
    let more = bench(&["--batch", "64"]);
    assert_eq!(more["weights_bytes"], figures["weights_bytes"]);
    let planned = |figures: &Value| figures["planned_peak_bytes"].as_u64().expect("a number");
    assert!(planned(&more) > 8 * planned(&figures), "{more} after {figures}");
}

#[test]
fn what_is_measured_is_shown_as_a_table_and_what_cannot_be_measured_is_told() {
    let table = said(&measured("bench", &["--seconds", "0.01"], "digits"));
    for line in ["load ", "first run ", "median ", "99 % ", "resident ", "weights ", "activations "]
    {
        assert!(table.lines().any(|found| found.starts_with(line)), "{line} is not in\n{table}");
    }
    for (command, args, wanted) in [
        ("bench", ["--signature", "odd"], "no signature odd; there are serve, serving_default"),
        ("profile", ["--signature", "odd"], "no signature odd; there are serve, serving_default"),
        ("bench", ["--batch", "many"], "--batch"),
    ] {
        let output = measured(command, &args, "digits");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && told.contains(wanted), "{command} {args:?}: {told}");
    }
}

/// The events of the trace that a profile writes, and what it says.
fn profile(batch: &str, folder: &Path) -> (Vec<Value>, String) {
    let trace = folder.join("trace.json");
    let to = trace.to_string_lossy();
    let text = said(&measured(
        "profile",
        &["--batch", batch, "--runs", "2", "--steps", "100", "--trace", &to],
        "digits",
    ));
    let trace: Value = serde_json::from_slice(&std::fs::read(&trace).unwrap()).expect("JSON");
    (trace["traceEvents"].as_array().expect("a list").clone(), text)
}

#[test]
fn a_profile_has_every_step_with_its_time_bytes_copies_and_memory() {
    let folder = tempfile::tempdir().unwrap();
    let (events, text) = profile("4", folder.path());
    let of = |kind: &'static str| events.iter().filter(move |event| event["ph"] == kind);
    let steps: Vec<&Value> = of("X").collect();
    assert!(steps.len() > 5 && of("C").count() == steps.len(), "{events:?}");
    for step in &steps {
        assert!(step["dur"].as_f64().is_some() && step["ts"].as_f64().is_some(), "{step}");
        for key in ["read_bytes", "written_bytes", "copied_bytes", "work_bytes"] {
            assert!(step["args"][key].as_u64().is_some(), "{key} of {step}");
        }
        // Each step is a line of the second table, by the node that it stands for.
        let node = step["args"]["node"].as_str().expect("a name");
        assert!(text.contains(node), "{node} is not in\n{text}");
    }
    let alive = of("C").map(|event| event["args"]["live_bytes"].as_u64().expect("bytes"));
    assert!(alive.max() > Some(0), "the memory over the run is shown: {events:?}");
    // A row for each op, fused ones among them, that adds up its steps.
    for op in ["_FusedConv2D", "_FusedMatMul", "MaxPool", "Softmax"] {
        let n_steps = steps.iter().filter(|step| step["name"] == op).count();
        let row = text.lines().find(|line| line.split_whitespace().next() == Some(op));
        let counted = row.and_then(|row| row.split_whitespace().nth(1)?.parse().ok());
        assert_eq!(counted, Some(n_steps), "{op} in\n{text}");
    }
    for head in ["op ", "slowest steps", "planned memory", "all "] {
        assert!(text.lines().any(|line| line.starts_with(head)), "{head} is not in\n{text}");
    }
    let written = |events: &[Value]| -> u64 {
        events.iter().filter_map(|event| event["args"]["written_bytes"].as_u64()).sum()
    };
    let (more, _) = profile("8", folder.path());
    assert_eq!(written(&more), 2 * written(&events), "twice the rows are twice the bytes");
}
