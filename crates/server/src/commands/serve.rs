//! `tensord serve`: serves models over gRPC and REST until it is told to stop.

mod doors;
mod grpc;
mod rest;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use api::{Budget, MethodNames, Stats};
use lifecycle::Lifecycle;
use native::Executor;
use pool::Pool;
use schedule::Lanes;
use session::Servable;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use super::PLANS_MAX;
use crate::cli::Persona;
use crate::config::Config;
use crate::engines::{self, Choices};
use crate::flags::Flags;
use crate::loader::Engines;
use crate::loads::{Counted, Loads};
use crate::metrics::Counters;
use crate::source::Models;
use crate::{banner, signals};

use doors::{Doors, Files};

/// The most bytes of requests in flight, over all connections.
const BYTES_IN_FLIGHT_MAX: usize = 8 << 30;

/// How long a client may take to agree on TLS, for the head of a request, between two parts of its
/// body, and to take some of its answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// How many jobs may wait for a lane.
const QUEUE_MAX: usize = 10_000;

/// Runs the command.
pub(crate) fn main(persona: Persona, flags: &Flags) -> Result<()> {
    crate::logging::start();
    let config = Config::new(persona, flags)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(serve(&config, flags))
}

async fn serve(config: &Config, flags: &Flags) -> Result<()> {
    let Files { ssl, metrics_path } = Files::read(flags)?;
    let token = CancellationToken::new();
    let loads = Arc::new(Loads::default());
    let lifecycle = start_lifecycle(config, flags, Arc::clone(&loads), token.clone())?;
    let lifecycle = Arc::new(lifecycle);
    load(config, &lifecycle).await?;
    let tasks = TaskTracker::new();
    let counters = Counters { requests: context(flags, &lifecycle), loads };
    let doors = Doors {
        config,
        flags,
        counters: &counters,
        metrics_path,
        tls: Files::keys(ssl, &token),
        tasks: &tasks,
        token: &token,
    };
    grpc::start(&doors, Arc::clone(&lifecycle)).await?;
    rest::start(&doors)?;
    banner::print(config, lifecycle.models());
    signals::stop().await?;
    info!("stopping: requests in flight are given {:?}", config.shutdown_grace);
    token.cancel();
    tasks.close();
    let drained = async {
        tasks.wait().await;
        lifecycle.stopped().await;
    };
    if tokio::time::timeout(config.shutdown_grace, drained).await.is_err() {
        warn!("requests were still in flight after {:?}", config.shutdown_grace);
    }
    Ok(())
}

fn context(flags: &Flags, lifecycle: &Lifecycle<Servable>) -> api::Context {
    api::Context {
        models: lifecycle.models().clone(),
        stats: Arc::new(Stats::new()),
        budget: Budget::new(BYTES_IN_FLIGHT_MAX),
        method_names: if flags.enable_signature_method_name_check {
            MethodNames::Checked
        } else {
            MethodNames::Unchecked
        },
    }
}

fn start_lifecycle(
    config: &Config,
    flags: &Flags,
    loads: Arc<Loads>,
    token: CancellationToken,
) -> Result<Lifecycle<Servable>> {
    let lanes = schedule::Options { n_lanes: config.n_lanes, queue_max: QUEUE_MAX };
    let executor = Executor {
        lanes: Arc::new(Lanes::start(lanes)?),
        pool: Arc::new(Pool::new(config.n_threads)),
    };
    let options = native::Options { tags: config.tags.clone(), plans_max: PLANS_MAX };
    let choices = Choices::parse(&flags.engine)?;
    let workers = engines::workers(flags, &choices, config)?;
    let engines = Engines { executor, options, choices, workers };
    let loader = Counted { loader: engines, loads };
    Ok(Lifecycle::start(config.lifecycle.clone(), Models, loader, token))
}

/// Loads the models, and waits for their first versions.
async fn load(config: &Config, lifecycle: &Lifecycle<Servable>) -> Result<()> {
    let applied = lifecycle.apply_config(config.models.clone()).await?;
    if let Err(error) = applied.available().await {
        if config.must_load_all || lifecycle.models().available().is_empty() {
            return Err(error.into());
        }
        warn!("{error}");
    }
    Ok(())
}
