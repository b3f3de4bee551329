//! HTTP/2 as hostile or careless clients speak it: their connection suffers, and nobody else's.

use std::time::Duration;

use api::{ArrivalLimits, Budget};
use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use h2::{Ping, Reason};
use http::{HeaderMap, Request, Response};
use prost::Message as _;
use proto::serving::GetModelStatusRequest;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::grpc::request;
use crate::support::{PATIENCE, Server, Setup};

/// A connection, and the task that keeps it going until it ends.
struct Raw {
    send: SendRequest<Bytes>,
    pings: h2::PingPong,
    ended: JoinHandle<Result<(), h2::Error>>,
}

async fn connect(server: &Server, builder: &Builder) -> Raw {
    let stream = TcpStream::connect(server.grpc).await.unwrap();
    let (send, mut connection) = builder.handshake(stream).await.unwrap();
    let pings = connection.ping_pong().unwrap();
    Raw { send, pings, ended: tokio::spawn(connection) }
}

fn predict() -> Request<()> {
    Request::post("http://x/tensorflow.serving.PredictionService/Predict")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())
        .unwrap()
}

/// A message with the five bytes before it.
fn framed(message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).unwrap();
    [&[0][..], &length.to_be_bytes(), message].concat().into()
}

/// The gRPC status of an answer, wherever it stands.
async fn status(response: Response<h2::RecvStream>) -> String {
    let named = |headers: &HeaderMap| {
        headers.get("grpc-status").map(|value| value.to_str().unwrap().to_owned())
    };
    if let Some(status) = named(response.headers()) {
        return status;
    }
    let mut body = response.into_body();
    while let Some(data) = body.data().await {
        let data = data.unwrap();
        body.flow_control().release_capacity(data.len()).unwrap();
    }
    let trailers = body.trailers().await.unwrap().unwrap_or_default();
    named(&trailers).unwrap_or_else(|| "none".to_owned())
}

/// Sends bytes as the body of a `Predict`, and gives the status.
async fn ask(server: &Server, body: Bytes) -> String {
    let Raw { send, .. } = connect(server, &Builder::new()).await;
    let mut send = send.ready().await.unwrap();
    let (response, mut stream) = send.send_request(predict(), false).unwrap();
    stream.send_data(body, true).unwrap();
    status(response.await.unwrap()).await
}

