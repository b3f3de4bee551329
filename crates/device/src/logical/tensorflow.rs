//! Logical GPUs as TensorFlow makes them of its options and environment.
//!
//! Follows `tensorflow/core/common_runtime/gpu/gpu_device.cc` and `gpu_bfc_allocator.cc`, and the
//! messages are theirs, except where they would fail later: fewer GPUs than configured is a
//! warning, and more memory than a GPU has is an error.

use std::collections::BTreeSet;

use status::Code;

use super::environment::Environment;
use super::virtual_devices::check_virtual_devices;
use super::{
    ConfigWarning, Configured, GrowthRule, LogicalDevice, Physical, check_count, check_shares,
    cpus, growth, indices, invalid,
};
use crate::amount::scale;
use crate::driver::Kind;
use crate::error::Error;

/// TensorFlow's `GPUOptions`, as far as they concern memory, with `device_count` of its config.
#[derive(Debug, Clone, PartialEq)]
pub struct GpuOptions {
    /// The number of GPUs that may be used; `None` for all.
    pub device_count: Option<usize>,
    /// The limit as a share of all memory of a GPU; 0 for what is free less a reserve.
    pub per_process_gpu_memory_fraction: f64,
    /// Empty or `BFC`.
    pub allocator_type: String,
    /// `true` to take memory as it is needed; `None` if the option is not written out.
    pub allow_growth: Option<bool>,
    /// The growth that our own flag `--gpu_memory` asks for, if it was given.
    pub gpu_memory: Option<GrowthRule>,
    /// The GPUs in their order; empty for all.
    pub visible_device_list: String,
    /// Logical devices for each visible GPU; empty for one each.
    pub virtual_devices: Vec<VirtualDevices>,
    /// `true` if memory of the host may stand in.
    pub use_unified_memory: bool,
    /// So many logical devices of equal size for each GPU; 0 for one.
    pub num_virtual_devices_per_gpu: i32,
    /// The reserve left to the system, in MiB; 0 for the default.
    pub gpu_system_memory_size_in_mb: i32,
    /// Notes for people on options that are set and mean nothing here.
    pub without_effect: Vec<String>,
}

/// The logical devices of one GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct VirtualDevices {
    /// Their limits in MiB; empty for one with everything.
    pub memory_limit_mb: Vec<f32>,
    /// Their priorities; empty or as many.
    pub priority: Vec<i32>,
    /// Their places among all logical devices; empty or as many.
    pub device_ordinal: Vec<i32>,
}

impl GpuOptions {
    /// The options as they are when nothing is set.
    pub fn unset() -> GpuOptions {
        GpuOptions {
            device_count: None,
            per_process_gpu_memory_fraction: 0.0,
            allocator_type: String::new(),
            allow_growth: None,
            gpu_memory: None,
            visible_device_list: String::new(),
            virtual_devices: Vec::new(),
            use_unified_memory: false,
            num_virtual_devices_per_gpu: 0,
            gpu_system_memory_size_in_mb: 0,
            without_effect: Vec::new(),
        }
    }
}

/// Makes logical devices of what was found: one for each CPU, and those that the options say for
/// the GPUs.
///
/// # Errors
/// [`Error::Config`] with TensorFlow's message where the options contradict each other.
pub fn configure(
    options: &GpuOptions,
    environment: &Environment,
    physical: &[Physical],
) -> Result<Configured, Error> {
    if !matches!(options.allocator_type.as_str(), "" | "BFC") {
        return Err(invalid(format!("Invalid allocator type: {}", options.allocator_type)));
    }
    let fraction = options.per_process_gpu_memory_fraction;
    if !(fraction.is_finite() && fraction >= 0.0) {
        let text = format!("per_process_gpu_memory_fraction is {fraction}, which is no fraction");
        return Err(invalid(text));
    }
    let mut warnings = Vec::new();
    let growth_by = growth::decide(options, environment, &mut warnings);
    environment.warn(&mut warnings);
    let gpus = visible(options, &indices(physical, Kind::Gpu))?;
    if !gpus.is_empty() {
        warnings.extend(options.without_effect.iter().cloned());
    }
    let mut configuration = Configuration { options, environment, physical, warnings };
    let mut shares = Vec::new();
    let entries = check_virtual_devices(options, physical, &gpus, &mut configuration.warnings)?;
    for (at, gpu) in gpus.iter().enumerate() {
        match entries.get(at).filter(|entry| !entry.memory_limit_mb.is_empty()) {
            Some(entry) => configuration.push_virtual(&mut shares, at, *gpu, entry)?,
            None => configuration.push_whole(&mut shares, at, *gpu)?,
        }
    }
    shares.sort_by_key(|share| share.order);
    let logical = |(n, share): (usize, &TensorflowShare)| LogicalDevice {
        name: format!("gpu:{n}"),
        physical: share.physical,
        limit_bytes: share.limit_bytes,
        limit_by: share.limit_by,
        growth: growth_by.rule(),
        growth_by,
        priority: share.priority,
        n_lanes: None,
    };
    let mut devices = cpus(physical);
    devices.extend(shares.iter().enumerate().map(logical));
    let physical_limit_bytes = configuration.physical_limits();
    for device in &mut devices {
        let limit = physical_limit_bytes[device.physical];
        if limit < device.limit_bytes {
            let kind = physical[device.physical].kind;
            (device.limit_bytes, device.limit_by) = (limit, limit_variable(kind));
        }
    }
    let warnings = configuration.warnings.into_iter().map(ConfigWarning::Note).collect();
    Ok(Configured { devices, physical_limit_bytes, warnings })
}

