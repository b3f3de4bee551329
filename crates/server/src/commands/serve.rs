//! `tensord serve`: serves models over gRPC and REST until it is told to stop.

mod doors;
mod grpc;
mod management;
mod rest;
#[cfg(test)]
mod tests;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use api::{Budget, MethodNames, Stats};
use lifecycle::{Applied, Lifecycle, StartWhen};
use parking_lot::Mutex;
use pool::Pool;
use session::Servable;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use super::PLANS_MAX;
use crate::active::Active;
use crate::arrange::GiveWay;
use crate::batching::{self, Versions};
use crate::cli::Persona;
use crate::config::Config;
use crate::control::{self, Control};
use crate::devices::{Devices, LaneOptions};
use crate::engines::{self, Choices};
use crate::external::{self, External};
use crate::flags::Flags;
use crate::loader::{Engines, Settings};
use crate::loads::{Counted, Loads};
use crate::metrics::Counters;
use crate::request_log::RequestLog;
use crate::scheduler::Scheduler;
use crate::source::Models;
use crate::warmups::Warmups;
use crate::{arrange, banner, memory, signals};

use doors::{Doors, Files};

/// The most bytes of requests in flight, over all connections.
const BYTES_IN_FLIGHT_MAX: usize = 8 << 30;

/// How long a client may take to agree on TLS, for the head of a request, between two parts of its
/// body, and to take some of its answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// What runs for no longer runs on the thread that asks for it: about what waking a lane costs.
const INLINE_MAX: Duration = Duration::from_micros(60);

/// How long a thread for work that may block waits for more of it: each keeps a part of the heap
/// and a stack for itself, and a poll of all models wakes them in turn, so that none would end.
const IDLE_THREAD: Duration = Duration::from_millis(100);

/// Runs the command.
pub(crate) fn main(persona: Persona, flags: &Flags) -> Result<ExitCode> {
    device::share_system_heap();
    crate::logging::start(flags.log_format);
    let config = Config::new(persona, flags)?;
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.enable_all().on_thread_start(device::share_heap);
    runtime.on_thread_park(device::settle_heap).on_thread_stop(device::settle_stack);
    let runtime = runtime.thread_keep_alive(IDLE_THREAD).build()?;
    let served = runtime.block_on(serve(&config, flags));
    // A file system or a kernel may hang for ever: nothing that was left behind is waited for.
    runtime.shutdown_background();
    served.map(|()| ExitCode::SUCCESS)
}

async fn serve(config: &Config, flags: &Flags) -> Result<()> {
    let Files { ssl, metrics_path } = Files::read(flags)?;
    // Models stay until the requests in flight are answered.
    let (token, unload) = (CancellationToken::new(), CancellationToken::new());
    let mut stop = signals::Stop::listen()?;
    let loads = Arc::new(Loads::default());
    let active = Arc::new(Active::default());
    let versions = Arc::new(Versions::new(config.batching.clone(), Arc::clone(&active)));
    let devices = start_devices(config, &active)?;
    let scheduler = Scheduler { versions: Arc::clone(&versions), devices: Arc::clone(&devices) };
    let external = start_external(config, flags, &devices)?;
    let warmups = Arc::new(Warmups::default());
    let (engines, give_way) =
        start_engines((config, flags), (&scheduler, &external), &active, &warmups)?;
    let loader = Counted { loader: Arc::clone(&engines), loads: Arc::clone(&loads) };
    let lifecycle =
        Arc::new(Lifecycle::start(config.lifecycle.clone(), Models, loader, unload.clone()));
    let log = Arc::new(RequestLog::start(Arc::clone(&active), config.tags.clone())?);
    let control = Control::new(Arc::clone(&lifecycle), active, config.control.clone());
    let tasks = TaskTracker::new();
    let requests = context(flags, &lifecycle, &log);
    tasks.spawn(batching::watch(versions, token.clone()));
    tasks.spawn(memory::watch(Arc::clone(&devices), token.clone()));
    tasks.spawn(arrange::watch(engines, give_way, Arc::clone(&lifecycle), token.clone()));
    tasks.spawn(external::watch(Arc::clone(&external), token.clone()));
    let counters = Counters {
        requests,
        loads,
        warmups,
        log: Arc::clone(&log),
        scheduler,
        external: Arc::clone(&external),
    };
    let doors = Doors {
        config,
        flags,
        counters: &counters,
        control: Arc::new(control),
        devices,
        external,
        metrics_path,
        tls: Files::keys(ssl, &token),
        tasks: &tasks,
        token: &token,
    };
    let is_started = tokio::select! {
        () = stop.recv() => false,
        started = start(&doors, &lifecycle) => {
            started?;
            true
        }
    };
    if is_started {
        stop.recv().await;
    }
    stop.exit_at_next();
    info!("stopping: requests in flight are given {:?}", config.shutdown_grace);
    lifecycle.drain();
    token.cancel();
    tasks.close();
    let drained = async {
        tasks.wait().await;
        unload.cancel();
        lifecycle.stopped().await;
        // Its disk may hang; nobody waits longer for it than for the rest.
        tokio::task::spawn_blocking(move || log.finish()).await
    };
    if tokio::time::timeout(config.shutdown_grace, drained).await.is_err() {
        warn!("requests were still in flight after {:?}", config.shutdown_grace);
    }
    Ok(())
}

