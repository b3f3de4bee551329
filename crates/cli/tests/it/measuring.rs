//! `tensord bench DIR` and `tensord profile DIR`: what a model takes in this process, and where.

use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{root, tensord};
use crate::zoo::small_zoo;

/// Runs a subcommand on a demo model.
fn measured(command: &str, args: &[&str], model: &str) -> Output {
    measured_in(command, args, &root().join("models").join(model))
}

/// Runs a subcommand on a model.
fn measured_in(command: &str, args: &[&str], model: &Path) -> Output {
    tensord().arg(command).args(args).arg(model).output().expect("it runs")
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

#[test]
fn inputs_of_unknown_rank_are_measured_with_those_that_are_given() {
    let model = root().join("testdata/models/identity_dtypes");
    let golden = root().join("testdata/golden/identity_dtypes/1/float32/matrix.in.npz");
    let signature = ["--seconds", "0.01", "--signature", "float32"];
    let run = |args: &[&str]| measured_in("bench", &[&signature, args].concat(), &model);
    said(&run(&["--inputs", &golden.to_string_lossy()]));
    let told = String::from_utf8_lossy(&run(&[]).stderr).into_owned();
    assert!(told.contains("give --inputs FILE.npz"), "{told}");
    let of_another = measured("bench", &["--inputs", &golden.to_string_lossy()], "digits");
    let told = String::from_utf8_lossy(&of_another.stderr).into_owned();
    assert!(told.contains("the archive has x, but signature"), "{told}");
}

/// Returns how many threads of a process are called so.
fn n_threads_called(process: u32, name: &str) -> usize {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|found| found.starts_with(name)).count()
}

#[test]
fn a_model_is_measured_on_as_many_threads_as_are_asked_for() {
    for n_threads in [1usize, 2, 4] {
        let mut bench = tensord();
        bench.args(["bench", "--seconds", "600", "--threads", &n_threads.to_string()]);
        bench.arg(root().join("models/digits")).stdout(std::process::Stdio::piped());
        let mut bench = bench.spawn().expect("it starts");
        // The thread that asks is one of them.
        let mut most = 0;
        let is_measuring = || n_threads_called(bench.id(), "lane-") > 0;
        let start = Instant::now();
        while !(is_measuring() && most >= n_threads - 1) && start.elapsed() < PATIENCE {
            most = n_threads_called(bench.id(), "compute-").max(most);
            std::thread::yield_now();
        }
        let at_last = n_threads_called(bench.id(), "compute-");
        bench.kill().expect("it still measures");
        bench.wait().expect("it ends");
        assert_eq!((most, at_last), (n_threads - 1, n_threads - 1), "of {n_threads} threads");
    }
}

#[test]
fn a_model_is_measured_for_as_long_as_is_asked_for_and_twice_at_least() {
    let start = Instant::now();
    said(&measured("bench", &["--json", "--seconds", "0.7"], "digits"));
    assert!(start.elapsed() >= Duration::from_millis(700));
    let table = said(&measured("bench", &["--seconds", "0"], "digits"));
    let median = table.lines().find(|line| line.starts_with("median ")).expect("a median");
    assert!(median.ends_with("of 1 runs"), "one to warm up and one that counts: {table}");
}

/// The longest time that a process may take to start its threads.
const PATIENCE: Duration = Duration::from_secs(60);

/// The events of the trace that a profile of the digits writes, and what it says.
fn profile(batch: &str, folder: &Path) -> (Vec<Value>, String) {
    profile_of(&root().join("models/digits"), ["--batch", batch], folder)
}

/// The same of a model, on inputs as an option says.
fn profile_of(model: &Path, on: [&str; 2], folder: &Path) -> (Vec<Value>, String) {
    let trace = folder.join("trace.json");
    let to = trace.to_string_lossy();
    let args = [on[0], on[1], "--runs", "2", "--steps", "1000", "--trace", &to];
    let text = said(&measured_in("profile", &args, model));
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

/// The steps of a trace whose op is called so.
fn named<'a>(events: &'a [Value], op: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["ph"] == "X" && event["name"] == op).collect()
}

#[test]
fn what_only_moves_bytes_is_told_apart_from_what_computes_them() {
    let folder = tempfile::tempdir().unwrap();
    let (events, _) = profile_of(&small_zoo().join("densenet121"), ["--batch", "2"], folder.path());
    let copied = |op: &str| -> Vec<u64> {
        let steps = named(&events, op);
        assert!(!steps.is_empty(), "there is no {op}: {events:?}");
        let copied = |step: &&Value| step["args"]["copied_bytes"].as_u64().expect("a number");
        steps.iter().map(copied).collect()
    };
    assert!(copied("ConcatV2").iter().all(|bytes| *bytes > 0), "{:?}", copied("ConcatV2"));
    assert!(copied("_FusedConv2D").iter().all(|bytes| *bytes == 0), "{:?}", copied("_FusedConv2D"));
}

#[test]
fn a_profile_looks_into_loops_and_adds_their_iterations_up() {
    let folder = tempfile::tempdir().unwrap();
    let model = small_zoo().join("lstm");
    let inputs = model.join("golden/serving_default/batch3.in.npz");
    let on = ["--inputs", &inputs.to_string_lossy()];
    let (events, text) = profile_of(&model, on, folder.path());
    let loops = named(&events, "While");
    assert!(!loops.is_empty(), "{events:?}");
    let products: Vec<&Value> =
        events.iter().filter(|event| is_product(event["name"].as_str().unwrap_or(""))).collect();
    let span = |event: &Value| {
        let (start, time) = (event["ts"].as_f64().unwrap(), event["dur"].as_f64().unwrap());
        (start, start + time)
    };
    for around in &loops {
        let (from, to) = span(around);
        let node = around["args"]["node"].as_str().unwrap();
        let within = products.iter().filter(|step| {
            let (start, end) = span(step);
            let is_named = step["args"]["node"].as_str().unwrap().starts_with(&format!("{node}/"));
            is_named && from <= start && end <= to
        });
        assert!(within.count() > 4, "{node} multiplies in each iteration: {events:?}");
    }
    let row = |line: &&str| line.split_whitespace().next().is_some_and(is_product);
    let calls = text.lines().take_while(|line| !line.starts_with("slowest")).filter(row);
    let calls = calls.map(|line| line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap());
    assert_eq!(calls.sum::<usize>(), products.len(), "{text}");
    let listed = text.lines().skip_while(|line| !line.starts_with("slowest"));
    assert!(listed.filter(row).any(|line| line.contains(" ×")), "{text}");
}

/// Returns whether an op is a product of matrices, whatever is fused with it.
fn is_product(op: &str) -> bool {
    op.contains("MatMul") || op == "_Linear"
}

#[test]
fn a_profile_is_told_to_programs_too() {
    let run = measured("profile", &["--json", "--runs", "2"], "digits");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let profile: Value = serde_json::from_slice(&run.stdout).unwrap();
    let steps = profile["steps"].as_array().unwrap();
    assert!(steps.len() > 5 && profile["planned_bytes"].as_u64().unwrap() > 0, "{profile}");
    assert!(steps.iter().all(|step| step["op"].is_string() && step["micros"].is_number()));
}
