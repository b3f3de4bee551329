//! What the scheduler promises, in virtual time.

use batch::{MixedPriority, Order};

use super::*;
use crate::agenda::Admission;

const SECOND: Duration = Duration::from_secs(1);

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn options(batch_rows_max: usize) -> QueueOptions {
    QueueOptions {
        batch: batch::Options {
            task_rows_max: batch_rows_max,
            batch_rows_max,
            timeout: Duration::ZERO,
            enqueued_batches_max: 10,
            allowed_sizes: Vec::new(),
            pads_shapes: false,
            splits_tasks: false,
            order: Order::Deadline { ageing: SECOND },
            mixed_priority: MixedPriority::Merge,
            levels: Vec::new(),
        },
        admission: Admission::InTime,
    }
}

/// A model of 4 ms a batch and 1 ms a row.
fn model(devices: &[usize], batch_rows_max: usize) -> Model {
    Model {
        weight: 1,
        devices: devices.to_vec(),
        options: options(batch_rows_max),
        per_batch: millis(4),
        per_row: millis(1),
    }
}

fn load(model: usize, clients: Clients) -> Load {
    let (from, to) = (Duration::ZERO, 5 * SECOND);
    Load { model, n_rows: 1, deadline: None, from, to, clients }
}

const GPU: Device = Device { n_lanes: 1, rate: 1.0 };

#[test]
fn batching_multiplies_the_throughput_of_many_clients() {
    let rate = |batch_rows_max| {
        let loads = [load(0, Clients::Waiting(32))];
        let report = play(&[GPU], &[model(&[0], batch_rows_max)], &loads, 1);
        report.loads[0].rate(SECOND, 5 * SECOND)
    };
    let (single, batched) = (rate(1), rate(32));
    // 5 ms a task against (4 + 16) / 16 ms: clients fall into two groups that take turns.
    assert!(batched / single > 3.5, "{single} {batched}");
}

#[test]
fn an_idle_device_makes_nobody_wait() {
    let loads = [load(0, Clients::Rate(20.0))];
    let report = play(&[GPU], &[model(&[0], 32)], &loads, 2);
    assert_eq!(report.loads[0].percentile(0.5), millis(5));
}

#[test]
fn two_devices_do_twice_the_work_of_one() {
    let rate = |devices: &[Device]| {
        let places: Vec<usize> = (0..devices.len()).collect();
        let loads = [load(0, Clients::Waiting(64))];
        let report = play(devices, &[model(&places, 8)], &loads, 3);
        report.loads[0].rate(SECOND, 5 * SECOND)
    };
    let (one, two) = (rate(&[GPU]), rate(&[GPU, GPU]));
    assert!(two / one >= 1.8, "{one} {two}");
}

#[test]
fn unequal_devices_are_busy_in_proportion() {
    let devices = [Device { rate: 2.0, ..GPU }, GPU];
    let loads = [load(0, Clients::Waiting(64))];
    let report = play(&devices, &[model(&[0, 1], 8)], &loads, 4);
    let rows = |device| -> usize {
        report.batches.iter().filter(|ran| ran.device == device).map(|ran| ran.n_rows).sum()
    };
    let ratio = rows(0) as f64 / rows(1) as f64;
    assert!((1.7..2.3).contains(&ratio), "{ratio}");
    for device in 0..2 {
        let busy = report.utilisation(device, &devices, 5 * SECOND);
        assert!(busy > 0.9, "device {device} is busy for {busy}");
    }
}

/// Ten times what the device can do, from second 1 to second 3, over a tenth of it throughout.
#[test]
fn overload_is_refused_and_what_is_taken_is_answered_in_time() {
    let deadline = Some(millis(200));
    let peak = {
        let loads = [Load { deadline, ..load(0, Clients::Rate(220.0)) }];
        let report = play(&[GPU], &[model(&[0], 8)], &loads, 5);
        report.loads[0].rate(SECOND, 3 * SECOND)
    };
    // Full batches of 8 run for 12 ms: 667 a second.
    let flood = Load { deadline, from: SECOND, to: 3 * SECOND, ..load(0, Clients::Rate(6670.0)) };
    let steady = Load { deadline, ..load(0, Clients::Rate(66.0)) };
    let report = play(&[GPU], &[model(&[0], 8)], &[flood, steady], 5);
    let goodput: f64 = report.loads.iter().map(|load| load.rate(SECOND, 3 * SECOND)).sum();
    assert!(goodput >= 0.95 * 667.0, "{goodput} of 667; at a third of the load {peak}");
    for outcome in &report.loads {
        assert!(outcome.answered.iter().all(|(_, took)| *took <= millis(200)));
    }
    // From 100 ms after the flood on, nothing is refused any more.
    let late = Time::default().plus(3 * SECOND + millis(100));
    assert!(report.loads[1].refused.iter().all(|at| *at < late));
}

#[test]
fn a_saturated_model_does_not_starve_another() {
    let quiet = model(&[0], 32);
    // The neighbour's rows are short, its batches would be long.
    let (per_batch, per_row) = (Duration::from_micros(100), Duration::from_micros(400));
    let noisy = Model { per_batch, per_row, ..model(&[0], 64) };
    let p99 = |with_noise: bool, device: Device| {
        let mut loads = vec![load(0, Clients::Rate(20.0))];
        if with_noise {
            loads.push(load(1, Clients::Waiting(128)));
        }
        let models = [quiet.clone(), noisy.clone()];
        play(&[device], &models, &loads, 6).loads[0].after(SECOND).percentile(0.99)
    };
    let two_lanes = Device { n_lanes: 2, rate: 1.0 };
    for device in [two_lanes, GPU] {
        let (alone, beside) = (p99(false, device), p99(true, device));
        let ratio = beside.as_secs_f64() / alone.as_secs_f64();
        assert!(ratio <= 1.2, "{} lanes: {alone:?} {beside:?}", device.n_lanes);
    }
}

#[test]
fn saturated_models_share_by_weight() {
    let heavy = Model { weight: 3, ..model(&[0], 8) };
    let loads = [load(0, Clients::Waiting(32)), load(1, Clients::Waiting(32))];
    let report = play(&[GPU], &[heavy, model(&[0], 8)], &loads, 7);
    let time = |model| -> Duration {
        report.batches.iter().filter(|ran| ran.model == model).map(|ran| ran.took).sum()
    };
    let ratio = time(0).as_secs_f64() / time(1).as_secs_f64();
    assert!((2.7..3.3).contains(&ratio), "{ratio}");
}
