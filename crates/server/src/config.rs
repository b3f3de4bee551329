//! `Config`: what the flags and files mean, validated.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use lifecycle::{LabelRule, ModelOptions, Policy, Poll, StartWhen, VersionPolicy};

use crate::cli::Persona;
use crate::commands::{n_cpus, split_tags};
use crate::discover::discover;
use crate::flags::Flags;
use crate::model_config;

/// The port of the REST API under our own name.
const REST_PORT: u16 = 8501;

/// How long a version's files must have rested to be taken at the first look.
const SETTLE: Duration = Duration::from_millis(200);

/// What is served, where and how.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) grpc_port: Option<u16>,
    pub(crate) grpc_socket: Option<PathBuf>,
    pub(crate) rest_port: Option<u16>,
    pub(crate) models: Vec<ModelOptions>,
    pub(crate) lifecycle: lifecycle::Options,
    pub(crate) tags: Vec<String>,
    pub(crate) n_lanes: usize,
    pub(crate) n_threads: usize,
    pub(crate) shutdown_grace: Duration,
    /// Whether a model that does not load ends the process, as under TensorFlow Serving's name.
    pub(crate) must_load_all: bool,
}

impl Config {
    /// What the flags mean. Reads the files they name.
    pub(crate) fn new(persona: Persona, flags: &Flags) -> Result<Self> {
        let is_tensord = persona == Persona::Tensord;
        let rest_port = flags.rest_api_port.unwrap_or(if is_tensord { REST_PORT } else { 0 });
        let socket = &flags.grpc_socket_path;
        ensure!(
            flags.port != 0 || !socket.is_empty() || is_tensord,
            "At least one of server_options.grpc_port or server_options.grpc_socket_path must be \
             set."
        );
        let (n_lanes, n_threads) = threads(flags)?;
        Ok(Self {
            grpc_port: (flags.port != 0).then_some(flags.port),
            grpc_socket: (!socket.is_empty()).then(|| PathBuf::from(socket)),
            rest_port: (rest_port != 0).then_some(rest_port),
            models: models(persona, flags)?,
            lifecycle: lifecycle_options(flags),
            tags: split_tags(&flags.saved_model_tags),
            n_lanes,
            n_threads,
            shutdown_grace: Duration::from_secs(flags.shutdown_grace_seconds),
            must_load_all: !is_tensord,
        })
    }
}

/// The numbers of lanes and of threads within one request.
fn threads(flags: &Flags) -> Result<(usize, usize)> {
    let (inter, intra) =
        (flags.tensorflow_inter_op_parallelism, flags.tensorflow_intra_op_parallelism);
    let both = flags.tensorflow_session_parallelism;
    ensure!(
        both == 0 || (inter == 0 && intra == 0),
        "--tensorflow_session_parallelism sets both --tensorflow_inter_op_parallelism and \
         --tensorflow_intra_op_parallelism: give it or them, not both"
    );
    let or_cpus = |n: usize| if n == 0 { n_cpus() } else { n };
    Ok((or_cpus(inter.max(both)), or_cpus(intra.max(both))))
}

fn lifecycle_options(flags: &Flags) -> lifecycle::Options {
    let poll = match flags.file_system_poll_wait_seconds {
        0 => Poll::Once,
        seconds => u64::try_from(seconds)
            .map_or(Poll::Never, |seconds| Poll::Every(Duration::from_secs(seconds))),
    };
    let or = |n: usize, default: usize| if n == 0 { default } else { n };
    let interval = u64::try_from(flags.load_retry_interval_micros).unwrap_or(0);
    lifecycle::Options {
        poll,
        settle: SETTLE,
        complete_with: vec!["saved_model.pb".to_owned(), "saved_model.pbtxt".to_owned()],
        n_looks_max: 16,
        look_timeout: Duration::from_secs(10),
        n_load_threads: or(flags.num_load_threads, 4 * n_cpus()),
        n_unload_threads: or(flags.num_unload_threads, 1),
        load_retries_max: flags.max_num_load_retries,
        load_retry_interval: Duration::from_micros(interval),
        label_rule: if flags.allow_version_labels_for_unavailable_models {
            LabelRule::NewAnywhere
        } else {
            LabelRule::Available
        },
        start_when: StartWhen::All,
    }
}

/// The models that the flags name, by file, by pairs or by folders.
fn models(persona: Persona, flags: &Flags) -> Result<Vec<ModelOptions>> {
    if !flags.model_config_file.is_empty() {
        return model_config::read(Path::new(&flags.model_config_file));
    }
    let mut models = pairs(flags)?;
    let mut dirs = flags.dirs.clone();
    if models.is_empty() && dirs.is_empty() {
        ensure!(
            persona == Persona::Tensord,
            "Both server_options.model_base_path and server_options.model_config_file are empty!"
        );
        let demo = PathBuf::from("models");
        ensure!(
            demo.is_dir(),
            "nothing to serve: give a folder (a SavedModel, a model with versions, or a folder of \
             models), --model_base_path or --model_config_file"
        );
        dirs.push(demo);
    }
    for found in discover(&dirs)? {
        let base_path = found.base_path.to_string_lossy().into_owned();
        let versions = match found.version {
            Some(version) => VersionPolicy::Specific(vec![version]),
            None => VersionPolicy::Latest(1),
        };
        models.push(ModelOptions { versions, ..model(found.name, base_path) });
    }
    Ok(models)
}

/// Names and base paths, each name with the path beside it.
fn pairs(flags: &Flags) -> Result<Vec<ModelOptions>> {
    let (names, paths) = (&flags.model_name, &flags.model_base_path);
    if names.is_empty() && paths.len() == 1 {
        return Ok(vec![model("default".to_owned(), absolute(&paths[0])?)]);
    }
    if names.len() != paths.len() {
        bail!(
            "{} --model_name but {} --model_base_path: give one base path for each name",
            names.len(),
            paths.len()
        );
    }
    names.iter().zip(paths).map(|(name, path)| Ok(model(name.clone(), absolute(path)?))).collect()
}

/// A path that does not depend on where the server was started; a URL stays.
fn absolute(path: &str) -> Result<String> {
    if path.contains("://") {
        return Ok(path.to_owned());
    }
    let path = std::path::absolute(path).with_context(|| format!("base path {path}"))?;
    Ok(path.to_string_lossy().into_owned())
}

/// A model with the usual settings.
pub(crate) fn model(name: String, base_path: String) -> ModelOptions {
    ModelOptions {
        name,
        base_path,
        platform: "tensorflow".to_owned(),
        versions: VersionPolicy::Latest(1),
        policy: Policy::AvailabilityPreserving,
        labels: BTreeMap::new(),
    }
}
