//! The settings of simulated GPUs, put in force.

use anyhow::{Result, bail};
use config::devices::Simulations;
use device::Driver as _;
use native::Rates;

use super::Devices;

impl Devices {
    /// Refuses rates, contexts and refusals of devices that are not simulated, and another context
    /// than one has. Allocations may be let fail on any.
    pub(super) fn check_simulations(&self, simulations: &Simulations) -> Result<()> {
        for (name, simulation) in simulations {
            let found = self.physical.iter().find(|one| one.found.name == *name);
            let has_rates = simulation.rates != Rates::default();
            if has_rates && found.is_some_and(|one| one.pace.is_none()) {
                bail!("{name} is not simulated: it has no rates");
            }
            if simulation.refused_bytes > 0 && found.is_some_and(|one| one.played.is_none()) {
                bail!("{name} is not simulated: its driver refuses nothing");
            }
            let has = found.map(|one| one.driver.context_bytes());
            let wanted =
                simulation.context_bytes.filter(|wanted| has.is_some_and(|it| it != *wanted));
            if let (Some(has), Some(wanted)) = (has, wanted) {
                bail!(
                    "the context of {name} has {has} bytes since the start: it cannot have {wanted}"
                );
            }
        }
        Ok(())
    }

    /// Puts what is said of simulated GPUs in force. Those that are not there are left out.
    pub(super) fn simulate(&self, simulations: &Simulations) {
        for (name, simulation) in simulations {
            let Some(at) = self.physical.iter().position(|one| one.found.name == *name) else {
                continue;
            };
            if let Some(pace) = &self.physical[at].pace {
                pace.set_rates(simulation.rates);
            }
            if let Some(played) = &self.physical[at].played {
                played.refuse_up_to(simulation.refused_bytes);
            }
            for logical in self.all().iter().filter(|one| one.device.lock().physical == at) {
                logical.space.faults().fail_allocation(simulation.fail_allocation);
            }
        }
    }
}
