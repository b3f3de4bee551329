//! Plays the agendas of several devices in virtual time: no clock, no threads, the same answer each
//! time. A device computes at a rate; clients come one by one or wait for their answers.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use batch::{Arrival, Class, Time};

use crate::agenda::{Agenda, ModelId, Next, QueueId, Turned};
use crate::options::QueueOptions;
use crate::replicas::{Replica, nearest};

/// A device that computes at a rate.
#[derive(Debug, Clone, Copy)]
pub struct Device {
    /// The number of batches that run at once.
    pub n_lanes: usize,
    /// The speed: 2.0 takes half the time.
    pub rate: f64,
}

/// A model and what its batches cost.
#[derive(Debug, Clone)]
pub struct Model {
    /// Its weight against other models.
    pub weight: u32,
    /// The devices that hold it.
    pub devices: Vec<usize>,
    /// The settings of its queue.
    pub options: QueueOptions,
    /// The time that a batch takes, however small.
    pub per_batch: Duration,
    /// The time that each row takes.
    pub per_row: Duration,
}

/// A load: the tasks that clients send to a model.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// The model, by its place.
    pub model: usize,
    /// The rows of each task.
    pub n_rows: usize,
    /// The time in which each task must be answered.
    pub deadline: Option<Duration>,
    /// The time at which the load begins.
    pub from: Duration,
    /// The time at which the load ends.
    pub to: Duration,
    /// The clients that send the tasks.
    pub clients: Clients,
}

/// The pattern by which tasks come.
#[derive(Debug, Clone, Copy)]
pub enum Clients {
    /// So many a second, at random.
    Rate(f64),
    /// So many clients, each with one task at a time.
    Waiting(usize),
}

/// The outcome of a load.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// The arrival of each answered task, and the time until its answer.
    pub answered: Vec<(Time, Duration)>,
    /// The times at which tasks were refused.
    pub refused: Vec<Time>,
    /// The number of expired tasks.
    pub n_expired: usize,
}

/// A batch that ran.
#[derive(Debug, Clone, Copy)]
pub struct Ran {
    /// The device.
    pub device: usize,
    /// The model.
    pub model: usize,
    /// The time at which the run began.
    pub began: Time,
    /// The time that it took.
    pub took: Duration,
    /// Its rows.
    pub n_rows: usize,
    /// The reason for which the batch left.
    pub reason: batch::Reason,
}

/// All that happened.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// The outcome of each load.
    pub loads: Vec<Outcome>,
    /// The batches in the order in which they began.
    pub batches: Vec<Ran>,
}

impl Outcome {
    /// Answers a second between two times.
    pub fn rate(&self, from: Duration, to: Duration) -> f64 {
        let ended = |(came, took): &&(Time, Duration)| {
            let at = came.plus(*took).since(Time::default());
            from <= at && at < to
        };
        self.answered.iter().filter(ended).count() as f64 / (to - from).as_secs_f64()
    }

    /// The latency that a share of the answers does not exceed.
    pub fn percentile(&self, share: f64) -> Duration {
        let mut latencies: Vec<Duration> = self.answered.iter().map(|(_, took)| *took).collect();
        latencies.sort_unstable();
        let wanted = (latencies.len() as f64 * share).ceil().max(1.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place")]
        let place = wanted as usize - 1;
        latencies.get(place).copied().unwrap_or_default()
    }
}

impl Report {
    /// The part of the time up to `end` that a device's lanes were busy.
    pub fn utilisation(&self, device: usize, devices: &[Device], end: Duration) -> f64 {
        let own = self.batches.iter().filter(|ran| ran.device == device);
        let busy: Duration = own.map(|ran| ran.took).sum();
        busy.as_secs_f64() / end.as_secs_f64() / devices[device].n_lanes as f64
    }
}

/// Plays loads on devices until everything is answered.
///
/// # Panics
/// If the options of a model contradict each other.
pub fn play(devices: &[Device], models: &[Model], loads: &[Load], seed: u64) -> Report {
    let mut world = World::new(devices, models, loads, seed);
    for (number, load) in loads.iter().enumerate() {
        let begin = Time::default().plus(load.from);
        let n_first = match load.clients {
            Clients::Rate(_) => 1,
            Clients::Waiting(n_clients) => n_clients,
        };
        for _ in 0..n_first {
            world.schedule(begin, SimulateEvent::Come(number));
        }
    }
    while let Some(Reverse((now, _, event))) = world.events.pop() {
        world.step(now, &event);
    }
    world.report
}

struct World<'a> {
    devices: &'a [Device],
    models: &'a [Model],
    loads: &'a [Load],
    agendas: Vec<Agenda<SimTask>>,
    /// The queue of each model on each device: the device and the ids.
    places: Vec<Vec<(usize, ModelId, QueueId)>>,
    events: BinaryHeap<Reverse<(Time, u64, SimulateEvent)>>,
    n_events: u64,
    running: Vec<Option<SimulateRunning>>,
    random: u64,
    report: Report,
}

/// A batch that runs: its device, its turn and its tasks.
type SimulateRunning = (usize, Turned, Vec<Arc<SimTask>>);

