//! Counters of requests.

use api::Stats;
use metrics::{Point, Value};
use proto::serving::MultiInferenceRequest;

use crate::grpc::request;
use crate::support::Server;

/// The points of a metric, as `label=value … number`; histograms show how many values they have.
fn points(server: &Server, points: fn(&Stats) -> Vec<Point>) -> Vec<String> {
    let point = |point: &Point| {
        let labels: Vec<String> =
            point.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let number = match &point.value {
            Value::Count(number) => number.to_string(),
            Value::Signed(number) => number.to_string(),
            Value::Seconds(time) => time.as_secs_f64().to_string(),
            Value::Histogram { counts, .. } => counts.iter().sum::<u64>().to_string(),
        };
        format!("{} {number}", labels.join(" "))
    };
    points(&server.context.stats).iter().map(point).collect()
}

#[tokio::test]
async fn requests_are_counted_by_model_and_status() {
    let server = Server::start().await;
    let mut client = server.predictions().await;
    client.predict(request("serving_default", 1.0)).await.unwrap();
    client.predict(request("odd", 1.0)).await.unwrap_err();
    client.predict(proto::serving::PredictRequest::default()).await.unwrap_err();
    let body = br#"{"instances": [1]}"#;
    server.ask("POST", "/v1/models/m:predict", body).await;
    server.ask("POST", "/v1/models/other:predict", body).await;
    server.ask("GET", "/v1/models/m", b"").await;
    server.ask("GET", "/v1/nothing", b"").await;
    server.ask("OPTIONS", "/v1/models/m", b"").await;
    assert_eq!(
        points(&server, Stats::request_count),
        [
            "model_name= status=INVALID_ARGUMENT 2",
            "model_name= status=FAILED_PRECONDITION 1",
            "model_name=m status=OK 3",
            "model_name=m status=FAILED_PRECONDITION 1",
            "model_name=other status=NOT_FOUND 1",
        ]
    );
    assert_eq!(
        points(&server, Stats::request_latency),
        [
            "model_name=m API=Predict entrypoint=GRPC 1",
            "model_name=m API=predict entrypoint=REST 1",
            "model_name=m API= entrypoint=REST 1",
        ]
    );
    assert_eq!(points(&server, Stats::runtime_latency), ["model_name=m API=Predict runtime=TF1 2"]);
    let in_flight = points(&server, Stats::in_flight);
    assert_eq!(in_flight, ["model_name= 0", "model_name=m 0", "model_name=other 0"]);
}

#[tokio::test]
async fn examples_are_counted_for_multi_inference() {
    let server = Server::start().await;
    let request: MultiInferenceRequest = proto::text::parse(
        "tasks { model_spec { name: 'm' signature_name: 'regress' }
           method_name: 'tensorflow/serving/regress' }
         input { example_list { examples { features { feature { key: 'x'
           value { float_list { value: 1 } } } } } } }",
    )
    .unwrap();
    server.predictions().await.multi_inference(request).await.unwrap();
    assert_eq!(points(&server, Stats::example_counts), ["model=m 1"]);
    assert_eq!(points(&server, Stats::example_count_total), ["model=m 1"]);
    assert!(points(&server, Stats::request_count).is_empty());
}

#[tokio::test]
async fn a_request_in_flight_is_seen_and_counts_as_cancelled_when_its_client_goes() {
    let server = Server::start().await;
    let mut client = server.predictions().await;
    let call = tokio::spawn(async move { client.predict(request("gated", 1.0)).await });
    let (run, _reply) = server.gate.take().await;
    assert_eq!(points(&server, Stats::in_flight), ["model_name=m 1"]);
    call.abort();
    while !run.is_moot() {
        tokio::task::yield_now().await;
    }
    while points(&server, Stats::in_flight) != ["model_name=m 0"] {
        tokio::task::yield_now().await;
    }
    let counts = points(&server, Stats::request_count);
    assert_eq!(counts, ["model_name=m status=CANCELLED 1"]);
}

#[tokio::test]
async fn names_that_are_made_up_do_not_fill_the_memory() {
    let server = Server::start().await;
    for number in 0..300 {
        server.ask("GET", &format!("/v1/models/stranger{number}"), b"").await;
    }
    server.ask("GET", "/v1/models/m", b"").await;
    let counts = points(&server, Stats::request_count);
    assert!(counts.len() <= 258, "{}", counts.len());
    assert!(counts.contains(&"model_name=(others) status=NOT_FOUND 44".to_owned()), "{counts:?}");
    assert!(counts.contains(&"model_name=m status=OK 1".to_owned()));
}
