//! Flags and files about devices, and about the memory that models may hold there.

mod options;
mod rules;
mod simulated;
mod without_effect;

pub use options::{DeviceOptions, Simulations, device_config, device_rules, simulations};
pub use rules::{TOO_MUCH, model_rule, served_model, without_effect as without_effect_of_model};
pub use simulated::{SimulatedGpu, Simulation};