#[derive(Debug)]
struct SimTask {
    load: usize,
    came: Time,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SimulateEvent {
    /// A task of a load.
    Come(usize),
    /// A running batch ends.
    End(usize),
    /// A device looks again.
    Look(usize),
}

impl<'a> World<'a> {
    fn new(devices: &'a [Device], models: &'a [Model], loads: &'a [Load], seed: u64) -> Self {
        let mut agendas: Vec<Agenda<SimTask>> =
            devices.iter().map(|device| Agenda::new(device.n_lanes)).collect();
        let mut places = Vec::new();
        for model in models {
            let place = |device: &usize| {
                let agenda = &mut agendas[*device];
                let id = agenda.add_model(model.weight);
                let options = model.options.clone();
                let queue = agenda.add_queue(id, options.batch, options.admission);
                (*device, id, queue.expect("the options are consistent"))
            };
            places.push(model.devices.iter().map(place).collect());
        }
        let report = Report { loads: vec![Outcome::default(); loads.len()], batches: Vec::new() };
        let (events, running) = (BinaryHeap::new(), Vec::new());
        let random = seed;
        Self {
            devices,
            models,
            loads,
            agendas,
            places,
            events,
            n_events: 0,
            running,
            random,
            report,
        }
    }

    fn schedule(&mut self, at: Time, event: SimulateEvent) {
        self.n_events += 1;
        self.events.push(Reverse((at, self.n_events, event)));
    }

    fn step(&mut self, now: Time, event: &SimulateEvent) {
        match *event {
            SimulateEvent::Come(load) => self.come(load, now),
            SimulateEvent::End(number) => self.end(number, now),
            SimulateEvent::Look(device) => self.look(device, now),
        }
    }

    fn come(&mut self, number: usize, now: Time) {
        let load = self.loads[number];
        if now >= Time::default().plus(load.to) {
            return;
        }
        if let Clients::Rate(rate) = load.clients {
            let wait = -(1.0 - self.uniform()).ln() / rate;
            self.schedule(now.plus(Duration::from_secs_f64(wait)), SimulateEvent::Come(number));
        }
        let (device, _, queue) = self.choose(load.model, load.n_rows, now);
        let class = Class::new(&[], false);
        let deadline = load.deadline.map(|deadline| now.plus(deadline));
        let arrival = Arrival { n_rows: load.n_rows, class, level: 0, deadline };
        let task = Arc::new(SimTask { load: number, came: now });
        if self.agendas[device].push(queue, task, &arrival, now).is_err() {
            self.report.loads[number].refused.push(now);
            return self.again(number, now.plus(Duration::from_millis(1)));
        }
        if let Some(deadline) = deadline {
            self.schedule(deadline, SimulateEvent::Look(device));
        }
        self.look(device, now);
    }

    /// A client that waits for answers has had one.
    fn again(&mut self, load: usize, at: Time) {
        if matches!(self.loads[load].clients, Clients::Waiting(_)) {
            self.schedule(at, SimulateEvent::Come(load));
        }
    }

    fn choose(&self, model: usize, n_rows: usize, now: Time) -> (usize, ModelId, QueueId) {
        let replica = |(device, _, queue): &(usize, ModelId, QueueId)| Replica {
            forecast: self.agendas[*device].forecast(*queue, n_rows, now),
            until_ready: Duration::ZERO,
        };
        let replicas: Vec<Replica> = self.places[model].iter().map(replica).collect();
        self.places[model][nearest(&replicas).expect("a model is somewhere")]
    }

    fn look(&mut self, device: usize, now: Time) {
        for task in self.agendas[device].expire(now) {
            self.report.loads[task.load].n_expired += 1;
            self.again(task.load, now);
        }
        loop {
            match self.agendas[device].next(now) {
                Next::Run(turn) => {
                    let at = |place: &(usize, ModelId, QueueId)| {
                        (place.0, place.2) == (device, turn.queue)
                    };
                    let model = self.places.iter().position(|places| places.iter().any(at));
                    let model = model.expect("every queue is a model's");
                    let turned = turn.turned();
                    let took = self.cost(device, model, turn.batch.n_padded);
                    let (n_rows, reason) = (turn.batch.n_rows, turn.batch.reason);
                    self.report.batches.push(Ran {
                        device,
                        model,
                        began: now,
                        took,
                        n_rows,
                        reason,
                    });
                    let tasks = turn.batch.pieces.into_iter().map(|piece| piece.task).collect();
                    self.running.push(Some((device, turned, tasks)));
                    self.schedule(now.plus(took), SimulateEvent::End(self.running.len() - 1));
                }
                Next::Wait(wake) => {
                    if let Some(wake) = wake {
                        self.schedule(wake, SimulateEvent::Look(device));
                    }
                    return;
                }
            }
            self.agendas[device].check();
        }
    }

    fn end(&mut self, number: usize, now: Time) {
        let (device, turned, tasks) = self.running[number].take().expect("a batch ends once");
        self.agendas[device].done(&turned, now);
        for task in tasks {
            self.report.loads[task.load].answered.push((task.came, now.since(task.came)));
            self.again(task.load, now);
        }
        self.look(device, now);
    }

    fn cost(&self, device: usize, model: usize, n_rows: usize) -> Duration {
        let model = &self.models[model];
        let rows = u32::try_from(n_rows).unwrap_or(u32::MAX);
        (model.per_batch + model.per_row * rows).div_f64(self.devices[device].rate)
    }

    /// A number from 0 up to 1.
    fn uniform(&mut self) -> f64 {
        let next = self.random.wrapping_mul(6_364_136_223_846_793_005);
        self.random = next.wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests;
