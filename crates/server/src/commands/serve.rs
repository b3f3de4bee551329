//! `tensord serve`: serves models over gRPC and REST until it is told to stop.

mod rest;

use std::sync::Arc;

use anyhow::{Context, Result};
use api::{Grpc, GrpcOptions};
use lifecycle::Lifecycle;
use native::Executor;
use pool::Pool;
use schedule::Lanes;
use session::Servable;
use tensor::Layout;
use tokio::net::{TcpListener, UnixListener};
use tokio_stream::wrappers::{TcpListenerStream, UnixListenerStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use super::PLANS_MAX;
use crate::cli::Persona;
use crate::config::Config;
use crate::flags::Flags;
use crate::loader::Engines;
use crate::source::Models;
use crate::{banner, signals};

/// The most bytes of a gRPC message: what its length field can say.
const MESSAGE_BYTES_MAX: usize = i32::MAX as usize;

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
    let token = CancellationToken::new();
    let lifecycle = start_lifecycle(config, token.clone())?;
    load(config, &lifecycle).await?;
    let tasks = TaskTracker::new();
    serve_grpc(config, flags, &lifecycle, &tasks, &token).await?;
    rest::start(config, flags, &lifecycle, &tasks, &token)?;
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

fn start_lifecycle(config: &Config, token: CancellationToken) -> Result<Lifecycle<Servable>> {
    let lanes = schedule::Options { n_lanes: config.n_lanes, queue_max: QUEUE_MAX };
    let executor = Executor {
        lanes: Arc::new(Lanes::start(lanes)?),
        pool: Arc::new(Pool::new(config.n_threads)),
    };
    let options = native::Options { tags: config.tags.clone(), plans_max: PLANS_MAX };
    let engines = Engines { executor, options };
    Ok(Lifecycle::start(config.lifecycle.clone(), Models, engines, token))
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

async fn serve_grpc(
    config: &Config,
    flags: &Flags,
    lifecycle: &Lifecycle<Servable>,
    tasks: &TaskTracker,
    token: &CancellationToken,
) -> Result<()> {
    let router = grpc_router(flags, lifecycle);
    if let Some(port) = config.grpc_port {
        let listener = TcpListener::bind(("0.0.0.0", port)).await.with_context(|| {
            format!("cannot listen on gRPC port {port}: choose another with --port")
        })?;
        let stop = token.clone().cancelled_owned();
        let incoming = TcpListenerStream::new(listener);
        tasks.spawn(ended(router.clone().serve_with_incoming_shutdown(incoming, stop)));
        info!("Running gRPC ModelServer at 0.0.0.0:{port} ...");
    }
    if let Some(path) = &config.grpc_socket {
        // What an earlier server left behind would be in the way.
        drop(std::fs::remove_file(path));
        let listener = UnixListener::bind(path)
            .with_context(|| format!("cannot listen on the UNIX socket {}", path.display()))?;
        let stop = token.clone().cancelled_owned();
        let incoming = UnixListenerStream::new(listener);
        tasks.spawn(ended(router.serve_with_incoming_shutdown(incoming, stop)));
        info!("Running gRPC ModelServer at UNIX socket {} ...", path.display());
    }
    Ok(())
}

/// Says so if a server ends before it is told to.
async fn ended(server: impl Future<Output = Result<(), tonic::transport::Error>>) {
    if let Err(error) = server.await {
        tracing::error!("the gRPC server ended: {error}");
    }
}

fn grpc_router(flags: &Flags, lifecycle: &Lifecycle<Servable>) -> tonic::transport::server::Router {
    let layout =
        if flags.enable_serialization_as_tensor_content { Layout::Content } else { Layout::Values };
    let options = GrpcOptions {
        method_names: rest::method_names(flags),
        layout,
        message_bytes_max: MESSAGE_BYTES_MAX,
        stream_requests_max: 16,
    };
    let face = Grpc::new(lifecycle.models().clone(), options);
    tonic::transport::Server::builder()
        .max_frame_size(1 << 20)
        .add_service(face.prediction_service())
        .add_service(face.model_service())
}
