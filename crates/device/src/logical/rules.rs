//! Logical devices from rules of our own, which allow what TensorFlow forbids: growth together with
//! a limit, and growth that differs between GPUs. Where both know a knob, the messages are those of
//! `tensorflow/python/eager/context.py`.

use std::collections::BTreeSet;

use super::virtual_devices::check_range;
use super::{
    ConfigWarning, Configured, GrowthRule, GrowthSetting, LANES_MAX, LogicalDevice, Physical,
    WHOLE_HOST, check_count, check_shares, invalid,
};
use crate::amount::Amount;
use crate::driver::Kind;
use crate::error::Error;

/// The rule for one physical device. Devices without a rule become one logical device with all
/// their memory, which grows on demand.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceRule {
    /// The device, as in `gpu:0`.
    pub device: String,
    /// `true` if the device is used; one that is not becomes no logical device.
    pub is_visible: bool,
    /// The most all of it may hold; `None` for what it has.
    pub limit: Option<Amount>,
    /// The device's growth; `None` follows the flag, or grows on demand.
    pub growth: Option<GrowthRule>,
    /// The number of lanes; `None` leaves that to the server.
    pub n_lanes: Option<usize>,
    /// Its shares; empty for one with everything.
    pub logical: Vec<LogicalRule>,
}

impl DeviceRule {
    /// A rule that says nothing but that the same device is hidden.
    fn only_hidden(&self) -> DeviceRule {
        DeviceRule {
            device: self.device.clone(),
            is_visible: false,
            limit: None,
            growth: None,
            n_lanes: None,
            logical: Vec::new(),
        }
    }
}

/// A share of a device.
#[derive(Debug, Clone, PartialEq)]
pub struct LogicalRule {
    /// The most it may hold.
    pub limit: Option<Amount>,
    /// The share's growth; `None` follows the device.
    pub growth: Option<GrowthRule>,
    /// The priority of its streams.
    pub priority: Option<i32>,
    /// Its place among all logical devices.
    pub ordinal: Option<i32>,
    /// The number of lanes; `None` for as many as the device has.
    pub n_lanes: Option<usize>,
}

/// Makes logical devices of what was found. Rules for devices that are not there are warnings. GPUs
/// of which no rule says how they grow do as `gpu_memory` says, or grow.
///
/// # Errors
/// [`Error::Config`] if a rule contradicts itself, or asks for more than a device has.
pub fn configure_rules(
    rules: &[DeviceRule],
    physical: &[Physical],
    gpu_memory: Option<GrowthRule>,
) -> Result<Configured, Error> {
    let mut warnings = Vec::new();
    check_names(rules)?;
    check_count(rules.iter().map(|rule| rule.logical.len()).sum())?;
    for rule in rules {
        check_rule(rule, physical, &mut warnings)?;
    }
    warn_like_tensorflow(rules, &mut warnings);
    let mut shares = Vec::new();
    let mut physical_limit_bytes = Vec::new();
    for (at, device) in physical.iter().enumerate() {
        let rule = rules.iter().find(|rule| rule.device == device.name);
        let limit = rule.and_then(|rule| rule.limit);
        let limit = limit_of(limit, device)?.unwrap_or(device.total_bytes);
        check_shares(device, &[limit])?;
        physical_limit_bytes.push(limit);
        let within = Physical { total_bytes: limit, ..device.clone() };
        let usual = match device.kind {
            Kind::Gpu => GrowthSetting::of_flag(gpu_memory),
            Kind::Cpu => GrowthSetting::Default,
        };
        shares.extend(share(rule, at, &within, usual)?);
    }
    check_count(shares.len())?;
    shares.sort_by_key(|(ordinal, device)| {
        (physical[device.physical].kind, *ordinal, device.physical)
    });
    let mut n_of = [0, 0];
    let number = |(_, mut device): (i32, LogicalDevice)| {
        let kind = physical[device.physical].kind;
        let n = &mut n_of[usize::from(kind == Kind::Gpu)];
        device.name = format!("{kind}:{n}");
        *n += 1;
        device
    };
    let devices = shares.into_iter().map(number).collect();
    Ok(Configured { devices, physical_limit_bytes, warnings })
}

/// The shares of one device with their ordinals, not named yet.
fn share(
    rule: Option<&DeviceRule>,
    at: usize,
    device: &Physical,
    usual: GrowthSetting,
) -> Result<Vec<(i32, LogicalDevice)>, Error> {
    let growth = rule.and_then(|rule| rule.growth);
    let growth_by = growth.map_or(usual, GrowthSetting::DeviceConfig);
    let whole_by = match (rule.and_then(|rule| rule.limit), device.kind) {
        (Some(_), _) => MEMORY_LIMIT,
        (None, Kind::Cpu) => WHOLE_HOST,
        (None, Kind::Gpu) => "default",
    };
    let n_lanes = rule.and_then(|rule| rule.n_lanes);
    let whole = LogicalDevice {
        name: String::new(),
        physical: at,
        limit_bytes: device.total_bytes,
        limit_by: whole_by,
        growth: growth_by.rule(),
        growth_by,
        priority: 0,
        n_lanes,
    };
    if rule.is_some_and(|rule| !rule.is_visible) {
        return Ok(Vec::new());
    }
    let logical = rule.map_or(&[][..], |rule| rule.logical.as_slice());
    if logical.is_empty() {
        return Ok(vec![(0, whole)]);
    }
    let share = |share: &LogicalRule| {
        let limit = limit_of(share.limit, device)?;
        let growth_by = share.growth.map_or(growth_by, GrowthSetting::DeviceConfig);
        let device = LogicalDevice {
            limit_bytes: limit.unwrap_or(device.total_bytes),
            limit_by: if limit.is_some() { MEMORY_LIMIT } else { whole_by },
            growth: growth_by.rule(),
            growth_by,
            priority: share.priority.unwrap_or(0),
            n_lanes: share.n_lanes.or(n_lanes),
            ..whole.clone()
        };
        Ok((share.ordinal.unwrap_or(0), device))
    };
    let shares = logical.iter().map(share).collect::<Result<Vec<_>, Error>>()?;
    if device.kind == Kind::Gpu {
        let limits: Vec<u64> = shares.iter().map(|(_, device)| device.limit_bytes).collect();
        check_shares(device, &limits)?;
    }
    Ok(shares)
}

