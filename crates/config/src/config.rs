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
use api::{Hints, MethodNames};
use lifecycle::{LabelRule, Missing, Policy, Poll, RetryRule, StartWhen};
use proto::serving::{ModelConfig, SessionBundleConfig};

use crate::batching;
use crate::control::{self, Roots};
use crate::defaults::{n_cpus, split_tags};
use crate::devices::DeviceOptions;
use crate::flags::{self, Flags};
use crate::model_config::{self, Rules};
use crate::persona::Persona;

pub use address::Address;
pub use management::{DataPort, Management};
pub use session::{FORCE_GROWTH, Session, session_config};

/// The port of the REST API under our own name.
const REST_PORT: u16 = 8501;

/// The number of models that are looked at at once. Each look has a thread, whose stack and share
/// of the heap the process then keeps; a look takes microseconds where the disk does not hang.
const LOOKS_MAX: usize = 4;

/// The time for which a version's files must have rested to be taken at the first look.
const SETTLE: Duration = Duration::from_millis(200);

/// The wait before the first retry under our own name; the wait doubles from there.
const RETRY_FIRST: Duration = Duration::from_secs(1);

/// The longest that a run may take under our own name, in seconds.
const RUN_SECONDS_MAX: u64 = 300;

/// The interval at which the model config file is read under our own name, in seconds.
const CONFIG_POLL_SECONDS: i64 = 1;

/// The validated config of a server.
#[derive(Debug, Clone)]
pub struct Config {
    /// The port of gRPC, if it has one.
    pub grpc_port: Option<u16>,
    /// The path of gRPC's UNIX socket, if it has one.
    pub grpc_socket: Option<PathBuf>,
    /// The port of REST, if it has one.
    pub rest_port: Option<u16>,
    /// The address on which the ports above listen; every address without it.
    pub bind_address: Option<IpAddr>,
    /// The settings of the management address.
    pub management: Management,
    /// The models to begin with.
    pub models: Vec<ModelConfig>,
    /// The file that lists the models, if one does.
    pub model_config_file: Option<ModelConfigFile>,
    /// The settings for changes of the list of models.
    pub control: control::Options,
    /// The settings for loading and unloading versions.
    pub lifecycle: lifecycle::Options,
    /// The tags of the meta graph that is served.
    pub tags: Vec<String>,
    /// The settings of the session config.
    pub session: Session,
    /// The settings for warming up versions, if they are warmed up.
    pub warmup: Option<Warmup>,
    /// The number of batches that run at once on a device.
    pub n_lanes: usize,
    /// The longest that a run may take.
    pub run_max: Option<Duration>,
    /// The number of threads that a kernel may use.
    pub n_threads: usize,
    /// The batching settings.
    pub batching: batching::Settings,
    /// The time for which everything but readiness is served on after the signal to stop.
    pub lame_duck: Duration,
    /// The longest time that requests may take after the signal to stop.
    pub shutdown_grace: Duration,
    /// The settings of the devices that are found.
    pub devices: DeviceOptions,
    /// `true` if a model that does not load ends the process, as under TensorFlow Serving's name.
    pub must_load_all: bool,
    /// The switch of hints behind refusals.
    pub hints: Hints,
    /// The check that the method name of a signature fits the call.
    pub method_names: MethodNames,
}

/// The file that lists the models.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelConfigFile {
    /// The path of the file.
    pub path: PathBuf,
    /// The text of the file at the start.
    pub text: String,
    /// The interval at which the file is read again.
    pub poll: Option<Duration>,
}

/// The settings for warming up a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Warmup {
    /// The number of times that each request is run.
    pub n_iterations: u32,
    /// The number of requests that run at once.
    pub n_threads: usize,
    /// The longest time that the whole warm-up may take.
    pub timeout: Option<Duration>,
}

impl Config {
    /// Builds the config from the flags. Reads the files they name.
    pub fn new(persona: Persona, flags: &Flags) -> Result<Self> {
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
            hints: match flags.error_hints.unwrap_or(is_tensord) {
                true => Hints::Shown,
                false => Hints::Hidden,
            },
            method_names: match flags.enable_signature_method_name_check {
                true => MethodNames::Checked,
                false => MethodNames::Unchecked,
            },
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

/// Refuses flags that TensorFlow Serving's `server.cc` refuses, in its words.
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

/// Returns the warm-up settings. A platform config stands in for the flags.
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
