//! `Config`: what the flags and files mean, validated.

mod address;
mod management;
mod models;
mod platform;
mod session;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use lifecycle::{LabelRule, Missing, Policy, Poll, RetryRule, StartWhen};
use proto::serving::{ModelConfig, SessionBundleConfig};

use crate::batching;
use crate::cli::Persona;
use crate::commands::{n_cpus, split_tags};
use crate::control::{self, Roots};
use crate::devices::DeviceOptions;
use crate::flags::{self, Flags};
use crate::model_config::{self, Rules};

pub(crate) use address::Address;
pub(crate) use management::{DataPort, Management};
pub(crate) use session::{FORCE_GROWTH, Session, session_config};

/// The port of the REST API under our own name.
const REST_PORT: u16 = 8501;

/// How many models are looked at at once. Each look has a thread, whose stack and share of the heap
/// the process then keeps; a look takes microseconds where the disk does not hang.
const LOOKS_MAX: usize = 4;

/// How long a version's files must have rested to be taken at the first look.
const SETTLE: Duration = Duration::from_millis(200);

/// How long to wait before the first retry under our own name; the wait doubles from there.
const RETRY_FIRST: Duration = Duration::from_secs(1);

/// The longest that a run may take under our own name, in seconds.
const RUN_SECONDS_MAX: u64 = 300;

/// How often the model config file is looked at under our own name, in seconds.
const CONFIG_POLL_SECONDS: i64 = 1;

/// What is served, where and how.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) grpc_port: Option<u16>,
    pub(crate) grpc_socket: Option<PathBuf>,
    pub(crate) rest_port: Option<u16>,
    /// Where the ports above listen; everywhere without it.
    pub(crate) bind_address: Option<IpAddr>,
    /// Where the server is changed.
    pub(crate) management: Management,
    /// The models to begin with.
    pub(crate) models: Vec<ModelConfig>,
    /// The file that lists the models, if one does.
    pub(crate) model_config_file: Option<ModelConfigFile>,
    /// How the list of models is changed.
    pub(crate) control: control::Options,
    pub(crate) lifecycle: lifecycle::Options,
    pub(crate) tags: Vec<String>,
    pub(crate) session: Session,
    /// How versions are warmed up, if they are.
    pub(crate) warmup: Option<Warmup>,
    pub(crate) n_lanes: usize,
    /// The longest that a run may take.
    pub(crate) run_max: Option<Duration>,
    pub(crate) n_threads: usize,
    pub(crate) batching: batching::Settings,
    /// How long everything is served on after the signal to stop, but for readiness.
    pub(crate) lame_duck: Duration,
    pub(crate) shutdown_grace: Duration,
    pub(crate) devices: DeviceOptions,
    /// Whether a model that does not load ends the process, as under TensorFlow Serving's name.
    pub(crate) must_load_all: bool,
}

/// The file that lists the models.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ModelConfigFile {
    pub(crate) path: PathBuf,
    /// What it said at the start.
    pub(crate) text: String,
    /// How often it is looked at.
    pub(crate) poll: Option<Duration>,
}

/// How a version is warmed up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Warmup {
    /// How often each request is run.
    pub(crate) n_iterations: u32,
    /// How many requests run at once.
    pub(crate) n_threads: usize,
    /// How long all of it may take.
    pub(crate) timeout: Option<Duration>,
}

