//! The engine that serves a model, and the folder of TensorFlow.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use proto::tensorflow::ConfigProto;
use tensorflow::{GpuOptions, MemoryLimit, Places, Program, Renewal, Sandbox, Threads};

use crate::config::{Config, FORCE_GROWTH};
use crate::defaults::n_cpus;
use crate::flags::{Flags, WhenRenewed, WorkerSandbox};

/// The bytes of inputs, and as many of outputs, that a worker may share with the server.
const AREA_BYTES: usize = 4 << 30;

/// The number of runs that may wait for a worker.
const QUEUE_MAX: usize = 10_000;

/// The longest time that TensorFlow may take to load a model if nobody says.
const LOAD_TIMEOUT: Duration = Duration::from_secs(600);

/// The variables of our environment that workers get: what TensorFlow, its libraries and the
/// drivers of GPUs go by.
const PASSED_ON: &[&str] = &[
    "LD_LIBRARY_PATH",
    "NVIDIA_DRIVER_CAPABILITIES",
    "NVIDIA_TF32_OVERRIDE",
    "NVIDIA_VISIBLE_DEVICES",
    "PATH",
    "TZ",
];
const PASSED_ON_PREFIXES: &[&str] =
    &["CUBLAS_", "CUDA_", "CUDNN_", "DNNL_", "KMP_", "MKL_", "OMP_", "ONEDNN_", "TF_", "XLA_"];

/// Variables of other programs whose names begin as TensorFlow's do (Terraform's), and words in the
/// names of those that hold secrets.
const NEVER_PASSED_ON: &[&str] =
    &["TF_VAR_", "TF_CLI_", "CREDENTIAL", "PASS", "SECRET", "TOKEN", "_KEY"];

/// The engine that serves a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Engine {
    /// Our own if it has every op, else TensorFlow if there is one.
    #[default]
    Auto,
    /// Our own.
    Native,
    /// TensorFlow in a worker.
    TensorFlow,
}

/// The engine of each model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Choices {
    default: Engine,
    models: BTreeMap<String, Engine>,
}

impl Choices {
    /// Reads `auto`, or `auto,digits=tensorflow`.
    ///
    /// # Errors
    /// If a word names no engine.
    pub fn parse(text: &str) -> Result<Self> {
        let mut choices = Self::default();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            match word.split_once('=') {
                None => choices.default = engine(word)?,
                Some((model, word)) => {
                    choices.models.insert(model.to_owned(), engine(word)?);
                }
            }
        }
        Ok(choices)
    }

    /// The engine of a model.
    pub fn of(&self, model: &str) -> Engine {
        self.models.get(model).copied().unwrap_or(self.default)
    }

    /// Returns whether any model is to be served by TensorFlow whatever ops it has.
    fn needs_tensorflow(&self) -> bool {
        let mut all = self.models.values().chain([&self.default]);
        all.any(|engine| *engine == Engine::TensorFlow)
    }
}

fn engine(word: &str) -> Result<Engine> {
    match word {
        "auto" => Ok(Engine::Auto),
        "native" => Ok(Engine::Native),
        "tensorflow" => Ok(Engine::TensorFlow),
        _ => bail!("--engine={word}: expected auto, native or tensorflow, for all or as model=…"),
    }
}

/// Finds TensorFlow's library: the one named by the flag or by `TENSORD_TENSORFLOW`, else that of
/// the active Python.
///
/// # Errors
/// If what is named is no such library.
pub fn find(flag: &str) -> Result<Option<PathBuf>> {
    let variable = || std::env::var_os("TENSORD_TENSORFLOW").filter(|value| !value.is_empty());
    let flag = Some(OsString::from(flag)).filter(|flag| !flag.is_empty());
    let given = flag.or_else(variable).map(PathBuf::from);
    Ok(tensorflow::find(&Places { given, python_prefixes: pythons() })?)
}

/// The folders that Pythons are installed in, the active one first.
fn pythons() -> Vec<PathBuf> {
    let named = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(std::env::var_os);
    let mut prefixes: Vec<PathBuf> = named.map(PathBuf::from).collect();
    let path = std::env::var_os("PATH").unwrap_or_default();
    for bin in std::env::split_paths(&path) {
        let python = bin.join("python3");
        if !python.is_file() {
            continue;
        }
        let real = python.canonicalize().ok();
        let prefix = |python: &Path| python.parent()?.parent().map(Path::to_path_buf);
        prefixes.extend(prefix(&python));
        prefixes.extend(real.as_deref().and_then(prefix));
    }
    prefixes.extend(std::env::home_dir().map(|home| home.join(".local")));
    prefixes
}

