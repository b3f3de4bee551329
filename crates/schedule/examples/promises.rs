//! Plays what the scheduler promises on simulated devices, in virtual time, and prints the figures
//! as JSON, for `tools/bench/plots.py` and `docs/batching.md`.
#![allow(clippy::print_stdout, reason = "this is what it is for")]

use std::time::Duration;

use batch::{MixedPriority, Order};
use schedule::simulate::{Clients, Device, Load, Model, Report, play};
use schedule::{Admission, QueueOptions};

const SECOND: Duration = Duration::from_secs(1);
const GPU: Device = Device { n_lanes: 1, rate: 1.0 };

fn main() {
    println!("{{");
    gain();
    devices();
    overload();
    neighbour();
    sizes();
    println!("\"end\": 0}}");
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A model of 4 ms a batch and 1 ms a row.
fn model(devices: &[usize], batch_rows_max: usize) -> Model {
    let batch = batch::Options {
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
    };
    Model {
        weight: 1,
        devices: devices.to_vec(),
        options: QueueOptions { batch, admission: Admission::InTime },
        per_batch: millis(4),
        per_row: millis(1),
    }
}

fn load(model: usize, clients: Clients) -> Load {
    let (from, to) = (Duration::ZERO, 5 * SECOND);
    Load { model, n_rows: 1, deadline: None, from, to, clients }
}

fn rate(report: &Report) -> f64 {
    report.loads[0].rate(SECOND, 5 * SECOND)
}

/// Thirty-two clients, with and without batches.
fn gain() {
    let run = |rows| rate(&play(&[GPU], &[model(&[0], rows)], &[load(0, Clients::Waiting(32))], 1));
    println!("\"gain\": {{\"single\": {}, \"batched\": {}}},", run(1), run(32));
}

/// One device, two, and two unequal ones.
fn devices() {
    let run = |devices: &[Device]| {
        let places: Vec<usize> = (0..devices.len()).collect();
        play(devices, &[model(&places, 8)], &[load(0, Clients::Waiting(64))], 3)
    };
    let (one, two) = (rate(&run(&[GPU])), rate(&run(&[GPU, GPU])));
    let unequal = [Device { rate: 2.0, ..GPU }, GPU];
    let report = run(&unequal);
    let rows = |device| -> usize {
        report.batches.iter().filter(|ran| ran.device == device).map(|ran| ran.n_rows).sum()
    };
    let busy = |device| report.utilisation(device, &unequal, 5 * SECOND);
    println!(
        "\"devices\": {{\"one\": {one}, \"two\": {two}, \"rows\": [{}, {}], \"busy\": [{}, {}]}},",
        rows(0),
        rows(1),
        busy(0),
        busy(1)
    );
}

/// Ten times the capacity for two seconds, over a tenth of it throughout.
fn overload() {
    let deadline = Some(millis(200));
    let flood = Load { deadline, from: SECOND, to: 3 * SECOND, ..load(0, Clients::Rate(6670.0)) };
    let steady = Load { deadline, ..load(0, Clients::Rate(66.0)) };
    let report = play(&[GPU], &[model(&[0], 8)], &[flood, steady], 5);
    let goodput: f64 = report.loads.iter().map(|load| load.rate(SECOND, 3 * SECOND)).sum();
    let late = report.loads[1].refused.iter().max().map_or(0.0, |at| at.0 as f64 / 1e9 - 3.0);
    let line: Vec<String> = (0..100)
        .map(|step| {
            let (from, to) = (millis(step * 50), millis(step * 50 + 50));
            let good: f64 = report.loads.iter().map(|load| load.rate(from, to)).sum();
            let refused = report.loads.iter().flat_map(|load| &load.refused);
            let refused =
                refused.filter(|at| (from..to).contains(&Duration::from_nanos(at.0))).count();
            format!("[{}, {good}, {}]", step * 50, refused * 20)
        })
        .collect();
    println!(
        "\"overload\": {{\"capacity\": 667, \"goodput\": {goodput}, \"p99_ms\": {}, \
         \"last_refusal_after_s\": {late}, \"line\": [{}]}},",
        report.loads[0].percentile(0.99).as_secs_f64() * 1e3,
        line.join(", ")
    );
}

/// A light model beside a saturated one.
fn neighbour() {
    let (per_batch, per_row) = (Duration::from_micros(100), Duration::from_micros(400));
    let noisy = Model { per_batch, per_row, ..model(&[0], 64) };
    let run = |is_noisy: bool, n_lanes: usize| {
        let mut loads = vec![load(0, Clients::Rate(20.0))];
        if is_noisy {
            loads.push(load(1, Clients::Waiting(128)));
        }
        let device = Device { n_lanes, rate: 1.0 };
        play(&[device], &[model(&[0], 32), noisy.clone()], &loads, 6)
    };
    let mut shown = Vec::new();
    for n_lanes in [1, 2] {
        let (alone, beside) = (run(false, n_lanes), run(true, n_lanes));
        let p = |report: &Report, share| report.loads[0].percentile(share).as_secs_f64() * 1e3;
        let spread = |report: &Report| -> String {
            let all = [0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0];
            let all: Vec<String> = all.iter().map(|share| p(report, *share).to_string()).collect();
            all.join(", ")
        };
        shown.push(format!(
            "{{\"lanes\": {n_lanes}, \"alone\": [{}], \"beside\": [{}], \"ratio_p99\": {}, \
             \"noisy_rate\": {}}}",
            spread(&alone),
            spread(&beside),
            p(&beside, 0.99) / p(&alone, 0.99),
            beside.loads[1].rate(SECOND, 5 * SECOND)
        ));
    }
    println!("\"neighbour\": [{}],", shown.join(", "));
}

/// The sizes of batches while clients come and go.
fn sizes() {
    let clients =
        |n, from, to| Load { from: from * SECOND, to: to * SECOND, ..load(0, Clients::Waiting(n)) };
    let loads = [clients(2, 0, 5), clients(14, 1, 4), clients(48, 2, 3)];
    let report = play(&[GPU], &[model(&[0], 32)], &loads, 8);
    let shown: Vec<String> = report
        .batches
        .iter()
        .map(|ran| format!("[{}, {}]", ran.began.0 / 1_000_000, ran.n_rows))
        .collect();
    println!("\"sizes\": [{}],", shown.join(", "));
}
