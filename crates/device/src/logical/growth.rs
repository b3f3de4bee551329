//! Growth: whether a device takes its memory as it is needed, and which setting says so.

use std::fmt;

use super::{Environment, GpuOptions};

/// The rule by which a device takes memory: as needed, or all at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrowthRule {
    /// As it is needed.
    OnDemand,
    /// All that the limit allows, at the start.
    Reserved,
}

impl GrowthRule {
    /// The rule that `allow_growth` means.
    pub fn allowed(allow_growth: bool) -> GrowthRule {
        if allow_growth { GrowthRule::OnDemand } else { GrowthRule::Reserved }
    }
}

/// The setting that says whether a device grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrowthSetting {
    /// Nobody set anything: memory grows.
    Default,
    /// `--gpu_memory`.
    Flag(GrowthRule),
    /// `TF_FORCE_GPU_ALLOW_GROWTH`.
    Environment(GrowthRule),
    /// `allow_growth` of the session config's `gpu_options`.
    AllowGrowth(GrowthRule),
    /// `per_process_gpu_memory_fraction` where nothing is said of growth: it fences a part of a
    /// GPU off.
    Fraction,
    /// `allow_growth` of the device config.
    DeviceConfig(GrowthRule),
}

impl GrowthSetting {
    /// The rule that the setting stands for.
    pub fn rule(self) -> GrowthRule {
        match self {
            GrowthSetting::Default => GrowthRule::OnDemand,
            GrowthSetting::Fraction => GrowthRule::Reserved,
            GrowthSetting::Flag(rule)
            | GrowthSetting::Environment(rule)
            | GrowthSetting::AllowGrowth(rule)
            | GrowthSetting::DeviceConfig(rule) => rule,
        }
    }

    /// The setting that decides where a device config says nothing: the flag, if it was given.
    pub(super) fn of_flag(flag: Option<GrowthRule>) -> GrowthSetting {
        flag.map_or(GrowthSetting::Default, GrowthSetting::Flag)
    }
}

impl fmt::Display for GrowthSetting {
    /// The setting as a person would write it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_growing = self.rule() == GrowthRule::OnDemand;
        match self {
            GrowthSetting::Default => f.write_str("default"),
            GrowthSetting::Flag(_) => {
                write!(f, "--gpu_memory={}", if is_growing { "grow" } else { "reserve" })
            }
            GrowthSetting::Environment(_) => write!(f, "TF_FORCE_GPU_ALLOW_GROWTH={is_growing}"),
            GrowthSetting::AllowGrowth(_) => write!(f, "gpu_options.allow_growth: {is_growing}"),
            GrowthSetting::Fraction => {
                f.write_str("per_process_gpu_memory_fraction without allow_growth")
            }
            GrowthSetting::DeviceConfig(_) => {
                write!(f, "allow_growth: {is_growing} of the device config")
            }
        }
    }
}

/// The setting that decides on growth: the environment, which has the last word as in TensorFlow,
/// then the flag, what the session config says of growth, and a fraction, which fences a part of a
/// GPU off.
pub(super) fn decide(
    options: &GpuOptions,
    environment: &Environment,
    warnings: &mut Vec<String>,
) -> GrowthSetting {
    // TensorFlow's texts say what its own config says.
    let in_config = u8::from(options.allow_growth.unwrap_or(false));
    let forced = match environment.force_gpu_allow_growth.as_deref() {
        None => return asked_for(options),
        Some("true") => true,
        Some("false") => false,
        Some(other) => {
            warnings.push(format!(
                "The TF_FORCE_GPU_ALLOW_GROWTH environment variable is set but could not be \
                 parsed: \"{other}\".  Valid values are \"true\" or \"false\".  Using original \
                 config value of {in_config}."
            ));
            return asked_for(options);
        }
    };
    if u8::from(forced) != in_config {
        warnings.push(format!(
            "Overriding orig_value setting because the TF_FORCE_GPU_ALLOW_GROWTH environment \
             variable is set. Original config value was {in_config}."
        ));
    }
    GrowthSetting::Environment(GrowthRule::allowed(forced))
}

/// The setting that decides where the environment says nothing.
fn asked_for(options: &GpuOptions) -> GrowthSetting {
    match (options.gpu_memory, options.allow_growth) {
        (Some(rule), _) => GrowthSetting::Flag(rule),
        (None, Some(allow)) => GrowthSetting::AllowGrowth(GrowthRule::allowed(allow)),
        (None, None) if options.per_process_gpu_memory_fraction > 0.0 => GrowthSetting::Fraction,
        (None, None) => GrowthSetting::Default,
    }
}
