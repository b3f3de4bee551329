//! `Options`: how workers are started and what TensorFlow is told.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use proto::tensorflow::ConfigProto;

/// The settings of the engine.
#[derive(Debug, Clone)]
pub struct Options {
    /// TensorFlow's library.
    pub library: PathBuf,
    /// The program that becomes a worker, and the words before a worker's own arguments.
    pub program: Program,
    /// The environment of workers: nothing else of the server's is passed on.
    pub environment: Vec<(OsString, OsString)>,
    /// The tags of the meta graph.
    pub tags: Vec<String>,
    /// How many bytes of inputs, and as many of outputs, a worker may share with the server. They
    /// cost nothing until they are used.
    pub area_bytes: usize,
    /// How many runs there may be at once in a worker.
    pub n_threads: usize,
    /// How many runs may wait for a worker.
    pub queue_max: usize,
    /// The longest that a run may take; `None` for as long as it takes.
    pub run_max: Option<Duration>,
    /// How long a model may take to load.
    pub load_timeout: Duration,
    /// How workers are confined.
    pub sandbox: Sandbox,
    /// When a shared worker is started anew after a model has left it.
    pub renewal: Renewal,
    /// The device files of GPUs. A worker that may use a GPU opens them, and gets what else CUDA
    /// needs; none of it if there are none.
    pub gpu_devices: Vec<PathBuf>,
    /// What TensorFlow is told for models without settings of their own.
    pub session: ConfigProto,
    /// What a worker's resident memory should stay below, and what happens if it does not.
    pub memory: Option<MemoryLimit>,
}

/// The program that becomes a worker.
#[derive(Debug, Clone)]
pub struct Program {
    /// Its file.
    pub file: PathBuf,
    /// The words before a worker's own arguments.
    pub words: Vec<OsString>,
}

/// How workers are confined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sandbox {
    /// By all that the kernel has; the log says once what it lacks.
    Auto,
    /// By all that there is to the sandbox; where the kernel lacks some, no worker starts.
    Required,
    /// Only by `no_new_privs`.
    Off,
}

impl Sandbox {
    const ALL: [Self; 3] = [Self::Auto, Self::Required, Self::Off];

    /// Its name on a command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Required => "required",
            Self::Off => "off",
        }
    }

    /// The one of a name.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }
}

/// When a shared worker is started anew after a model has left it, which is when TensorFlow gives
/// the memory of a GPU back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewal {
    /// When it is idle and sees a GPU; without one, closing a session gives its memory back.
    WhenIdle,
    /// As soon as what runs has ended; what arrives meanwhile waits.
    AtOnce,
    /// Never.
    Never,
}

/// What resident memory should stay below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryLimit {
    /// The bytes.
    pub bytes: u64,
    /// Whether a worker that has more is started anew when it is idle, besides being reported.
    pub renews: bool,
}

/// What one model wants of TensorFlow.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelSettings {
    /// Its own session options; with these it has a worker for itself.
    pub session: Option<ConfigProto>,
    /// Where it computes. Models without session options of their own share a worker there.
    pub placement: Placement,
    /// Whose it is: models of different tenants never share a worker.
    pub tenant: String,
    /// The folders of the models that may share its worker, which reads them all: the kernel adds
    /// none later.
    pub neighbours: Vec<PathBuf>,
}

/// Where a worker computes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Placement {
    /// The device's name, for people; empty if nobody chose one.
    pub device: String,
    /// The GPUs that TensorFlow sees, in this order, by what tells them from all others. `None`
    /// leaves that to the environment.
    pub gpus: Option<Vec<String>>,
    /// What TensorFlow is told there for models without settings of their own; `None` for what it
    /// is told everywhere.
    pub session: Option<ConfigProto>,
}

impl Placement {
    /// Whether it is on a GPU that somebody chose.
    pub fn is_on_gpu(&self) -> bool {
        self.gpus.as_ref().is_some_and(|gpus| !gpus.is_empty())
    }

    /// Whether a worker here can see no GPU.
    pub(crate) fn hides_gpus(&self) -> bool {
        self.gpus.as_ref().is_some_and(Vec::is_empty)
    }

    /// What a worker's environment has instead of the server's.
    pub(crate) fn environment(&self) -> Option<(&'static str, String)> {
        let gpus = self.gpus.as_ref()?;
        // A number that no GPU has hides all of them; an empty text is taken for none at all by
        // some versions of CUDA only.
        let list = if gpus.is_empty() { "-1".to_owned() } else { gpus.join(",") };
        Some(("CUDA_VISIBLE_DEVICES", list))
    }
}
