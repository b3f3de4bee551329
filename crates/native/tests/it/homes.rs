//! Plans for a GPU keep strings and tables on the host, and give the same answers.
#![allow(clippy::unwrap_used, clippy::maybe_infinite_iter, reason = "tests")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use device::{Category, Home, Kind, Owner, Workspace};
use native::measure::{made_up, owner_alone, server_beside};
use native::{Executor, Loaded, Opened, Options};
use pool::Pool;
use schedule::Lanes;
use session::Run;
use tensor::{Shape, Tensor};

/// Every version of every small model in the project.
fn versions() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let children = |dir: &Path| {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        paths.sort();
        paths
    };
    let models = [root.join("models"), root.join("testdata/models")];
    let models = models.iter().flat_map(|dir| children(dir));
    let dirs = models.flat_map(|model| std::iter::once(model.clone()).chain(children(&model)));
    dirs.filter(|dir| dir.join("saved_model.pb").is_file()).collect()
}

fn load(dir: &Path, owner: &Arc<Owner>) -> status::Result<Loaded> {
    let lanes =
        Lanes::start(schedule::Options { n_lanes: 1, inline_max: Duration::ZERO, run_max: None });
    let executor = Executor {
        lanes: Arc::new(lanes.unwrap()),
        pool: Arc::new(Pool::new(1)),
        device: "gpu:0".into(),
        pace: None,
    };
    let options = Options { tags: vec!["serve".to_owned()], plans_max: 8 };
    let opened = Opened::open(&storage::open(&dir.to_string_lossy()).unwrap(), &options)?;
    opened.load(&options, &executor, Some(Arc::clone(owner)))
}

/// Runs of three rows of every signature whose inputs can be made up.
fn runs(loaded: &Loaded) -> Vec<Run> {
    let mut runs = Vec::new();
    for (name, signature) in &loaded.servable.signatures {
        let input = |endpoint: &session::Endpoint| {
            let dims = endpoint.spec.dims()?;
            let sizes = dims.iter().enumerate();
            let size =
                |(i, dim): (usize, &tensor::Dim)| dim.size().unwrap_or(if i == 0 { 3 } else { 1 });
            let sizes: Vec<usize> = sizes.map(size).collect();
            made_up(&(endpoint.spec.dtype, Shape::of(&sizes)))
        };
        let inputs: Option<Vec<Tensor>> = signature.inputs.values().map(input).collect();
        runs.extend(inputs.map(|inputs| Run {
            signature: name.clone(),
            inputs,
            outputs: (0..signature.outputs.len()).collect(),
            deadline: None,
            level: None,
            is_cancelled: Arc::default(),
        }));
    }
    runs
}

/// The elements, as far as they can be compared.
fn elements(tensor: &Tensor) -> Vec<u8> {
    match tensor.buffer() {
        Some(buffer) => buffer.bytes().to_vec(),
        None if tensor.dtype() == tensor::DType::String => {
            tensor.strings().iter().flat_map(|string| [string, b"\0"].concat()).collect()
        }
        None => Vec::new(),
    }
}

/// The answer of a run: its results, or its error.
fn answer(loaded: &Loaded, run: &Run, owner: &Arc<Owner>) -> Result<Vec<(Shape, Vec<u8>)>, String> {
    let mut workspace = Workspace::for_owner(server_beside(owner)).unwrap();
    let outputs = loaded.engine.run(run, &mut workspace).map_err(|error| error.to_string())?;
    Ok(outputs.iter().map(|output| (output.shape().clone(), elements(output))).collect())
}

#[test]
fn every_model_gives_on_a_gpu_what_it_gives_on_the_host_and_leaves_nothing() {
    let (mut n_ok, mut n_on_host, mut n_copies) = (0, 0, 0);
    for dir in versions() {
        let (host, gpu) = (owner_alone(Kind::Cpu).unwrap(), owner_alone(Kind::Gpu).unwrap());
        let (Ok(on_host), Ok(on_gpu)) = (load(&dir, &host), load(&dir, &gpu)) else { continue };
        for run in runs(&on_host) {
            let (one, two) = (answer(&on_host, &run, &host), answer(&on_gpu, &run, &gpu));
            assert_eq!(one, two, "{} {}", dir.display(), run.signature);
            n_ok += usize::from(one.is_ok());
            let Ok(plan) = on_gpu.engine.plan(&run) else { continue };
            for step in plan.snapshot() {
                let is_copy = step.op == "_Copy";
                n_copies += usize::from(is_copy);
                n_on_host += usize::from(step.home == Home::Host && !is_copy);
            }
        }
        drop((on_host, on_gpu));
        let left = (gpu.space().books().in_use_bytes(), gpu.host().space().books().in_use_bytes());
        assert_eq!(left, (0, 0), "{}", dir.display());
    }
    assert!(n_ok > 30, "only {n_ok} runs");
    assert!(n_on_host > 10 && n_copies > 30, "{n_on_host} steps on the host, {n_copies} copies");
}

