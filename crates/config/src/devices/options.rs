//! Device options from flags, files and the environment.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use device::logical::{
    DeviceRule, Environment, GpuOptions, GrowthRule, LogicalRule, VirtualDevices,
};
use device::{Amount, parse_bytes};
use proto::serving::{DeviceConfig, DeviceRule as RuleProto, LogicalDeviceRule};
use proto::tensorflow::ConfigProto;

use super::simulated::{SimulatedGpu, Simulation};
use super::without_effect::without_effect;
use crate::config::session_config;
use crate::flags::{Flags, GpuMemory};

/// The settings of simulated GPUs, by the names of devices.
pub type Simulations = Vec<(String, Simulation)>;

/// The options of the devices that are found.
#[derive(Debug, Clone)]
pub struct DeviceOptions {
    /// The GPUs that are played by the host.
    pub simulated_gpus: Vec<SimulatedGpu>,
    /// TensorFlow's own options.
    pub gpu: GpuOptions,
    /// TensorFlow's variables of the environment.
    pub environment: Environment,
    /// Our own, which take the place of TensorFlow's if there are any.
    pub rules: Option<Vec<DeviceRule>>,
    /// The settings of simulated GPUs in the same file, by their names.
    pub simulations: Simulations,
    /// The least by which an arena grows.
    pub step_bytes: u64,
    /// The folder that the system's own files are in, which say how much memory there is.
    pub system_root: PathBuf,
}

impl DeviceOptions {
    /// Reads the options from the flags. Reads the files they name, and the environment.
    pub fn new(flags: &Flags) -> Result<Self> {
        let amount = |text: &str| parse_bytes(text).with_context(|| format!("{text} is no size"));
        let sizes = flags.simulated_gpus.split(',').filter(|size| !size.trim().is_empty());
        let simulated_gpus =
            sizes.map(SimulatedGpu::parse).collect::<Result<_>>().context("--simulated_gpus")?;
        let step_bytes = amount(&flags.memory_growth_step).context("--memory_growth_step")?;
        let (rules, simulations) = match flags.device_config_file.as_str() {
            "" => (None, Simulations::new()),
            path => {
                let named = || format!("--device_config_file {path}");
                let config = parse(&read(path, "device config file")?).with_context(named)?;
                let rules = device_rules(&config).with_context(named)?;
                (Some(rules), simulations(&config).with_context(named)?)
            }
        };
        let gpu_memory = flags.gpu_memory.map(|how| match how {
            GpuMemory::Grow => GrowthRule::OnDemand,
            GpuMemory::Reserve => GrowthRule::Reserved,
        });
        Ok(Self {
            simulated_gpus,
            gpu: GpuOptions { gpu_memory, ..from_config(&session_config(flags)?) },
            environment: Environment::read(|name| std::env::var(name).ok()),
            rules,
            simulations,
            step_bytes: step_bytes.max(1),
            system_root: PathBuf::from("/"),
        })
    }
}

impl DeviceOptions {
    /// Returns the settings of simulated GPUs: those of the flag, and then those of the file.
    pub fn simulations(&self) -> Simulations {
        let flag = self.simulated_gpus.iter().enumerate();
        let flag = flag.map(|(number, gpu)| (format!("gpu:{number}"), gpu.simulation));
        flag.chain(self.simulations.iter().cloned()).collect()
    }
}

impl DeviceOptions {
    /// Returns the settings made by TensorFlow's means that do not count, because there is a device
    /// config.
    pub fn without_effect(&self) -> Vec<String> {
        if self.rules.is_none() {
            return Vec::new();
        }
        let mut names = self.environment.names();
        // The flag says how GPUs grow of which the device config says nothing.
        let gpu_memory = self.gpu.gpu_memory;
        if self.gpu != (GpuOptions { gpu_memory, ..GpuOptions::unset() }) {
            names.push("gpu_options of the session config, or the fraction of the flag");
        }
        let text =
            |name: &str| format!("{name} has no effect: --device_config_file takes its place");
        names.into_iter().map(text).collect()
    }
}

fn read(path: &str, what: &str) -> Result<String> {
    std::fs::read_to_string(Path::new(path))
        .with_context(|| format!("cannot read the {what} {path}"))
}

/// A message as JSON if it begins with a brace, else as text proto.
fn parse<T: prost::Message + prost::Name + Default>(text: &str) -> Result<T> {
    if text.trim_start().starts_with('{') {
        return proto::json::parse(text).map_err(|error| anyhow!("{error}"));
    }
    proto::text::parse(text).map_err(|error| anyhow!("{error}"))
}

/// The options of a session config.
pub(crate) fn from_config(config: &ConfigProto) -> GpuOptions {
    let count = config.device_count.get("GPU").map(|n| usize::try_from(*n).unwrap_or(0));
    let mut options = GpuOptions { device_count: count, ..GpuOptions::unset() };
    let Some(gpu) = &config.gpu_options else { return options };
    options.per_process_gpu_memory_fraction = gpu.per_process_gpu_memory_fraction;
    options.allocator_type.clone_from(&gpu.allocator_type);
    options.allow_growth = gpu.allow_growth;
    options.without_effect = without_effect(gpu);
    options.visible_device_list.clone_from(&gpu.visible_device_list);
    let Some(more) = &gpu.experimental else { return options };
    let devices = more.virtual_devices.iter().map(|devices| VirtualDevices {
        memory_limit_mb: devices.memory_limit_mb.clone(),
        priority: devices.priority.clone(),
        device_ordinal: devices.device_ordinal.clone(),
    });
    options.virtual_devices = devices.collect();
    options.use_unified_memory = more.use_unified_memory;
    options.num_virtual_devices_per_gpu = more.num_virtual_devices_per_gpu;
    options.gpu_system_memory_size_in_mb = more.gpu_system_memory_size_in_mb;
    options
}