struct Configuration<'a> {
    options: &'a GpuOptions,
    environment: &'a Environment,
    physical: &'a [Physical],
    warnings: Vec<String>,
}

struct TensorflowShare {
    /// Ordinal, GPU, position: what devices are numbered by.
    order: (i32, usize, usize),
    physical: usize,
    limit_bytes: u64,
    limit_by: &'static str,
    priority: i32,
}

impl Configuration<'_> {
    fn push_virtual(
        &mut self,
        shares: &mut Vec<TensorflowShare>,
        at: usize,
        gpu: usize,
        entry: &VirtualDevices,
    ) -> Result<(), Error> {
        let limits = entry.memory_limit_mb.iter().map(|mb| scale(1 << 20, f64::from(*mb)));
        let limits: Vec<u64> = limits.collect();
        check_shares(&self.physical[gpu], &limits)?;
        if self.wants_unified_memory() {
            self.warn_of_unified_memory(gpu);
        }
        for (position, limit_bytes) in limits.into_iter().enumerate() {
            let ordinal = entry.device_ordinal.get(position).copied().unwrap_or(0);
            let priority = entry.priority.get(position).copied().unwrap_or(0);
            let order = (ordinal, at, position);
            let limit_by = "memory_limit_mb of virtual_devices";
            shares.push(TensorflowShare { order, physical: gpu, limit_bytes, limit_by, priority });
        }
        Ok(())
    }

    /// One logical device with everything, or several equal ones.
    fn push_whole(
        &mut self,
        shares: &mut Vec<TensorflowShare>,
        at: usize,
        gpu: usize,
    ) -> Result<(), Error> {
        let (limit, limit_by) = self.limit(gpu)?;
        let n = usize::try_from(self.options.num_virtual_devices_per_gpu).unwrap_or(1).max(1);
        check_count(shares.len().saturating_add(n))?;
        let limit_by = if n > 1 { "num_virtual_devices_per_gpu" } else { limit_by };
        for position in 0..n {
            let (order, limit_bytes) = ((0, at, position), limit / n as u64);
            shares.push(TensorflowShare {
                order,
                physical: gpu,
                limit_bytes,
                limit_by,
                priority: 0,
            });
        }
        Ok(())
    }

    /// The bytes that a GPU gives to a single logical device, and the setting that says so.
    fn limit(&mut self, gpu: usize) -> Result<(u64, &'static str), Error> {
        let device = &self.physical[gpu];
        let fraction = self.options.per_process_gpu_memory_fraction;
        let major = device.compute_capability.map_or(0, |(major, _)| major);
        if self.wants_unified_memory() {
            if device.compute_capability.is_some() && major < 6 {
                let message = "Unified memory on GPUs with compute capability lower than 6.0 \
                               (pre-Pascal class GPUs) does not support oversubscription.";
                return Err(Error::Config { code: Code::Internal, message: message.to_owned() });
            }
            self.warn_of_unified_memory(gpu);
        }
        let mut limit = match fraction > 0.0 {
            true => {
                (scale(device.total_bytes, fraction.min(1.0)), "per_process_gpu_memory_fraction")
            }
            false => (less_reserve(device.free_bytes, major), "default"),
        };
        if let Ok(mb @ 1..) = u64::try_from(self.options.gpu_system_memory_size_in_mb) {
            let rest = self.less_system(gpu, mb);
            limit = rest.map_or(limit, |rest| (rest, "gpu_system_memory_size_in_mb"));
        }
        let forced = self.environment.device_min_sys_memory_in_mb.as_deref().unwrap_or("");
        if !forced.is_empty() {
            limit = match forced.trim().parse() {
                Ok(mb) => {
                    let rest = self.less_system(gpu, mb);
                    rest.map_or(limit, |rest| (rest, "TF_DEVICE_MIN_SYS_MEMORY_IN_MB"))
                }
                Err(_) => {
                    self.warnings.push(format!(
                        "The requested reserved device memory {forced} is invalid. The request \
                         will be ignored."
                    ));
                    limit
                }
            };
        }
        Ok(limit)
    }

    /// Returns whether memory of the host may stand in for that of GPUs.
    fn wants_unified_memory(&self) -> bool {
        let is_more_than_all = self.options.per_process_gpu_memory_fraction > 1.0;
        let is_asked_for = self.options.use_unified_memory || is_more_than_all;
        is_asked_for || self.environment.forces_unified_memory()
    }

    fn warn_of_unified_memory(&mut self, gpu: usize) {
        let Physical { name, total_bytes, .. } = &self.physical[gpu];
        self.warnings.push(format!(
            "unified memory is not used: {name} is limited to its own {total_bytes} bytes"
        ));
    }

    /// The free bytes less a reserve in MiB; warns if fewer than the reserve are free.
    fn less_system(&mut self, gpu: usize, reserve_mb: u64) -> Option<u64> {
        let free = self.physical[gpu].free_bytes;
        let rest = reserve_mb.checked_mul(1 << 20).and_then(|reserve| free.checked_sub(reserve));
        if rest.is_none() {
            self.warnings.push(format!(
                "The requested reserved device memory {reserve_mb} MiB is larger than the \
                 available memory of {free} bytes. The request is ignored."
            ));
        }
        rest
    }

    /// The device-wide limits; unlike TensorFlow's they hold for all allocations together.
    fn physical_limits(&mut self) -> Vec<u64> {
        let text = self.environment.per_device_memory_limit_mb.as_deref().unwrap_or("");
        let mb: Option<u64> = text.trim().parse().ok().filter(|mb| *mb > 0);
        if mb.is_none() && !matches!(text.trim(), "" | "0") {
            let text = format!("TF_PER_DEVICE_MEMORY_LIMIT_MB is no number and ignored: {text}");
            self.warnings.push(text);
        }
        let limit = mb.and_then(|mb| mb.checked_mul(1 << 20)).unwrap_or(u64::MAX);
        let host_limit = self.environment.host_limit_bytes(&mut self.warnings);
        let of = |device: &Physical| match device.kind {
            Kind::Gpu => device.total_bytes.min(limit),
            Kind::Cpu => device.total_bytes.min(host_limit),
        };
        self.physical.iter().map(of).collect()
    }
}

