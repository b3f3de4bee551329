//! `tensord plan`: what fits where, and how often, before anything is served.
//!
//! Every model is loaded here once, alone, and measured: its weights, what is packed of them, and
//! its plan for each batch size. Nothing is served and nothing runs.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use device::placement::{Need, Placement, Slot, place};
use device::{Driver, Holder, Host, Limited, Owner, Space, SpaceOptions};
use native::{Executor, Opened};
use pool::Pool;
use schedule::Lanes;
use serde_json::{Value, json};
use session::DEFAULT_SIGNATURE;

use super::{PLANS_MAX, devices, inputs};
use crate::active::Active;
use crate::cli::Persona;
use crate::config::Config;
use crate::devices::{Devices, Logical};
use crate::flags::Flags;

/// The batch sizes that are tried.
const BATCHES: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

/// Runs the command.
pub(crate) fn main(flags: &Flags) -> Result<()> {
    let config = Config::new(Persona::Tensord, flags)?;
    let active = Arc::new(Active::default());
    drop(active.replace(&config.models));
    let devices = devices::find(flags, active)?;
    let mut needs = Vec::new();
    for model in &config.models {
        let need = measure(&model.base_path, &config.tags);
        needs.push((model.name.clone(), need));
    }
    say!("{:#}", report(&devices, &needs));
    Ok(())
}

/// What a model needs on a device.
struct Needed {
    weights_bytes: u64,
    packed_bytes: u64,
    other_bytes: u64,
    /// The workspace for each batch size that could be planned.
    plans: Vec<(usize, u64)>,
}

impl Needed {
    /// What stays while it is loaded.
    fn resident(&self) -> u64 {
        self.weights_bytes + self.packed_bytes + self.other_bytes
    }

    /// The same with the workspace of the largest batch up to `batch`.
    fn total(&self, batch: usize) -> u64 {
        let plans = self.plans.iter().filter(|(size, _)| *size <= batch);
        self.resident() + plans.map(|(_, bytes)| *bytes).max().unwrap_or(0)
    }
}

fn measure(base_path: &str, tags: &[String]) -> Result<Needed> {
    let dir = super::open(std::path::Path::new(base_path))?;
    let host = Arc::new(Host::new("cpu:0", u64::MAX >> 1)) as Arc<dyn Driver>;
    let driver = Arc::new(Limited::new(host, "plan", u64::MAX >> 1));
    let physical = Arc::clone(driver.account());
    let growth = device::logical::GrowthRule::OnDemand;
    let space = Space::new(SpaceOptions { driver, physical, growth, step_bytes: 1 })?;
    let holder = Holder::Version { model: Arc::from("plan"), version: 0 };
    let owner = Owner::new(&space, holder, None);
    let lanes = Lanes::start(schedule::Options { n_lanes: 1, inline_max: Duration::ZERO })?;
    let (lanes, pool) = (Arc::new(lanes), Arc::new(Pool::new(1)));
    let executor = Executor { lanes, pool, device: "cpu:0".into(), pace: None };
    let options = native::Options { tags: tags.to_vec(), plans_max: PLANS_MAX };
    let opened = Opened::open(&dir, &options)?;
    let loaded = opened.load(&options, &executor, Some(Arc::clone(&owner)))?;
    let of = |wanted: device::Category| {
        let all = owner.categories();
        all.iter().filter(|(category, _)| *category == wanted).map(|(_, bytes)| *bytes).sum()
    };
    let weights_bytes = of(device::Category::Weights);
    let packed_bytes: u64 = of(device::Category::PackedWeights);
    let other_bytes = owner.bytes() - weights_bytes - packed_bytes;
    let signatures = &loaded.servable.signatures;
    let name = match signatures.contains_key(DEFAULT_SIGNATURE) {
        true => DEFAULT_SIGNATURE.to_owned(),
        false => signatures.keys().next().cloned().context("it has no signature")?,
    };
    let mut plans = Vec::new();
    for batch in BATCHES {
        // Inputs that cannot be made up leave the model without this figure.
        let run = inputs::run(&loaded, &name, batch);
        let plan = run.and_then(|run| Ok(loaded.engine.plan(&run)?));
        plans.extend(plan.map(|plan| (batch, plan.work_bytes() as u64)));
    }
    Ok(Needed { weights_bytes, packed_bytes, other_bytes, plans })
}

