//! `tensord selftest`: tries TensorFlow in a worker on this machine, its GPUs too.

mod model;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use proto::tensorflow::ConfigProto;
use serde_json::json;
use server::say;
use session::{Run, Servable};
use tensor::Tensor;
use tensorflow::{Gpu, GpuOptions, ModelSettings, Nvml, Request, Threads, Workers};

use crate::table::Perform;

/// The bytes of a GPU that a worker may hold beside its limit: the driver's own part and the
/// libraries.
const GPU_OVERHEAD_BYTES: u64 = 1 << 30;

/// The limit of a model on a GPU when limits are tried.
const GPU_LIMIT_BYTES: u64 = 512 << 20;

/// A trial: gives the facts worth knowing, or why it failed.
type Step = fn(&Trial) -> Result<String>;

const STEPS: &[(&str, Step)] = &[
    ("a model without settings", Trial::shared),
    ("a model with a limit", Trial::limited),
    ("memory comes back", Trial::given_back),
];

/// Try TensorFlow in a worker on this machine, with its GPUs
#[derive(Debug, Parser)]
#[command(rename_all = "snake_case")]
pub(crate) struct Selftest {
    /// TensorFlow's library, or a folder that has it
    #[arg(long, value_name = "PATH", default_value = "")]
    tensorflow_library: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Perform for Selftest {
    fn perform(self) -> Result<ExitCode> {
        main(&self)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn main(args: &Selftest) -> Result<()> {
    server::start_logging(config::flags::LogFormat::Text);
    let Some(library) = config::engines::find(&args.tensorflow_library)? else {
        bail!("there is no TensorFlow: {}", tensorflow::HOW_TO_INSTALL);
    };
    let tell = |line: &str| {
        if !args.json {
            say!("{line}");
        }
    };
    tell(&format!("library   {}", library.display()));
    let folder = tempdir()?;
    let trial = Trial::new(&library, &folder.0)?;
    trial.found.iter().for_each(|line| tell(line));
    let (mut n_failed, mut steps) = (0, Vec::new());
    for (name, step) in STEPS {
        let outcome = step(&trial);
        n_failed += usize::from(outcome.is_err());
        let (word, said) = match &outcome {
            Ok(said) => ("ok", said.clone()),
            Err(error) => ("FAILED", format!("{error:#}")),
        };
        tell(&format!("{word:<9} {name}: {said}"));
        steps.push(json!({"name": name, "is_ok": outcome.is_ok(), "text": said}));
    }
    if args.json {
        let library = library.display().to_string();
        say!("{:#}", json!({"library": library, "found": trial.found, "steps": steps}));
    }
    ensure!(n_failed == 0, "{n_failed} of {} failed", STEPS.len());
    Ok(())
}

/// The state that the trials share.
struct Trial {
    workers: Workers,
    dir: storage::Storage,
    nvml: Option<Nvml>,
    used_before: Vec<u64>,
    /// A line for each GPU.
    found: Vec<String>,
}

impl Trial {
    fn new(library: &Path, folder: &Path) -> Result<Self> {
        model::write(folder)?;
        let nvml = Nvml::open();
        let gpus = nvml.as_ref().map(Nvml::snapshot).unwrap_or_default();
        let line = |Gpu { index, name, total_bytes, used_bytes, .. }: &Gpu| {
            let (total, used) = (total_bytes >> 20, used_bytes >> 20);
            format!("GPU {index}     {name}, {total} MiB, {used} MiB in use")
        };
        let mut found: Vec<String> = gpus.iter().map(line).collect();
        if gpus.is_empty() {
            found.push("GPUs      none that the NVIDIA driver knows".to_owned());
        }
        let session =
            tensorflow::session_config(&ConfigProto::default(), Threads::default(), &growing());
        Ok(Self {
            workers: Workers::new(config::engines::options(library, session)),
            dir: storage::open(&folder.to_string_lossy())?,
            nvml,
            found,
            used_before: gpus.iter().map(|gpu| gpu.used_bytes).collect(),
        })
    }

    fn gpus(&self) -> Vec<Gpu> {
        self.nvml.as_ref().map(Nvml::snapshot).unwrap_or_default()
    }

    fn load(&self, settings: &ModelSettings) -> Result<Servable> {
        let (model, dir) = ("selftest", &self.dir);
        let (is_cancelled, admit) = (&|| false, &|_: &_| Ok(()));
        let request = Request { model, version: 1, dir, settings, is_cancelled, admit };
        Ok(self.workers.load(&request)?)
    }

    fn shared(&self) -> Result<String> {
        let start = Instant::now();
        let servable = self.load(&ModelSettings::default())?;
        let loaded = start.elapsed();
        let start = Instant::now();
        check(&servable)?;
        let ran = start.elapsed();
        let worker = self.workers.snapshot().pop().context("there is no worker")?;
        let resident = worker.resident_bytes >> 20;
        let sees_gpu = worker.devices.iter().any(|device| device.contains("GPU"));
        ensure!(
            sees_gpu || self.gpus().is_empty(),
            "the driver has GPUs, but TensorFlow sees {:?}; see the lines above, and install \
             tensorflow[and-cuda]",
            worker.devices
        );
        Ok(format!(
            "TensorFlow {} on {}; loaded in {loaded:.1?}, first run {ran:.1?}, {resident} MiB \
             resident",
            worker.tensorflow_version,
            worker.devices.join(" ")
        ))
    }

    fn limited(&self) -> Result<String> {
        let gpu = GpuOptions { memory_limit_bytes: Some(GPU_LIMIT_BYTES), ..growing() };
        let session = tensorflow::session_config(&ConfigProto::default(), Threads::default(), &gpu);
        let servable =
            self.load(&ModelSettings { session: Some(session), ..ModelSettings::default() })?;
        check(&servable)?;
        let pid = self.workers.snapshot().iter().find_map(|worker| worker.pid);
        let gpus = self.gpus();
        let processes = gpus.iter().flat_map(|gpu| &gpu.processes);
        let held = processes.filter(|process| Some(process.pid) == pid);
        let held: u64 = held.filter_map(|process| process.used_bytes).sum();
        ensure!(
            held <= GPU_LIMIT_BYTES + GPU_OVERHEAD_BYTES,
            "the worker holds {} MiB of a GPU with a limit of {} MiB",
            held >> 20,
            GPU_LIMIT_BYTES >> 20
        );
        if gpus.is_empty() {
            return Ok("accepted; there is no GPU to hold it to".to_owned());
        }
        let (held, limit) = (held >> 20, GPU_LIMIT_BYTES >> 20);
        Ok(format!("holds {held} MiB of a GPU with a limit of {limit} MiB"))
    }

    fn given_back(&self) -> Result<String> {
        ensure!(self.workers.snapshot().is_empty(), "a worker is left");
        for (gpu, before) in self.gpus().iter().zip(&self.used_before) {
            ensure!(
                gpu.used_bytes <= before + (64 << 20),
                "GPU {} had {} MiB in use before and has {} MiB now",
                gpu.index,
                before >> 20,
                gpu.used_bytes >> 20
            );
        }
        Ok("no worker is left, and no memory of a GPU is held".to_owned())
    }
}

fn growing() -> GpuOptions {
    GpuOptions { allow_growth: Some(true), ..GpuOptions::default() }
}

/// Runs the model, and compares its answer with our own arithmetic.
fn check(servable: &Servable) -> Result<()> {
    let x = model::input();
    let run = Run {
        signature: session::DEFAULT_SIGNATURE.to_owned(),
        inputs: vec![Tensor::from_slice(model::shape(), &x)?],
        outputs: vec![0],
        deadline: None,
        level: None,
        is_cancelled: Arc::default(),
    };
    let (send, receive) = std::sync::mpsc::channel();
    // If nobody waits any more, the answer is of no use to anybody.
    servable.engine.start(run, Box::new(move |answer| drop(send.send(answer))));
    let outputs = receive.recv().context("the run was lost")??;
    let got = outputs.first().context("there is no output")?.as_slice::<f32>();
    let want = model::answer(&x);
    ensure!(got.len() == want.len(), "{} elements instead of {}", got.len(), want.len());
    // GPUs may multiply in lower precision.
    let fits = |(got, want): (&f32, &f32)| (got - want).abs() <= 1e-2 * want.abs().max(1.0);
    ensure!(got.iter().zip(&want).all(fits), "the answer is not the product of the matrices");
    Ok(())
}

/// A folder for the model, gone when it is dropped.
struct Folder(std::path::PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left lies among other temporary files.
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn tempdir() -> Result<Folder> {
    let name = format!("tensord-selftest-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(Folder(folder))
}
