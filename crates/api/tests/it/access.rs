//! Keys and doors of both faces, without a process around them.

use std::sync::Arc;

use api::{Access, Digest, Door, Hints, Key, Right};
use proto::serving::MultiInferenceRequest;
use tonic::Code;

use crate::support::{Server, Setup};

fn key(name: &str, rights: &[Right], models: &[&str]) -> Key {
    Key {
        name: name.to_owned(),
        digest: Digest::of(name.as_bytes()),
        rights: rights.to_vec(),
        models: models.iter().map(|model| (*model).to_owned()).collect(),
        expires: None,
    }
}

async fn start() -> (Server, Arc<Access>) {
    let keys = vec![
        key("one", &[Right::Infer], &["m"]),
        key("all", &Right::ALL, &["*"]),
        key("some", &[Right::Manage], &["team-*"]),
    ];
    let access = Arc::new(Access::new(keys));
    let door = Door::Open(Vec::new());
    let setup = Setup { access: Some(Arc::clone(&access)), door, ..Setup::new() };
    (setup.start().await, access)
}

async fn code(server: &Server, call: (&str, &str), key: &str, body: &[u8]) -> u16 {
    let key = format!("x-api-key: {key}");
    let headers = [&*key, "Content-Type: application/json"];
    server.ask_with(call.0, call.1, &headers, body).await.code
}

#[tokio::test]
async fn a_body_is_read_only_for_those_who_may_send_it() {
    let (server, _) = start().await;
    // A body that would be refused for itself is not looked at.
    let predict = ("POST", "/v1/models/m:predict");
    assert_eq!(code(&server, predict, "none", b"{").await, 401);
    assert_eq!(code(&server, predict, "some", b"{").await, 403);
    assert_eq!(code(&server, predict, "one", b"{").await, 400);
}

#[tokio::test]
async fn a_manager_of_some_models_changes_no_others_and_not_the_server() {
    let (server, _) = start().await;
    let add = |name| ("POST", ["/v1/models/team-a", "/v1/models/m"][name]);
    assert_eq!(code(&server, add(0), "some", b"{}").await, 200);
    assert_eq!(code(&server, add(1), "some", b"{}").await, 403);
    assert_eq!(code(&server, add(1), "all", b"{}").await, 200);
    assert_eq!(code(&server, add(1), "one", b"{}").await, 403);
    assert_eq!(code(&server, add(1), "none", b"{}").await, 401);
}

/// Names of models may be none of the business of a key's holder.
#[tokio::test]
async fn a_hint_names_other_models_only_where_there_are_no_keys() {
    let keys = Arc::new(Access::new(vec![key("all", &Right::ALL, &["*"])]));
    for (access, names_m) in [(None, true), (Some(keys), false)] {
        let server = Setup { access, hints: Hints::Shown, ..Setup::new() }.start().await;
        let headers = ["x-api-key: all", "Content-Type: application/json"];
        let answer =
            server.ask_with("POST", "/v1/models/other:predict", &headers, b"{\"inputs\": 1}").await;
        assert_eq!(answer.code, 404);
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(text.contains("\"hint\""), "{text}");
        assert_eq!(text.contains("this server has"), names_m, "{text}");
    }
}

#[tokio::test]
async fn a_key_that_is_taken_back_is_refused_at_once() {
    let (server, access) = start().await;
    let status = ("GET", "/v1/models/m");
    assert_eq!(code(&server, status, "all", b"").await, 200);
    access.replace(vec![key("other", &Right::ALL, &["*"])]);
    assert_eq!(code(&server, status, "all", b"").await, 401);
    assert_eq!(code(&server, status, "other", b"").await, 200);
}

#[tokio::test]
async fn every_task_of_a_multi_inference_is_for_a_model() {
    let (server, _) = start().await;
    let request: MultiInferenceRequest =
        proto::text::parse("tasks { model_spec { name: 'm' } } tasks { model_spec { name: 'x' } }")
            .unwrap();
    let mut client = server.predictions().await;
    for (name, expected) in [("one", Code::PermissionDenied), ("none", Code::Unauthenticated)] {
        let mut request = tonic::Request::new(request.clone());
        request.metadata_mut().insert("x-api-key", name.parse().unwrap());
        let refused = client.multi_inference(request).await.unwrap_err();
        assert_eq!(refused.code(), expected, "{}", refused.message());
    }
}

#[tokio::test]
async fn health_needs_no_key_and_everything_unlisted_needs_the_highest_right() {
    use tonic_health::pb::HealthCheckRequest;
    use tonic_health::pb::health_client::HealthClient;
    let (server, _) = start().await;
    let mut health = HealthClient::new(server.channel().await);
    health.check(HealthCheckRequest::default()).await.unwrap();
    for path in ["/healthz", "/readyz"] {
        assert_eq!(server.ask("GET", path, b"").await.code, 200, "{path}");
    }
    assert_eq!(server.ask("GET", "/metrics", b"").await.code, 401);
    let answer = server.ask("GET", "/monitoring/prometheus/metrics", b"").await;
    assert_eq!(answer.code, 401);
}

#[tokio::test]
async fn a_page_of_another_site_may_send_a_key_where_one_is_wanted() {
    let access = Arc::new(Access::new(vec![key("one", &[Right::Infer], &["*"])]));
    let setup = Setup { access: Some(access), has_cors: true, ..Setup::new() };
    let server = setup.start().await;
    let origin = ["Origin: http://app.example"];
    let answer = server.ask_with("OPTIONS", "/v1/models/m:predict", &origin, b"").await;
    let allowed = answer.header("access-control-allow-headers");
    assert_eq!((answer.code, allowed), (200, Some("Content-Type, Authorization, X-Api-Key")));
}
