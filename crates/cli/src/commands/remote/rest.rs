//! A page over REST.

use http::header::{AUTHORIZATION, CONNECTION, HOST};
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::rt::TokioIo;

use super::address::ServerAddress;
use super::failure::AskError;
use super::{Duplex, PAGE_BYTES_MAX};

/// Asks for the page at a path.
pub(super) async fn ask(
    stream: Box<dyn Duplex>,
    address: &ServerAddress,
    key: Option<&str>,
    path: &str,
) -> Result<Vec<u8>, AskError> {
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.map_err(|error| foreign(&error))?;
    let mut request = Request::get(path).header(HOST, address.authority());
    request = request.header(CONNECTION, "close");
    if let Some(key) = key {
        request = request.header(AUTHORIZATION, format!("Bearer {key}"));
    }
    let request = request.body(Empty::<bytes::Bytes>::new());
    let request = request.map_err(|error| AskError::Untrusted(format!("the key: {error}")))?;
    let exchange = async {
        let response = sender.send_request(request).await.map_err(|error| foreign(&error))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), PAGE_BYTES_MAX).collect().await;
        let body = body.map_err(|error| AskError::Foreign(error.to_string()))?;
        Ok((status, body.to_bytes()))
    };
    // The connection carries the exchange, and ends with it.
    let (status, body) = tokio::select! {
        answer = exchange => answer?,
        ended = ended(connection) => return Err(ended),
    };
    if status == StatusCode::OK {
        return Ok(body.to_vec());
    }
    // The doors answer with JSON; plain text is for a client that is wrong at a port.
    let Some(text) = error_text(&body) else {
        return Err(AskError::Foreign(String::from_utf8_lossy(&body).trim().to_owned()));
    };
    let is_about_keys = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
    Err(AskError::Answered { code: status.as_u16().to_string(), text, is_about_keys })
}

/// The text in the JSON of an error page, if it is one.
fn error_text(body: &[u8]) -> Option<String> {
    let page: serde_json::Value = serde_json::from_slice(body).ok()?;
    Some(page["error"].as_str()?.to_owned())
}

/// The error of a connection that ended before its answer; never, if it ended well.
async fn ended(connection: impl Future<Output = hyper::Result<()>>) -> AskError {
    match connection.await {
        Ok(()) => std::future::pending().await,
        Err(error) => foreign(&error),
    }
}

fn foreign(error: &hyper::Error) -> AskError {
    AskError::Foreign(format!("no HTTP: {error}"))
}
