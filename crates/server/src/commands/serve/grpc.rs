//! The gRPC face's ports and settings.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use api::{
    Control, DirectLayer, Grpc, GrpcOptions, Listener, Metered, PageService, Profiler, Protocol,
    TransportOptions, connections,
};
use config::channel_arguments::{self, ChannelArguments};
use dashboard::ABOUT;
use proto::tensord::pages_server::PagesServer;
use tensor::Layout;
use tokio::net::{TcpListener, UnixListener};
use tonic::transport::server::Router;
use tower::layer::util::{Identity, Stack};
use tracing::info;

use super::{Doors, PATIENCE, doors, rest};
use crate::external::Pages;

/// The most bytes of a message: what its length field can say.
const MESSAGE_BYTES_MAX: usize = i32::MAX as usize;

/// The number of requests of one `PredictStreamed` that run at once.
const STREAM_REQUESTS_MAX: usize = 16;

/// The number of calls of one connection that run at once, and how many of them may be cancelled by
/// the client before it is taken for an attack.
const STREAMS_MAX: u32 = 1024;
const RESETS_MAX: usize = 256;

/// The time that a silent connection that is asked whether it is still there may take to say so.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// The most bytes of a call's headers.
const HEADER_BYTES_MAX: u32 = 64 << 10;

/// Serves the gRPC face on its port and its UNIX socket, if it has them; gives the address of the
/// port. Changes may be taken at `managed`.
pub(super) async fn start(doors: &Doors<'_>, managed: Option<&str>) -> Result<Option<SocketAddr>> {
    let Doors { config, tasks, token, .. } = doors;
    let router = router(doors, managed).await?;
    let serve = |listener: Listener| {
        let (options, token) = (doors.listening(Protocol::Http2), (*token).clone());
        let incoming = connections(listener, options, token.clone());
        let router = router.clone();
        tasks.spawn(ended(router.serve_with_incoming_shutdown(incoming, token.cancelled_owned())));
    };
    let mut bound = None;
    if let Some(port) = config.grpc_port {
        let address = (config.bind_address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)), port);
        let listener = TcpListener::bind(address).await.with_context(|| {
            format!("cannot listen on gRPC port {port}: choose another with --port")
        })?;
        let address = listener.local_addr()?;
        serve(Listener::Tcp(listener));
        info!("Running gRPC ModelServer at {address} ...");
        bound = Some(address);
    }
    if let Some(path) = &config.grpc_socket {
        doors::clear(path);
        let listener = UnixListener::bind(path)
            .with_context(|| format!("cannot listen on the UNIX socket {}", path.display()))?;
        serve(Listener::Unix(listener));
        info!("Running gRPC ModelServer at UNIX socket {} ...", path.display());
    }
    Ok(bound)
}

/// Says so if a server ends before it is told to.
async fn ended(server: impl Future<Output = Result<(), tonic::transport::Error>>) {
    if let Err(error) = server.await {
        tracing::error!("the gRPC server ended: {error}");
    }
}

/// The gRPC services; with `control`, the list of models can be replaced.
pub(super) fn face(
    doors: &Doors<'_>,
    arguments: &ChannelArguments,
    control: Option<Arc<dyn Control>>,
) -> Grpc {
    let as_content = doors.flags.enable_serialization_as_tensor_content;
    let options = GrpcOptions {
        layout: if as_content { Layout::Content } else { Layout::Values },
        message_bytes_max: arguments.message_bytes_max.unwrap_or(MESSAGE_BYTES_MAX),
        stream_requests_max: STREAM_REQUESTS_MAX,
        patience: PATIENCE,
        arrival: doors.arrival(),
    };
    Grpc::new(doors.counters.requests.clone(), options, control)
}

async fn router(
    doors: &Doors<'_>,
    managed: Option<&str>,
) -> Result<Router<Stack<DirectLayer, Identity>>> {
    let flags = doors.flags;
    let (arguments, ignored) = channel_arguments::parse(&flags.grpc_channel_arguments)?;
    if !ignored.is_empty() {
        info!("--grpc_channel_arguments: without effect here: {}", ignored.join(", "));
    }
    let face = face(doors, &arguments, doors.reload());
    let pages = page_service(doors, &face, managed);
    let mut router = transport(&arguments).server(&face).add_service(face.model_service());
    router = router.add_service(pages);
    if flags.enable_grpc_healthcheck_service {
        let (service, follow) = face.health_service().await;
        router = router.add_service(service);
        tokio::spawn(follow); // Ends with the lifecycle.
    }
    if flags.enable_profiler {
        let counters = doors.counters.clone();
        router = router.add_service(Profiler::new(Arc::new(move || counters.page())));
        info!("Profiler service is enabled");
    }
    if flags.enable_grpc_reflection {
        let (v1, v1alpha) = face.reflection_services()?;
        router = router.add_service(v1).add_service(v1alpha);
    }
    Ok(router)
}

/// The pages of the REST face, for clients that reach only this one.
fn page_service(
    doors: &Doors<'_>,
    face: &Grpc,
    managed: Option<&str>,
) -> Metered<PagesServer<PageService>> {
    let memory = Arc::new(Pages::new(&doors.devices, &doors.external));
    let about = (ABOUT, rest::about(doors.config, managed));
    face.page_service(memory, vec![rest::scheduler_look(doors), about])
}

/// The limits of connections, as far as the flag does not say otherwise.
fn transport(arguments: &ChannelArguments) -> TransportOptions {
    TransportOptions {
        streams_max: arguments.streams_max.unwrap_or(STREAMS_MAX),
        header_bytes_max: arguments.header_bytes_max.unwrap_or(HEADER_BYTES_MAX),
        resets_max: RESETS_MAX,
        keepalive_interval: arguments.keepalive_interval,
        keepalive_timeout: arguments.keepalive_timeout.unwrap_or(KEEPALIVE_TIMEOUT),
        connection_age: arguments.connection_age,
        connection_age_grace: arguments.connection_age_grace,
    }
}
