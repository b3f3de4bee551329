//! `tensord serve`: serves models over gRPC and REST until it is told to stop.

mod doors;
mod grpc;
mod management;
mod rest;
#[cfg(test)]
mod tests;

use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use api::{Access, Codec, Stats};
use banner::{Addresses, Banner, Screen};
use config::Flags;
use config::Persona;
use config::engines::{self, Choices};
use config::{Config, PLANS_MAX};
use device::logical::{GrowthSetting, LogicalDevice};
use lifecycle::{Applied, Lifecycle, StartWhen};
use parking_lot::Mutex;
use pool::Pool;
use session::Servable;
use tensorflow::Workers;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use crate::active::Active;
use crate::arrange::GiveWay;
use crate::batching::{self, Versions};
use crate::control::{self, Control};
use crate::devices::{Devices, LaneOptions, growth_text};
use crate::external::{self, External};
use crate::loader::{Engines, Settings};
use crate::loads::{Counted, Loads};
use crate::metrics::Counters;
use crate::request_log::RequestLog;
use crate::scheduler::Scheduler;
use crate::source::Models;
use crate::warmups::Warmups;
use crate::{arrange, check, memory, signals};

use doors::Doors;
pub(crate) use doors::Files;

/// The longest time that a client may take to agree on TLS, for the head of a request, between two
/// parts of its body, and to take some of its answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A run of no more than this goes on the thread that asks for it: about what waking a lane costs.
const INLINE_MAX: Duration = Duration::from_micros(60);

/// The time that a thread for work that may block waits for more of it: each keeps a part of the
/// heap and a stack for itself, and a poll of all models wakes them in turn, so that none would
/// end.
const IDLE_THREAD: Duration = Duration::from_millis(100);

/// Runs the command.
pub fn main(persona: Persona, flags: &Flags) -> Result<ExitCode> {
    heap::share_system();
    crate::logging::start(flags.log_format);
    if flags.check_config {
        return Ok(check::main(persona, flags));
    }
    let config = Config::new(persona, flags)?;
    let runtime = threads().enable_all().build()?;
    let served = runtime.block_on(serve(&config, flags));
    Screen::clear();
    // A file system or a kernel may hang for ever: nothing that was left behind is waited for.
    runtime.shutdown_background();
    served.map(|()| ExitCode::SUCCESS)
}

/// Threads that wait for most of their time, and keep little memory meanwhile.
fn threads() -> tokio::runtime::Builder {
    let mut threads = tokio::runtime::Builder::new_multi_thread();
    threads.on_thread_start(heap::share).on_thread_park(heap::settle);
    threads.on_thread_stop(heap::settle_stack).thread_keep_alive(IDLE_THREAD);
    threads
}

