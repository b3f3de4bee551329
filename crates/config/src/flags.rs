//! The command line of `serve`: what was typed, under TensorFlow Serving's names and with its
//! defaults. The doc comment of a flag is its help.
//!
//! Flags that have no meaning here are accepted and said to be so once: see `IGNORED`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum};

/// Flags of TensorFlow Serving that change nothing here, and why.
pub const IGNORED: &[(&str, &str)] = &[
    ("grpc_max_threads", "requests are not bound to threads"),
    ("rest_api_num_threads", "requests are not bound to threads"),
    ("flush_filesystem_caches", "files are read once and not cached"),
    ("remove_unused_fields_from_bundle_metagraph", "only what is served is kept"),
    ("thread_pool_factory_config_file", "there are no thread pool factories"),
    ("mixed_precision", "computation is in the model's own precision"),
    ("prefer_tflite_model", "TensorFlow Lite models are not served"),
    ("num_tflite_pools", "TensorFlow Lite models are not served"),
    ("num_tflite_interpreters_per_pool", "TensorFlow Lite models are not served"),
    ("xla_cpu_compilation_enabled", "plans are compiled by tensord itself"),
    ("xla_gpu_compilation_enabled", "plans are compiled by tensord itself"),
    ("skip_initialize_tpu", "there are no TPUs"),
];

/// The flags of `serve`.
#[derive(Debug, Clone, Args)]
#[command(rename_all = "snake_case")]
pub struct Flags {
    /// SavedModels, models with versions, or folders of models to serve
    #[arg(value_name = "DIR")]
    pub dirs: Vec<PathBuf>,

