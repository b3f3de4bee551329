//! Logical devices: shares of physical ones, each with its own limit, growth rule and lanes.
//!
//! [`configure`] makes them as TensorFlow would from its own options, [`configure_rules`] from our
//! own, which allow more. Both are pure: what was found goes in, what was made of it comes out,
//! with warnings for what had no effect.

mod change;
mod environment;
mod growth;
mod rules;
mod tensorflow;
mod virtual_devices;

use std::fmt;

pub use change::check_change;
pub use environment::Environment;
pub use growth::{GrowthRule, GrowthSetting};
pub use rules::{DeviceRule, LogicalRule, configure_rules};
pub use tensorflow::{GpuOptions, VirtualDevices, configure};

use status::Code;

use crate::driver::Kind;
use crate::error::Error;

/// A device as its driver found it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Physical {
    /// Its name, as in `gpu:0`: kind and index among its kind.
    pub name: String,
    /// The device's kind.
    pub kind: Kind,
    /// All of its memory.
    pub total_bytes: u64,
    /// The bytes that no other process has taken.
    pub free_bytes: u64,
    /// CUDA's compute capability, if it has one.
    pub compute_capability: Option<(u32, u32)>,
    /// The priorities of streams, the least urgent first: CUDA's smaller numbers are more urgent.
    pub priorities: (i32, i32),
}

/// A share of a physical device, for placement and execution a device of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogicalDevice {
    /// Its name, as in `gpu:0`; numbered over all logical devices of a kind.
    pub name: String,
    /// The index of the physical device that it is a share of.
    pub physical: usize,
    /// The most it may hold.
    pub limit_bytes: u64,
    /// The setting that says how much that is.
    pub limit_by: &'static str,
    /// The rule by which it takes memory: as needed, or all at once.
    pub growth: GrowthRule,
    /// The setting that says which of the two.
    pub growth_by: GrowthSetting,
    /// The priority of its streams; 0 if not set.
    pub priority: i32,
    /// The number of lanes; `None` leaves that to the server.
    pub n_lanes: Option<usize>,
}

/// The logical devices made of the devices found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Configured {
    /// The logical devices, CPUs first.
    pub devices: Vec<LogicalDevice>,
    /// The most all logical devices of each physical one may hold together.
    pub physical_limit_bytes: Vec<u64>,
    /// Warnings for people, in the order of their discovery.
    pub warnings: Vec<ConfigWarning>,
}

/// A thing that a person should know of a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigWarning {
    /// A rule is for a device that was not found.
    NotFound {
        /// The name in the rule.
        device: String,
    },
    /// Anything else, in words.
    Note(String),
}

impl fmt::Display for ConfigWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound { device } => {
                write!(f, "{device} was not found, its rule has no effect")
            }
            Self::Note(text) => f.write_str(text),
        }
    }
}

/// The words for the host's limit if no setting gives one.
const WHOLE_HOST: &str = "the memory that the process may have";

/// The most logical devices there may be: each has lanes, which are threads.
const DEVICES_MAX: usize = 256;

/// The most lanes that a device may have.
const LANES_MAX: usize = 256;

fn invalid(message: impl Into<String>) -> Error {
    Error::Config { code: Code::InvalidArgument, message: message.into() }
}

/// The positions of the devices of a kind in the list of all.
fn indices(physical: &[Physical], kind: Kind) -> Vec<usize> {
    (0..physical.len()).filter(|i| physical[*i].kind == kind).collect()
}

/// One logical device for each CPU, with all its memory.
fn cpus(physical: &[Physical]) -> Vec<LogicalDevice> {
    let cpus = indices(physical, Kind::Cpu);
    let logical = |(n, i): (usize, usize)| LogicalDevice {
        name: format!("cpu:{n}"),
        physical: i,
        limit_bytes: physical[i].total_bytes,
        limit_by: WHOLE_HOST,
        growth: GrowthRule::OnDemand,
        growth_by: GrowthSetting::Default,
        priority: 0,
        n_lanes: None,
    };
    cpus.into_iter().enumerate().map(logical).collect()
}

/// Asserts that the shares of a device are no more than it has.
fn check_shares(device: &Physical, limits: &[u64]) -> Result<(), Error> {
    let sum = limits.iter().try_fold(0u64, |sum, limit| sum.checked_add(*limit));
    match sum {
        Some(sum) if sum <= device.total_bytes => Ok(()),
        _ => Err(invalid(format!(
            "the logical devices of {} need {} bytes together, but it has {}",
            device.name,
            sum.unwrap_or(u64::MAX),
            device.total_bytes
        ))),
    }
}

/// Refuses more logical devices than there may be.
fn check_count(n_devices: usize) -> Result<(), Error> {
    match n_devices {
        ..=DEVICES_MAX => Ok(()),
        _ => Err(invalid(format!(
            "{n_devices} logical devices are configured, but there may be {DEVICES_MAX} at most"
        ))),
    }
}

#[cfg(test)]
mod tests;