/// Others are answered, and nothing is held for those who were refused.
pub(crate) async fn check_well(server: &Server) {
    let whole = framed(&request("serving_default", 2.0).encode_to_vec());
    let answered = tokio::time::timeout(PATIENCE, ask(server, whole)).await;
    assert_eq!(answered.expect("others are answered"), "0");
    while server.context.budget.used() > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_length_without_a_message_sets_no_memory_aside() {
    let server = Server::start().await;
    let prefix = |length: u32| Bytes::from([&[0][..], &length.to_be_bytes()].concat());
    assert_eq!(ask(&server, prefix(u32::MAX)).await, "8"); // RESOURCE_EXHAUSTED
    assert_eq!(ask(&server, prefix(60 << 20)).await, "13"); // INTERNAL: it ends too early.
    assert_eq!(ask(&server, prefix(1)).await, "13");
    assert_eq!(ask(&server, Bytes::from_static(&[0, 0])).await, "13");
    assert_eq!(ask(&server, Bytes::new()).await, "13");
    check_well(&server).await;
}

#[tokio::test]
async fn a_client_that_goes_in_the_middle_of_a_message_leaves_nothing_behind() {
    let server = Server::start().await;
    for n_bytes in [3, 100, 200_000] {
        let Raw { send, ended, .. } = connect(&server, &Builder::new()).await;
        let mut send = send.ready().await.unwrap();
        let (_response, mut stream) = send.send_request(predict(), false).unwrap();
        let mut bytes = vec![0; 5 + n_bytes];
        bytes[..5].copy_from_slice(&[0, 0, 0x10, 0, 0]);
        stream.send_data(bytes.into(), false).unwrap();
        tokio::task::yield_now().await;
        ended.abort();
    }
    check_well(&server).await;
}

#[tokio::test]
async fn a_message_that_drips_is_given_up() {
    let idle_max = Duration::from_millis(200);
    let arrival = ArrivalLimits { idle_max, total_max: None, bytes_per_second_min: 100_000 };
    let server = Setup { arrival, ..Setup::new() }.start().await;
    for length in [1000u32, 1_000_000] {
        let Raw { send, .. } = connect(&server, &Builder::new()).await;
        let mut send = send.ready().await.unwrap();
        let (mut response, mut stream) = send.send_request(predict(), false).unwrap();
        let prefix = [&[0][..], &length.to_be_bytes()].concat();
        stream.send_data(prefix.into(), false).unwrap();
        let response = loop {
            let drop = stream.send_data(Bytes::from_static(b" "), false);
            let pause = tokio::time::sleep(Duration::from_millis(5));
            tokio::select! {
                response = &mut response => break response.unwrap(),
                () = pause => drop.unwrap(),
            }
        };
        assert_eq!(status(response).await, "4"); // DEADLINE_EXCEEDED
    }
    check_well(&server).await;
}

#[tokio::test]
async fn calls_that_are_taken_back_at_once_end_their_connection_alone() {
    let server = Server::start().await;
    let Raw { send, ended, .. } = connect(&server, &Builder::new()).await;
    let mut open = Some(send);
    for _ in 0..10_000 {
        let Some(send) = open.take() else { break };
        let Ok(mut send) = send.ready().await else { break };
        let Ok((_response, mut stream)) = send.send_request(predict(), false) else { break };
        stream.send_reset(Reason::CANCEL);
        open = Some(send);
    }
    drop(open);
    // Whether the server hangs up depends on how fast it looked at them.
    drop(tokio::time::timeout(PATIENCE, ended).await.expect("the connection ends"));
    check_well(&server).await;
}

#[tokio::test]
async fn headers_beyond_the_limit_are_refused() {
    let server = Server::start().await;
    let Raw { send, .. } = connect(&server, &Builder::new()).await;
    let mut send = send.ready().await.unwrap();
    let mut large = predict();
    for number in 0..200 {
        let name = http::HeaderName::try_from(format!("x-{number}")).unwrap();
        large.headers_mut().insert(name, "a".repeat(1000).parse().unwrap());
    }
    let (response, _stream) = send.send_request(large, true).unwrap();
    match response.await {
        Ok(response) => assert_eq!(response.status(), 431),
        Err(error) => assert!(error.is_remote(), "{error}"),
    }
    check_well(&server).await;
}

#[tokio::test]
async fn more_calls_than_a_connection_may_have_wait_for_their_turn() {
    let server = Setup { streams_max: 4, ..Setup::new() }.start().await;
    let Raw { mut send, mut pings, .. } = connect(&server, &Builder::new()).await;
    // Its limits are known once it has answered anything.
    pings.ping(Ping::opaque()).await.unwrap();
    let mut waiting = Vec::new();
    for _ in 0..20 {
        send = send.ready().await.unwrap();
        let (response, mut stream) = send.send_request(predict(), false).unwrap();
        stream.send_data(framed(&request("serving_default", 2.0).encode_to_vec()), true).unwrap();
        waiting.push(response);
        assert!(server.context.budget.used() < 4 * 1000);
    }
    for response in waiting {
        assert_eq!(status(response.await.unwrap()).await, "0");
    }
    check_well(&server).await;
}

#[tokio::test]
async fn a_reader_without_a_window_holds_nobody_up() {
    let server = Server::start().await;
    let mut builder = Builder::new();
    builder.initial_window_size(0);
    let Raw { send, .. } = connect(&server, &builder).await;
    let mut send = send.ready().await.unwrap();
    let (response, mut stream) = send.send_request(predict(), false).unwrap();
    stream.send_data(framed(&request("serving_default", 2.0).encode_to_vec()), true).unwrap();
    // The head comes, and the rest never.
    let response = response.await.unwrap();
    assert_eq!(response.status(), 200);
    let others = framed(&request("serving_default", 2.0).encode_to_vec());
    assert_eq!(ask(&server, others).await, "0");
    drop((response, stream)); // Until then it is in the budget.
    check_well(&server).await;
}

#[tokio::test]
async fn a_client_that_only_pings_is_answered_and_holds_nobody_up() {
    let server = Server::start().await;
    let Raw { mut pings, send, .. } = connect(&server, &Builder::new()).await;
    for _ in 0..1000 {
        pings.ping(Ping::opaque()).await.unwrap();
    }
    drop(send);
    check_well(&server).await;
}

#[tokio::test]
async fn what_is_no_http2_is_hung_up_on() {
    let server = Server::start().await;
    for bytes in
        [&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..], &[0xFF; 100], b"PRI * HTTP/2.0\r\n\r\nXX"]
    {
        crate::support::exchange(server.grpc, bytes).await;
    }
    check_well(&server).await;
}

