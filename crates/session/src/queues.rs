//! `Queues`: the tasks of one servable on their way to the lanes of its engine.
//!
//! Settings are published as a snapshot: a run reads them without a lock, and those who change them
//! take turns. A signature may have two queues: one for tasks that run one by one, where the lanes
//! run those too, and one for tasks that are batched, from the first time that they are.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwap, Guard};
use batch::Class;
use parking_lot::Mutex;
use schedule::{Admission, Control, Forecast, Lanes, QueueId, QueueOptions, Share, Task, Work};
use status::{Result, Status};
use tensor::Tensor;

use crate::batching::{Batching, Priorities, QueueState, failure};
use crate::engine::{LEVEL_MAX, Reply, Run};

/// The number of tasks of each signature that run one by one and may wait.
const TASKS_MAX: usize = 10_000;

/// The settings of a servable's queues: batching and priorities.
#[derive(Debug, Clone)]
pub struct QueueSettings {
    /// The rule by which signatures are batched.
    pub batching: Batching,
    /// The priorities among requests.
    pub priorities: Priorities,
}

/// The settings in force, which runs read without a lock.
#[derive(Debug)]
pub struct Settings {
    current: ArcSwap<QueueSettings>,
    /// Held while they are changed.
    changing: Mutex<()>,
}

impl Settings {
    /// Settings without batching, and with the priorities of a model of which nothing is said.
    pub fn plain() -> Self {
        let (batching, priorities) = (Batching::Off, Priorities::plain());
        let current = ArcSwap::from_pointee(QueueSettings { batching, priorities });
        Self { current, changing: Mutex::new(()) }
    }

    /// The settings in force.
    pub fn load(&self) -> Guard<Arc<QueueSettings>> {
        self.current.load()
    }

    /// Publishes another way of batching, if `apply` can put it in force.
    ///
    /// # Errors
    /// As `apply`; nothing is published then.
    pub fn set_batching(
        &self,
        batching: &Batching,
        apply: impl FnOnce(&QueueSettings) -> Result<()>,
    ) -> Result<()> {
        self.change(apply, |settings| settings.batching = batching.clone())
    }

    /// Publishes other priorities, if `apply` can put them in force.
    ///
    /// # Errors
    /// As `apply`; nothing is published then.
    pub fn set_priorities(
        &self,
        priorities: &Priorities,
        apply: impl FnOnce(&QueueSettings) -> Result<()>,
    ) -> Result<()> {
        self.change(apply, |settings| settings.priorities = priorities.clone())
    }

    fn change(
        &self,
        apply: impl FnOnce(&QueueSettings) -> Result<()>,
        change: impl FnOnce(&mut QueueSettings),
    ) -> Result<()> {
        let _turn = self.changing.lock();
        let mut new = QueueSettings::clone(&self.current.load());
        change(&mut new);
        apply(&new)?;
        self.current.store(Arc::new(new));
        Ok(())
    }
}

/// A signature whose tasks are to wait in queues.
pub struct QueuedSignature {
    /// Its name.
    pub name: String,
    /// Runs its batches.
    pub work: Arc<dyn Work>,
    /// The facts of its rows.
    pub rows: RowFacts,
}

/// The known facts of the rows of a signature.
#[derive(Debug, Clone)]
pub struct RowFacts {
    /// `true` if a run leaves something behind.
    pub writes: bool,
    /// The reason that rows are not independent, or not known to be.
    pub mixing: Option<String>,
}

impl RowFacts {
    /// Returns whether tasks of such rows are batched.
    pub fn is_batched(&self, batching: &Batching) -> bool {
        match batching {
            Batching::Off => false,
            Batching::Proved(_) => self.mixing.is_none() && !self.writes,
            Batching::Asked(_) => !self.writes,
        }
    }

