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
    /// The bytes of inputs, and as many of outputs, that a worker may share with the server. They
    /// cost nothing until they are used.
    pub area_bytes: usize,
    /// The number of runs that there may be at once in a worker.
    pub n_threads: usize,
    /// The number of runs that may wait for a worker.
    pub queue_max: usize,
    /// The longest that a run may take; `None` for as long as it takes.
    pub run_max: Option<Duration>,
    /// The longest time that a model may take to load.
    pub load_timeout: Duration,
    /// The confinement of workers.
    pub sandbox: Sandbox,
    /// The time at which a shared worker is started anew after a model has left it.
    pub renewal: Renewal,
    /// The device files of GPUs. A worker that may use a GPU opens them, and gets what else CUDA
    /// needs; none of it if there are none.
    pub gpu_devices: Vec<PathBuf>,
    /// The session options for models without settings of their own.
    pub session: ConfigProto,
    /// The limit that a worker's resident memory should stay below, and the action if it does not.
    pub memory: Option<MemoryLimit>,
}

/// The program that becomes a worker.
#[derive(Debug, Clone)]
pub struct Program {
    /// The file of the program.
    pub file: PathBuf,
    /// The words before a worker's own arguments.
    pub words: Vec<OsString>,
}

/// The confinement of workers.
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

    /// Returns the mode's name on a command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Required => "required",
            Self::Off => "off",
        }
    }

    /// Returns the mode of a name.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }
}

/// The time at which a shared worker is started anew after a model has left it. TensorFlow gives
/// the memory of a GPU back then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewal {
    /// As soon as the worker is idle and sees a GPU; without one, closing a session gives its
    /// memory back.
    WhenIdle,
    /// As soon as what runs has ended; what arrives meanwhile waits.
    AtOnce,
    /// Never.
    Never,
}

/// A limit on resident memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryLimit {
    /// The bytes.
    pub bytes: u64,
    /// `true` if a worker that has more is started anew when it is idle, besides being reported.
    pub renews: bool,
}

/// The settings of one model for TensorFlow.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelSettings {
    /// The model's own session options; with these the model has a worker for itself.
    pub session: Option<ConfigProto>,
    /// The place where the model computes. Models without session options of their own share a
    /// worker there.
    pub placement: Placement,
    /// The tenant that owns the model: models of different tenants never share a worker.
    pub tenant: String,
    /// The folders of the models that may share its worker, which reads them all: the kernel adds
    /// none later.
    pub neighbours: Vec<PathBuf>,
}

/// The place where a worker computes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Placement {
    /// The device's name, for people; empty if nobody chose one.
    pub device: String,
    /// The GPUs that TensorFlow sees, in this order, by what tells them from all others. `None`
    /// leaves that to the environment.
    pub gpus: Option<Vec<String>>,
    /// The session options there for models without settings of their own; `None` for those that
    /// hold everywhere.
    pub session: Option<ConfigProto>,
}

impl Placement {
    /// Returns whether the placement is on a GPU that was chosen by a user.
    pub fn is_on_gpu(&self) -> bool {
        self.gpus.as_ref().is_some_and(|gpus| !gpus.is_empty())
    }

    /// Returns whether a worker here can see no GPU.
    pub(crate) fn hides_gpus(&self) -> bool {
        self.gpus.as_ref().is_some_and(Vec::is_empty)
    }

    /// Returns the variable that a worker's environment has instead of the server's.
    pub(crate) fn environment(&self) -> Option<(&'static str, String)> {
        let gpus = self.gpus.as_ref()?;
        // A number that no GPU has hides all of them; an empty text is taken for none at all by
        // some versions of CUDA only.
        let list = if gpus.is_empty() { "-1".to_owned() } else { gpus.join(",") };
        Some(("CUDA_VISIBLE_DEVICES", list))
    }
}
