//! The rules of models, as placement is told them.

use anyhow::{Result, ensure};
use config::devices::{TOO_MUCH, model_rule, served_model, without_effect_of_model};
use status::Status;

use super::Devices;

impl Devices {
    /// Tells placement which models are to be served.
    pub(super) fn tell_models(&self) {
        let all = self.active.all();
        let models = all.iter().map(|(name, config)| (name.clone(), served_model(config)));
        self.placement.models().replace(models);
    }

    /// A refusal of a model, which also names the devices that its config names and that are not
    /// there.
    pub(crate) fn with_absent(&self, model: &str, refusal: Status) -> Status {
        let named = model_rule(&self.active.get(model)).map(|rule| rule.devices);
        let named = named.unwrap_or_default();
        let absent: Vec<&str> = self.absent(&named).collect();
        if absent.is_empty() {
            return refusal;
        }
        let there = self.names().join(", ");
        refusal.map_message(|message| {
            format!(
                "{message}; its config names {}, which is not there: there are {there}",
                absent.join(", ")
            )
        })
    }

    /// The names, of those of devices, that no device has.
    fn absent<'a>(&'a self, names: &'a [String]) -> impl Iterator<Item = &'a str> {
        names.iter().map(String::as_str).filter(|name| self.logical(name).is_none())
    }

    /// The names of all devices.
    fn names(&self) -> Vec<String> {
        self.all().iter().map(|logical| logical.space.name().to_owned()).collect()
    }

    /// Refuses a model whose config contradicts itself.
    pub(crate) fn check_rule(&self, model: &str) -> Result<()> {
        let config = self.active.get(model);
        let rule = model_rule(&config)?;
        for text in without_effect_of_model(&config) {
            tracing::warn!("model {model}: {text}");
        }
        for name in self.absent(&rule.devices) {
            let there = self.names().join(", ");
            tracing::warn!(
                "model {model} may be on {name}, but there is no such device: there are {there}"
            );
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