    /// Port of the gRPC API; 0 turns it off
    #[arg(long, value_name = "PORT", default_value_t = 8500, help_heading = "gRPC")]
    pub port: u16,
    /// Address of this machine that gRPC and REST listen on [default: all of them]
    #[arg(long, value_name = "ADDRESS", default_value = "", help_heading = "gRPC")]
    pub bind_address: String,
    /// UNIX socket of the gRPC API
    #[arg(long, value_name = "PATH", default_value = "", help_heading = "gRPC")]
    pub grpc_socket_path: String,
    /// Settings of gRPC connections, as key=value pairs with commas between them
    #[arg(long, value_name = "K=V,…", default_value = "", help_heading = "gRPC")]
    pub grpc_channel_arguments: String,
    /// File with an SSLConfig (text proto): TLS for gRPC and REST; read again when it changes
    #[arg(long, value_name = "FILE", default_value = "", help_heading = "gRPC")]
    pub ssl_config_file: String,
    /// Serve grpc.health.v1.Health, which follows readiness
    #[arg(
        long,
        action = ArgAction::Set,
        default_value_t = false,
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true,
        help_heading = "gRPC"
    )]
    pub enable_grpc_healthcheck_service: bool,
    /// Answer TensorFlow's profiler client with the counters of the server
    #[arg(
        long,
        action = ArgAction::Set,
        default_value_t = true,
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true,
        help_heading = "gRPC"
    )]
    pub enable_profiler: bool,
    /// Serve gRPC reflection
    #[arg(
        long,
        action = ArgAction::Set,
        default_value_t = false,
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true,
        help_heading = "gRPC"
    )]
    pub enable_grpc_reflection: bool,
    /// Use Google's ALTS, which is not built in: refused if true
    #[arg(
        long,
        action = ArgAction::Set,
        default_value_t = false,
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true,
        help_heading = "gRPC"
    )]
    pub use_alts_credentials: bool,

    /// Port of the REST API; 0 turns it off [default: 8501 under tensord, off under
    /// tensorflow_model_server]
    #[arg(long, value_name = "PORT", help_heading = "REST")]
    pub rest_api_port: Option<u16>,
    /// How long a REST request may run, in milliseconds; 0 or less means for ever
    #[arg(
        long,
        value_name = "MS",
        default_value_t = 30_000,
        allow_negative_numbers = true,
        help_heading = "REST"
    )]
    pub rest_api_timeout_in_ms: i64,
    /// Answer with CORS headers
    #[arg(
        long,
        action = ArgAction::Set,
        default_value_t = false,
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true,
        help_heading = "REST"
    )]
    pub rest_api_enable_cors_support: bool,
    /// The web page at /ui of the REST port, under tensord also at /
    #[arg(long, value_enum, value_name = "SWITCH", default_value_t = Ui::On, help_heading = "REST")]
    pub ui: Ui,

    /// Name of a model; may be repeated, each name goes with the base path beside it
    #[arg(long, value_name = "NAME", help_heading = "Models")]
    pub model_name: Vec<String>,
    /// Folder of a model's versions; may be repeated
    #[arg(long, value_name = "DIR", help_heading = "Models")]
    pub model_base_path: Vec<String>,
    /// File with a ModelServerConfig, as text proto or JSON
    #[arg(long, value_name = "FILE", default_value = "", help_heading = "Models")]
    pub model_config_file: String,
    /// Look whether the model config file changed every so many seconds; 0 means never [default: 1
    /// under tensord, 0 under tensorflow_model_server]
    #[arg(long, value_name = "S", allow_negative_numbers = true, help_heading = "Models")]
    pub model_config_file_poll_wait_seconds: Option<i64>,
    /// Look for new versions every so many seconds; 0 means once, below 0 never
    #[arg(
        long,
        value_name = "S",
        default_value_t = 1,
        allow_negative_numbers = true,
        help_heading = "Models"
    )]
    pub file_system_poll_wait_seconds: i64,
    /// Let a new label point to a version that is not available yet
    #[arg(
        long,
        action = ArgAction::Set,
        default_value_t = false,
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true,
        help_heading = "Models"
    )]
    pub allow_version_labels_for_unavailable_models: bool,
    /// Folder below which clients may add models by the API, which needs at least one; may be
    /// repeated
    #[arg(long, value_name = "DIR", help_heading = "Models")]
    pub model_roots: Vec<PathBuf>,
    /// Address of the calls that change the server (HOST:PORT, a port of this machine alone,
    /// unix:PATH, or off) [default: 127.0.0.1:8502 under tensord, off under
    /// tensorflow_model_server]
    #[arg(long, value_name = "ADDRESS", help_heading = "Access")]
    pub management_address: Option<String>,
    /// Names by which the management address may be called, besides addresses and localhost, with
    /// commas between them
    #[arg(long, value_name = "NAMES", default_value = "", help_heading = "Access")]
    pub management_hosts: String,
    /// Take calls that change the server on the data ports too; if false, not even
    /// HandleReloadConfigRequest [default: that one alone, and all for keys with the right manage]
    #[arg(
        long,
        action = ArgAction::Set,
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true,
        help_heading = "Access"
    )]
    pub management_on_data_port: Option<bool>,
    /// File with the keys that calls need, as text proto or JSON; read again when it changes
    #[arg(long, value_name = "FILE", default_value = "", help_heading = "Access")]
    pub api_keys_file: String,
    /// Folder in which models added by the API are remembered over a restart
    #[arg(long, value_name = "DIR", help_heading = "Models")]
    pub state_dir: Option<PathBuf>,
    /// How one version of a model replaces another, unless its config says so
    #[arg(
        long,
        value_enum,
        value_name = "POLICY",
        default_value_t = AspiredVersionPolicy::AvailabilityPreserving,
        help_heading = "Models"
    )]
    pub aspired_version_policy: AspiredVersionPolicy,
    /// When to be ready: when all models are available or have failed, or at the first available
    /// one [default: any under tensord, all under tensorflow_model_server]
    #[arg(long, value_enum, value_name = "WHICH", help_heading = "Models")]
    pub start_when: Option<StartWhen>,
    /// Tags of the meta graph to serve, with commas between them
    #[arg(long, value_name = "TAGS", default_value = "serve", help_heading = "Models")]
    pub saved_model_tags: String,
    /// Threads that load versions; 0 means four for each CPU
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Models")]
    pub num_load_threads: usize,
    /// Threads that unload versions; 0 means one
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Models")]
    pub num_unload_threads: usize,
    /// How often a failed load is tried again
    #[arg(long, value_name = "N", default_value_t = 5, help_heading = "Models")]
    pub max_num_load_retries: u32,
    /// How long to wait before a failed load is tried again, in microseconds; under tensord the
    /// most: the first wait is 1 s, and it doubles
    #[arg(
        long,
        value_name = "US",
        default_value_t = 60_000_000,
        allow_negative_numbers = true,
        help_heading = "Models"
    )]
    pub load_retry_interval_micros: i64,
    /// Run the warm-up requests of a version before it is served
    #[arg(
        long,
        action = ArgAction::Set,
        default_value_t = true,
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true,
        help_heading = "Models"
    )]
    pub enable_model_warmup: bool,
    /// How often each warm-up request is run; 0 means once
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        allow_negative_numbers = true,
        help_heading = "Models"
    )]
    pub num_request_iterations_for_warmup: i32,
    /// Seconds that the warm-up of a version may take before its load fails; 0 means for ever
    #[arg(long, value_name = "S", default_value_t = 600, help_heading = "Models")]
    pub warmup_timeout_seconds: u64,
    /// File with a ConfigProto (text proto): session settings such as gpu_options
    #[arg(long, value_name = "FILE", default_value = "", help_heading = "Models")]
    pub tensorflow_session_config_file: String,
    /// File with a PlatformConfigMap (text proto); its settings stand in for those of flags
    #[arg(long, value_name = "FILE", default_value = "", help_heading = "Models")]
    pub platform_config_file: String,
    /// Share of each GPU's memory that may be used; 0 means all that is free
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, help_heading = "Models")]
    pub per_process_gpu_memory_fraction: f64,

    /// Refuse signatures whose method name does not fit the call
    #[arg(
        long,
        action = ArgAction::Set,
        default_value_t = false,
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true,
        help_heading = "Requests"
    )]
    pub enable_signature_method_name_check: bool,
    /// Answer with tensor_content instead of typed fields
    #[arg(
        long,
        action = ArgAction::Set,
        default_value_t = false,
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true,
        help_heading = "Requests"
    )]
    pub enable_serialization_as_tensor_content: bool,
    /// Seconds that a run may take before it is stopped with DEADLINE_EXCEEDED; 0 means for ever
    /// [default: 300 under tensord, 0 under tensorflow_model_server]
    #[arg(long, value_name = "S", help_heading = "Requests")]
    pub max_run_seconds: Option<u64>,
    /// The most connections of each port at once. For a further one, the connection is closed whose
    /// client has owed the rest of a request for the longest, or has been idle for the longest
    #[arg(long, value_name = "N", default_value = "10000", help_heading = "Requests")]
    pub max_connections: NonZeroUsize,
    /// Seconds that the head of a REST request may take to come
    #[arg(long, value_name = "S", default_value_t = 30, help_heading = "Requests")]
    pub request_head_seconds: u64,
    /// Seconds that the body of a request, or a message over gRPC, may take to come; 0 means for
    /// ever. One of which nothing comes for 30 s is given up in any case
    #[arg(long, value_name = "S", default_value_t = 0, help_heading = "Requests")]
    pub request_body_seconds: u64,
    /// Bytes a second that the body of a request must come at on average after its first 30 s; 0
    /// means that it may be as slow as it likes
    #[arg(long, value_name = "N", default_value_t = 1024, help_heading = "Requests")]
    pub request_bytes_per_second_min: u64,
    /// Behind each refusal, say how to mend it [default: true under tensord, false under
    /// tensorflow_model_server, whose answers are TensorFlow Serving's byte for byte]
    #[arg(
        long,
        action = ArgAction::Set,
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true,
        help_heading = "Requests"
    )]
    pub error_hints: Option<bool>,
    /// File with a MonitoringConfig (text proto): serves Prometheus metrics on the REST port
    #[arg(long, value_name = "FILE", default_value = "", help_heading = "Requests")]
    pub monitoring_config_file: String,

    /// Merge requests into batches as TensorFlow Serving does [default: under tensord, merge where
    /// rows are proved to be independent; under tensorflow_model_server, do not]
    #[arg(
        long,
        action = ArgAction::Set,
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true,
        help_heading = "Batching"
    )]
    pub enable_batching: Option<bool>,
    /// File with BatchingParameters, as text proto or JSON; read again when it changes
    #[arg(long, value_name = "FILE", default_value = "", help_heading = "Batching")]
    pub batching_parameters_file: String,
    /// Batch each version as batching_params.pbtxt in its folder says, and only those that have one
    #[arg(
        long,
        alias = "enable_per_model_batching_params",
        action = ArgAction::Set,
        default_value_t = false,
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true,
        help_heading = "Batching"
    )]
    pub enable_per_model_batching_parameters: bool,

    /// Threads within one request; 0 means one for each CPU
    #[arg(
        long,
        visible_alias = "intra_op_parallelism_threads",
        value_name = "N",
        default_value_t = 0,
        help_heading = "Threads"
    )]
    pub tensorflow_intra_op_parallelism: usize,
    /// Requests that run at once; 0 means one for each CPU
    #[arg(
        long,
        visible_alias = "inter_op_parallelism_threads",
        value_name = "N",
        default_value_t = 0,
        help_heading = "Threads"
    )]
    pub tensorflow_inter_op_parallelism: usize,
    /// Sets both of the above
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Threads")]
    pub tensorflow_session_parallelism: usize,

    /// What serves models: auto (our own engine if it has every op, else TensorFlow), native or
    /// tensorflow; other engines for some models as auto,MODEL=tensorflow
    #[arg(long, value_name = "ENGINE", default_value = "auto", help_heading = "TensorFlow")]
    pub engine: String,
    /// TensorFlow's library, or a folder that has it [default: $TENSORD_TENSORFLOW, else that of
    /// the active Python]
    #[arg(long, value_name = "PATH", default_value = "", help_heading = "TensorFlow")]
    pub tensorflow_library: String,
    /// How TensorFlow's workers are confined: no network, no programs, no files but their models
    #[arg(
        long,
        value_enum,
        value_name = "HOW",
        default_value_t = WorkerSandbox::Auto,
        help_heading = "TensorFlow"
    )]
    worker_sandbox: WorkerSandbox,
    /// The former name of the above: false for off
    #[arg(
        long,
        action = ArgAction::Set,
        default_value_t = true,
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true,
        help_heading = "TensorFlow"
    )]
    tensorflow_sandbox: bool,
    /// How long TensorFlow may take to load a model, in seconds
    #[arg(long, value_name = "S", default_value_t = 600, help_heading = "TensorFlow")]
    pub tensorflow_load_timeout_seconds: u64,
    /// When a worker is started anew after a model has left it, which gives the memory of GPUs
    /// back
    #[arg(
        long,
        value_enum,
        value_name = "WHEN",
        default_value_t = WhenRenewed::Idle,
        help_heading = "TensorFlow"
    )]
    pub tensorflow_worker_renewal: WhenRenewed,
    /// Say so when a worker holds more memory than this, in MiB; 0 means any
    #[arg(long, value_name = "MIB", default_value_t = 0, help_heading = "TensorFlow")]
    pub tensorflow_worker_memory_limit_mb: u64,
    /// Start a worker that is over its limit anew when it is idle
    #[arg(
        long,
        action = ArgAction::Set,
        default_value_t = false,
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true,
        help_heading = "TensorFlow"
    )]
    pub tensorflow_worker_restart_over_limit: bool,

    /// GPUs that the host plays, with commas between them: sizes, and after an @ each, if wanted,
    /// how much they compute, how fast they copy, what a step takes at least, which allocation
    /// fails, what the driver takes for itself and up to which size it refuses pieces of memory, as
    /// in 4GiB,2GiB@2TFLOPS@12GB/s@10us@fails=7@context=300MiB@refuses=8MiB
    #[arg(long, value_name = "SIZES", default_value = "", help_heading = "Devices")]
    pub simulated_gpus: String,
    /// File with a DeviceConfig, as text proto or JSON: limits, growth and logical devices
    #[arg(long, value_name = "FILE", default_value = "", help_heading = "Devices")]
    pub device_config_file: String,
    /// Whether GPUs take memory as models need it, or all that they may hold at the start
    /// [default: grow, unless TF_FORCE_GPU_ALLOW_GROWTH=false, `allow_growth: false`, or a memory
    /// fraction without `allow_growth`]
    #[arg(long, value_enum, value_name = "HOW", help_heading = "Devices")]
    pub gpu_memory: Option<GpuMemory>,
    /// The least by which the memory of a device grows
    #[arg(long, value_name = "SIZE", default_value = "1MiB", help_heading = "Devices")]
    pub memory_growth_step: String,

    /// Check the flags, the files that they name and the folders of the models, print what is
    /// wrong, and end with 0 if nothing is, else with 1
    #[arg(
        long,
        action = ArgAction::Set,
        default_value_t = false,
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true,
        help_heading = "Process"
    )]
    pub check_config: bool,
    /// How log lines look on standard error
    #[arg(
        long,
        value_enum,
        value_name = "FORMAT",
        default_value_t = LogFormat::Text,
        help_heading = "Process"
    )]
    pub log_format: LogFormat,
    /// Seconds after SIGTERM in which readiness is false but connections and requests are still
    /// taken, for load balancers that are slow to look away; then the server drains
    #[arg(long, value_name = "S", default_value_t = 0, help_heading = "Process")]
    pub lame_duck_seconds: u64,
    /// Seconds that requests in flight are given to finish after SIGTERM
    #[arg(long, value_name = "S", default_value_t = 30, help_heading = "Process")]
    pub shutdown_grace_seconds: u64,
}

