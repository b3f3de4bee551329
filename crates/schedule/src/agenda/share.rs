//! Sharing of the lanes among models: the light ones, those that give way, and the longest run of a
//! batch.

use std::time::Duration;

use batch::Time;

use super::{Agenda, ModelId, QueueId};

/// A model counts as active for so long after its last task.
pub(super) const ACTIVE_FOR: Duration = Duration::from_millis(500);

/// The time over which a model's use of lanes is averaged.
pub(super) const USE_OVER: Duration = Duration::from_millis(500);

/// So long after its last task a light model is still given way to: its next task may come any
/// moment.
const GIVES_WAY_FOR: Duration = Duration::from_secs(5);

/// A model's first runs are averaged over at least so long.
const USE_OVER_MIN: Duration = Duration::from_millis(50);

/// A batch may delay other models by one part in so many of what they usually run.
const DELAY_PART: u32 = 5;

/// Below this it is not worth making batches smaller.
const SLICE_MIN: Duration = Duration::from_micros(500);

/// A model on an agenda.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) weight: u32,
    pub(super) pass: u64,
    pub(super) n_running: usize,
    pub(super) last_push: Option<Time>,
    pub(super) first_turn: Option<Time>,
    /// The lanes it has lately kept busy, on average, and when that was reckoned.
    pub(super) lanes_used: f64,
    pub(super) reckoned: Time,
    /// Set while nothing of the model may run.
    pub(super) is_held: bool,
    /// Set when the model goes as soon as its runs have ended.
    pub(super) is_removed: bool,
}

impl<T> Agenda<T> {
    fn is_active(&self, number: usize, now: Time) -> bool {
        let Some(model) = &self.models[number] else { return false };
        model.n_running > 0 || model.last_push.is_some_and(|last| now.since(last) <= ACTIVE_FOR)
    }

    /// The number of lanes that a model may have at once: one fewer than there are, if it is heavy
    /// and a light one is active.
    pub(super) fn lane_share(&self, model: ModelId, now: Time) -> usize {
        let n_lanes = self.lanes.len();
        let mut others = (0..self.models.len()).filter(|other| *other != model.0);
        let gives_way = n_lanes > 1
            && others.any(|other| self.may_come(other, now) && self.is_light(other, now))
            && !self.is_light(model.0, now);
        if gives_way { n_lanes - 1 } else { n_lanes }
    }

    /// Returns whether a model uses less than half of its share of the lanes.
    fn is_light(&self, number: usize, now: Time) -> bool {
        let active = (0..self.models.len())
            .filter(|other| *other == number || self.is_active(*other, now))
            .filter_map(|other| self.models[other].as_ref());
        let total: f64 = active.map(|model| f64::from(model.weight)).sum();
        let Some(model) = &self.models[number] else { return false };
        let share = self.lanes.len() as f64 * f64::from(model.weight) / total.max(1.0);
        model.lanes_used(now) < share / 2.0
    }

    /// Returns whether a model has tasks, or had some a short while ago.
    fn may_come(&self, number: usize, now: Time) -> bool {
        let Some(model) = &self.models[number] else { return false };
        let is_recent = |last: Time| now.since(last) <= GIVES_WAY_FOR;
        model.n_running > 0 || model.last_push.is_some_and(is_recent)
    }

    /// For how long a batch of this queue may run, if a light model would wait for it. A light
    /// model's own batches may also run for as long as two of its rows would one by one.
    pub(super) fn slice(&self, queue: QueueId, now: Time) -> Option<Duration> {
        let own = self.queues[queue.0].as_ref()?;
        let others = self.queues.iter().flatten().filter(|waiting| waiting.model != own.model);
        let light = others.filter(|waiting| {
            self.may_come(waiting.model.0, now) && self.is_light(waiting.model.0, now)
        });
        // A queue that was never asked has nobody who waits.
        let light = light.filter(|waiting| waiting.stats.n_asked > 0);
        let shortest = light.map(|waiting| waiting.costs.predict(1).unwrap_or_default()).min()?;
        let slice = (shortest / DELAY_PART).max(SLICE_MIN);
        if self.is_light(own.model.0, now) { Some(slice.max(own.run(1) * 2)) } else { Some(slice) }
    }
}

impl Model {
    /// The lanes it has lately kept busy, on average. What has just begun is averaged over the time
    /// since then, so that it is seen at once.
    pub(super) fn lanes_used(&self, now: Time) -> f64 {
        let over = USE_OVER.as_secs_f64();
        let decayed = self.decayed(now);
        let age = self.first_turn.map_or(USE_OVER, |first| now.since(first)).max(USE_OVER_MIN);
        decayed / (1.0 - (-age.as_secs_f64() / over).exp())
    }

    /// The rest of the use that was reckoned last.
    pub(super) fn decayed(&self, now: Time) -> f64 {
        let age = now.since(self.reckoned).as_secs_f64() / USE_OVER.as_secs_f64();
        self.lanes_used * (-age).exp()
    }
}