    /// The reason that tasks of such rows run one by one, if they do.
    pub fn why_single(&self, batching: &Batching) -> String {
        if self.writes {
            return "a run leaves something behind".to_owned();
        }
        match (batching, &self.mixing) {
            (Batching::Proved(_), Some(mixing)) => mixing.clone(),
            (Batching::Off, _) => "batching is off".to_owned(),
            (Batching::Proved(_) | Batching::Asked(_), _) => "does not fit in a batch".to_owned(),
        }
    }
}

/// The destination of tasks that are not batched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Singles {
    /// To queues of their own, which the lanes run too.
    Queued,
    /// Elsewhere: they are not pushed here.
    Elsewhere,
}

/// The queues of a servable's signatures.
pub struct Queues {
    /// The device whose lanes they wait for.
    device: String,
    signatures: BTreeMap<String, Entrance>,
    // Dropped in this order, so that nothing is pushed to lanes that have ended.
    share: Share,
    _lanes: Arc<Lanes>,
}

/// The queues that take the tasks of a signature.
struct Entrance {
    /// Those that run one by one, if they wait here.
    single: Option<QueueId>,
    /// Those that are batched, if they have ever been.
    batched: OnceLock<QueueId>,
    work: Arc<dyn Work>,
    rows: RowFacts,
}

impl Queues {
    /// Queues on the lanes of a device, for tasks that are not batched until
    /// [`Queues::apply`] says so.
    ///
    /// # Errors
    /// If the queues cannot be made.
    pub fn new(
        device: &str,
        lanes: &Arc<Lanes>,
        singles: Singles,
        signatures: impl IntoIterator<Item = QueuedSignature>,
    ) -> Result<Self> {
        let share = lanes.share(1);
        let entrance = |QueuedSignature { name, work, rows }: QueuedSignature| {
            let queue = || share.queue(Arc::clone(&work), single_options());
            let single = (singles == Singles::Queued).then(queue).transpose().map_err(bad)?;
            Ok((name, Entrance { single, batched: OnceLock::new(), work, rows }))
        };
        let signatures = signatures.into_iter().map(entrance).collect::<Result<_>>()?;
        Ok(Self { device: device.to_owned(), signatures, share, _lanes: Arc::clone(lanes) })
    }

    /// Sets the queues up, for what waits and what comes.
    ///
    /// # Errors
    /// If settings contradict each other; nothing is changed then.
    pub fn apply(&self, QueueSettings { batching, priorities }: &QueueSettings) -> Result<()> {
        if let Some(options) = batching.options() {
            priorities.applied_to(options).validate().map_err(bad)?;
        }
        self.share.set_weight(priorities.weight);
        for entrance in self.signatures.values() {
            if let Some(single) = entrance.single {
                let options = single_options();
                let batch = priorities.applied_to(&options.batch);
                self.share.set_options(single, QueueOptions { batch, ..options }).map_err(bad)?;
            }
            let is_batched = entrance.rows.is_batched(batching);
            let Some(options) = batching.options().filter(|_| is_batched) else { continue };
            let admission = match batching {
                Batching::Asked(_) => Admission::Room,
                Batching::Off | Batching::Proved(_) => Admission::InTime,
            };
            let options = QueueOptions { batch: priorities.applied_to(options), admission };
            match entrance.batched.get() {
                Some(queue) => self.share.set_options(*queue, options).map_err(bad)?,
                None => {
                    let work = Arc::clone(&entrance.work);
                    let queue = self.share.queue(work, options).map_err(bad)?;
                    entrance.batched.set(queue).expect("settings are changed one at a time");
                }
            }
        }
        Ok(())
    }

