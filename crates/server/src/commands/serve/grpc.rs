//! The gRPC face's ports and settings.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use api::{Changing, Control, Grpc, GrpcOptions, Status};
use lifecycle::Lifecycle;
use proto::serving::ModelConfigList;
use session::Servable;
use tensor::Layout;
use tokio::net::{TcpListener, UnixListener};
use tokio_stream::wrappers::{TcpListenerStream, UnixListenerStream};
use tonic::transport::server::Router;
use tracing::info;

use super::Doors;
use crate::model_config;

/// The most bytes of a message: what its length field can say.
const MESSAGE_BYTES_MAX: usize = i32::MAX as usize;

/// How many requests of one `PredictStreamed` run at once.
const STREAM_REQUESTS_MAX: usize = 16;

/// How many calls of one connection run at once, and how many of them may be cancelled by the client
/// before it is taken for an attack.
const STREAMS_MAX: u32 = 1024;
const RESETS_MAX: usize = 256;

/// How often a silent connection is asked whether it is still there, and how long it may take to
/// say so.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(60);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// Serves the gRPC face on its port and its UNIX socket, if it has them.
pub(super) async fn start(doors: &Doors<'_>, lifecycle: Arc<Lifecycle<Servable>>) -> Result<()> {
    let Doors { config, tasks, token, .. } = doors;
    let router = router(doors, lifecycle).await?;
    if let Some(port) = config.grpc_port {
        let listener = TcpListener::bind(("0.0.0.0", port)).await.with_context(|| {
            format!("cannot listen on gRPC port {port}: choose another with --port")
        })?;
        let stop = (*token).clone().cancelled_owned();
        let incoming = TcpListenerStream::new(listener);
        tasks.spawn(ended(router.clone().serve_with_incoming_shutdown(incoming, stop)));
        info!("Running gRPC ModelServer at 0.0.0.0:{port} ...");
    }
    if let Some(path) = &config.grpc_socket {
        // What an earlier server left behind would be in the way.
        drop(std::fs::remove_file(path));
        let listener = UnixListener::bind(path)
            .with_context(|| format!("cannot listen on the UNIX socket {}", path.display()))?;
        let stop = (*token).clone().cancelled_owned();
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

async fn router(doors: &Doors<'_>, lifecycle: Arc<Lifecycle<Servable>>) -> Result<Router> {
    let Doors { flags, context, .. } = doors;
    let layout =
        if flags.enable_serialization_as_tensor_content { Layout::Content } else { Layout::Values };
    let options = GrpcOptions {
        layout,
        message_bytes_max: MESSAGE_BYTES_MAX,
        stream_requests_max: STREAM_REQUESTS_MAX,
    };
    let face = Grpc::new(context.clone(), options, Some(Arc::new(Reload(lifecycle))));
    let mut router = tonic::transport::Server::builder()
        .max_frame_size(1 << 20)
        .max_concurrent_streams(STREAMS_MAX)
        .http2_max_pending_accept_reset_streams(Some(RESETS_MAX))
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .add_service(face.prediction_service())
        .add_service(face.model_service());
    if flags.enable_grpc_healthcheck_service {
        let (service, follow) = face.health_service().await;
        router = router.add_service(service);
        tokio::spawn(follow); // Ends with the lifecycle.
    }
    if flags.enable_grpc_reflection {
        let (v1, v1alpha) = face.reflection_services()?;
        router = router.add_service(v1).add_service(v1alpha);
    }
    Ok(router)
}

/// Replaces the list of models when a client says so.
struct Reload(Arc<Lifecycle<Servable>>);

impl Control for Reload {
    fn reload(&self, models: ModelConfigList) -> Changing<'_> {
        Box::pin(async move {
            let models = model_config::models(&models)
                .map_err(|error| Status::invalid(format!("{error:#}")))?;
            Ok(self.0.set_config(models).await?)
        })
    }
}
