//! The part of a model's config about its share of the lanes and its requests' priorities.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use batch::{Level, MixedPriority};
use proto::serving::{MixedPriorityPolicy, ModelConfig, PriorityLevel};
use session::{LEVEL_MAX, Priorities};

/// The heaviest weight: beyond it a share is a matter of rounding.
const WEIGHT_MAX: u32 = 1_000_000;

/// The priorities of a model. Fails if its config contradicts itself.
pub fn read(model: &ModelConfig) -> Result<Priorities> {
    let Some(said) = &model.scheduling else { return Ok(Priorities::plain()) };
    let named = || format!("model {}: scheduling", model.name);
    let levels = said.level.iter().enumerate();
    let levels = levels
        .map(|(number, said)| level(said).with_context(|| format!("{}: level {number}", named())));
    let default_level = usize::try_from(said.default_priority).unwrap_or(usize::MAX);
    ensure!(
        said.level.len() <= LEVEL_MAX + 1 && default_level <= LEVEL_MAX,
        "{}: priorities go from 0 to {LEVEL_MAX}",
        named()
    );
    ensure!(said.weight <= WEIGHT_MAX, "{}: weight is at most {WEIGHT_MAX}", named());
    let ageing = said.ageing_micros.map(|micros| positive("ageing_micros", micros));
    Ok(Priorities {
        weight: said.weight.max(1),
        default_level,
        levels: levels.collect::<Result<_>>()?,
        mixed: mixed(said.mixed_priority_policy()),
        ageing: ageing.transpose().with_context(named)?.map(Duration::from_micros),
    })
}

fn level(said: &PriorityLevel) -> Result<Level> {
    let batches = said.max_enqueued_batches.map(|n| positive("max_enqueued_batches", n));
    let wait = said.queue_timeout_micros.map(|n| positive("queue_timeout_micros", n));
    let timeout = match said.batch_timeout_micros {
        Some(micros) if micros < 0 => bail!("batch_timeout_micros is {micros}"),
        other => other.map(i64::unsigned_abs),
    };
    let batches = batches.transpose()?.map(|n| usize::try_from(n).unwrap_or(usize::MAX));
    Ok(Level {
        enqueued_batches_max: batches,
        timeout: timeout.map(Duration::from_micros),
        wait_max: wait.transpose()?.map(Duration::from_micros),
    })
}

fn mixed(said: MixedPriorityPolicy) -> MixedPriority {
    match said {
        MixedPriorityPolicy::PriorityMerge => MixedPriority::Merge,
        MixedPriorityPolicy::PadToMaxBatchSize => MixedPriority::PadToMax,
        MixedPriorityPolicy::PadToNextAllowedBatchSize => MixedPriority::PadToNextAllowed,
        MixedPriorityPolicy::PriorityIsolation => MixedPriority::Isolate,
    }
}

fn positive(field: &str, value: i64) -> Result<u64> {
    let number = u64::try_from(value).ok().filter(|number| *number > 0);
    number.with_context(|| format!("{field} must be positive; was {value}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(scheduling: &str, expected: &str) {
        let text = format!("name: 'm' scheduling {{ {scheduling} }}");
        let read = proto::text::parse::<ModelConfig>(&text)
            .map_err(|error| error.message)
            .and_then(|model| read(&model).map_err(|error| format!("{error:#}")));
        let said = |Priorities { weight, default_level, levels, mixed, ageing }| {
            let level = |level: Level| {
                format!("{:?}/{:?}/{:?}", level.enqueued_batches_max, level.timeout, level.wait_max)
            };
            let levels: Vec<String> = levels.into_iter().map(level).collect();
            format!("{weight} {default_level} [{}] {mixed:?} {ageing:?}", levels.join(" "))
        };
        let got = read.map_or_else(|error| error, said);
        assert!(got.contains(expected), "{got} is not {expected}");
    }

    #[test]
    fn a_model_says_its_weight_and_the_limits_of_its_priorities() {
        check("", "1 0 [] Merge None");
        check("weight: 3 default_priority: 1", "3 1 [] Merge None");
        check(
            "level { max_enqueued_batches { value: 4 } } \
             level { batch_timeout_micros { value: 5 } queue_timeout_micros { value: 7 } } \
             mixed_priority_policy: PRIORITY_ISOLATION ageing_micros { value: 9 }",
            "1 0 [Some(4)/None/None None/Some(5µs)/Some(7µs)] Isolate Some(9µs)",
        );
    }

    #[test]
    fn contradictions_and_unknown_keys_are_told() {
        check("level { max_enqueued_batches { value: 0 } }", "level 0: max_enqueued_batches must");
        check("level { batch_timeout_micros { value: -1 } }", "batch_timeout_micros is -1");
        check("ageing_micros { value: 0 }", "ageing_micros must be positive; was 0");
        check("default_priority: 16", "model m: scheduling: priorities go from 0 to 15");
        check("weight: 4000000000", "weight is at most 1000000");
        check("wait: 1", "wait");
    }
}
