//! Batching settings: TensorFlow Serving's flags and files, read again while it serves.

pub(crate) mod parameters;
pub mod priorities;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use session::Batching;
use storage::Storage;

use crate::blank::is_blank;
use crate::flags::Flags;
use crate::persona::Persona;

/// The parameters of one version, in its folder.
const VERSION_FILE: &str = "batching_params.pbtxt";

/// The most bytes of a parameters file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The batching settings of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    mode: Mode,
    /// The file with the parameters of all models.
    file: Option<PathBuf>,
    /// `true` if each version has its own parameters, or is not batched.
    is_per_model: bool,
}

/// The party that wants batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Off,
    /// tensord wants them, where rows are independent.
    Proved,
    /// The user wants them.
    Asked,
}

impl Settings {
    /// Reads the settings from the flags. Reads the file, to refuse a bad one at once.
    pub fn new(persona: Persona, flags: &Flags) -> Result<Self> {
        let mode = match (flags.enable_batching, persona) {
            (Some(true), _) => Mode::Asked,
            (None, Persona::Tensord) => Mode::Proved,
            (None | Some(false), _) => Mode::Off,
        };
        let file = &flags.batching_parameters_file;
        ensure!(
            file.is_empty() || mode == Mode::Asked,
            "server_options.batching_parameters_file is set without setting \
             server_options.enable_batching to true."
        );
        let file = (!file.is_empty()).then(|| PathBuf::from(file));
        let is_per_model = flags.enable_per_model_batching_parameters;
        let settings = Self { mode, file, is_per_model };
        settings.parameters()?;
        Ok(settings)
    }

    /// Every version as the file in its folder says.
    pub fn per_model() -> Self {
        Self { mode: Mode::Asked, file: None, is_per_model: true }
    }

    /// Returns the number of batches that run at once, if the file says it.
    pub fn n_lanes(&self) -> Result<Option<usize>> {
        Ok(self.parameters()?.n_threads)
    }

    /// Returns the batching of a version in a folder.
    pub fn of_version(&self, dir: &Storage) -> Result<Batching> {
        let text = self.text(dir)?;
        self.read(text.as_deref())
    }

    /// The same for a version that serves. A file that is empty is about to be written, and
    /// refused.
    pub fn of_serving(&self, dir: &Storage) -> Result<Batching> {
        let text = self.text(dir)?;
        ensure!(!text.as_deref().is_some_and(is_blank), "{} is empty", self.file_name());
        self.read(text.as_deref())
    }

    /// The rows of the largest batch that was asked for of a version in a folder; one row where we
    /// batch by ourselves, or not at all: such batches are no larger than there is room for.
    pub fn batch_rows(&self, dir: &Storage) -> usize {
        match self.of_version(dir) {
            Ok(Batching::Asked(options)) => {
                let allowed = options.allowed_sizes.iter().max().copied();
                allowed.unwrap_or(options.batch_rows_max).max(1)
            }
            // Wrong parameters are refused when the version is loaded.
            Ok(Batching::Off | Batching::Proved(_)) | Err(_) => 1,
        }
    }

    /// The parameters of all models.
    fn parameters(&self) -> Result<parameters::Parameters> {
        let Some(file) = &self.file else { return Ok(self.defaults()) };
        parameters::read(&read(file)?).with_context(|| self.file_name())
    }

    /// The text that says how a version is batched; `None` if there is no file.
    fn text(&self, dir: &Storage) -> Result<Option<String>> {
        if !self.has_version_files() {
            return self.file.as_deref().map(read).transpose();
        }
        match dir.read(VERSION_FILE, FILE_BYTES_MAX) {
            Ok(bytes) => Ok(Some(String::from_utf8(bytes).context(VERSION_FILE)?)),
            Err(storage::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error).context(VERSION_FILE),
        }
    }

    fn read(&self, text: Option<&str>) -> Result<Batching> {
        Ok(match text {
            Some(text) => self.batching(parameters::read(text).with_context(|| self.file_name())?),
            None if self.has_version_files() => Batching::Off,
            None => self.batching(self.defaults()),
        })
    }

    /// Returns whether each version has a file of its own.
    fn has_version_files(&self) -> bool {
        self.is_per_model && self.mode != Mode::Off
    }

    /// Returns the name of the file in messages.
    fn file_name(&self) -> String {
        match &self.file {
            Some(file) if !self.has_version_files() => {
                format!("Invalid protobuf file: '{}'", file.display())
            }
            Some(_) | None => VERSION_FILE.to_owned(),
        }
    }

    fn defaults(&self) -> parameters::Parameters {
        match self.mode {
            Mode::Off | Mode::Asked => parameters::tensorflow_serving(),
            Mode::Proved => parameters::ours(),
        }
    }

    fn batching(&self, parameters: parameters::Parameters) -> Batching {
        match self.mode {
            Mode::Off => Batching::Off,
            Mode::Proved => Batching::Proved(parameters.options),
            Mode::Asked => Batching::Asked(parameters.options),
        }
    }
}

fn read(file: &Path) -> Result<String> {
    let read = || {
        let bytes = std::fs::metadata(file)?.len();
        ensure!(bytes <= FILE_BYTES_MAX, "{bytes} bytes are more than {FILE_BYTES_MAX}");
        Ok(std::fs::read_to_string(file)?)
    };
    read().with_context(|| format!("Invalid protobuf file: '{}'", file.display()))
}