/// The setting that limits a device of a device config.
const MEMORY_LIMIT: &str = "memory_limit of the device config";

/// A limit in bytes, which must be some.
fn limit_of(limit: Option<Amount>, device: &Physical) -> Result<Option<u64>, Error> {
    match limit.map(|limit| limit.bytes_of(device.total_bytes)) {
        Some(0) => Err(invalid(format!("a memory limit of {} is 0 bytes", device.name))),
        limit => Ok(limit),
    }
}

/// Refuses two rules for one device: only one of them would count.
fn check_names(rules: &[DeviceRule]) -> Result<(), Error> {
    let mut names = BTreeSet::new();
    match rules.iter().find(|rule| !names.insert(&rule.device)) {
        None => Ok(()),
        Some(rule) => Err(invalid(format!("there are two rules for {}", rule.device))),
    }
}

fn check_rule(
    rule: &DeviceRule,
    physical: &[Physical],
    warnings: &mut Vec<ConfigWarning>,
) -> Result<(), Error> {
    let kind = kind_of(&rule.device)
        .ok_or_else(|| invalid(format!("Unrecognized device: {}", rule.device)))?;
    let found = physical.iter().position(|device| device.name == rule.device);
    if found.is_none() {
        warnings.push(ConfigWarning::NotFound { device: rule.device.clone() });
    }
    if !rule.is_visible && rule != &rule.only_hidden() {
        let text = format!("{} is hidden, the rest of its rule has no effect", rule.device);
        warnings.push(ConfigWarning::Note(text));
    }
    let lanes = rule.logical.iter().filter_map(|share| share.n_lanes).chain(rule.n_lanes);
    if let Some(n_lanes) = lanes.max().filter(|n_lanes| *n_lanes > LANES_MAX) {
        return Err(invalid(format!(
            "{} would have {n_lanes} lanes, but {LANES_MAX} is the most",
            rule.device
        )));
    }
    let all_or_none = |is_set: fn(&LogicalRule) -> bool| {
        let n = rule.logical.iter().filter(|share| is_set(share)).count();
        n == 0 || n == rule.logical.len()
    };
    if kind == Kind::Cpu {
        if !rule.is_visible {
            return Err(invalid(format!(
                "{} cannot be hidden: what no GPU has is there",
                rule.device
            )));
        }
        let growths = rule.logical.iter().filter_map(|share| share.growth).chain(rule.growth);
        if growths.count() > 0 {
            return Err(invalid("Cannot set memory growth on non-GPU and non-Pluggable devices"));
        }
        if rule.logical.iter().any(|share| share.limit.is_some()) {
            return Err(invalid(
                "Setting memory limit on CPU virtual devices is currently not supported",
            ));
        }
    } else if rule.logical.iter().any(|share| share.limit.is_none()) {
        return Err(invalid("Setting memory limit is required for GPU virtual devices"));
    }
    if !all_or_none(|share| share.priority.is_some()) {
        return Err(invalid("priority must be specified for all virtual devices"));
    }
    if !all_or_none(|share| share.ordinal.is_some()) {
        return Err(invalid("device_ordinals must be specified for all virtual devices"));
    }
    found.filter(|_| kind == Kind::Gpu).map_or(Ok(()), |at| {
        let priorities: Vec<i32> = rule.logical.iter().filter_map(|one| one.priority).collect();
        check_range(0, &priorities, at, physical)
    })
}

/// Says what TensorFlow would have refused, so that nobody is surprised there.
fn warn_like_tensorflow(rules: &[DeviceRule], warnings: &mut Vec<ConfigWarning>) {
    let is_gpu = |rule: &&DeviceRule| kind_of(&rule.device) == Some(Kind::Gpu);
    let gpus = || rules.iter().filter(|rule| is_gpu(rule) && rule.is_visible);
    let mut growths = gpus().map(|rule| rule.growth.unwrap_or(GrowthRule::OnDemand));
    let first = growths.next();
    if growths.any(|growth| Some(growth) != first) {
        let text = "TensorFlow refuses this: Memory growth cannot differ between GPU devices";
        warnings.push(ConfigWarning::Note(text.to_owned()));
    }
    if gpus().any(|rule| rule.growth.is_some() && !rule.logical.is_empty()) {
        let text = "TensorFlow refuses this: Cannot set memory growth on device when virtual \
                    devices configured";
        warnings.push(ConfigWarning::Note(text.to_owned()));
    }
}

/// The kind of device that a name like `gpu:0` is of.
fn kind_of(name: &str) -> Option<Kind> {
    let (kind, index) = name.split_once(':')?;
    index.parse::<u32>().ok()?;
    match kind {
        "cpu" => Some(Kind::Cpu),
        "gpu" => Some(Kind::Gpu),
        _ => None,
    }
}
