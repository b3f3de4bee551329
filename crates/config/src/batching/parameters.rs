//! `BatchingParameters`: the file, its defaults and its mistakes (`bundle_factory_util.cc`).

use std::time::Duration;

use anyhow::{Result, anyhow};
use batch::{Error, MixedPriority, Options, Order};
use proto::serving::BatchingParameters;

/// TensorFlow Serving's defaults where the file says nothing.
const BATCH_ROWS_MAX: i64 = 1000;
const ENQUEUED_BATCHES_MAX: i64 = 10;

/// Our own defaults: as many rows as make products fast, and as much waiting as memory allows
/// without question.
const OUR_BATCH_ROWS_MAX: usize = 64;
const OUR_ENQUEUED_BATCHES_MAX: usize = 160;

/// After this wait a request counts as due, whatever its deadline.
const AGEING: Duration = Duration::from_secs(1);

/// The contents of a parameters file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Parameters {
    pub(super) options: Options,
    /// The number of batches that run at once.
    pub(super) n_threads: Option<usize>,
}

/// Reads parameters from text proto, or from JSON if it begins with a brace.
pub(crate) fn read(text: &str) -> Result<Parameters> {
    let message: BatchingParameters = if text.trim_start().starts_with('{') {
        proto::json::parse(text).map_err(|error| anyhow!("{error}"))?
    } else {
        proto::text::parse(text).map_err(|error| anyhow!("{error}"))?
    };
    Ok(from_proto(&message)?)
}

/// TensorFlow Serving's defaults.
pub(super) fn tensorflow_serving() -> Parameters {
    from_proto(&BatchingParameters::default()).expect("the defaults are consistent")
}

/// Our own defaults: no waiting but for a lane.
pub(super) fn ours() -> Parameters {
    let options = Options {
        task_rows_max: OUR_BATCH_ROWS_MAX,
        batch_rows_max: OUR_BATCH_ROWS_MAX,
        enqueued_batches_max: OUR_ENQUEUED_BATCHES_MAX,
        order: Order::Deadline { ageing: AGEING },
        ..tensorflow_serving().options
    };
    Parameters { options, n_threads: None }
}

fn from_proto(message: &BatchingParameters) -> batch::Result<Parameters> {
    let task_rows_max =
        positive("max_batch_size", message.max_batch_size.unwrap_or(BATCH_ROWS_MAX))?;
    let splits_tasks = message.enable_large_batch_splitting.unwrap_or(false);
    let batch_rows_max = match message.max_execution_batch_size.filter(|_| splits_tasks) {
        Some(rows) => positive("max_execution_batch_size", rows)?,
        None => task_rows_max,
    };
    let timeout = message.batch_timeout_micros.unwrap_or(0);
    let enqueued = message.max_enqueued_batches.unwrap_or(ENQUEUED_BATCHES_MAX);
    let sizes = message.allowed_batch_sizes.iter();
    let options = Options {
        task_rows_max,
        batch_rows_max,
        timeout: Duration::from_micros(u64::try_from(timeout).unwrap_or(0)),
        enqueued_batches_max: positive("max_enqueued_batches", enqueued)?,
        allowed_sizes: sizes
            .map(|size| positive("allowed_batch_sizes", *size))
            .collect::<batch::Result<_>>()?,
        pads_shapes: message.pad_variable_length_inputs,
        splits_tasks,
        order: Order::Arrival,
        mixed_priority: MixedPriority::Merge,
        levels: Vec::new(),
    };
    options.validate()?;
    let threads = message.num_batch_threads;
    let n_threads = threads.map(|threads| positive("num_batch_threads", threads)).transpose()?;
    Ok(Parameters { options, n_threads })
}

fn positive(field: &'static str, value: i64) -> batch::Result<usize> {
    let size = usize::try_from(value).ok().filter(|size| *size > 0);
    size.ok_or(Error::NotPositive { field, value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let said = |parameters: Parameters| {
            let Options { task_rows_max, batch_rows_max, timeout, enqueued_batches_max, .. } =
                parameters.options;
            let allowed = parameters.options.allowed_sizes;
            format!(
                "{task_rows_max} {batch_rows_max} {timeout:?} {enqueued_batches_max} {allowed:?} \
                 {:?}",
                parameters.n_threads
            )
        };
        let got = read(text).map_or_else(|error| error.to_string(), said);
        assert_eq!(got, expected, "{text}");
    }

    #[test]
    fn the_defaults_are_tensorflow_servings() {
        check("", "1000 1000 0ns 10 [] None");
    }

    #[test]
    fn all_fields_are_read() {
        check(
            "max_batch_size { value: 128 } batch_timeout_micros { value: 500 } \
             max_enqueued_batches { value: 7 } num_batch_threads { value: 3 } \
             thread_pool_name { value: 'mine' } allowed_batch_sizes: 64 allowed_batch_sizes: 128 \
             pad_variable_length_inputs: true",
            "128 128 500µs 7 [64, 128] Some(3)",
        );
        let splitting = "max_batch_size { value: 128 } max_execution_batch_size { value: 32 }";
        check(splitting, "128 128 0ns 10 [] None");
        let on = format!("{splitting} enable_large_batch_splitting {{ value: true }}");
        check(&on, "128 32 0ns 10 [] None");
    }

    #[test]
    fn contradictions_are_told() {
        check(
            "max_batch_size { value: 8 } allowed_batch_sizes: 4",
            "Last entry in allowed_batch_sizes must match max_batch_size; last entry was 4; \
             expected 8",
        );
        check("max_batch_size { value: 0 }", "max_batch_size must be positive; was 0");
        check("num_batch_threads { value: -1 }", "num_batch_threads must be positive; was -1");
        assert!(read("max_batch_size: {").is_err());
        assert!(read("max_batch_sizes { value: 1 }").is_err());
    }
}
