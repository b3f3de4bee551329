//! Session options for TensorFlow: threads, and the memory of GPUs.

use proto::tensorflow::ConfigProto;
use proto::tensorflow::gpu_options::Experimental;
use proto::tensorflow::gpu_options::experimental::VirtualDevices;

/// The number of threads of a session; 0 leaves it to TensorFlow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Threads {
    /// Within one op.
    pub intra: i32,
    /// For ops that can run beside each other.
    pub inter: i32,
}

/// The memory of GPUs. What is not given is left as it is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GpuOptions {
    /// Take memory as it is needed, rather than all at the start.
    pub allow_growth: Option<bool>,
    /// The share of a GPU's memory that may be taken.
    pub memory_fraction: Option<f64>,
    /// The bytes of a GPU's memory that may be taken: a virtual device of that size.
    pub memory_limit_bytes: Option<u64>,
    /// The priority of the streams of a GPU with a limit.
    pub priority: Option<i32>,
    /// The GPUs that are seen, by their numbers, in this order. Empty leaves it as it is.
    pub visible_devices: Vec<u32>,
}

/// A session's options: those of `base` with threads and GPU options over them.
///
/// A limit is a virtual device on each GPU that is seen, the first one if none is named. It takes
/// the place of a fraction, since TensorFlow goes by one of them only.
pub fn session_config(base: &ConfigProto, threads: Threads, gpu: &GpuOptions) -> ConfigProto {
    let mut config = base.clone();
    if threads.intra != 0 {
        config.intra_op_parallelism_threads = threads.intra;
    }
    if threads.inter != 0 {
        config.inter_op_parallelism_threads = threads.inter;
    }
    // Models name devices that this machine may not have.
    config.allow_soft_placement = true;
    if *gpu == GpuOptions::default() {
        return config;
    }
    let options = config.gpu_options.get_or_insert_default();
    if let Some(allow_growth) = gpu.allow_growth {
        options.allow_growth = Some(allow_growth);
    }
    if let Some(fraction) = gpu.memory_fraction {
        options.per_process_gpu_memory_fraction = fraction;
    }
    if !gpu.visible_devices.is_empty() {
        let devices: Vec<String> = gpu.visible_devices.iter().map(ToString::to_string).collect();
        options.visible_device_list = devices.join(",");
    }
    if let Some(bytes) = gpu.memory_limit_bytes {
        options.per_process_gpu_memory_fraction = 0.0;
        let n_devices = match options.visible_device_list.as_str() {
            "" => {
                "0".clone_into(&mut options.visible_device_list);
                1
            }
            list => list.split(',').count(),
        };
        let one = VirtualDevices {
            memory_limit_mb: vec![mebibytes(bytes)],
            priority: gpu.priority.into_iter().collect(),
            ..Default::default()
        };
        let experimental = options.experimental.get_or_insert_with(Experimental::default);
        experimental.virtual_devices = vec![one; n_devices];
    }
    config
}

#[expect(clippy::cast_precision_loss, reason = "TensorFlow counts in mebibytes, as floats")]
fn mebibytes(bytes: u64) -> f32 {
    (bytes >> 20) as f32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::tensorflow::GpuOptions as Proto;

    #[test]
    fn a_limit_is_a_virtual_device_on_each_gpu_that_is_seen() {
        let gpu = GpuOptions {
            memory_limit_bytes: Some(2 << 30),
            memory_fraction: Some(0.5),
            visible_devices: vec![1, 3],
            ..GpuOptions::default()
        };
        let config = session_config(&ConfigProto::default(), Threads::default(), &gpu);
        let options = config.gpu_options.unwrap();
        assert_eq!(options.visible_device_list, "1,3");
        assert_eq!(options.per_process_gpu_memory_fraction, 0.0);
        let devices = options.experimental.unwrap().virtual_devices;
        assert_eq!(devices.len(), 2);
        assert_eq!(devices[1].memory_limit_mb, [2048.0]);
    }

    #[test]
    fn what_is_not_given_stays_as_the_file_says() {
        let base = ConfigProto {
            intra_op_parallelism_threads: 3,
            gpu_options: Some(Proto { allow_growth: Some(true), ..Proto::default() }),
            ..ConfigProto::default()
        };
        let threads = Threads { intra: 0, inter: 2 };
        let config = session_config(&base, threads, &GpuOptions::default());
        assert_eq!(config.intra_op_parallelism_threads, 3);
        assert_eq!(config.inter_op_parallelism_threads, 2);
        assert_eq!(config.gpu_options.unwrap().allow_growth, Some(true));
        assert!(config.allow_soft_placement);
    }
}
