//! Names of requests and traces: in the log, and back to the client.

use std::io::Write;
use std::sync::{Arc, Mutex};

use tracing_subscriber::fmt::MakeWriter;

use crate::grpc::request;
use crate::support::Server;

/// A log that can be read.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Log {
    /// The line about a request, as JSON.
    fn line(&self, id: &str) -> serde_json::Value {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let line = text.lines().find(|line| line.contains(id)).unwrap_or_else(|| panic!("{text}"));
        serde_json::from_str(line).unwrap()
    }
}

#[tokio::test]
async fn requests_and_traces_are_named_in_the_log_and_requests_in_the_answer() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .json()
        .with_max_level(tracing::Level::DEBUG)
        .with_writer(log.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let server = Server::start().await;
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let parent = format!("00-{trace}-00f067aa0ba902b7-01");

    let headers = ["X-Request-Id: over-rest".to_owned(), format!("traceparent: {parent}")];
    let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
    let answer =
        server.ask_with("POST", "/v1/models/m:predict", &headers, br#"{"instances": [1]}"#).await;
    assert_eq!(answer.header("x-request-id"), Some("over-rest"));
    let line = log.line("over-rest");
    assert_eq!(line["fields"]["trace_id"], trace);
    assert_eq!(line["fields"]["parent_id"], "00f067aa0ba902b7");
    assert_eq!(line["fields"]["model"], "m");
    assert_eq!(line["fields"]["code"], "OK");
    assert_eq!(line["level"], "DEBUG");

    let mut asked = tonic::Request::new(request("panics", 1.0));
    asked.metadata_mut().insert("x-request-id", "over-grpc".parse().unwrap());
    asked.metadata_mut().insert("traceparent", parent.parse().unwrap());
    server.predictions().await.predict(asked).await.unwrap_err();
    let line = log.line("over-grpc");
    assert_eq!(line["fields"]["trace_id"], trace);
    assert_eq!(line["fields"]["code"], "INTERNAL");
    assert_eq!(line["fields"]["entrypoint"], "GRPC");
    assert_eq!(line["level"], "WARN");
}
