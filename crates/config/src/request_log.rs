//! The requests that are logged: the part of a model config about them, checked.

use anyhow::{Result, bail, ensure};
use proto::serving::{LoggingConfig, ModelConfig};

/// Refuses a logging config that could not be followed.
pub(crate) fn check(model: &ModelConfig) -> Result<()> {
    let Some(LoggingConfig { log_collector_config, sampling_config, custom_logging_config }) =
        &model.logging_config
    else {
        return Ok(());
    };
    let name = &model.name;
    if let Some(any) = custom_logging_config {
        bail!("Model {name}: custom_logging_config {} is not supported", any.type_url);
    }
    let collector = log_collector_config.clone().unwrap_or_default();
    ensure!(
        ["", "tfrecord"].contains(&collector.r#type.as_str()),
        "Model {name}: log_collector_config.type {:?} is not supported; tfrecord is",
        collector.r#type
    );
    ensure!(
        collector.filename_prefix.starts_with('/'),
        "Model {name}: log_collector_config.filename_prefix must be an absolute path; got {:?}",
        collector.filename_prefix
    );
    let rate = sampling_config.as_ref().map_or(0.0, |sampling| sampling.sampling_rate);
    ensure!(
        (0.0..=1.0).contains(&rate),
        "Model {name}: sampling_rate must be from 0 to 1; got {rate}"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_config(text: &str, expected: &str) {
        let model: ModelConfig =
            proto::text::parse(&format!("name: 'm' logging_config {{ {text} }}")).unwrap();
        let found = check(&model).map_or_else(|error| error.to_string(), |()| String::new());
        assert!(found.contains(expected) && found.is_empty() == expected.is_empty(), "{found}");
    }

    #[test]
    fn a_logging_config_that_cannot_be_followed_is_refused() {
        let prefix = "filename_prefix: '/tmp/x'";
        let good =
            format!("log_collector_config {{ {prefix} }} sampling_config {{ sampling_rate: 1 }}");
        check_config(&good, "");
        check_config(&format!("log_collector_config {{ type: 'tfrecord' {prefix} }}"), "");
        check_config(&format!("log_collector_config {{ type: 'kafka' {prefix} }}"), "kafka");
        check_config("log_collector_config { filename_prefix: 'x' }", "absolute path");
        check_config("", "absolute path");
        let rate = "sampling_config { sampling_rate: 1.5 }";
        check_config(&format!("log_collector_config {{ {prefix} }} {rate}"), "from 0 to 1");
    }
}
