//! `TopFigures`: what a screen shows of two looks at a server.

use std::collections::BTreeMap;

use pages::{DeviceMemory, Distribution, MemoryPage, QueueEntry, VersionState};

use super::TopPages;

/// The figures of a moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct TopFigures {
    pub(super) devices: Vec<DeviceFigures>,
    pub(super) models: Vec<ModelFigures>,
    /// Answers a second of all models; none before a second look.
    pub(super) answers: Option<f64>,
    /// The time in queue and run that one request in a hundred exceeds.
    pub(super) p99_micros: Option<u64>,
    /// The bytes that all devices and workers hold.
    pub(super) held_bytes: u64,
}

/// A device.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct DeviceFigures {
    pub(super) name: String,
    pub(super) held_bytes: u64,
    pub(super) limit_bytes: u64,
    /// The share of time in which its lanes ran, from 0 to 1; none for a device without lanes.
    pub(super) busy: Option<f64>,
}

/// A version of a model.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ModelFigures {
    pub(super) name: String,
    pub(super) waiting: usize,
    /// Answers a second; none before a second look.
    pub(super) answers: Option<f64>,
    /// All answers so far.
    pub(super) answered: u64,
    pub(super) p99_micros: Option<u64>,
    /// The rows of a batch.
    pub(super) rows: Option<f64>,
    pub(super) bytes: u64,
    /// The state, of a version that is not served.
    pub(super) state: &'static str,
}

impl TopFigures {
    /// The figures of a look; rates and times are those since the look before.
    pub(super) fn of(now: &TopPages, before: Option<&TopPages>) -> Self {
        let seconds = before.map(|before| (now.at - before.at).as_secs_f64());
        let mut sums: BTreeMap<(&str, i64), Sum> = BTreeMap::new();
        for queue in &now.scheduler.queues {
            let earlier = before.and_then(|before| same(queue, &before.scheduler.queues));
            sums.entry((&queue.model, queue.version)).or_default().add(queue, earlier);
        }
        let mut all = Sum::default();
        sums.values().for_each(|sum| all.merge(sum));
        let versions = now.models.models.iter().flat_map(|model| {
            model.versions.iter().filter_map(|version| {
                let number = version.version.parse::<i64>().ok()?;
                Some((model.name.as_str(), number, state(version.state)?))
            })
        });
        let models = versions.map(|(name, version, state)| {
            let sum = sums.get(&(name, version)).cloned().unwrap_or_default();
            ModelFigures {
                name: format!("{name}:{version}"),
                bytes: bytes_of(&now.memory, name, version),
                state,
                ..sum.figures(seconds)
            }
        });
        Self {
            models: models.collect(),
            devices: now.memory.devices.iter().map(|one| device(one, now, before)).collect(),
            answers: all.figures(seconds).answers,
            p99_micros: all.figures(seconds).p99_micros,
            held_bytes: held(&now.memory),
        }
    }
}

/// The word for a state that is worth one; none for a version that is gone.
fn state(state: VersionState) -> Option<&'static str> {
    match state {
        VersionState::Start => Some("waiting"),
        VersionState::Loading => Some("loading"),
        VersionState::Available => Some(""),
        VersionState::Unloading => Some("unloading"),
        VersionState::End => None,
    }
}

/// The same queue at another look.
fn same<'a>(queue: &QueueEntry, others: &'a [QueueEntry]) -> Option<&'a QueueEntry> {
    others.iter().find(|other| {
        (&other.model, other.version) == (&queue.model, queue.version)
            && (&other.signature, &other.device) == (&queue.signature, &queue.device)
            && other.is_batched == queue.is_batched
    })
}

/// The counts of some queues.
#[derive(Debug, Clone, Default)]
struct Sum {
    waiting: usize,
    answered: u64,
    /// Since the look before, or in all.
    answered_since: u64,
    rows: u64,
    batches: u64,
    queued: BTreeMap<u64, u64>,
    computed: BTreeMap<u64, u64>,
}

