//! The rules of models, as placement is told them.

use anyhow::{Result, ensure};
use config::devices::{TOO_MUCH, model_rule, served_model, without_effect_of_model};

use super::Devices;

impl Devices {
    /// Tells placement which models are to be served.
    pub(super) fn tell_models(&self) {
        let all = self.active.all();
        let models = all.iter().map(|(name, config)| (name.clone(), served_model(config)));
        self.placement.models().replace(models);
    }

    /// Refuses a model whose config contradicts itself.
    pub(crate) fn check_rule(&self, model: &str) -> Result<()> {
        let config = self.active.get(model);
        let rule = model_rule(&config)?;
        for text in without_effect_of_model(&config) {
            tracing::warn!("model {model}: {text}");
        }
        for name in rule.devices.iter().filter(|name| self.logical(name).is_none()) {
            tracing::warn!("model {model} may be on {name}, but there is no such device");
        }
        for device in self.own().candidates(&rule) {
            let (limit, name) = (device.limit_for(&rule), device.name());
            let reserved = device.amount(rule.reservation).unwrap_or(0);
            ensure!(
                rule.limit.is_none() || reserved <= limit,
                "model {model}: {TOO_MUCH} on {name}: {reserved} bytes of {limit}"
            );
        }
        Ok(())
    }
}