/// A device config file, or a change.
pub fn device_config(text: &str) -> Result<DeviceConfig> {
    parse(text).context("device config")
}

/// The rules of a device config.
pub fn device_rules(config: &DeviceConfig) -> Result<Vec<DeviceRule>> {
    config.device.iter().map(device_rule).collect()
}

/// Reads the settings of simulated GPUs from a device config, by their names.
pub fn simulations(config: &DeviceConfig) -> Result<Simulations> {
    let named = config.device.iter().filter_map(|rule| Some((rule, rule.simulation.as_ref()?)));
    let read = |(rule, simulation): (&RuleProto, _)| {
        let simulation = Simulation::of(simulation).with_context(|| rule.name.clone())?;
        Ok((rule.name.clone(), simulation))
    };
    named.map(read).collect()
}

fn device_rule(rule: &RuleProto) -> Result<DeviceRule> {
    let logical = rule.logical_device.iter().map(logical_rule).collect::<Result<_>>();
    Ok(DeviceRule {
        device: rule.name.clone(),
        is_visible: rule.visible.unwrap_or(true),
        limit: limit("memory_limit", &rule.memory_limit)
            .with_context(|| format!("device {}", rule.name))?,
        growth: rule.allow_growth.map(GrowthRule::allowed),
        n_lanes: lanes(rule.lanes),
        logical: logical.with_context(|| format!("device {}", rule.name))?,
    })
}

fn logical_rule(rule: &LogicalDeviceRule) -> Result<LogicalRule> {
    Ok(LogicalRule {
        limit: limit("memory_limit", &rule.memory_limit)?,
        growth: rule.allow_growth.map(GrowthRule::allowed),
        priority: rule.priority,
        ordinal: rule.ordinal,
        n_lanes: lanes(rule.lanes),
    })
}

/// A number of bytes without a unit that is below this was meant to be one of MiB.
const BYTES_MIN: u64 = 1 << 20;

/// An amount; none if nothing is said.
pub(crate) fn limit(setting: &str, text: &str) -> Result<Option<Amount>> {
    if text.is_empty() {
        return Ok(None);
    }
    let is_size = "is neither a size (\"512MiB\", or bytes) nor a fraction (0.5)";
    let amount = Amount::parse(text).with_context(|| format!("{text} {is_size}"))?;
    let has_unit = text.trim().ends_with(|last: char| last.is_ascii_alphabetic());
    if let Amount::Bytes(bytes @ 1..BYTES_MIN) = amount
        && !has_unit
    {
        bail!(
            "{setting}: {text} is {bytes} bytes, too few for any model: for MiB, write \
             \"{bytes}MiB\" or {} (bytes)",
            bytes << 20
        );
    }
    Ok(Some(amount))
}

fn lanes(n: u32) -> Option<usize> {
    usize::try_from(n).ok().filter(|n| *n > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> Result<Vec<DeviceRule>> {
        device_rules(&device_config(text)?)
    }

    #[test]
    fn text_and_json_say_the_same() {
        let text = r#"device { name: "gpu:0" allow_growth: true memory_limit: "2GiB"
            logical_device { memory_limit: "512MiB" priority: -1 } }"#;
        let json = r#"{"device": [{"name": "gpu:0", "allow_growth": true, "memory_limit": "2GiB",
            "logical_device": [{"memory_limit": "512MiB", "priority": -1}]}]}"#;
        let read = rules(text).unwrap();
        assert_eq!(read, rules(json).unwrap());
        assert_eq!(read[0].limit, Some(Amount::Bytes(2 << 30)));
        assert_eq!(read[0].logical[0].priority, Some(-1));
        assert!(rules(r#"device { name: "gpu:0" memory_limit: "much" }"#).is_err());
        let few = rules(r#"device { name: "gpu:0" memory_limit: 1024 }"#).unwrap_err();
        let text = "write \"1024MiB\" or 1073741824 (bytes)";
        assert!(format!("{few:#}").contains(text), "{few:#}");
        assert!(rules(r#"device { name: "gpu:0" memory_limit: "1024B" }"#).is_ok());
        assert!(rules("device { colour: 1 }").is_err());
    }

    #[test]
    fn a_session_config_becomes_options() {
        let text = r#"device_count { key: "GPU" value: 2 } gpu_options { allow_growth: true
            visible_device_list: "1,0"
            experimental { virtual_devices { memory_limit_mb: 100 } } }"#;
        let options = from_config(&parse(text).unwrap());
        assert_eq!((options.device_count, options.allow_growth), (Some(2), Some(true)));
        assert_eq!(options.visible_device_list, "1,0");
        assert_eq!(options.virtual_devices[0].memory_limit_mb, [100.0]);
    }
}
