//! Validation of TensorFlow's `virtual_devices`; follows `VerifyVirtualDeviceSettings` of
//! `gpu_device.cc`.

use status::Code;

use super::tensorflow::{GpuOptions, VirtualDevices};
use super::{Physical, check_count, invalid};
use crate::driver::Kind;
use crate::error::Error;

/// The entries for the visible GPUs; empty if there are none. Where there are fewer GPUs than
/// entries, TensorFlow would give up; here the first are configured, with a warning.
pub(super) fn check_virtual_devices<'a>(
    options: &'a GpuOptions,
    physical: &[Physical],
    gpus: &[usize],
    warnings: &mut Vec<String>,
) -> Result<&'a [VirtualDevices], Error> {
    let entries = options.virtual_devices.as_slice();
    if entries.is_empty() {
        return Ok(entries);
    }
    if options.per_process_gpu_memory_fraction > 0.0 {
        return Err(invalid(
            "It's invalid to set per_process_gpu_memory_fraction when virtual_devices is set.",
        ));
    }
    let (n_gpus, n_entries) = (gpus.len(), entries.len());
    if n_gpus < n_entries {
        warnings.push(format!(
            "Not enough GPUs to create virtual devices. num_gpus_to_use: {n_gpus} \
             #virtual_devices: {n_entries}"
        ));
    }
    if n_gpus > n_entries && !options.visible_device_list.is_empty() {
        return Err(invalid(format!(
            "The number of GPUs in visible_device_list doesn't match the number of elements in \
             the virtual_devices list. #GPUs in visible_device_list: {n_gpus} \
             virtual_devices.size(): {n_entries}"
        )));
    }
    if n_gpus > n_entries {
        let message = format!(
            "The number of valid GPUs doesn't match the number of elements in the \
             virtual_devices list. #valid GPUs: {n_gpus} virtual_devices.size(): {n_entries}"
        );
        return Err(Error::Config { code: Code::Unknown, message });
    }
    check_ordinals(entries)?;
    check_priorities(entries)?;
    check_count(entries.iter().map(|entry| entry.memory_limit_mb.len()).sum())?;
    for (at, (entry, gpu)) in entries.iter().zip(gpus).enumerate() {
        check_range(at, &entry.priority, *gpu, physical)?;
        check_limits(entry, &physical[*gpu])?;
    }
    Ok(&entries[..n_gpus])
}

fn check_ordinals(entries: &[VirtualDevices]) -> Result<(), Error> {
    let first = entries[0].device_ordinal.is_empty();
    if let Some(at) = entries.iter().position(|e| e.device_ordinal.is_empty() != first) {
        return Err(invalid(format!(
            "Device ordinals must be set for all virtual devices or none. But the device_ordinal \
             is specified for {at} while previous devices didn't have any set."
        )));
    }
    let differs = |e: &VirtualDevices| e.memory_limit_mb.len() != e.device_ordinal.len();
    match entries.iter().position(differs).filter(|_| !first) {
        None => Ok(()),
        Some(at) => Err(invalid(format!(
            "Number of virtual device ordinals specified doesn't match with number of \
             memory_limit_mb specified for GPU# {at} memory_limit_mb size: {} and \
             device_ordinal size: {}",
            entries[at].memory_limit_mb.len(),
            entries[at].device_ordinal.len()
        ))),
    }
}

fn check_priorities(entries: &[VirtualDevices]) -> Result<(), Error> {
    let first = entries[0].priority.is_empty();
    for (at, entry) in entries.iter().enumerate() {
        if first && !entry.priority.is_empty() {
            return Err(invalid(format!(
                "Priority must be set for all virtual devices or none. But the priority is \
                 specified for {at} while previous devices didn't have any set."
            )));
        }
        if !first && entry.memory_limit_mb.len() != entry.priority.len() {
            return Err(invalid(format!(
                "Number of virtual device priorities specified doesn't match with number of \
                 memory_limit_mb specified for GPU# {at} memory_limit_mb size: {} and priority \
                 size: {}",
                entry.memory_limit_mb.len(),
                entry.priority.len()
            )));
        }
    }
    Ok(())
}

/// Refuses limits that are none; TensorFlow would make devices without memory.
fn check_limits(entry: &VirtualDevices, device: &Physical) -> Result<(), Error> {
    match entry.memory_limit_mb.iter().find(|mb| !(mb.is_finite() && **mb > 0.0)) {
        None => Ok(()),
        Some(mb) => Err(invalid(format!(
            "memory_limit_mb of a virtual device of {} is {mb}, which is no size",
            device.name
        ))),
    }
}

/// Refuses priorities that the GPU's streams cannot have; `at` is its place among the visible ones.
pub(super) fn check_range(
    at: usize,
    priorities: &[i32],
    gpu: usize,
    physical: &[Physical],
) -> Result<(), Error> {
    let (low, high) = physical[gpu].priorities;
    let number = physical[..gpu].iter().filter(|other| other.kind == Kind::Gpu).count();
    match priorities.iter().find(|priority| **priority > low || **priority < high) {
        None => Ok(()),
        Some(priority) => Err(invalid(format!(
            "Priority {priority} is outside the range of supported priorities [{high},{low}] for \
             virtual device {at} on GPU# {number}"
        ))),
    }
}
