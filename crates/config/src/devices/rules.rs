//! The part of the model config about a model's memory.

use anyhow::{Context, Result, ensure};
use device::Amount;
use placement::{Replicas, Rule, ServedModel};
use proto::serving::ModelConfig;

use super::options::{from_config, limit};

/// The rule that a model's config states.
///
/// # Errors
/// If the config contradicts itself.
pub fn model_rule(model: &ModelConfig) -> Result<Rule> {
    let mut rule = Rule::none();
    let mut is_fixed = false;
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
        is_fixed = fraction > 0.0 && growth == Some(false);
    }
    if let Some(memory) = &model.memory {
        let named = || format!("model {}", model.name);
        rule.reservation = limit("memory.reservation", &memory.reservation).with_context(named)?;
        rule.limit = limit("memory.limit", &memory.limit).with_context(named)?.or(rule.limit);
        // What is reserved is all that it may hold if nothing else is said.
        rule.limit = rule.limit.or(rule.reservation);
        rule.devices.clone_from(&memory.devices);
        rule.replicas = replicas(&memory.replicas).with_context(named)?;
        rule.priority = memory.priority;
    }
    if is_fixed {
        ensure!(
            rule.reservation.is_none() || rule.reservation == rule.limit,
            "model {}: without growth all that it may hold is reserved, and no other amount",
            model.name
        );
        rule.reservation = rule.limit;
    }
    if let (Some(reservation), Some(limit)) = (rule.reservation, rule.limit) {
        ensure!(!exceeds(reservation, limit), "model {}: {TOO_MUCH}", model.name);
    }
    Ok(rule)
}

/// A model as placement has to know it. A config that contradicts itself states no rule.
pub fn served_model(model: &ModelConfig) -> ServedModel {
    let options = model.config.as_ref();
    let list = options.and_then(|options| options.gpu_options.as_ref());
    let list = list.map_or("", |gpu| gpu.visible_device_list.as_str());
    let visible_gpus = list.split(',').map(|entry| entry.trim().to_owned());
    ServedModel {
        rule: model_rule(model).unwrap_or_else(|_| Rule::none()),
        limit_setting: limit_setting(model),
        visible_gpus: if list.is_empty() { Vec::new() } else { visible_gpus.collect() },
        has_own_options: options.is_some(),
    }
}

/// The setting that says what a model may hold.
fn limit_setting(model: &ModelConfig) -> &'static str {
    match &model.memory {
        Some(memory) if !memory.limit.is_empty() => "its memory.limit",
        Some(memory) if !memory.reservation.is_empty() && fraction(model) == 0.0 => {
            "its memory.reservation"
        }
        Some(_) | None => "its gpu_options.per_process_gpu_memory_fraction",
    }
}

/// The share of a device that a model's own `gpu_options` leave it; 0 if they say nothing of it.
fn fraction(model: &ModelConfig) -> f64 {
    let options = model.config.as_ref().and_then(|config| config.gpu_options.as_ref());
    options.map_or(0.0, |gpu| gpu.per_process_gpu_memory_fraction)
}

/// The message about a reservation that exceeds the limit.
pub const TOO_MUCH: &str = "more is reserved than its limit allows";

/// Returns whether one amount is more than another on every device, as far as that can be said.
fn exceeds(one: Amount, other: Amount) -> bool {
    match (one, other) {
        (Amount::Bytes(one), Amount::Bytes(other)) => one > other,
        (Amount::Fraction(one), Amount::Fraction(other)) => one > other,
        // It depends on the device.
        (Amount::Bytes(_), Amount::Fraction(_)) | (Amount::Fraction(_), Amount::Bytes(_)) => false,
    }
}

