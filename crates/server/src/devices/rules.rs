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

/// What is to be said of a model's options that change nothing on our own engine.
fn without_effect(model: &ModelConfig) -> Vec<String> {
    let Some(gpu) = model.config.as_ref().and_then(|config| config.gpu_options.as_ref()) else {
        return Vec::new();
    };
    let more = gpu.experimental.clone().unwrap_or_default();
    let of_all = "it is said of devices, not of a model";
    let named = [
        (
            !gpu.visible_device_list.is_empty(),
            "visible_device_list",
            "`devices` of `memory` says where a model may be",
        ),
        (!gpu.allocator_type.is_empty(), "allocator_type", of_all),
        (!more.virtual_devices.is_empty(), "experimental.virtual_devices", of_all),
        (more.use_unified_memory, "experimental.use_unified_memory", of_all),
        (more.num_virtual_devices_per_gpu != 0, "experimental.num_virtual_devices_per_gpu", of_all),
        (
            more.gpu_system_memory_size_in_mb != 0,
            "experimental.gpu_system_memory_size_in_mb",
            of_all,
        ),
    ];
    let named = named.into_iter().filter(|(is_set, ..)| *is_set);
    let texts = named.map(|(_, name, why)| format!("gpu_options.{name} has no effect: {why}"));
    texts.chain(super::without_effect::without_effect(gpu)).collect()
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
        let config = self.active.get(model);
        let rule = ModelRule::of(&config)?;
        for text in without_effect(&config) {
            tracing::warn!("model {model}: {text}");
        }
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
    fn both_shapes_say_the_same_and_numbers_may_be_numbers() {
        let text = r#"config { name: "m" memory { limit: 1048576 devices: ["gpu:0", "gpu:1"]
            replicas: 2 priority: -3 } } config { name: "n" memory { reservation: 0.5 } }"#;
        let json = r#"[{"name": "m", "memory": {"limit": 1048576, "devices": ["gpu:0", "gpu:1"],
            "replicas": 2, "priority": -3}}, {"name": "n", "memory": {"reservation": 0.5}}]"#;
        let text = format!("model_config_list {{ {text} }}");
        let json = format!("{{\"model_config_list\": {json}}}");
        for config in [text, json] {
            let models = crate::model_config::read(&config, "file".as_ref()).unwrap();
            let [first, second] = &models[..] else { panic!("{models:?}") };
            let devices = vec!["gpu:0".to_owned(), "gpu:1".to_owned()];
            let expected = ModelRule {
                limit: Some(Amount::Bytes(1 << 20)),
                devices,
                replicas: Replicas::Number(2),
                priority: -3,
                ..ModelRule::none()
            };
            assert_eq!(ModelRule::of(first).unwrap(), expected, "{config}");
            let half = Some(Amount::Fraction(0.5));
            let expected =
                ModelRule { limit: half, growth: GrowthRule::Reserved, ..ModelRule::none() };
            assert_eq!(ModelRule::of(second).unwrap(), expected, "{config}");
        }
    }

    #[test]
    fn options_that_change_nothing_for_a_model_are_named() {
        let check = |options: &str, expected: &[&str]| {
            let text = format!("config {{ gpu_options {{ {options} }} }}");
            let texts = without_effect(&proto::text::parse(&text).unwrap());
            let start = |text: &String| text.split(" has no effect").next().unwrap().to_owned();
            assert_eq!(texts.iter().map(start).collect::<Vec<_>>(), expected);
        };
        check("allow_growth: true per_process_gpu_memory_fraction: 0.5", &[]);
        check(
            "visible_device_list: '1' experimental { virtual_devices { } node_id: 1 }",
            &[
                "gpu_options.visible_device_list",
                "gpu_options.experimental.virtual_devices",
                "gpu_options.experimental.node_id=1",
            ],
        );
        assert!(without_effect(&ModelConfig::default()).is_empty());
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "replicas: \"0\"",
            "replicas: \"many\"",
            "limit: \"2 GB of it\"",
            "replicas: 0",
            "limit: -1",
        ] {
            assert!(rule(&format!("memory {{ {text} }}")).is_err(), "{text}");
        }
    }
}