async fn serve(config: &Config, flags: &Flags) -> Result<()> {
    let Files { ssl, api_keys, metrics_path, guards } = Files::read(flags)?;
    // Models stay until the requests in flight are answered.
    let (token, unload) = (CancellationToken::new(), CancellationToken::new());
    let mut stop = signals::Stop::listen()?;
    let (loads, active) = (Arc::new(Loads::default()), Arc::new(Active::default()));
    let versions = Arc::new(Versions::new(config.batching.clone(), Arc::clone(&active)));
    let devices = start_devices(config, &active)?;
    let scheduler = Scheduler { versions: Arc::clone(&versions), devices: Arc::clone(&devices) };
    let external = start_external(config, flags, &devices)?;
    info!("{}", growth_line(&devices, &external));
    let warmups = Arc::new(Warmups::default());
    let folders = Models::new(config);
    let shared = EngineParts {
        scheduler: &scheduler,
        external: &external,
        active: &active,
        folders: &folders,
        warmups: &warmups,
    };
    let (engines, give_way) = start_engines(config, flags, &shared)?;
    let loader = Counted { loader: Arc::clone(&engines), loads: Arc::clone(&loads) };
    let (options, source) = (config.lifecycle.clone(), folders.clone());
    let lifecycle = Arc::new(Lifecycle::start(options, source, loader, unload.clone()));
    let log = Arc::new(RequestLog::start(Arc::clone(&active), config.tags.clone())?);
    let options = config.control.clone();
    let control = Arc::new(Control::new(Arc::clone(&lifecycle), active, folders.fence, options));
    let tasks = TaskTracker::new();
    let requests = context(config, &lifecycle, &devices, &log, Files::access(api_keys, &token))?;
    tasks.spawn(batching::watch(versions, token.clone()));
    tasks.spawn(memory::watch(Arc::clone(&devices), token.clone()));
    tasks.spawn(arrange::watch(engines, give_way, Arc::clone(&lifecycle), token.clone()));
    tasks.spawn(external::watch(Arc::clone(&external), token.clone()));
    let (kept, seen) = (Arc::clone(&log), Arc::clone(&external));
    let counters = Counters { requests, loads, warmups, log: kept, scheduler, external: seen };
    let doors = Doors {
        config,
        flags,
        counters: &counters,
        control,
        devices,
        external,
        metrics_path,
        guards,
        samples: Arc::default(),
        tls: Files::keys(ssl, &token),
        tasks: &tasks,
        token: &token,
    };
    let is_started = run_until_stopped(&doors, &lifecycle, &mut stop).await?;
    stop.exit_at_next();
    drain(&lifecycle, if is_started { config.lame_duck } else { Duration::ZERO }).await;
    token.cancel();
    tasks.close();
    // After the token: whoever reads this line finds every answer to be the last of its connection.
    info!("stopping: requests in flight are given {:?}", config.shutdown_grace);
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

/// Starts and waits until the server is to stop; gives `false` if that was before it had started.
async fn run_until_stopped(
    doors: &Doors<'_>,
    lifecycle: &Lifecycle<Servable>,
    stop: &mut signals::Stop,
) -> Result<bool> {
    tokio::select! {
        () = stop.recv() => return Ok(false),
        started = start(doors, lifecycle) => started?,
    }
    stop.recv().await;
    Ok(true)
}

/// Says that the server is not ready any more, and goes on for a while.
async fn drain(lifecycle: &Lifecycle<Servable>, lame_duck: Duration) {
    lifecycle.drain();
    if !lame_duck.is_zero() {
        info!("not ready any more; requests are taken for another {lame_duck:?}");
        tokio::time::sleep(lame_duck).await;
    }
}

/// The reason that the first models were refused.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.message)]
pub struct Refused(pub status::Status);

/// Loads the models and opens the doors: when all models are settled, or before any is.
async fn start(doors: &Doors<'_>, lifecycle: &Lifecycle<Servable>) -> Result<()> {
    let Doors { config, control, tasks, token, .. } = doors;
    let applied = control.start(config.models.clone()).await.map_err(Refused)?;
    let (file, hangup) = (config.model_config_file.clone(), signals::Hangup::listen()?);
    tasks.spawn(control::watch(Arc::clone(control), file, hangup, (*token).clone()));
    tasks.spawn(banner::watch_loads(lifecycle.models().clone(), (*token).clone()));
    let loading = loaded(config, lifecycle, applied);
    match config.lifecycle.start_when {
        StartWhen::All => {
            loading.await?;
            show(doors, lifecycle, open(doors).await?);
        }
        StartWhen::Any => {
            // Health can be asked for before anything is ready.
            show(doors, lifecycle, open(doors).await?);
            let mut ready = lifecycle.models().readiness();
            tokio::select! {
                loaded = loading => loaded?,
                is_ready = ready.wait_for(|is_ready| *is_ready) => drop(is_ready),
            }
        }
    }
    // This thread does nothing more until the end, and need not keep what starting left.
    heap::trim();
    Ok(())
}

/// Prints the first screen when there is something to be seen.
fn show(doors: &Doors<'_>, lifecycle: &Lifecycle<Servable>, addresses: Addresses) {
    let (devices, external) = (Arc::clone(&doors.devices), Arc::clone(&doors.external));
    let page = move || {
        let mut page = memory::memory(&devices);
        external.refresh();
        external.add_memory(&mut page);
        page
    };
    let banner = Banner {
        addresses,
        guards: doors.guards,
        models: lifecycle.models().clone(),
        memory: Box::new(page),
        samples: Arc::clone(&doors.samples),
    };
    doors.tasks.spawn(banner.show(doors.token.clone()));
}

/// Opens the doors, and says where they are.
async fn open(doors: &Doors<'_>) -> Result<Addresses> {
    let management = management::start(doors).await?;
    let grpc = grpc::start(doors, management.as_deref()).await?;
    let rest = rest::start(doors, management.as_deref())?;
    Ok(Addresses { grpc, rest, management })
}

fn context(
    config: &Config,
    lifecycle: &Lifecycle<Servable>,
    devices: &Devices,
    log: &Arc<RequestLog>,
    access: Option<Arc<Access>>,
) -> Result<api::Context> {
    let n_threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    Ok(api::Context {
        models: lifecycle.models().clone(),
        stats: Arc::new(Stats::new()),
        budget: devices.requests(),
        codec: Codec::start(threads(), n_threads).context("cannot start the codec threads")?,
        method_names: config.method_names,
        recorder: Some(Arc::clone(log) as Arc<dyn api::Recorder>),
        access,
        hints: config.hints,
    })
}

/// Finds the devices, and says what was made of them.
fn start_devices(config: &Config, active: &Arc<Active>) -> Result<Arc<Devices>> {
    let lanes = LaneOptions {
        n_lanes: config.n_lanes,
        inline_max: INLINE_MAX,
        run_max: config.run_max,
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

/// The way in which GPUs take their memory and which setting says so, or the host if there are
/// none.
fn growth_line(devices: &Devices, external: &External) -> String {
    let own = devices.all().into_iter().map(|one| one.device.lock().clone());
    let mut all: Vec<LogicalDevice> = own.chain(external.logical()).collect();
    if all.iter().any(|device| device.name.starts_with("gpu")) {
        all.retain(|device| device.name.starts_with("gpu"));
    }
    let texts = all.iter().map(|device| (device.growth_by, &*device.name));
    let mut groups: Vec<(GrowthSetting, Vec<&str>)> = Vec::new();
    for (setting, name) in texts {
        match groups.iter_mut().find(|(other, _)| *other == setting) {
            Some((_, names)) => names.push(name),
            None => groups.push((setting, vec![name])),
        }
    }
    let text = |(setting, names): &(GrowthSetting, Vec<&str>)| {
        format!("{} {}", names.join(", "), growth_text(*setting))
    };
    let texts: Vec<String> = groups.iter().map(text).collect();
    format!("memory: {}", texts.join("; "))
}

/// Finds TensorFlow, and the GPUs that only it can use.
fn start_external(config: &Config, flags: &Flags, devices: &Arc<Devices>) -> Result<Arc<External>> {
    let workers = engines::worker_options(flags, &Choices::parse(&flags.engine)?, config)?;
    let workers = workers.map(|options| Arc::new(Workers::new(options)));
    External::start(&config.devices, workers, Arc::clone(devices))
}

/// The parts of the server that engines share with the rest of it.
struct EngineParts<'a> {
    scheduler: &'a Scheduler,
    external: &'a Arc<External>,
    active: &'a Arc<Active>,
    folders: &'a Models,
    warmups: &'a Arc<Warmups>,
}

fn start_engines(
    config: &Config,
    flags: &Flags,
    parts: &EngineParts<'_>,
) -> Result<(Arc<Engines>, GiveWay)> {
    let EngineParts { scheduler, external, active, folders, warmups } = *parts;
    let options = native::Options { tags: config.tags.clone(), plans_max: PLANS_MAX };
    let choices = Choices::parse(&flags.engine)?;
    let external = Arc::clone(external);
    let settings = Settings {
        session: config.session.clone(),
        active: Arc::clone(active),
        folders: folders.clone(),
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
