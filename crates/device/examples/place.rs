//! Places random models on random GPUs, and compares with the best there is.
//!
//! `place [--instances N] [--models N] [--seed N]` places up to so many models on two to eight
//! unequal GPUs, as often as that. Prints one JSON line: the least and the mean share of the most
//! bytes that could have been placed, and how often a GPU was idle that another with several
//! models could have given one to.

mod report;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use device::placement::{Need, Placement, Replicas, Slot, most_bytes, place};
use report::{Answer, Options};

fn main() -> ExitCode {
    report::print(run())
}

fn run() -> Result<(String, Answer), String> {
    let options = Options::new();
    options.only(&["--instances", "--models", "--seed"])?;
    if !options.first().is_empty() {
        return Err("usage: place [--instances N] [--models N] [--seed N]".to_owned());
    }
    let n_instances: u32 = options.get("--instances", 1000)?;
    let n_models_max: u64 = options.get("--models", 12)?;
    let mut random = Random(options.get("--seed", 1)?);
    let (mut least, mut sum, mut n_idle) = (1.0f64, 0.0, 0);
    let mut longest = Duration::ZERO;
    for _ in 0..n_instances {
        let slots = slots(&mut random);
        let needs = needs(&mut random, n_models_max);
        let start = Instant::now();
        let placement = place(&slots, &needs);
        longest = longest.max(start.elapsed());
        let share = share(&slots, &needs, &placement);
        least = least.min(share);
        sum += share;
        n_idle += u32::from(has_idle(&slots, &needs, &placement));
    }
    let line = format!(
        "{{\"instances\":{n_instances},\"least\":{least:.4},\"mean\":{:.4},\"idle\":{n_idle},\
         \"longest_seconds\":{:.4}}}",
        sum / f64::from(n_instances.max(1)),
        longest.as_secs_f64()
    );
    Ok((line, if least >= 0.98 && n_idle == 0 { Answer::Yes } else { Answer::No }))
}

fn slots(random: &mut Random) -> Vec<Slot> {
    let slot = |n: u64, gib: u64| Slot { device: format!("gpu:{n}"), free_bytes: gib << 30 };
    (0..2 + random.below(7)).map(|n| slot(n, 2 + random.below(38))).collect()
}

fn needs(random: &mut Random, n_max: u64) -> Vec<Need> {
    let need = |bytes| Need {
        bytes,
        pins: Vec::new(),
        replicas: Replicas::Number(1),
        priority: 0,
        current: Vec::new(),
    };
    (0..2 + random.below(n_max.max(3) - 1))
        .map(|_| need((1 + random.below(20 << 10)) << 20))
        .collect()
}

/// What was placed, as a share of the most that can be.
fn share(slots: &[Slot], needs: &[Need], placement: &Placement) -> f64 {
    let free: Vec<u64> = slots.iter().map(|slot| slot.free_bytes).collect();
    let sizes: Vec<u64> = needs.iter().map(|need| need.bytes).collect();
    let placed = free.iter().sum::<u64>() - placement.free_bytes.iter().sum::<u64>();
    match most_bytes(&free, &sizes) {
        0 => 1.0,
        most => placed as f64 / most as f64,
    }
}

/// Whether a GPU is idle that another with several models could give one to.
fn has_idle(slots: &[Slot], needs: &[Need], placement: &Placement) -> bool {
    let on = |gpu: usize| {
        let placed = needs.iter().zip(&placement.devices);
        placed
            .filter(|(_, gpus)| gpus.contains(&gpu))
            .map(|(need, _)| need.bytes)
            .collect::<Vec<u64>>()
    };
    let is_movable = |to: usize| {
        let crowded = (0..slots.len()).map(on).filter(|models| models.len() > 1);
        crowded.flatten().any(|bytes| bytes <= slots[to].free_bytes)
    };
    (0..slots.len()).any(|gpu| on(gpu).is_empty() && is_movable(gpu))
}

/// A linear congruential generator.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}