#[tokio::test]
async fn idle_connections_hold_nobody_up() {
    let server = Server::start().await;
    let mut idle = Vec::new();
    for _ in 0..50 {
        idle.push(TcpStream::connect(server.grpc).await.unwrap());
    }
    check_well(&server).await;
}

/// A request whose answer is as long as so many floats.
fn long(n_values: i64) -> Bytes {
    use proto::tensorflow::TensorShapeProto;
    use proto::tensorflow::tensor_shape_proto::Dim;
    let mut request = request("serving_default", 2.0);
    let dim = vec![Dim { size: n_values, name: String::new() }];
    let x = request.inputs.get_mut("x").unwrap();
    // The one value that there is stands for all of them.
    x.tensor_shape = Some(TensorShapeProto { dim, unknown_rank: false });
    framed(&request.encode_to_vec())
}

/// Asks for long answers and makes no room for any. Gives the connection and the open calls.
async fn ask_and_never_read(server: &Server, n_calls: usize) -> (Raw, Vec<h2::RecvStream>) {
    let mut raw = connect(server, Builder::new().initial_window_size(0)).await;
    let mut open = Vec::new();
    for _ in 0..n_calls {
        raw.send = raw.send.ready().await.unwrap();
        let (response, mut stream) = raw.send.send_request(predict(), false).unwrap();
        stream.send_data(long(1 << 20), true).unwrap();
        let response = response.await.unwrap();
        if !response.headers().contains_key("grpc-status") {
            open.push(response.into_body());
        }
    }
    (raw, open)
}

#[tokio::test]
async fn answers_that_nobody_reads_are_in_the_budget() {
    let server = Setup { budget: Budget::of_bytes(64 << 20), ..Setup::new() }.start().await;
    let (raw, open) = ask_and_never_read(&server, 40).await;
    assert!(!open.is_empty() && open.len() < 40, "{} of 40 have an answer", open.len());
    assert!(server.context.budget.used() >= open.len() * (4 << 20));
    drop((raw, open));
    check_well(&server).await;
}

