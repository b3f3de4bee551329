//! The task around the machine: looks at the source, runs loads and unloads, publishes the map.

mod jobs;
mod views;
mod waiters;

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use metrics::Headway;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::error::{Error, LoadError};
use crate::handle::{Handle, Home, Id};
use crate::look::{Looker, Source};
use crate::machine::{Event, Machine, Order, Retries};
use crate::models::{Models, Shown};
use crate::options::{ModelOptions, Options, check_list};
use crate::state::State;
use views::{Looked, Views};
use waiters::Waiters;

/// The number of changes of the configuration that may wait to be applied.
const COMMANDS_MAX: usize = 16;

/// Makes a servable of a version.
pub trait Loader: Send + Sync + 'static {
    /// The object that requests run on. Dropping it unloads it.
    type Servable: Send + Sync + 'static;

    /// Loads a version from its folder. Blocks; runs on a thread of the pool, as does dropping what
    /// it returns.
    ///
    /// # Errors
    /// What clients see in `GetModelStatus`. When the attempt is cancelled, nobody wants the
    /// version any more, and the loader should give up early with any error.
    fn load(
        &self,
        model: &str,
        version: i64,
        path: &str,
        attempt: &Attempt,
    ) -> Result<Self::Servable, LoadError>;
}

/// An attempt to load a version: the lifecycle may call it off, and reads how far it is.
#[derive(Debug, Clone, Default)]
pub struct Attempt {
    /// Cancelled when nobody wants the version any more.
    pub cancel: CancellationToken,
    /// The place where the loader says how far it is.
    pub headway: Arc<Headway>,
}

/// The running lifecycle. Dropping it does not stop it: the token does.
pub struct Lifecycle<S> {
    models: Models<S>,
    commands: mpsc::Sender<Command>,
    done: CancellationToken,
    ready: watch::Sender<bool>,
    drain: CancellationToken,
}

/// A configuration that was applied, and whose new models may still be loading.
pub struct Applied {
    outcome: oneshot::Receiver<Result<(), Error>>,
}

impl Applied {
    /// Waits until each new model has a version that is available or has failed.
    ///
    /// # Errors
    /// [`Error::Unavailable`] names those that failed; they stay configured all the same.
    pub async fn available(self) -> Result<(), Error> {
        self.outcome.await.unwrap_or(Err(Error::Stopping))
    }
}

impl<S: Send + Sync + 'static> Lifecycle<S> {
    /// Starts the task that owns all state, on the current Tokio runtime, without any model.
    ///
    /// When `token` is cancelled it stops looking, unloads everything, waits for requests in
    /// flight, and ends.
    pub fn start<L: Loader<Servable = S>>(
        options: Options,
        source: impl Source,
        loader: L,
        token: CancellationToken,
    ) -> Self {
        let (command_sender, commands) = mpsc::channel(COMMANDS_MAX);
        let (mail_sender, mail) = mpsc::unbounded_channel();
        let (home_sender, home) = mpsc::unbounded_channel();
        let (ready, readiness) = watch::channel(false);
        let (done, drain) = (CancellationToken::new(), CancellationToken::new());
        let started = Instant::now();
        let models = Models::new(readiness, started);
        let retries = Retries {
            max: options.load_retries_max,
            rule: options.load_retry_rule,
            first: options.load_retry_first,
            interval: options.load_retry_interval,
        };
        let shell = Shell {
            machine: Machine::new(retries, options.missing),
            views: Views::new(Looker::new(Box::new(source), &options), &options),
            waiters: Waiters::default(),
            loader: Arc::new(loader),
            loads: Arc::new(Semaphore::new(options.n_load_threads.max(1))),
            unloads: Arc::new(Semaphore::new(options.n_unload_threads.max(1))),
            loaded: HashMap::new(),
            attempts: HashMap::new(),
            models: models.clone(),
            mail: mail_sender,
            home: home_sender,
            ready: ready.clone(),
            drain: drain.clone(),
            started,
            phase: ServerPhase::Unconfigured,
            options,
        };
        let guard = done.clone().drop_guard();
        tokio::spawn(async move {
            shell.run(Inbox { mail, home, commands }, token).await;
            drop(guard);
        });
        Lifecycle { models, commands: command_sender, done, ready, drain }
    }

    /// The models, for requests.
    pub fn models(&self) -> &Models<S> {
        &self.models
    }

    /// Replaces the list of models, and waits until each new one has a version that is available
    /// or has failed. Models that are not listed any more are unloaded meanwhile.
    ///
    /// # Errors
    /// If the list is refused, nothing is changed. [`Error::Unavailable`] if new models failed.
    pub async fn set_config(&self, models: Vec<ModelOptions>) -> Result<(), Error> {
        self.apply_config(models).await?.available().await
    }

    /// Like [`Lifecycle::set_config`], but does not wait for the new models.
    ///
    /// # Errors
    /// If the list is refused; then nothing is changed.
    pub async fn apply_config(&self, models: Vec<ModelOptions>) -> Result<Applied, Error> {
        let (reply, answer) = oneshot::channel();
        let command = Command::Configure { models, reply };
        self.commands.send(command).await.map_err(|_| Error::Stopping)?;
        answer.await.unwrap_or(Err(Error::Stopping))
    }

    /// Loads what was refused for want of memory once more: for when there may be some now. A
    /// version that goes, and a change of the configuration, do so by themselves.
    pub async fn try_again(&self) {
        // One that stops loads nothing any more.
        drop(self.commands.send(Command::TryAgain).await);
    }

    /// Unloads a version though it is wanted, so that others have room. It counts as refused for
    /// want of memory from then on. One that is not available stays as it is.
    pub async fn give_way(&self, id: Id, why: LoadError) {
        drop(self.commands.send(Command::GiveWay(id, why)).await);
    }

    /// Says that the server is not ready, and never will be again; its models serve on.
    pub fn drain(&self) {
        self.drain.cancel();
        self.ready.send_if_modified(|ready| std::mem::replace(ready, false));
    }

    /// Waits until everything is unloaded after the token was cancelled.
    pub fn stopped(&self) -> impl Future<Output = ()> + use<S> {
        self.done.clone().cancelled_owned()
    }
}