impl Sum {
    fn add(&mut self, queue: &QueueEntry, before: Option<&QueueEntry>) {
        let answered = |queue: &QueueEntry| {
            let tasks = &queue.tasks;
            tasks.asked.saturating_sub(tasks.refused + tasks.expired + tasks.cancelled)
        };
        let since =
            |count: fn(&QueueEntry) -> u64| count(queue).saturating_sub(before.map_or(0, count));
        self.waiting += queue.waiting.tasks;
        self.answered += answered(queue);
        self.answered_since += answered(queue).saturating_sub(before.map_or(0, answered));
        self.rows += since(|queue| queue.rows.run);
        self.batches += since(|queue| queue.batches.run);
        add_since(&mut self.queued, &queue.queue_micros, before.map(|one| &one.queue_micros));
        add_since(&mut self.computed, &queue.compute_micros, before.map(|one| &one.compute_micros));
    }

    fn merge(&mut self, other: &Self) {
        self.answered_since += other.answered_since;
        for (mine, more) in
            [(&mut self.queued, &other.queued), (&mut self.computed, &other.computed)]
        {
            more.iter().for_each(|(limit, count)| *mine.entry(*limit).or_insert(0) += count);
        }
    }

    fn figures(&self, seconds: Option<f64>) -> ModelFigures {
        let rate = |seconds: f64| self.answered_since as f64 / seconds;
        // The sum of both is no less than the time of 99 requests in 100.
        let p99_micros = match (p99(&self.queued), p99(&self.computed)) {
            (None, None) => None,
            (queued, computed) => Some(queued.unwrap_or(0) + computed.unwrap_or(0)),
        };
        ModelFigures {
            waiting: self.waiting,
            answered: self.answered,
            answers: seconds.filter(|seconds| *seconds > 0.0).map(rate),
            p99_micros,
            rows: (self.batches > 0).then(|| self.rows as f64 / self.batches as f64),
            ..ModelFigures::default()
        }
    }
}

/// Adds the values that came since an earlier look.
fn add_since(sum: &mut BTreeMap<u64, u64>, now: &Distribution, before: Option<&Distribution>) {
    for (limit, count) in &now.up_to {
        let earlier = before.and_then(|before| before.up_to.get(limit)).copied().unwrap_or(0);
        *sum.entry(*limit).or_insert(0) += count.saturating_sub(earlier);
    }
}

/// The limit that one value in a hundred exceeds.
fn p99(counts: &BTreeMap<u64, u64>) -> Option<u64> {
    let n: u64 = counts.values().sum();
    let mut seen = 0;
    counts.iter().find_map(|(limit, count)| {
        seen += count;
        (n > 0 && seen * 100 >= n * 99).then_some(*limit)
    })
}

/// The bytes of a version on all devices, or in a worker of TensorFlow.
fn bytes_of(memory: &MemoryPage, name: &str, version: i64) -> u64 {
    let on_devices = memory.devices.iter().flat_map(|device| &device.models);
    let on_devices = on_devices.filter(|one| one.name == name && one.version == version);
    let bytes: u64 = on_devices.map(|one| one.bytes).sum();
    let in_workers = memory.workers.iter().flat_map(|worker| &worker.models);
    let in_workers = in_workers.filter(|one| one.name == name && one.version == version);
    bytes.max(in_workers.map(|one| one.weights_bytes).sum())
}

fn held(memory: &MemoryPage) -> u64 {
    memory.devices.iter().map(|device| device.reserved_bytes).sum()
}

fn device(device: &DeviceMemory, now: &TopPages, before: Option<&TopPages>) -> DeviceFigures {
    let seconds = before.map(|before| (now.at - before.at).as_secs_f64());
    let lanes = now.scheduler.lanes.iter().filter(|lane| lane.device == device.name);
    let shares: Vec<f64> = lanes
        .map(|lane| {
            let is_it =
                |other: &&pages::LaneEntry| other.device == lane.device && other.lane == lane.lane;
            let earlier = before.and_then(|before| before.scheduler.lanes.iter().find(is_it));
            match (earlier, seconds) {
                (Some(earlier), Some(seconds)) if seconds > 0.0 => {
                    ((lane.busy_seconds - earlier.busy_seconds) / seconds).clamp(0.0, 1.0)
                }
                _ => lane.utilisation,
            }
        })
        .collect();
    DeviceFigures {
        name: device.name.clone(),
        held_bytes: device.reserved_bytes,
        limit_bytes: device.limit_bytes,
        busy: (!shares.is_empty()).then(|| shares.iter().sum::<f64>() / shares.len() as f64),
    }
}