impl Flags {
    /// Returns the confinement of workers, under either name of the flag.
    pub fn worker_sandbox(&self) -> WorkerSandbox {
        match self.worker_sandbox {
            WorkerSandbox::Auto if !self.tensorflow_sandbox => WorkerSandbox::Off,
            level => level,
        }
    }
}

/// The confinement of workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WorkerSandbox {
    /// By all that the kernel has
    Auto,
    /// By the whole sandbox: where the kernel lacks some of it, no worker starts
    Required,
    /// Not at all
    Off,
}

/// The order in which one version of a model replaces another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum AspiredVersionPolicy {
    /// The new version is loaded before the old one goes
    AvailabilityPreserving,
    /// The old version goes before the new one is loaded
    ResourcePreserving,
}

/// The web page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Ui {
    /// The REST port answers browsers with the page
    On,
    /// There is no page
    Off,
}

/// The condition on which the server is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum StartWhen {
    /// When every model is available or has failed, and one is available
    All,
    /// When the first model is available; the others load meanwhile
    Any,
}

/// The way in which GPUs take their memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum GpuMemory {
    /// As models need it; what they need at most is promised to them when they are loaded
    Grow,
    /// All that they may hold, at the start
    Reserve,
}

/// The time at which a worker is started anew after a model has left it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum WhenRenewed {
    /// When it is idle and sees a GPU
    Idle,
    /// As soon as what runs has ended
    AtOnce,
    /// Never
    Never,
}

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// A line of text
    Text,
    /// A JSON object on a line
    Json,
}

/// The flags among some words, for tests.
#[doc(hidden)]
pub fn parse(args: &[&str]) -> Flags {
    /// A command line of nothing but flags.
    #[derive(Debug, clap::Parser)]
    #[command(args_override_self = true)]
    struct Words {
        #[command(flatten)]
        flags: Flags,
    }
    let args = ["tensord"].into_iter().chain(args.iter().copied());
    <Words as clap::Parser>::try_parse_from(args).expect("a test's flags are right").flags
}
