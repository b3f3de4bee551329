//! What the model config says about a model's memory.

use anyhow::{Context, Result, ensure};
use device::Amount;
use device::logical::GrowthRule;
use device::placement::Replicas;
use proto::serving::ModelConfig;

use super::Devices;
use super::options::{from_config, limit};

/// What a model may hold, and where.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ModelRule {
    /// The most it may hold on each device.
    pub(crate) limit: Option<Amount>,
    /// Whether that is set aside at load.
    pub(crate) growth: GrowthRule,
    /// The logical devices it may be on; any if there is none.
    pub(crate) devices: Vec<String>,
    /// On how many of them.
    pub(crate) replicas: Replicas,
    /// Models with a higher priority are placed first.
    pub(crate) priority: i32,
}

impl ModelRule {
    /// The rule of a model of which nothing is said.
    pub(crate) fn none() -> Self {
        Self {
            limit: None,
            growth: GrowthRule::OnDemand,
            devices: Vec::new(),
            replicas: Replicas::Number(1),
            priority: 0,
        }
    }
}

impl ModelRule {
    /// What a model's config says.
    fn of(model: &ModelConfig) -> Result<Self> {
        let mut rule = Self::none();
        if let Some(config) = &model.config {
            let options = from_config(config);
            let fraction = options.per_process_gpu_memory_fraction;
            ensure!(
                (0.0..=1.0).contains(&fraction),
                "model {}: per_process_gpu_memory_fraction is {fraction}, not from 0 to 1",
                model.name
            );
            if fraction > 0.0 {
                rule.limit = Some(Amount::Fraction(fraction));
            }
            // Growth is the default, and without a fraction there is nothing to set aside.
            let growth = config.gpu_options.as_ref().and_then(|gpu| gpu.allow_growth);
            if fraction > 0.0 && growth == Some(false) {
                rule.growth = GrowthRule::Reserved;
            }
        }
        if let Some(memory) = &model.memory {
            let named = || format!("model {}", model.name);
            let reservation = limit(&memory.reservation).with_context(named)?;
            rule.limit = limit(&memory.limit).with_context(named)?.or(rule.limit);
            ensure!(
                reservation.is_none() || rule.limit.is_none() || rule.limit == reservation,
                "model {}: what is reserved is all that it may hold, so that it has no other limit",
                model.name
            );
            if reservation.is_some() {
                rule.limit = reservation;
                rule.growth = GrowthRule::Reserved;
            }
            rule.devices.clone_from(&memory.devices);
            rule.replicas = replicas(&memory.replicas).with_context(named)?;
            rule.priority = memory.priority;
        }
        Ok(rule)
    }
}

fn replicas(text: &str) -> Result<Replicas> {
    match text {
        "" => Ok(Replicas::Number(1)),
        "all" => Ok(Replicas::All),
        number => {
            let number = number.parse().ok().filter(|n| *n > 0);
            Ok(Replicas::Number(number.context("replicas is a number from 1 on, or all")?))
        }
    }
}

impl Devices {
    /// Refuses a model whose config contradicts itself.
    pub(crate) fn check_rule(&self, model: &str) -> Result<()> {
        let rule = ModelRule::of(&self.active.get(model))?;
        for name in rule.devices.iter().filter(|name| self.logical(name).is_none()) {
            tracing::warn!("model {model} may be on {name}, but there is no such device");
        }
        Ok(())
    }

    /// What is said about a model; nothing if that contradicts itself.
    pub(crate) fn rule(&self, model: &str) -> ModelRule {
        ModelRule::of(&self.active.get(model)).unwrap_or_else(|_| ModelRule::none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn rule(text: &str) -> Result<ModelRule> {
        ModelRule::of(&proto::text::parse(&format!("name: \"m\" {text}")).unwrap())
    }

    #[test]
    fn gpu_options_are_a_limit_and_maybe_a_reservation() {
        let fraction = "per_process_gpu_memory_fraction: 0.7";
        let growing =
            rule(&format!("config {{ gpu_options {{ allow_growth: true {fraction} }} }}"));
        let growing = growing.unwrap();
        assert_eq!(growing.limit, Some(Amount::Fraction(0.7)));
        assert_eq!(growing.growth, GrowthRule::OnDemand);
        let unset = rule(&format!("config {{ gpu_options {{ {fraction} }} }}")).unwrap();
        assert_eq!(unset.growth, GrowthRule::OnDemand);
        let fixed = format!("config {{ gpu_options {{ allow_growth: false {fraction} }} }}");
        assert_eq!(rule(&fixed).unwrap().growth, GrowthRule::Reserved);
        assert_eq!(rule("config { gpu_options { } }").unwrap(), ModelRule::none());
        let much = "config { gpu_options { per_process_gpu_memory_fraction: 1.5 } }";
        assert!(rule(much).is_err());
    }

    #[test]
    fn memory_says_where_and_how_much() {
        let text = r#"memory { limit: "2GiB" devices: "gpu:1" replicas: "all" priority: 3 }"#;
        let rule = rule(text).unwrap();
        assert_eq!(rule.limit, Some(Amount::Bytes(2 << 30)));
        assert_eq!((rule.devices, rule.replicas), (vec!["gpu:1".to_owned()], Replicas::All));
        assert_eq!(rule.priority, 3);
    }

    #[test]
    fn what_is_reserved_is_the_limit() {
        let both = |limit: &str| rule(&format!("memory {{ {limit} reservation: \"1GiB\" }}"));
        for limit in ["", "limit: \"1GiB\""] {
            let rule = both(limit).unwrap();
            assert_eq!(rule.limit, Some(Amount::Bytes(1 << 30)));
            assert_eq!(rule.growth, GrowthRule::Reserved);
        }
        let error = both("limit: \"2GiB\"").unwrap_err().to_string();
        assert!(error.starts_with("model m: what is reserved is all"), "{error}");
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["replicas: \"0\"", "replicas: \"many\"", "limit: \"2 GB of it\""] {
            assert!(rule(&format!("memory {{ {text} }}")).is_err(), "{text}");
        }
    }
}