fn report(devices: &Devices, needs: &[(String, Result<Needed>)]) -> Value {
    let logical = slots(devices);
    let slots: Vec<Slot> = logical
        .iter()
        .map(|one| Slot {
            device: one.space.name().to_owned(),
            free_bytes: one.space.account().limit_bytes(),
        })
        .collect();
    let fit: Vec<(&String, &Needed)> =
        needs.iter().filter_map(|(name, need)| Some((name, need.as_ref().ok()?))).collect();
    let wanted: Vec<Need> = fit
        .iter()
        .map(|(name, need)| {
            let rule = devices.rule(name);
            let pin = |device: &String| slots.iter().position(|slot| slot.device == *device);
            Need {
                bytes: need.total(1),
                pins: rule.devices.iter().filter_map(pin).collect(),
                replicas: rule.replicas,
                priority: rule.priority,
                current: Vec::new(),
            }
        })
        .collect();
    let placement = place(&slots, &wanted);
    let models = fit
        .iter()
        .enumerate()
        .map(|(at, (name, need))| model(name, need, &placement.devices[at], (&slots, &placement)));
    let failed = needs.iter().filter_map(|(name, need)| {
        let error = need.as_ref().err()?;
        Some(json!({"name": name, "error": format!("{error:#}")}))
    });
    let free = slots.iter().zip(&placement.free_bytes).map(|(slot, left)| {
        json!({"name": slot.device, "limit_bytes": slot.free_bytes, "left_bytes": left})
    });
    json!({
        "devices": free.collect::<Vec<_>>(),
        "models": models.chain(failed).collect::<Vec<_>>(),
        "fits": placement.devices.iter().all(|on| !on.is_empty()) && fit.len() == needs.len(),
    })
}

/// The devices that models are placed on: the GPUs, or the host without any.
fn slots(devices: &Devices) -> Vec<Arc<Logical>> {
    let (gpus, cpus): (Vec<_>, Vec<_>) =
        devices.all().into_iter().partition(|one| one.space.kind() == device::Kind::Gpu);
    if gpus.is_empty() { cpus } else { gpus }
}

fn model(name: &str, need: &Needed, on: &[usize], around: (&[Slot], &Placement)) -> Value {
    let (slots, placement) = around;
    let plans = need.plans.iter().map(|(batch, bytes)| {
        json!({"batch": batch, "activation_bytes": bytes, "total_bytes": need.total(*batch)})
    });
    // The largest batch that fits with what is left where it is placed.
    let batch = on.iter().map(|device| {
        let room = placement.free_bytes[*device] + need.total(1);
        let fits = need.plans.iter().filter(|(batch, _)| need.total(*batch) <= room);
        fits.map(|(batch, _)| *batch).max().unwrap_or(1)
    });
    let copies = slots.iter().map(|slot| {
        let n = slot.free_bytes / need.resident().max(1);
        json!({"device": slot.device, "copies": n})
    });
    let mut answer = json!({
        "name": name,
        "weights_bytes": need.weights_bytes,
        "packed_weights_bytes": need.packed_bytes,
        "other_bytes": need.other_bytes,
        "total_bytes": need.total(1),
        "plans": plans.collect::<Vec<_>>(),
        "devices": on.iter().map(|device| &slots[*device].device).collect::<Vec<_>>(),
        "batch_size_max": batch.min(),
        "copies_alone": copies.collect::<Vec<_>>(),
    });
    if on.is_empty() {
        let largest = placement.free_bytes.iter().max().copied().unwrap_or(0);
        answer["refused"] = json!(format!(
            "{} bytes are needed, but no device has more than {largest} left: unload another \
             model, raise a limit, or let it be on another device",
            need.total(1)
        ));
    }
    answer
}

#[cfg(test)]
mod tests {
    use device::placement::Replicas;

    use super::*;

    fn needed(weights: u64) -> Needed {
        let plans = vec![(1, 10), (2, 20), (4, 40)];
        Needed { weights_bytes: weights, packed_bytes: 0, other_bytes: 0, plans }
    }

    #[test]
    fn the_largest_batch_is_the_one_that_fits_with_what_is_left() {
        let slots = [Slot { device: "gpu:0".to_owned(), free_bytes: 130 }];
        let need = needed(100);
        let one = Need {
            bytes: need.total(1),
            pins: Vec::new(),
            replicas: Replicas::Number(1),
            priority: 0,
            current: Vec::new(),
        };
        let placement = place(&slots, std::slice::from_ref(&one));
        let answer = model("m", &need, &placement.devices[0], (&slots, &placement));
        assert_eq!((&answer["batch_size_max"], &answer["total_bytes"]), (&2.into(), &110.into()));
        assert_eq!(answer["copies_alone"][0]["copies"], 1);
        let nowhere = model("m", &need, &[], (&slots, &placement));
        assert!(nowhere["refused"].as_str().unwrap().starts_with("110 bytes are needed"));
    }
}
