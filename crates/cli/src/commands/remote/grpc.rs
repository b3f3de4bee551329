//! A page over gRPC: `tensord.Pages/GetPage`.

use std::error::Error as _;
use std::io;

use hyper_util::rt::TokioIo;
use proto::tensord::GetPageRequest;
use proto::tensord::pages_client::PagesClient;
use tonic::metadata::MetadataValue;
use tonic::transport::Endpoint;
use tonic::{Code, Request};

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
    let foreign = |error: &tonic::transport::Error| AskError::Foreign(format!("no gRPC: {error}"));
    let endpoint = Endpoint::from_shared(format!("http://{}", address.authority()));
    let endpoint = endpoint.map_err(|error| foreign(&error))?;
    let mut stream = Some(TokioIo::new(stream));
    // It is asked for one connection, and this is that one.
    let connector = tower::service_fn(move |_| {
        let taken = stream.take().ok_or_else(|| io::Error::other("the connection ended"));
        std::future::ready(taken)
    });
    let channel = endpoint.connect_with_connector(connector).await;
    let channel = channel.map_err(|error| foreign(&error))?;
    let mut client = PagesClient::new(channel).max_decoding_message_size(PAGE_BYTES_MAX);
    let mut request = Request::new(GetPageRequest { path: path.to_owned() });
    if let Some(key) = key {
        let value = MetadataValue::try_from(format!("Bearer {key}"));
        let value = value.map_err(|error| AskError::Untrusted(format!("the key: {error}")))?;
        request.metadata_mut().insert("authorization", value);
    }
    match client.get_page(request).await {
        Ok(answer) => Ok(answer.into_inner().json.to_vec()),
        Err(status) => Err(refused(&status)),
    }
}

/// The error of a call: of the connection, or as the server sent it.
fn refused(status: &tonic::Status) -> AskError {
    if let Some(source) = status.source() {
        return AskError::Foreign(format!("no gRPC: {source}"));
    }
    if status.code() == Code::Unimplemented {
        // A server without `tensord.Pages`, or a REST door that was spoken to in gRPC.
        return AskError::Foreign(status.message().to_owned());
    }
    AskError::Answered {
        code: format!("{:?}", status.code()),
        text: status.message().to_owned(),
        is_about_keys: matches!(status.code(), Code::Unauthenticated | Code::PermissionDenied),
    }
}
