//! The session settings of TensorFlow that models are run with.

use anyhow::{Result, ensure};
use proto::serving::{ModelConfig, SessionBundleConfig};
use proto::tensorflow::{ConfigProto, GpuOptions};

use super::read_proto;
use crate::flags::{Flags, GpuMemory};

/// The environment variable that has the last word on growth.
pub const FORCE_GROWTH: &str = "TF_FORCE_GPU_ALLOW_GROWTH";

/// The session settings: of all models, and what the environment makes of them.
#[derive(Debug, Clone, Default)]
pub struct Session {
    config: ConfigProto,
    /// The environment's choice that memory grows on demand or not, if it makes one.
    forced_growth: Option<bool>,
    /// The flag's choice that memory grows on demand or not, if it is given.
    flag_growth: Option<bool>,
}

impl Session {
    /// From a file, or from the platform config, which stands in for it.
    pub(super) fn new(flags: &Flags, platform: Option<&SessionBundleConfig>) -> Result<Self> {
        let config = config(flags, platform)?;
        let flag_growth = flags.gpu_memory.map(|how| how == GpuMemory::Grow);
        let forced_growth = forced_growth(std::env::var(FORCE_GROWTH).ok());
        Ok(Self { config, forced_growth, flag_growth })
    }

    /// Returns whether the environment says how memory grows.
    pub fn is_growth_forced(&self) -> bool {
        self.forced_growth.is_some()
    }

    /// The memory settings of a model: its own if it has any, and what the environment and the flag
    /// say of growth. They always say whether memory grows, since TensorFlow takes all of a GPU if
    /// nothing is said: it does unless somebody asked for a reservation.
    pub fn gpu_options(&self, model: &ModelConfig) -> GpuOptions {
        let own = model.config.as_ref().and_then(|config| config.gpu_options.clone());
        let is_own = own.is_some();
        let all = || self.config.gpu_options.clone();
        let mut options = own.or_else(all).unwrap_or_default();
        let written = options.allow_growth;
        // A fraction of all models fences a part of a GPU off; one of a model is a limit.
        let is_fence = !is_own && options.per_process_gpu_memory_fraction > 0.0;
        let growth = match is_own {
            true => written.or(self.flag_growth),
            false => self.flag_growth.or(written),
        };
        options.allow_growth = self.forced_growth.or(growth).or(Some(!is_fence));
        options
    }

    /// Returns the session options for models without settings of their own.
    pub fn shared(&self) -> ConfigProto {
        let gpu_options = Some(self.gpu_options(&ModelConfig::default()));
        ConfigProto { gpu_options, ..self.config.clone() }
    }

    /// Returns the session options for a model with settings of its own; `None` if it has none.
    /// Threads that it does not count are those of all models.
    pub fn own(&self, model: &ModelConfig) -> Option<ConfigProto> {
        let mut own = model.config.clone()?;
        own.gpu_options = Some(self.gpu_options(model));
        if own.intra_op_parallelism_threads == 0 {
            own.intra_op_parallelism_threads = self.config.intra_op_parallelism_threads;
        }
        if own.inter_op_parallelism_threads == 0 {
            own.inter_op_parallelism_threads = self.config.inter_op_parallelism_threads;
        }
        Some(own)
    }
}

/// The session config that flags and files give: that of the platform config, which stands in for
/// the flags, or that of its own file with the fraction of the flag.
fn config(flags: &Flags, platform: Option<&SessionBundleConfig>) -> Result<ConfigProto> {
    let fraction = flags.per_process_gpu_memory_fraction;
    ensure!(
        fraction >= 0.0 && fraction.is_finite(),
        "--per_process_gpu_memory_fraction={fraction}: expected a share, such as 0.5"
    );
    let mut config = match platform {
        Some(bundle) => bundle.session_config.clone().unwrap_or_default(),
        None if flags.tensorflow_session_config_file.is_empty() => ConfigProto::default(),
        None => read_proto(&flags.tensorflow_session_config_file)?,
    };
    // TensorFlow Serving writes the flag even when it was not given, over what the file says.
    if platform.is_none() && fraction > 0.0 {
        config.gpu_options.get_or_insert_default().per_process_gpu_memory_fraction = fraction;
    }
    Ok(config)
}

/// The session config that devices are made by: the same that TensorFlow is told. Reads the files
/// that flags name.
pub fn session_config(flags: &Flags) -> Result<ConfigProto> {
    config(flags, super::platform::read(flags)?.as_ref())
}

/// TensorFlow takes `true` and `false`, and nothing else.
fn forced_growth(value: Option<String>) -> Option<bool> {
    match value?.as_str() {
        "true" => Some(true),
        "false" => Some(false),
        other => {
            tracing::error!("{FORCE_GROWTH}={other} is neither true nor false, and is ignored");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Growth and fraction of a model with a config, under a session config and the environment.
    #[track_caller]
    fn check(model: &str, session: &str, forced: Option<&str>, expected: (bool, f64)) {
        let model = ModelConfig {
            config: (!model.is_empty()).then(|| proto::text::parse(model).unwrap()),
            ..ModelConfig::default()
        };
        let config = proto::text::parse(session).unwrap();
        let forced_growth = forced_growth(forced.map(str::to_owned));
        let session = Session { config, forced_growth, flag_growth: None };
        let options = session.gpu_options(&model);
        assert_eq!((options.allow_growth(), options.per_process_gpu_memory_fraction), expected);
    }

    #[test]
    fn a_model_has_its_own_memory_settings_or_those_of_all() {
        let all = "gpu_options { per_process_gpu_memory_fraction: 0.5 }";
        let own = "gpu_options { allow_growth: true per_process_gpu_memory_fraction: 0.7 }";
        check("", "", None, (true, 0.0));
        check("", all, None, (false, 0.5));
        check(own, all, None, (true, 0.7));
        check("intra_op_parallelism_threads: 1", all, None, (false, 0.5));
        // A fraction of its own is a limit, unless it is written out that nothing grows.
        let limit = "gpu_options { per_process_gpu_memory_fraction: 0.7 }";
        check(limit, all, None, (true, 0.7));
        check("gpu_options { allow_growth: false }", "", None, (false, 0.0));
        check("", "gpu_options { allow_growth: false }", None, (false, 0.0));
    }

    #[test]
    fn the_flag_has_more_to_say_than_the_file_and_a_model_than_the_flag() {
        let check = |flag: bool, model: &str, session: &str, expected: bool| {
            let session = Session {
                config: proto::text::parse(session).unwrap(),
                forced_growth: None,
                flag_growth: Some(flag),
            };
            let config = (!model.is_empty()).then(|| proto::text::parse(model).unwrap());
            let model = ModelConfig { config, ..ModelConfig::default() };
            assert_eq!(session.gpu_options(&model).allow_growth, Some(expected));
        };
        let fraction = "gpu_options { per_process_gpu_memory_fraction: 0.5 }";
        let growing = "gpu_options { allow_growth: true }";
        check(true, "", fraction, true);
        check(false, "", growing, false);
        check(false, "", "", false);
        check(false, growing, "", true);
        check(false, fraction, growing, false);
    }

    #[test]
    fn the_environment_has_the_last_word_on_growth() {
        let own = "gpu_options { allow_growth: true }";
        check("", "", Some("true"), (true, 0.0));
        check(own, "", Some("false"), (false, 0.0));
        check(own, "", Some("maybe"), (true, 0.0));
    }
}
