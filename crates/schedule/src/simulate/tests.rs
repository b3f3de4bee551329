//! Promises of the scheduler, tested in virtual time.

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

/// The same for a model whose rows take as long together as one after another: batches of 64 would
/// keep the device for 170 ms, gain nothing, and shut the door for as long after a flood.
#[test]
fn rows_that_gain_nothing_together_do_not_wait_for_each_other() {
    let flat = Model {
        per_batch: Duration::from_micros(100),
        per_row: Duration::from_micros(2600),
        ..model(&[0], 64)
    };
    let deadline = Some(millis(500));
    let flood = Load { deadline, from: SECOND, to: 3 * SECOND, ..load(0, Clients::Rate(3700.0)) };
    let steady = Load { deadline, ..load(0, Clients::Rate(185.0)) };
    let report = play(&[GPU], &[flat], &[flood, steady], 5);
    let goodput: f64 = report.loads.iter().map(|load| load.rate(SECOND, 3 * SECOND)).sum();
    assert!(goodput >= 0.95 * 385.0, "{goodput} of 385");
    let late = Time::default().plus(3 * SECOND + millis(100));
    assert!(report.loads[1].refused.iter().all(|at| *at < late));
    // Sizes are tried in the first second.
    let known = report.batches.iter().filter(|ran| ran.began >= Time::default().plus(2 * SECOND));
    let (large, small): (Vec<&Ran>, Vec<&Ran>) = known.partition(|ran| ran.n_rows > 8);
    assert!(large.len() * 20 < small.len(), "{} beside {}", large.len(), small.len());
}

/// The factor by which a saturated model moves the 99th percentile of one that is asked `rate`
/// times a second, from the first request on. Both are unknown when they begin.
fn neighbour(noisy: &Model, n_lanes: usize, rate: f64) -> f64 {
    let device = Device { n_lanes, rate: 1.0 };
    let p99 = |is_noisy: bool| {
        let mut loads = vec![Load { to: 60 * SECOND, ..load(0, Clients::Rate(rate)) }];
        if is_noisy {
            loads.push(Load { to: 60 * SECOND, ..load(1, Clients::Waiting(128)) });
        }
        let models = [model(&[0], 32), noisy.clone()];
        play(&[device], &models, &loads, 6).loads[0].percentile(0.99).as_secs_f64()
    };
    p99(true) / p99(false)
}

#[test]
fn a_saturated_model_does_not_starve_another() {
    // The neighbour's rows are short, its batches would be long.
    let (per_batch, per_row) = (Duration::from_micros(100), Duration::from_micros(400));
    let short = Model { per_batch, per_row, ..model(&[0], 64) };
    // Its rows are as long as those of the light model.
    let ordinary = model(&[0], 64);
    for (noisy, n_lanes, rate) in [
        (&short, 1, 20.0),
        (&short, 2, 20.0),
        (&short, 1, 2.0),
        (&ordinary, 2, 2.0),
        (&ordinary, 1, 20.0),
    ] {
        let ratio = neighbour(noisy, n_lanes, rate);
        let rows = noisy.per_row;
        assert!(ratio <= 1.2, "{n_lanes} lanes, rows of {rows:?}, {rate} a second: {ratio}");
    }
    // Nothing can interrupt a row: where the light model's own requests overlap, the one lane that
    // is left to it is taken, and it waits for one of the other's rows. For no more.
    let ratio = neighbour(&ordinary, 2, 20.0);
    assert!((1.2..=2.1).contains(&ratio), "{ratio}");
}

#[test]
fn a_saturated_model_keeps_most_of_its_throughput_beside_a_light_one() {
    let (per_batch, per_row) = (Duration::from_micros(100), Duration::from_micros(400));
    let noisy = Model { per_batch, per_row, ..model(&[0], 64) };
    let rate = |is_shared: bool| {
        let mut loads = vec![load(1, Clients::Waiting(128))];
        if is_shared {
            loads.push(load(0, Clients::Rate(20.0)));
        }
        let report = play(&[GPU], &[model(&[0], 32), noisy.clone()], &loads, 6);
        report.loads[0].rate(SECOND, 5 * SECOND)
    };
    // A tenth of the time is the light one's, and small batches cost a tenth more.
    let kept = rate(true) / rate(false);
    assert!(kept >= 0.75, "{kept}");
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