/// Why the first models were refused.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.message)]
pub(crate) struct Refused(pub(crate) api::Status);

/// Loads the models and opens the doors: when all models are settled, or before any is.
async fn start(doors: &Doors<'_>, lifecycle: &Lifecycle<Servable>) -> Result<()> {
    let Doors { config, control, tasks, token, .. } = doors;
    let applied = control.start(config.models.clone()).await.map_err(Refused)?;
    let (file, hangup) = (config.model_config_file.clone(), signals::Hangup::listen()?);
    tasks.spawn(control::watch(Arc::clone(control), file, hangup, (*token).clone()));
    let loading = loaded(config, lifecycle, applied);
    match config.lifecycle.start_when {
        StartWhen::All => {
            loading.await?;
            open(doors).await?;
        }
        StartWhen::Any => {
            // Health can be asked for before anything is ready.
            open(doors).await?;
            let mut ready = lifecycle.models().readiness();
            tokio::select! {
                loaded = loading => loaded?,
                is_ready = ready.wait_for(|is_ready| *is_ready) => drop(is_ready),
            }
        }
    }
    banner::print(config, lifecycle.models());
    // This thread does nothing more until the end, and need not keep what starting left.
    device::trim_heap();
    Ok(())
}

async fn open(doors: &Doors<'_>) -> Result<()> {
    management::start(doors).await?;
    grpc::start(doors).await?;
    rest::start(doors)
}

fn context(flags: &Flags, lifecycle: &Lifecycle<Servable>, log: &Arc<RequestLog>) -> api::Context {
    api::Context {
        models: lifecycle.models().clone(),
        stats: Arc::new(Stats::new()),
        budget: Budget::new(BYTES_IN_FLIGHT_MAX),
        method_names: if flags.enable_signature_method_name_check {
            MethodNames::Checked
        } else {
            MethodNames::Unchecked
        },
        recorder: Some(Arc::clone(log) as Arc<dyn api::Recorder>),
    }
}

/// Finds the devices, and says what was made of them.
fn start_devices(config: &Config, active: &Arc<Active>) -> Result<Arc<Devices>> {
    let lanes = LaneOptions {
        n_lanes: config.n_lanes,
        inline_max: INLINE_MAX,
        pool: Arc::new(Pool::new(config.n_threads)),
    };
    let devices = Devices::start(&config.devices, &lanes, Arc::clone(active))?;
    devices.warnings.iter().for_each(|warning| warn!("{warning}"));
    for logical in devices.all() {
        let (name, limit) = (logical.space.name(), logical.space.account().limit_bytes());
        let of = &devices.physical[logical.device.lock().physical];
        info!("Created device {name} with {} MB memory: on {}", limit >> 20, of.found.name);
    }
    Ok(devices)
}

/// Finds TensorFlow, and the GPUs that only it can use.
fn start_external(config: &Config, flags: &Flags, devices: &Arc<Devices>) -> Result<Arc<External>> {
    let workers = engines::workers(flags, &Choices::parse(&flags.engine)?, config)?;
    External::start(&config.devices, workers.map(Arc::new), Arc::clone(devices))
}

fn start_engines(
    (config, flags): (&Config, &Flags),
    (scheduler, external): (&Scheduler, &Arc<External>),
    active: &Arc<Active>,
    warmups: &Arc<Warmups>,
) -> Result<(Arc<Engines>, GiveWay)> {
    let options = native::Options { tags: config.tags.clone(), plans_max: PLANS_MAX };
    let choices = Choices::parse(&flags.engine)?;
    let external = Arc::clone(external);
    let settings = Settings {
        session: config.session.clone(),
        active: Arc::clone(active),
        versions: Arc::clone(&scheduler.versions),
        warmup: config.warmup,
        warmups: Arc::clone(warmups),
    };
    let devices = Arc::clone(&scheduler.devices);
    let (giving_way, give_way) = mpsc::unbounded_channel();
    let arranging = Mutex::default();
    let engines = Engines { devices, options, choices, external, settings, arranging, giving_way };
    Ok((Arc::new(engines), give_way))
}

/// Waits for the first versions of the models.
async fn loaded(config: &Config, lifecycle: &Lifecycle<Servable>, applied: Applied) -> Result<()> {
    if let Err(error) = applied.available().await {
        if config.must_load_all || lifecycle.models().available().is_empty() {
            return Err(error.into());
        }
        warn!("{error}");
    }
    Ok(())
}