#[test]
fn a_table_and_strings_are_on_the_host_and_weights_on_the_gpu() {
    let gpu = owner_alone(Kind::Gpu).unwrap();
    let sentiment = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/sentiment/1");
    let loaded = load(&sentiment, &gpu).unwrap();
    let run = runs(&loaded).remove(0);
    let steps = loaded.engine.plan(&run).unwrap().snapshot();
    let home = |wanted: fn(&str) -> bool| {
        let of = steps.iter().filter(|step| wanted(step.op)).map(|step| step.home);
        let homes: Vec<Home> = of.collect();
        assert!(!homes.is_empty() && homes.iter().all(|home| *home == homes[0]), "{homes:?}");
        homes[0]
    };
    assert_eq!(home(|op| op.starts_with("LookupTableFind")), Home::Host);
    assert_eq!(home(|op| op.contains("MatMul")), Home::Device);
    // The plan is on the host's heap, whatever it is for.
    let stays = |owner: &Owner| {
        let all = owner.categories().into_iter();
        let own = all.filter(|(category, _)| *category != Category::Plans);
        own.map(|(_, bytes)| bytes).sum::<u64>()
    };
    assert!(stays(gpu.host()) > 0, "the vocabulary");
    assert!(stays(&gpu) > stays(gpu.host()), "the weights");
}

#[test]
fn what_a_model_holds_of_a_gpu_and_of_its_host_is_predicted() {
    let (mut wrong, mut n_with_strings) = (Vec::new(), 0);
    let pool = Arc::new(Pool::new(1));
    for dir in versions() {
        let folder = storage::open(&dir.to_string_lossy()).unwrap();
        let Ok(rows) = native::measure::measure(
            &folder,
            &[1, 8].map(native::Sizes::of_rows),
            &pool,
            Kind::Gpu,
        ) else {
            continue;
        };
        for row in rows {
            n_with_strings += usize::from(row.what == "host resident" && row.measured_bytes > 0);
            let is_batch = row.what.contains("batch");
            // Kernels may take a little for themselves while they run.
            let is_right = match is_batch {
                true => row.predicted_bytes * 10 >= row.measured_bytes * 9,
                false => row.predicted_bytes == row.measured_bytes,
            };
            if row.is_static && !is_right {
                wrong.push(format!("{}: {row:?}", dir.display()));
            }
        }
    }
    assert!(n_with_strings > 2, "only {n_with_strings} models with strings or tables");
    assert!(wrong.is_empty(), "{} figures are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// A line of `testdata/decisions.txt`: what was decided for a signature when it was loaded.
fn decision(dir: &Path, loaded: &Loaded, run: &Run) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let model = dir.strip_prefix(&root).unwrap_or(dir).display();
    let batched = match loaded.engine.rows(&run.signature) {
        Some(Ok(())) => "batched".to_owned(),
        Some(Err(why)) => format!("not batched: {why}"),
        None => "not proved".to_owned(),
    };
    let planned = match loaded.engine.plan(run) {
        Ok(plan) => {
            let steps = plan.snapshot();
            let is_on_host = |step: &&graph::StepSnapshot| step.home == Home::Host;
            let on_host: Vec<&str> = steps.iter().filter(is_on_host).map(|step| step.op).collect();
            let flops: u64 = steps.iter().map(|step| step.flops).sum();
            let (n, on_host) = (steps.len(), on_host.join(" "));
            format!("{n} steps; {flops} operations; on the host: {on_host}")
        }
        Err(error) => format!("no plan: {error}"),
    };
    let line = format!("{model} {}; {batched}; {planned}", run.signature);
    // Errors name their node on a line of its own.
    line.replace("\n\t", "").trim_end().to_owned()
}

#[test]
fn what_is_batched_and_what_runs_where_is_as_the_table_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/decisions.txt");
    let mut got = Vec::new();
    for dir in versions() {
        let gpu = owner_alone(Kind::Gpu).unwrap();
        let Ok(loaded) = load(&dir, &gpu) else { continue };
        got.extend(runs(&loaded).iter().map(|run| decision(&dir, &loaded, run)));
    }
    let text = std::fs::read_to_string(path).unwrap();
    let expected: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(got, expected);
}