    /// Pushes the task of a run. Takes no lock before that of the lanes.
    pub fn push(&self, run: Run, reply: Reply, settings: Guard<Arc<QueueSettings>>) {
        let Some(entrance) = self.signatures.get(&run.signature) else {
            let text = format!("no signature is called {}", run.signature);
            return reply(Err(Status::not_found(text)));
        };
        let place = match entrance.place(&run.inputs, &settings.batching) {
            Ok(place) => place,
            Err(error) => return reply(Err(bad(error))),
        };
        let is_asked = matches!(settings.batching, Batching::Asked(_));
        let level = run.level.unwrap_or(settings.priorities.default_level).min(LEVEL_MAX);
        // The task may be run before this returns.
        drop(settings);
        let control = Control { deadline: run.deadline, is_cancelled: run.is_cancelled };
        let reply = Box::new(move |answer: std::result::Result<_, schedule::Failure>| {
            reply(answer.map_err(|refused| failure(&refused, is_asked)));
        });
        let task = Task::new(run.inputs, run.outputs, control, place.n_rows, reply);
        self.share.push(place.queue, task, place.class, level);
    }

    /// Predicts the time until a run that is pushed now would be answered; `None` if it cannot be
    /// pushed.
    pub fn forecast(&self, run: &Run, settings: &QueueSettings) -> Option<Forecast> {
        let entrance = self.signatures.get(&run.signature)?;
        let place = entrance.place(&run.inputs, &settings.batching).ok()?;
        Some(self.share.forecast(place.queue, place.n_rows))
    }

    /// Tells the lanes that a task is on its way.
    pub fn expect(&self) {
        // All signatures are of one model.
        let one = self.signatures.values().next();
        self.share.expect(one.and_then(|entrance| entrance.work.space()));
    }

    /// The model's share of the lanes.
    pub fn share(&self) -> &Share {
        &self.share
    }

    /// The state of the queues.
    pub fn snapshot(&self, settings: &QueueSettings) -> Vec<QueueState> {
        let batching = &settings.batching;
        let mut states = Vec::new();
        for (signature, entrance) in &self.signatures {
            let is_batched = entrance.rows.is_batched(batching);
            let why = entrance.rows.why_single(batching);
            let batched = entrance.batched.get().copied();
            for (queue, why_single) in [(entrance.single, Some(why)), (batched, None)] {
                let Some(snapshot) = queue.and_then(|queue| self.share.snapshot(queue)) else {
                    continue;
                };
                // A queue that nothing goes to is of no interest, unless it is the only one.
                if why_single.is_none() == is_batched || snapshot.stats.n_asked > 0 {
                    states.push(QueueState {
                        signature: signature.clone(),
                        device: self.device.clone(),
                        why_single,
                        default_level: settings.priorities.default_level,
                        snapshot,
                    });
                }
            }
        }
        states
    }
}

/// The destination of a task.
struct Place {
    queue: QueueId,
    n_rows: usize,
    class: Class,
}

impl Entrance {
    /// The queue of a task. Fails if batching was asked for and the task cannot be batched.
    fn place(&self, inputs: &[Tensor], batching: &Batching) -> batch::Result<Place> {
        let single = || {
            let queue = self.single.expect("tasks that run one by one elsewhere are not pushed");
            Place { queue, n_rows: 1, class: Class::new(&[], false) }
        };
        let batched = self.batched.get().zip(batching.options());
        let Some((queue, options)) = batched.filter(|_| self.rows.is_batched(batching)) else {
            return Ok(single());
        };
        let n_rows = batch::n_rows(inputs);
        if matches!(batching, Batching::Proved(_)) {
            let fits = n_rows.as_ref().is_ok_and(|n| *n > 0 && *n <= options.task_rows_max);
            if !fits {
                return Ok(single());
            }
        }
        let class = Class::new(inputs, options.pads_shapes);
        Ok(Place { queue: *queue, n_rows: n_rows?, class })
    }
}

fn single_options() -> QueueOptions {
    let batch = batch::Options::unbatched(TASKS_MAX);
    QueueOptions { batch, admission: Admission::InTime }
}

/// The status that contradictory settings or tasks have for a client.
#[expect(clippy::needless_pass_by_value, reason = "it is what `map_err` gives")]
fn bad(error: batch::Error) -> Status {
    Status::invalid(error.to_string())
}

impl fmt::Debug for Queues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&String> = self.signatures.keys().collect();
        write!(f, "Queues({names:?} on {})", self.device)
    }
}
