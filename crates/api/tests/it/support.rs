//! Models that need no files, and a server with both faces on loopback.

mod client;
mod engine;
mod models;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use api::{
    Access, ArrivalLimits, Budget, Changing, Codec, Context, Control, Door, Grpc, GrpcOptions,
    Hints, ListenOptions, Listener, MethodNames, Metrics, ModelsPage, Page, Profiler, Protocol,
    Rest, RestOptions, Stats, Tls, TransportOptions, connections,
};
use lifecycle::Lifecycle;
use proto::serving::model_service_client::ModelServiceClient;
use proto::serving::prediction_service_client::PredictionServiceClient;
use proto::serving::{ModelConfig, ModelConfigList};
use session::Servable;
use status::{Code, Status};
use tensor::Layout;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

pub(crate) use client::exchange;
pub(crate) use engine::{Gate, answer};

/// The longest time that anything may take before a test gives up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The time that idle connections stay open while a server drains.
const LINGER: Duration = Duration::from_millis(100);

/// Settings that a test may want otherwise.
pub(crate) struct Setup {
    pub(crate) method_names: MethodNames,
    pub(crate) layout: Layout,
    pub(crate) models_page: ModelsPage,
    pub(crate) has_cors: bool,
    pub(crate) timeout: Option<Duration>,
    pub(crate) message_bytes_max: usize,
    pub(crate) budget: Budget,
    pub(crate) connections_max: usize,
    pub(crate) arrival: ArrivalLimits,
    pub(crate) patience: Duration,
    pub(crate) streams_max: u32,
    pub(crate) tls: Option<Tls>,
    pub(crate) access: Option<Arc<Access>>,
    pub(crate) hints: Hints,
    pub(crate) door: Door,
    pub(crate) page: Page,
}

impl Setup {
    pub(crate) fn new() -> Self {
        Self {
            method_names: MethodNames::Unchecked,
            layout: Layout::Values,
            models_page: ModelsPage::NamelessModel,
            has_cors: false,
            timeout: Some(PATIENCE),
            message_bytes_max: 64 << 20,
            budget: Budget::of_bytes(256 << 20),
            connections_max: 100,
            arrival: ArrivalLimits { idle_max: PATIENCE, total_max: None, bytes_per_second_min: 0 },
            patience: PATIENCE,
            streams_max: 100,
            tls: None,
            access: None,
            hints: Hints::Hidden,
            door: Door::Closed("elsewhere".to_owned()),
            page: Arc::new(|| "# a page\n".to_owned()),
        }
    }

    /// Starts a server, and waits until its models are available.
    pub(crate) async fn start(self) -> Server {
        let token = CancellationToken::new();
        let gate = Gate::default();
        let lifecycle = models::start(&gate, token.clone()).await;
        let context = Context {
            models: lifecycle.models().clone(),
            stats: Arc::new(Stats::new()),
            budget: self.budget.clone(),
            codec: Codec::start(tokio::runtime::Builder::new_multi_thread(), 1).unwrap(),
            method_names: self.method_names,
            recorder: None,
            access: self.access.clone(),
            hints: self.hints,
        };
        let grpc = self.start_grpc(&context, &token).await;
        let rest = self.start_rest(&context, &token).await;
        Server { grpc, rest, context, lifecycle, gate, token }
    }

    async fn start_grpc(&self, context: &Context, token: &CancellationToken) -> SocketAddr {
        let options = GrpcOptions {
            layout: self.layout,
            message_bytes_max: self.message_bytes_max,
            stream_requests_max: 4,
            patience: self.patience,
            arrival: self.arrival,
        };
        let face = Grpc::new(context.clone(), options, Some(Arc::new(Reload)));
        let (health, follow) = face.health_service().await;
        tokio::spawn(follow);
        let (reflection, _) = face.reflection_services().unwrap();
        let (listener, address) = listen().await;
        let transport = TransportOptions {
            streams_max: self.streams_max,
            header_bytes_max: 64 << 10,
            resets_max: 20,
            keepalive_interval: Some(PATIENCE),
            keepalive_timeout: PATIENCE,
            connection_age: None,
            connection_age_grace: None,
        };
        let server = transport
            .server(&face)
            .add_service(face.model_service())
            .add_service(health)
            .add_service(reflection)
            .add_service(Profiler::new(Arc::new(|| "# a page\n".to_owned())))
            .serve_with_incoming_shutdown(
                connections(listener, self.listening(Protocol::Http2), token.clone()),
                token.clone().cancelled_owned(),
            );
        tokio::spawn(server);
        address
    }

    async fn start_rest(&self, context: &Context, token: &CancellationToken) -> SocketAddr {
        let options = RestOptions {
            timeout: self.timeout,
            header_timeout: self.patience,
            linger: LINGER,
            arrival: self.arrival,
            body_bytes_max: self.message_bytes_max,
            inflated_bytes_max: 1 << 20,
            has_cors: self.has_cors,
            models_page: self.models_page,
        };
        let metrics = Metrics {
            page: Arc::clone(&self.page),
            path: Some("/monitoring/prometheus/metrics".to_owned()),
        };
        let mut rest = Rest::new(context.clone(), options, Some(metrics));
        if !matches!(self.door, Door::Closed(_)) {
            rest = rest.with_control(Arc::new(Reload)).with_door(self.door.clone());
        }
        let (listener, address) = listen().await;
        let connections = connections(listener, self.listening(Protocol::Http1), token.clone());
        tokio::spawn(api::serve_rest(connections, rest, token.clone()));
        address
    }

    fn listening(&self, protocol: Protocol) -> ListenOptions {
        ListenOptions {
            elsewhere: "elsewhere".into(),
            tls: self.tls.clone(),
            protocol,
            connections_max: self.connections_max,
            handshake_timeout: self.patience,
            write_timeout: self.patience,
            accept_pause: Duration::from_millis(10),
        }
    }
}

async fn listen() -> (Listener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (Listener::Tcp(listener), address)
}

/// A server with both faces.
pub(crate) struct Server {
    pub(crate) grpc: SocketAddr,
    pub(crate) rest: SocketAddr,
    pub(crate) context: Context,
    pub(crate) lifecycle: Lifecycle<Servable>,
    pub(crate) gate: Gate,
    pub(crate) token: CancellationToken,
}

impl Server {
    pub(crate) async fn start() -> Self {
        Setup::new().start().await
    }

    pub(crate) async fn channel(&self) -> Channel {
        Channel::from_shared(format!("http://{}", self.grpc)).unwrap().connect().await.unwrap()
    }

    pub(crate) async fn predictions(&self) -> PredictionServiceClient<Channel> {
        PredictionServiceClient::new(self.channel().await).max_decoding_message_size(usize::MAX)
    }

    pub(crate) async fn models(&self) -> ModelServiceClient<Channel> {
        ModelServiceClient::new(self.channel().await)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.token.cancel();
    }
}

/// Takes any list of models but one with a model called `bad`.
struct Reload;

impl Control for Reload {
    fn reload(&self, models: ModelConfigList) -> Changing<'_> {
        Box::pin(async move {
            let is_bad = models.config.iter().any(|model| model.name == "bad");
            if is_bad { Err(Status::new(Code::NotFound, "a bad model")) } else { Ok(()) }
        })
    }

    fn add(&self, model: ModelConfig) -> Changing<'_> {
        self.reload(ModelConfigList { config: vec![model] })
    }
}
