//! The options among TensorFlow's `GPUOptions` that mean nothing here, and what is here instead.

use proto::tensorflow::GpuOptions;
use proto::tensorflow::gpu_options::Experimental;

/// The arena gives out memory in its own way.
const ARENA: &str = "a device's memory always comes from its own arena";
/// The text for options of TensorFlow's copies to the host.
const PINNED: &str = "there is no pool of pinned memory";
/// The text for options by which TensorFlow reuses memory before its last kernel has ended.
const IN_ORDER: &str = "memory is given out again once the step that used it has ended";
/// The text for options by which TensorFlow polls for the end of a kernel.
const POLLING: &str = "the end of a step is not polled for";
/// The text for options of TensorFlow's streams.
const STREAMS: &str = "copies are steps of a plan";
/// The text for options that only matter to several processes that train together.
const COLLECTIVES: &str = "there are no collective ops";

/// Returns messages about the options that are set and change nothing.
pub(crate) fn without_effect(gpu: &GpuOptions) -> Vec<String> {
    let mut texts = Vec::new();
    let mut none = |is_set: bool, name: &str, value: &dyn std::fmt::Display, instead: &str| {
        if is_set {
            texts.push(format!("gpu_options.{name}={value} has no effect: {instead}"));
        }
    };
    let delay = gpu.polling_active_delay_usecs;
    none(delay != 0, "polling_active_delay_usecs", &delay, POLLING);
    let delay = gpu.polling_inactive_delay_msecs;
    none(delay != 0, "polling_inactive_delay_msecs", &delay, POLLING);
    let bytes = gpu.deferred_deletion_bytes;
    none(bytes != 0, "deferred_deletion_bytes", &bytes, IN_ORDER);
    none(gpu.force_gpu_compatible, "force_gpu_compatible", &true, PINNED);
    if let Some(more) = &gpu.experimental {
        texts.extend(experimental(more));
    }
    texts
}

fn experimental(more: &Experimental) -> Vec<String> {
    let mut texts = Vec::new();
    let n_streams = more.num_dev_to_dev_copy_streams;
    if !(0..=4).contains(&n_streams) {
        // As `gpu_device.cc` has it.
        texts.push(format!(
            "Illegal GPUOptions.experimental.num_dev_to_dev_copy_streams={n_streams} set to 1 \
             instead."
        ));
    }
    let mut none = |is_set: bool, name: &str, value: &dyn std::fmt::Display, instead: &str| {
        if is_set {
            texts.push(format!("gpu_options.experimental.{name}={value} has no effect: {instead}"));
        }
    };
    let is_more = (2..=4).contains(&n_streams);
    none(is_more, "num_dev_to_dev_copy_streams", &n_streams, STREAMS);
    let merges = more.stream_merge_options.is_some();
    none(merges, "stream_merge_options", &"{}", STREAMS);
    none(more.timestamped_allocator, "timestamped_allocator", &true, IN_ORDER);
    let trackers = [
        ("kernel_tracker_max_interval", more.kernel_tracker_max_interval),
        ("kernel_tracker_max_bytes", more.kernel_tracker_max_bytes),
        ("kernel_tracker_max_pending", more.kernel_tracker_max_pending),
    ];
    for (name, value) in trackers {
        none(value != 0, name, &value, IN_ORDER);
    }
    let fraction = more.internal_fragmentation_fraction;
    none(fraction != 0.0, "internal_fragmentation_fraction", &fraction, ARENA);
    none(more.use_cuda_malloc_async, "use_cuda_malloc_async", &true, ARENA);
    let is_set = more.disallow_retry_on_allocation_failure;
    let instead = "no allocation waits for others to give memory back";
    none(is_set, "disallow_retry_on_allocation_failure", &true, instead);
    let mb = more.gpu_host_mem_limit_in_mb;
    none(mb != 0.0, "gpu_host_mem_limit_in_mb", &mb, PINNED);
    none(more.gpu_host_mem_disallow_growth, "gpu_host_mem_disallow_growth", &true, PINNED);
    let order = &more.collective_ring_order;
    none(!order.is_empty(), "collective_ring_order", order, COLLECTIVES);
    none(more.node_id != 0, "node_id", &more.node_id, COLLECTIVES);
    let is_set = more.populate_pjrt_gpu_client_creation_info;
    none(is_set, "populate_pjrt_gpu_client_creation_info", &true, "PJRT is not used");
    texts
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of what is said to have no effect, or the whole text.
    #[track_caller]
    fn check(options: &str, expected: &[&str]) {
        let texts = without_effect(&proto::text::parse(options).unwrap());
        let name = |text: &String| match text.split_once(" has no effect: ") {
            Some((name, instead)) if !instead.is_empty() => name.to_owned(),
            _ => text.clone(),
        };
        let names: Vec<String> = texts.iter().map(name).collect();
        assert_eq!(names, expected, "{options}");
    }

    #[test]
    fn every_option_that_changes_nothing_is_named() {
        check("", &[]);
        let used = "allow_growth: true per_process_gpu_memory_fraction: 0.5 allocator_type: 'BFC' \
                    visible_device_list: '0' experimental { use_unified_memory: true \
                    gpu_system_memory_size_in_mb: 7 num_dev_to_dev_copy_streams: 1 }";
        check(used, &[]);
        let names = [
            "polling_active_delay_usecs=1",
            "polling_inactive_delay_msecs=2",
            "deferred_deletion_bytes=3",
            "force_gpu_compatible=true",
        ];
        let text = |names: &[&str]| names.join(" ").replace('=', ": ");
        check(
            &text(&names),
            &names.map(|name| format!("gpu_options.{name}")).each_ref().map(String::as_str),
        );
        let names = [
            "num_dev_to_dev_copy_streams=4",
            "timestamped_allocator=true",
            "kernel_tracker_max_interval=1",
            "kernel_tracker_max_bytes=2",
            "kernel_tracker_max_pending=3",
            "internal_fragmentation_fraction=0.25",
            "use_cuda_malloc_async=true",
            "disallow_retry_on_allocation_failure=true",
            "gpu_host_mem_limit_in_mb=64",
            "gpu_host_mem_disallow_growth=true",
            "node_id=1",
            "populate_pjrt_gpu_client_creation_info=true",
        ];
        let all = format!("experimental {{ {} }}", text(&names));
        check(
            &all,
            &names
                .map(|name| format!("gpu_options.experimental.{name}"))
                .each_ref()
                .map(String::as_str),
        );
        check(
            "experimental { stream_merge_options { } collective_ring_order: '1,2' }",
            &[
                "gpu_options.experimental.stream_merge_options={}",
                "gpu_options.experimental.collective_ring_order=1,2",
            ],
        );
    }

    #[test]
    fn a_number_of_copy_streams_that_tensorflow_does_not_take_has_its_text() {
        for n in [-1, 5] {
            let options = format!("experimental {{ num_dev_to_dev_copy_streams: {n} }}");
            let text = "Illegal GPUOptions.experimental.num_dev_to_dev_copy_streams";
            check(&options, &[&format!("{text}={n} set to 1 instead.")]);
        }
    }
}
