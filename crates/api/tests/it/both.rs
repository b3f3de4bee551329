//! Both faces on one listener, as at the management address.

use std::net::SocketAddr;
use std::time::Duration;

use api::{
    BothFaces, Door, Grpc, GrpcOptions, ListenOptions, Listener, ModelsPage, Protocol, Rest,
    RestOptions, connections, serve_both,
};
use proto::serving::model_service_client::ModelServiceClient;
use proto::serving::{GetModelStatusRequest, ModelSpec};
use tensor::Layout;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tonic::transport::Channel;

use crate::support::{PATIENCE, Server, Setup, exchange};

const GET: &[u8] = b"GET /v1/models/m HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// Starts both faces with so many connections at most. The task ends when all have ended.
async fn start(server: &Server, connections_max: usize) -> (SocketAddr, JoinHandle<()>) {
    let Setup { arrival, message_bytes_max, .. } = Setup::new();
    let grpc = GrpcOptions {
        layout: Layout::Values,
        message_bytes_max,
        stream_requests_max: 4,
        patience: PATIENCE,
        arrival,
    };
    let rest = RestOptions {
        timeout: None,
        header_timeout: PATIENCE,
        linger: Duration::from_millis(100),
        arrival,
        body_bytes_max: message_bytes_max,
        inflated_bytes_max: 1 << 20,
        has_cors: false,
        models_page: ModelsPage::List,
    };
    let rest = Rest::new(server.context.clone(), rest, None);
    let rest = rest.with_door(Door::Management(Vec::new()));
    let both = BothFaces::new(Grpc::new(server.context.clone(), grpc, None), rest);
    let listening = ListenOptions {
        elsewhere: "elsewhere".into(),
        tls: None,
        protocol: Protocol::Either,
        connections_max,
        handshake_timeout: PATIENCE,
        write_timeout: PATIENCE,
        accept_pause: Duration::from_millis(10),
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connections = connections(Listener::Tcp(listener), listening, server.token.clone());
    (address, tokio::spawn(serve_both(connections, both, server.token.clone())))
}

async fn models(address: SocketAddr) -> ModelServiceClient<Channel> {
    let channel = Channel::from_shared(format!("http://{address}")).unwrap();
    ModelServiceClient::new(channel.connect().await.unwrap())
}

fn request() -> GetModelStatusRequest {
    let spec = ModelSpec { name: "m".to_owned(), ..ModelSpec::default() };
    GetModelStatusRequest { model_spec: Some(spec) }
}

/// Asks over a connection that is kept, and gives the connection when the answer has begun.
async fn ask(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(GET).await.unwrap();
    let answered = tokio::time::timeout(PATIENCE, stream.peek(&mut [0])).await;
    assert_eq!(answered.expect("a connection gives way").unwrap(), 1);
    stream
}

#[tokio::test]
async fn management_connections_are_limited_as_those_of_the_data_ports() {
    let server = Server::start().await;
    let (address, _ended) = start(&server, 2).await;
    let mut first = ask(address).await;
    let mut grpc = models(address).await;
    grpc.get_model_status(request()).await.unwrap();
    let next = ask(address).await;
    // The first was idle for the longest.
    let mut answer = Vec::new();
    drop(tokio::time::timeout(PATIENCE, first.read_to_end(&mut answer)).await.unwrap());
    assert!(answer.starts_with(b"HTTP/1.1 200"));
    drop(next);
    grpc.get_model_status(request()).await.unwrap();
}

#[tokio::test]
async fn management_heads_are_bounded() {
    let server = Server::start().await;
    let (address, _ended) = start(&server, 10).await;
    let head = "GET /v1/models/m HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";
    let many = format!("{head}{}\r\n", "X: a\r\n".repeat(200));
    assert!(exchange(address, many.as_bytes()).await.starts_with(b"HTTP/1.1 431"));
    let large = format!("{head}X: {}\r\n\r\n", "a".repeat(1 << 20));
    let answer = exchange(address, large.as_bytes()).await;
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 431"));
    let small = exchange(address, format!("{head}\r\n").as_bytes()).await;
    assert!(small.starts_with(b"HTTP/1.1 200"));
}

#[tokio::test]
async fn management_connections_are_answered_while_the_server_drains_and_then_closed() {
    let server = Server::start().await;
    let (address, ended) = start(&server, 10).await;
    let (mut asks, mut idle) = (ask(address).await, ask(address).await);
    let mut grpc = models(address).await;
    grpc.get_model_status(request()).await.unwrap();
    server.token.cancel();
    // A request that was on its way when the server was told to stop.
    asks.write_all(GET).await.unwrap();
    let mut answers = String::new();
    asks.read_to_string(&mut answers).await.unwrap();
    assert_eq!(answers.matches("HTTP/1.1 200").count(), 2, "{answers}");
    assert_eq!(answers.to_ascii_lowercase().matches("connection: close").count(), 1, "{answers}");
    idle.read_to_string(&mut answers).await.unwrap();
    tokio::time::timeout(PATIENCE, ended).await.expect("all connections end").unwrap();
}