/// The variable that limits all of a device.
fn limit_variable(kind: Kind) -> &'static str {
    match kind {
        Kind::Gpu => "TF_PER_DEVICE_MEMORY_LIMIT_MB",
        Kind::Cpu => "TF_CPU_BFC_MEM_LIMIT_IN_MB",
    }
}

/// The free bytes less those that TensorFlow leaves to the system.
fn less_reserve(free_bytes: u64, major: u32) -> u64 {
    let reserve_mb = match major {
        _ if free_bytes < 1 << 31 => 225,
        ..=6 => 500,
        7 => 1050,
        8 => 1536,
        9.. => 1800,
    };
    let reserve = reserve_mb << 20;
    if reserve < free_bytes { free_bytes - reserve } else { free_bytes }
}

/// The GPUs that may be used, in the order that was asked for.
fn visible(options: &GpuOptions, gpus: &[usize]) -> Result<Vec<usize>, Error> {
    let n_max = options.device_count.unwrap_or(usize::MAX);
    let list = &options.visible_device_list;
    // Without any GPU TensorFlow never looks at the list.
    if list.is_empty() || n_max == 0 || gpus.is_empty() {
        return Ok(gpus.iter().copied().take(n_max).collect());
    }
    let mut order = Vec::new();
    for entry in list.split(',') {
        let id: i32 = entry.trim().parse().map_err(|_| {
            invalid(format!(
                "Could not parse entry in 'visible_device_list': '{entry}'. \
                 visible_device_list = {list}"
            ))
        })?;
        let gpu = usize::try_from(id).ok().and_then(|id| gpus.get(id)).ok_or_else(|| {
            invalid(format!(
                "'visible_device_list' listed an invalid Device id '{id}' but visible device \
                 count is {}",
                gpus.len()
            ))
        })?;
        order.push(*gpu);
    }
    if order.iter().collect::<BTreeSet<_>>().len() != order.len() {
        return Err(invalid(format!("visible_device_list contained a duplicate entry: {list}")));
    }
    order.truncate(n_max);
    Ok(order)
}