#[tokio::test]
async fn an_answer_that_nobody_reads_is_given_up_and_at_last_its_connection() {
    let patience = std::time::Duration::from_millis(400);
    let server = Setup { patience, ..Setup::new() }.start().await;
    let (mut raw, open) = ask_and_never_read(&server, 2).await;
    assert_eq!(open.len(), 2);
    assert!(server.context.budget.used() > 4 << 20);
    let falls_to = async |bytes: usize| {
        let falls = async {
            while server.context.budget.used() > bytes {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, falls).await.expect("the answers are given up");
    };
    // All but what HTTP/2 has of them; the connection is still there.
    falls_to(1 << 20).await;
    raw.pings.ping(Ping::opaque()).await.unwrap();
    // In the end that goes too.
    falls_to(0).await;
    drop(tokio::time::timeout(PATIENCE, raw.ended).await.expect("the connection is ended"));
    drop(open);
    check_well(&server).await;
}

#[tokio::test]
async fn a_stream_that_waits_for_its_client_to_ask_is_kept() {
    use tokio_stream::StreamExt as _;
    let patience = std::time::Duration::from_millis(100);
    let server = Setup { patience, ..Setup::new() }.start().await;
    let (send, receive) = tokio::sync::mpsc::channel(1);
    let requests = tokio_stream::wrappers::ReceiverStream::new(receive);
    send.send(request("serving_default", 2.0)).await.unwrap();
    let answers = server.predictions().await.predict_streamed(requests).await.unwrap();
    let mut answers = answers.into_inner();
    assert!(answers.next().await.unwrap().is_ok());
    // Longer than an answer is waited for, while others are answered.
    let end = tokio::time::Instant::now() + 8 * patience;
    while tokio::time::Instant::now() < end {
        let others = framed(&request("serving_default", 2.0).encode_to_vec());
        assert_eq!(ask(&server, others).await, "0");
    }
    send.send(request("serving_default", 2.0)).await.unwrap();
    assert!(answers.next().await.unwrap().is_ok());
}

/// As many gRPC connections as there may be have been used and are idle, listen to the state of
/// the server, owe a message or wait within a stream: the next client is served, and a connection
/// with a request under way is not closed for it.
#[tokio::test]
async fn grpc_connections_without_requests_give_way_to_the_next_connection() {
    use proto::serving::model_service_client::ModelServiceClient;
    use tonic_health::pb::HealthCheckRequest;
    use tonic_health::pb::health_client::HealthClient;
    let server = Setup { connections_max: 6, ..Setup::new() }.start().await;
    let mut client = server.predictions().await;
    let gated = tokio::spawn(async move { client.predict(request("gated", 2.0)).await });
    let (run, reply) = server.gate.take().await;
    let used = server.predictions().await.predict(request("serving_default", 2.0)).await;
    let mut models = ModelServiceClient::new(server.channel().await);
    let states = models.get_model_status(GetModelStatusRequest::default()).await;
    assert!(used.is_ok() && states.is_err());
    let watch =
        HealthClient::new(server.channel().await).watch(HealthCheckRequest::default()).await;
    let Raw { send, .. } = connect(&server, &Builder::new()).await;
    let head_alone = send.ready().await.unwrap().send_request(predict(), false).unwrap();
    let (sender, receive) = tokio::sync::mpsc::channel(1);
    sender.send(request("serving_default", 2.0)).await.unwrap();
    let requests = tokio_stream::wrappers::ReceiverStream::new(receive);
    let streamed = server.predictions().await.predict_streamed(requests).await.unwrap();
    let mut streamed = streamed.into_inner();
    assert!(tokio_stream::StreamExt::next(&mut streamed).await.unwrap().is_ok());
    let mut kept = Vec::new();
    for _ in 0..7 {
        let answered = async {
            let mut client = server.predictions().await;
            client.predict(request("serving_default", 2.0)).await.map(|_| client)
        };
        let answered = tokio::time::timeout(PATIENCE, answered).await.expect("one gives way");
        kept.push(answered.unwrap());
    }
    reply(crate::support::answer(&run));
    assert!(gated.await.unwrap().is_ok(), "a request under way stays");
    drop((watch, head_alone, streamed, sender));
}

#[tokio::test]
async fn a_call_without_a_message_is_charged_and_given_up() {
    let idle_max = Duration::from_millis(300);
    let arrival = ArrivalLimits { idle_max, total_max: None, bytes_per_second_min: 0 };
    let server = Setup { arrival, ..Setup::new() }.start().await;
    for path in [
        "tensorflow.serving.PredictionService/Predict",
        "tensorflow.serving.ModelService/GetModelStatus",
        "grpc.health.v1.Health/Check",
    ] {
        let Raw { send, .. } = connect(&server, &Builder::new()).await;
        let mut head = predict();
        *head.uri_mut() = format!("http://x/{path}").parse().unwrap();
        let long = "a".repeat(50_000).parse().unwrap();
        head.headers_mut().insert("x-long", long);
        let (response, stream) = send.ready().await.unwrap().send_request(head, false).unwrap();
        while server.context.budget.used() < 50_000 {
            tokio::task::yield_now().await;
        }
        let response = tokio::time::timeout(PATIENCE, response).await.expect("it is given up");
        assert_eq!(status(response.unwrap()).await, "4", "{path}"); // DEADLINE_EXCEEDED
        drop(stream);
        check_well(&server).await;
    }
}

#[tokio::test]
async fn a_head_without_room_is_refused() {
    let server = Setup { budget: Budget::of_bytes(100_000), ..Setup::new() }.start().await;
    let Raw { mut send, .. } = connect(&server, &Builder::new()).await;
    let mut open = Vec::new();
    for number in 0..3 {
        let mut head = predict();
        head.headers_mut().insert("x-long", "a".repeat(50_000).parse().unwrap());
        send = send.ready().await.unwrap();
        let (response, stream) = send.send_request(head, false).unwrap();
        if number == 2 {
            assert_eq!(status(response.await.unwrap()).await, "8"); // RESOURCE_EXHAUSTED
        } else {
            open.push((response, stream));
        }
    }
    drop((open, send));
    check_well(&server).await;
}