/// A command to the task.
enum Command {
    /// Another configuration.
    Configure { models: Vec<ModelOptions>, reply: oneshot::Sender<Result<Applied, Error>> },
    /// A version less, though it is wanted.
    GiveWay(Id, LoadError),
    /// Another try with what was refused for want of memory.
    TryAgain,
}

/// A report of a job. There is at most one report for each job in progress.
enum Mail<S> {
    Loaded(Id, S),
    LoadFailed(Id, LoadError),
    Freed(Id),
    Looked(Looked),
    LookLate { model: Arc<str>, number: u64, limit: Duration },
}

/// The channels that the task waits on.
struct Inbox<S> {
    mail: mpsc::UnboundedReceiver<Mail<S>>,
    home: mpsc::UnboundedReceiver<(Id, S)>,
    commands: mpsc::Receiver<Command>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServerPhase {
    Unconfigured,
    Serving,
    Stopping,
}

struct Shell<L: Loader> {
    options: Options,
    machine: Machine,
    views: Views,
    waiters: Waiters,
    loader: Arc<L>,
    loads: Arc<Semaphore>,
    unloads: Arc<Semaphore>,
    /// The lifecycle's own handles, one for each available version.
    loaded: HashMap<Id, Handle<L::Servable>>,
    /// The loads in progress.
    attempts: HashMap<Id, Attempt>,
    models: Models<L::Servable>,
    mail: mpsc::UnboundedSender<Mail<L::Servable>>,
    home: Home<L::Servable>,
    ready: watch::Sender<bool>,
    /// Cancelled when requests are to go elsewhere.
    drain: CancellationToken,
    started: Instant,
    phase: ServerPhase,
}

impl<L: Loader> Shell<L> {
    async fn run(mut self, mut inbox: Inbox<L::Servable>, token: CancellationToken) {
        loop {
            let wake = self.next_wake();
            tokio::select! {
                biased;
                () = token.cancelled(), if self.phase != ServerPhase::Stopping => self.stop(),
                Some(mail) = inbox.mail.recv() => self.take(mail),
                Some((id, servable)) = inbox.home.recv() => self.start_free(id, servable),
                Some(command) = inbox.commands.recv() => match command {
                    Command::Configure { models, reply } => self.configure(models, reply),
                    Command::GiveWay(id, why) => self.apply(Event::GiveWay(id, why)),
                    Command::TryAgain => self.apply(Event::Room),
                },
                () = sleep_until(wake) => self.tick(),
            }
            if self.phase == ServerPhase::Stopping && self.machine.is_idle() {
                return;
            }
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        let retry = self.machine.next_tick().map(|time| self.started + time);
        [retry, self.views.next_look()].into_iter().flatten().min()
    }

    fn tick(&mut self) {
        self.apply(Event::Tick);
        for name in self.views.due(Instant::now()) {
            self.start_look(&name);
        }
    }

    fn take(&mut self, mail: Mail<L::Servable>) {
        match mail {
            Mail::Loaded(id, servable) => {
                self.end_attempt(&id);
                let handle = Handle::new(id.clone(), servable, self.home.clone());
                self.loaded.insert(id.clone(), handle);
                self.apply(Event::Loaded(id));
            }
            Mail::LoadFailed(id, error) => {
                warn!(model = %id.model, version = id.version, %error, "loading failed");
                self.end_attempt(&id);
                self.apply(Event::LoadFailed(id, error));
            }
            Mail::Freed(id) => {
                info!(model = %id.model, version = id.version, "unloaded");
                self.apply(Event::Freed(id));
            }
            Mail::Looked(looked) => {
                let model = Arc::clone(&looked.glance.model);
                for event in self.views.take(looked, Instant::now()) {
                    self.apply(event);
                }
                if self.views.wants_look(&model) {
                    self.start_look(&model);
                }
            }
            Mail::LookLate { model, number, limit } => {
                if let Some(error) = self.views.late(&model, number, limit) {
                    self.apply(Event::LookFailed { model, error });
                }
            }
        }
    }

    fn configure(
        &mut self,
        models: Vec<ModelOptions>,
        reply: oneshot::Sender<Result<Applied, Error>>,
    ) {
        let rule = self.options.label_rule;
        let check = check_list(&models).and_then(|()| self.machine.check_config(&models, rule));
        if let Err(error) = check {
            // A caller who is gone needs no answer.
            drop(reply.send(Err(error)));
            return;
        }
        let is_first = self.phase == ServerPhase::Unconfigured;
        self.phase = ServerPhase::Serving;
        let is_new = |model: &&ModelOptions| self.machine.options(&model.name).is_none();
        let new = models.iter().filter(is_new).map(|model| model.name.as_str().into()).collect();
        let models: Vec<Arc<ModelOptions>> = models.into_iter().map(Arc::new).collect();
        self.views.configure(&models, Instant::now());
        let outcome = self.waiters.add(new, is_first);
        self.models.publish(Vec::new());
        self.apply(Event::Configured(models));
        // Whoever is told sees the models that left as gone.
        drop(reply.send(Ok(Applied { outcome })));
        for name in self.views.due(Instant::now()) {
            self.start_look(&name);
        }
    }

    fn stop(&mut self) {
        info!("unloading all models");
        self.phase = ServerPhase::Stopping;
        self.views.configure(&[], Instant::now());
        // Whoever still waits is told by the loss of the sender.
        self.waiters = Waiters::default();
        self.apply(Event::Stopped);
    }

    /// Tells the machine, and does what it orders.
    fn apply(&mut self, event: Event) {
        let orders = self.machine.apply(event, self.started.elapsed());
        self.publish(&orders);
        for order in orders {
            match order {
                Order::Publish(_) => {}
                Order::Load { id, path } => self.start_load(id, path),
                Order::Cancel(id) => {
                    if let Some(attempt) = self.attempts.get(&id) {
                        attempt.cancel.cancel();
                    }
                }
                Order::Unload(id) => {
                    let handle = self.loaded.remove(&id);
                    assert!(handle.is_some(), "only what is loaded is unloaded");
                }
            }
        }
        self.waiters.answer(&self.machine);
        self.update_ready();
    }

    fn end_attempt(&mut self, id: &Id) {
        self.attempts.remove(id);
        self.models.end_load(id);
    }

    fn publish(&self, orders: &[Order]) {
        let mut changes = Vec::new();
        for order in orders {
            let Order::Publish(name) = order else { continue };
            let shown = self.machine.snapshot(name).map(|snapshot| {
                let available = snapshot
                    .versions
                    .iter()
                    .filter(|status| status.state == State::Available)
                    .map(|status| {
                        let id = Id { model: Arc::clone(name), version: status.version };
                        (status.version, self.loaded[&id].clone())
                    })
                    .collect();
                Shown { snapshot, available }
            });
            changes.push((Arc::clone(name), shown));
        }
        if !changes.is_empty() {
            self.models.publish(changes);
        }
    }

    /// Once ready, the server stays so until it stops.
    fn update_ready(&self) {
        let is_ready = match self.phase {
            ServerPhase::Unconfigured | ServerPhase::Stopping => false,
            ServerPhase::Serving => {
                *self.ready.borrow() || self.machine.is_ready(self.options.start_when)
            }
        };
        self.ready.send_if_modified(|ready| {
            let is_ready = is_ready && !self.drain.is_cancelled();
            std::mem::replace(ready, is_ready) != is_ready
        });
    }
}

async fn sleep_until(wake: Option<Instant>) {
    match wake {
        Some(wake) => tokio::time::sleep_until(wake).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