impl Config {
    /// What the flags mean. Reads the files they name.
    pub(crate) fn new(persona: Persona, flags: &Flags) -> Result<Self> {
        let is_tensord = persona == Persona::Tensord;
        let rest_port = flags.rest_api_port.unwrap_or(if is_tensord { REST_PORT } else { 0 });
        let socket = &flags.grpc_socket_path;
        check(persona, flags)?;
        let platform = platform::read(flags)?;
        let (n_lanes, n_threads) = threads(flags, platform.as_ref())?;
        let batching = batching::Settings::new(persona, flags)?;
        let n_lanes = batching.n_lanes()?.unwrap_or(n_lanes);
        let policy = match flags.aspired_version_policy {
            flags::AspiredVersionPolicy::AvailabilityPreserving => Policy::AvailabilityPreserving,
            flags::AspiredVersionPolicy::ResourcePreserving => Policy::ResourcePreserving,
        };
        let model_config_file = model_config_file(persona, flags)?;
        Ok(Self {
            grpc_port: (flags.port != 0).then_some(flags.port),
            grpc_socket: (!socket.is_empty()).then(|| PathBuf::from(socket)),
            rest_port: (rest_port != 0).then_some(rest_port),
            bind_address: management::bind_address(&flags.bind_address)?,
            management: Management::new(persona, flags)?,
            models: match &model_config_file {
                Some(file) => model_config::read(&file.text, &file.path)?,
                None => models::models(persona, flags)?,
            },
            model_config_file,
            control: control::Options {
                rules: Rules { persona, policy },
                roots: Roots::new(&flags.model_roots)?,
                state_dir: flags.state_dir.clone(),
            },
            lifecycle: lifecycle_options(persona, flags),
            tags: platform
                .as_ref()
                .filter(|bundle| !bundle.saved_model_tags.is_empty())
                .map_or_else(
                    || split_tags(&flags.saved_model_tags),
                    |bundle| bundle.saved_model_tags.clone(),
                ),
            session: Session::new(flags, platform.as_ref())?,
            warmup: warmup(flags, platform.as_ref()),
            n_lanes,
            run_max: run_max(persona, flags),
            n_threads,
            batching,
            lame_duck: Duration::from_secs(flags.lame_duck_seconds),
            shutdown_grace: Duration::from_secs(flags.shutdown_grace_seconds),
            devices: DeviceOptions::new(flags)?,
            must_load_all: !is_tensord,
        })
    }
}

/// The longest that a run may take. TensorFlow Serving knows no such limit.
fn run_max(persona: Persona, flags: &Flags) -> Option<Duration> {
    let default = match persona {
        Persona::Tensord => RUN_SECONDS_MAX,
        Persona::TensorFlowModelServer => 0,
    };
    let seconds = flags.max_run_seconds.unwrap_or(default);
    (seconds > 0).then(|| Duration::from_secs(seconds))
}

/// What TensorFlow Serving's `server.cc` refuses, in its words.
fn check(persona: Persona, flags: &Flags) -> Result<()> {
    ensure!(
        flags.port != 0 || !flags.grpc_socket_path.is_empty() || persona == Persona::Tensord,
        "At least one of server_options.grpc_port or server_options.grpc_socket_path must be set."
    );
    ensure!(
        !flags.use_alts_credentials || flags.ssl_config_file.is_empty(),
        "Either use_alts_credentials must be false or ssl_config_file must be empty."
    );
    if flags.use_alts_credentials {
        bail!(
            "--use_alts_credentials: ALTS works only inside Google's network and is not built in"
        );
    }
    Ok(())
}

/// The most threads of a kind that a platform config may ask for.
const THREADS_MAX: i32 = 4096;

/// The numbers of lanes and of threads within one request. A platform config stands in for the
/// flags.
fn threads(flags: &Flags, platform: Option<&SessionBundleConfig>) -> Result<(usize, usize)> {
    let (inter, intra) =
        (flags.tensorflow_inter_op_parallelism, flags.tensorflow_intra_op_parallelism);
    let both = flags.tensorflow_session_parallelism;
    ensure!(
        both == 0 || (inter == 0 && intra == 0),
        "--tensorflow_session_parallelism sets both --tensorflow_inter_op_parallelism and \
         --tensorflow_intra_op_parallelism: give it or them, not both"
    );
    let or_cpus = |n: usize| if n == 0 { n_cpus() } else { n };
    let Some(bundle) = platform else {
        return Ok((or_cpus(inter.max(both)), or_cpus(intra.max(both))));
    };
    let session = bundle.session_config.clone().unwrap_or_default();
    // As in TensorFlow, fewer than none are as many as it sees fit.
    let number = |n: i32| or_cpus(usize::try_from(n).unwrap_or(0));
    let (inter, intra) =
        (session.inter_op_parallelism_threads, session.intra_op_parallelism_threads);
    ensure!(
        inter.max(intra) <= THREADS_MAX,
        "the platform config asks for {} threads, but {THREADS_MAX} is the most",
        inter.max(intra)
    );
    Ok((number(inter), number(intra)))
}

