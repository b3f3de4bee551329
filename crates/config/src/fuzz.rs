//! Entry points of the fuzz targets in `fuzz/`: config files and flags that may hold anything.
//!
//! A target fails if reading panics, hangs or takes all memory, and where a message that is written
//! is not the one that is read again.

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

use std::collections::BTreeMap;
use std::path::Path;

use lifecycle::Policy;
use proto::serving::ModelServerConfig;

use crate::model_config::{self, Rules, tenants};
use crate::{Address, Persona, api_keys, batching, channel_arguments, devices};

/// Reads a model config in text format.
pub fn config_text(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(config) = proto::text::parse::<ModelServerConfig>(text) else { return };
    let written = proto::text::print(&config);
    let again = proto::text::parse::<ModelServerConfig>(&written);
    // A NaN is not equal to itself.
    assert!(again.is_ok_and(|again| again == config || written.contains("nan")), "{written}");
    read(text);
}

/// Reads a model config in JSON: that of protobuf, or a plain list.
pub fn config_json(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if text.trim_start().starts_with('{') {
        read(text);
    }
}

/// Reads the smaller files and flags: batching parameters, devices, channel arguments, addresses.
pub fn settings(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    drop(batching::parameters::read(text));
    drop(devices::device_config(text).and_then(|config| devices::device_rules(&config)));
    drop(channel_arguments::parse(text));
    drop(Address::parse(text));
}

/// Reads a keys file, in text format or JSON.
pub fn keys(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        drop(api_keys::keys(text, Path::new("keys")));
    }
}

/// Reads a model config as the server does, up to what the lifecycle is told.
fn read(text: &str) {
    let Ok(models) = model_config::read(text, Path::new("models")) else { return };
    for persona in [Persona::Tensord, Persona::TensorFlowModelServer] {
        let rules = Rules { persona, policy: Policy::AvailabilityPreserving };
        for model in &models {
            drop(model_config::options(model, rules));
        }
    }
    for model in &models {
        drop(devices::model_rule(model));
    }
    drop(tenants::check(&models, &BTreeMap::new()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configs_in_text_do_no_harm() {
        replay::replay("config_text", config_text);
    }

    #[test]
    fn configs_in_json_do_no_harm() {
        replay::replay("config_json", config_json);
    }

    #[test]
    fn keys_files_do_no_harm() {
        replay::replay("keys", keys);
    }

    #[test]
    fn settings_do_no_harm() {
        replay::replay("settings", settings);
    }
}
