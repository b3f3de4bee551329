//! The file of `--monitoring_config_file`: whether and where Prometheus finds the metrics.

use std::path::Path;

use anyhow::{Context as _, Result, anyhow};
use proto::serving::MonitoringConfig;

/// The path at which TensorFlow Serving shows its metrics if the file does not say.
const PATH: &str = "/monitoring/prometheus/metrics";

/// The path of the metrics page that a file names, if it enables one.
pub fn read(file: &Path) -> Result<Option<String>> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("cannot read --monitoring_config_file {}", file.display()))?;
    path(&text).map_err(|error| anyhow!("Invalid protobuf file: '{}': {error}", file.display()))
}

fn path(text: &str) -> Result<Option<String>> {
    let config: MonitoringConfig = proto::text::parse(text)?;
    let prometheus = config.prometheus_config.unwrap_or_default();
    let path = if prometheus.path.is_empty() { PATH.to_owned() } else { prometheus.path };
    Ok(prometheus.enable.then_some(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_has_a_default_and_is_shown_only_if_enabled() {
        let check = |text: &str, expected: Option<&str>| {
            assert_eq!(path(text).unwrap().as_deref(), expected, "{text}");
        };
        check("prometheus_config { enable: true, path: \"/metrics/x\" }", Some("/metrics/x"));
        check("prometheus_config: { enable: true }", Some(PATH));
        check("prometheus_config { path: '/x' }", None);
        check("", None);
        path("prometheus { }").unwrap_err();
    }
}