/// Returns messages about a model's options that change nothing on our own engine.
pub fn without_effect(model: &ModelConfig) -> Vec<String> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn rule(text: &str) -> Result<Rule> {
        model_rule(&proto::text::parse(&format!("name: \"m\" {text}")).unwrap())
    }

    #[test]
    fn gpu_options_are_a_limit_and_maybe_a_reservation() {
        let fraction = "per_process_gpu_memory_fraction: 0.7";
        let growing =
            rule(&format!("config {{ gpu_options {{ allow_growth: true {fraction} }} }}"));
        let growing = growing.unwrap();
        assert_eq!(growing.limit, Some(Amount::Fraction(0.7)));
        assert_eq!(growing.reservation, None);
        let unset = rule(&format!("config {{ gpu_options {{ {fraction} }} }}")).unwrap();
        assert_eq!(unset.reservation, None);
        let fixed = format!("config {{ gpu_options {{ allow_growth: false {fraction} }} }}");
        assert_eq!(rule(&fixed).unwrap().reservation, Some(Amount::Fraction(0.7)));
        assert!(rule(&fixed).unwrap().is_fixed() && !unset.is_fixed());
        // Another limit is set aside as a whole too, and less of it cannot be.
        let other = rule(&format!("{fixed} memory {{ limit: 0.5 }}")).unwrap();
        assert_eq!(other.reservation, Some(Amount::Fraction(0.5)));
        let less = rule(&format!("{fixed} memory {{ reservation: 0.5 }}")).unwrap_err();
        assert!(less.to_string().starts_with("model m: without growth all"), "{less}");
        let growing = format!("config {{ gpu_options {{ {fraction} }} }}");
        let some = rule(&format!("{growing} memory {{ reservation: 0.5 }}")).unwrap();
        let both = (Some(Amount::Fraction(0.5)), Some(Amount::Fraction(0.7)));
        assert_eq!((some.reservation, some.limit), both);
        assert_eq!(rule("config { gpu_options { } }").unwrap(), Rule::none());
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
    fn what_is_reserved_is_the_limit_unless_that_is_more() {
        let both = |limit: &str| rule(&format!("memory {{ {limit} reservation: \"1GiB\" }}"));
        let gib = |n: u64| Some(Amount::Bytes(n << 30));
        for (limit, most, is_fixed) in [
            ("", gib(1), true),
            ("limit: \"1GiB\"", gib(1), true),
            ("limit: 1073741824", gib(1), true),
            ("limit: \"2GiB\"", gib(2), false),
            ("limit: 0.25", Some(Amount::Fraction(0.25)), false),
        ] {
            let rule = both(limit).unwrap();
            assert_eq!((rule.reservation, rule.limit, rule.is_fixed()), (gib(1), most, is_fixed));
        }
        for refused in ["limit: \"1023MiB\" reservation: \"1GiB\"", "limit: 0.2 reservation: 0.3"] {
            let error = rule(&format!("memory {{ {refused} }}")).unwrap_err().to_string();
            assert_eq!(error, "model m: more is reserved than its limit allows");
        }
    }

    #[test]
    fn both_shapes_say_the_same_and_numbers_may_be_numbers() {
        let text = r#"config { name: "m" memory { limit: 1048576 devices: ["gpu:0", "gpu:1"]
            replicas: 2 priority: -3 } } config { name: "n" memory { reservation: 0.5 } }
            config { name: "o" memory { limit: "2MiB" reservation: 1048576 } }"#;
        let json = r#"[{"name": "m", "memory": {"limit": 1048576, "devices": ["gpu:0", "gpu:1"],
            "replicas": 2, "priority": -3}}, {"name": "n", "memory": {"reservation": 0.5}},
            {"name": "o", "memory": {"limit": "2MiB", "reservation": 1048576}}]"#;
        let text = format!("model_config_list {{ {text} }}");
        let json = format!("{{\"model_config_list\": {json}}}");
        for config in [text, json] {
            let models = crate::model_config::read(&config, "file".as_ref()).unwrap();
            let [first, second, third] = &models[..] else { panic!("{models:?}") };
            let devices = vec!["gpu:0".to_owned(), "gpu:1".to_owned()];
            let expected = Rule {
                limit: Some(Amount::Bytes(1 << 20)),
                devices,
                replicas: Replicas::Number(2),
                priority: -3,
                ..Rule::none()
            };
            assert_eq!(model_rule(first).unwrap(), expected, "{config}");
            let half = Some(Amount::Fraction(0.5));
            let expected = Rule { limit: half, reservation: half, ..Rule::none() };
            assert_eq!(model_rule(second).unwrap(), expected, "{config}");
            let mib = |n: u64| Some(Amount::Bytes(n << 20));
            let expected = Rule { limit: mib(2), reservation: mib(1), ..Rule::none() };
            assert_eq!(model_rule(third).unwrap(), expected, "{config}");
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