/// The options of the workers that TensorFlow runs in; `None` if there is no TensorFlow.
///
/// # Errors
/// If a model is to be served by TensorFlow and there is none, or a number is too large.
pub fn worker_options(
    flags: &Flags,
    choices: &Choices,
    config: &Config,
) -> Result<Option<tensorflow::Options>> {
    let Some(library) = find(&flags.tensorflow_library)? else {
        if choices.needs_tensorflow() {
            bail!(
                "--engine=tensorflow, but there is no TensorFlow: {}",
                tensorflow::HOW_TO_INSTALL
            );
        }
        return Ok(None);
    };
    let threads =
        Threads { intra: i32::try_from(config.n_threads)?, inter: i32::try_from(config.n_lanes)? };
    let session =
        tensorflow::session_config(&config.session.shared(), threads, &GpuOptions::default());
    Ok(Some(tensorflow::Options {
        tags: config.tags.clone(),
        n_threads: (4 * n_cpus()).max(config.n_lanes),
        run_max: config.run_max,
        load_timeout: Duration::from_secs(flags.tensorflow_load_timeout_seconds),
        sandbox: match flags.worker_sandbox() {
            WorkerSandbox::Auto => Sandbox::Auto,
            WorkerSandbox::Required => Sandbox::Required,
            WorkerSandbox::Off => Sandbox::Off,
        },
        renewal: match flags.tensorflow_worker_renewal {
            WhenRenewed::Idle => Renewal::WhenIdle,
            WhenRenewed::AtOnce => Renewal::AtOnce,
            WhenRenewed::Never => Renewal::Never,
        },
        memory: memory_limit(flags),
        ..options(&library, session)
    }))
}

fn memory_limit(flags: &Flags) -> Option<MemoryLimit> {
    let bytes = flags.tensorflow_worker_memory_limit_mb.saturating_mul(1 << 20);
    let renews = flags.tensorflow_worker_restart_over_limit;
    (bytes > 0).then_some(MemoryLimit { bytes, renews })
}

/// The usual options.
pub fn options(library: &Path, session: ConfigProto) -> tensorflow::Options {
    tensorflow::Options {
        library: library.to_owned(),
        program: program(),
        environment: environment(),
        tags: vec!["serve".to_owned()],
        area_bytes: AREA_BYTES,
        n_threads: 4 * n_cpus(),
        queue_max: QUEUE_MAX,
        run_max: None,
        load_timeout: LOAD_TIMEOUT,
        sandbox: Sandbox::Auto,
        renewal: Renewal::WhenIdle,
        gpu_devices: gpu_devices(),
        session,
        memory: None,
    }
}

/// Our own program, whatever became of its file since it was started.
fn program() -> Program {
    Program { file: "/proc/self/exe".into(), words: vec!["worker".into()] }
}

/// The device files of NVIDIA's driver; none if it is not loaded.
fn gpu_devices() -> Vec<PathBuf> {
    let devices = std::fs::read_dir("/dev").into_iter().flatten().flatten();
    let is_nvidia = |name: OsString| name.to_string_lossy().starts_with("nvidia");
    let devices = devices.filter(|entry| is_nvidia(entry.file_name()));
    let mut devices: Vec<PathBuf> = devices.map(|entry| entry.path()).collect();
    devices.sort();
    devices
}

fn environment() -> Vec<(OsString, OsString)> {
    let mut all: Vec<(OsString, OsString)> =
        std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_passed_on)).collect();
    let level = "TF_CPP_MIN_LOG_LEVEL";
    if !all.iter().any(|(name, _)| name == level) {
        // Warnings and errors; what TensorFlow says beyond that is about itself.
        all.push((level.into(), "1".into()));
    }
    all
}

/// Returns whether workers get a variable of our environment.
fn is_passed_on(name: &str) -> bool {
    let is_listed =
        PASSED_ON.contains(&name) || PASSED_ON_PREFIXES.iter().any(|start| name.starts_with(start));
    // Session configs say what the variable says: TensorFlow would have it say more than they do.
    let is_said = name == FORCE_GROWTH;
    is_listed && !is_said && !NEVER_PASSED_ON.iter().any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_get_the_settings_of_their_libraries_and_no_secrets() {
        for (names, expected) in [
            ("TF_ENABLE_ONEDNN_OPTS TF_XLA_FLAGS CUDA_VISIBLE_DEVICES XLA_FLAGS", true),
            ("OMP_NUM_THREADS LD_LIBRARY_PATH NVIDIA_VISIBLE_DEVICES PATH TZ", true),
            ("HOME USER AWS_SECRET_ACCESS_KEY PGPASSWORD LD_PRELOAD TMPDIR", false),
            ("TF_TOKEN_app_terraform_io TF_VAR_password TF_CLI_ARGS", false),
            ("NVIDIA_API_KEY CUDA_PASSWORD TF_API_KEY XLA_TOKEN", false),
        ] {
            for name in names.split(' ') {
                assert_eq!(is_passed_on(name), expected, "{name}");
            }
        }
    }

    #[test]
    fn one_engine_for_all_and_others_by_model() {
        let choices = Choices::parse("native, digits=tensorflow,clicks=auto").unwrap();
        assert_eq!(choices.of("digits"), Engine::TensorFlow);
        assert_eq!(choices.of("clicks"), Engine::Auto);
        assert_eq!(choices.of("other"), Engine::Native);
        assert!(choices.needs_tensorflow());
        assert!(!Choices::parse("auto").unwrap().needs_tensorflow());
        assert_eq!(Choices::parse("").unwrap(), Choices::default());
        assert!(Choices::parse("onnx").is_err());
        assert!(Choices::parse("digits=").is_err());
    }
}