fn model_config_file(persona: Persona, flags: &Flags) -> Result<Option<ModelConfigFile>> {
    if flags.model_config_file.is_empty() {
        return Ok(None);
    }
    let path = PathBuf::from(&flags.model_config_file);
    let text = model_config::read_text(&path)?;
    // 0 means that it is read once.
    let default = if persona == Persona::Tensord { CONFIG_POLL_SECONDS } else { 0 };
    let seconds = flags.model_config_file_poll_wait_seconds.unwrap_or(default);
    let poll = u64::try_from(seconds).ok().filter(|seconds| *seconds > 0);
    Ok(Some(ModelConfigFile { path, text, poll: poll.map(Duration::from_secs) }))
}

fn lifecycle_options(persona: Persona, flags: &Flags) -> lifecycle::Options {
    let poll = match flags.file_system_poll_wait_seconds {
        0 => Poll::Once,
        seconds => u64::try_from(seconds)
            .map_or(Poll::Never, |seconds| Poll::Every(Duration::from_secs(seconds))),
    };
    let or = |n: usize, default: usize| if n == 0 { default } else { n };
    let interval = u64::try_from(flags.load_retry_interval_micros).unwrap_or(0);
    let label_rule = match persona {
        Persona::Tensord => LabelRule::Anywhere,
        Persona::TensorFlowModelServer if flags.allow_version_labels_for_unavailable_models => {
            LabelRule::NewAnywhere
        }
        Persona::TensorFlowModelServer => LabelRule::Available,
    };
    let start_when = match (flags.start_when, persona) {
        (Some(flags::StartWhen::All), _) | (None, Persona::TensorFlowModelServer) => StartWhen::All,
        (Some(flags::StartWhen::Any), _) | (None, Persona::Tensord) => StartWhen::Any,
    };
    lifecycle::Options {
        poll,
        settle: SETTLE,
        complete_with: vec!["saved_model.pb".to_owned(), "saved_model.pbtxt".to_owned()],
        n_looks_max: LOOKS_MAX,
        look_timeout: Duration::from_secs(10),
        n_load_threads: or(flags.num_load_threads, 4 * n_cpus()),
        n_unload_threads: or(flags.num_unload_threads, 1),
        load_retries_max: flags.max_num_load_retries,
        load_retry_rule: match persona {
            Persona::Tensord => RetryRule::Curable,
            Persona::TensorFlowModelServer => RetryRule::All,
        },
        load_retry_first: match persona {
            Persona::Tensord => RETRY_FIRST,
            Persona::TensorFlowModelServer => Duration::from_micros(interval),
        },
        load_retry_interval: Duration::from_micros(interval),
        missing: match persona {
            Persona::Tensord => Missing::Fails,
            Persona::TensorFlowModelServer => Missing::Waits,
        },
        label_rule,
        start_when,
    }
}

/// How versions are warmed up. A platform config stands in for the flags.
fn warmup(flags: &Flags, platform: Option<&SessionBundleConfig>) -> Option<Warmup> {
    let timeout = Some(flags.warmup_timeout_seconds).filter(|seconds| *seconds > 0);
    let timeout = timeout.map(Duration::from_secs);
    let at_least_one = |n: i32| u32::try_from(n).unwrap_or(0).max(1);
    let Some(bundle) = platform else {
        let n_iterations = at_least_one(flags.num_request_iterations_for_warmup);
        let warmup = Warmup { n_iterations, n_threads: 1, timeout };
        return flags.enable_model_warmup.then_some(warmup);
    };
    let options = bundle.model_warmup_options.clone().unwrap_or_default();
    let n_iterations = at_least_one(options.num_request_iterations.unwrap_or(1));
    let n_threads = at_least_one(options.num_model_warmup_threads.unwrap_or(1)).min(64) as usize;
    bundle.enable_model_warmup.then_some(Warmup { n_iterations, n_threads, timeout })
}

/// Reads a text proto from a file that a flag names.
fn read_proto<T: prost::Message + prost::Name + Default>(path: &str) -> Result<T> {
    let text = model_config::read_text(Path::new(path))?;
    proto::text::parse(&text).map_err(|error| anyhow::anyhow!("{path}:{error}"))
}

#[cfg(test)]
mod tests;
