//! `PageClient`: asks a running server for its JSON pages, over REST or gRPC, plain or over TLS.

mod address;
mod failure;
mod grpc;
mod rest;
mod tls;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

use address::{Scheme, ServerAddress};
use failure::AskError;
use tls::Trust;

/// The server that is asked, and the credentials that it wants.
#[derive(Debug, Clone, Args)]
#[command(rename_all = "snake_case")]
pub(super) struct ServerArgs {
    /// The server's address, as in localhost:8501: asked over REST, then over gRPC, unless it
    /// begins with http://, https://, grpc:// or grpcs://
    #[arg(value_name = "ADDRESS")]
    address: String,
    /// The key, if the server wants one; it needs the right read, for all models
    #[arg(long, value_name = "KEY", env = "TENSORD_API_KEY", hide_env_values = true)]
    api_key: Option<String>,
    /// The certificates (PEM) that vouch for the server over TLS, in place of this machine's
    #[arg(long, value_name = "FILE")]
    ca_cert: Option<PathBuf>,
    /// The certificate (PEM) to show to a server that wants one
    #[arg(long, value_name = "FILE", requires = "client_key")]
    client_cert: Option<PathBuf>,
    /// The key (PEM) of that certificate
    #[arg(long, value_name = "FILE", requires = "client_cert")]
    client_key: Option<PathBuf>,
    /// Take any certificate of the server, so that whoever is in between can read all
    #[arg(long)]
    insecure: bool,
}

/// The longest time that a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The most bytes of a page.
const PAGE_BYTES_MAX: usize = 64 << 20;

/// A client of a running server.
pub(super) struct PageClient {
    runtime: Runtime,
    link: Link,
}

/// The way to the server. An address without a scheme gets one with the first answer.
struct Link {
    address: ServerAddress,
    api_key: Option<String>,
    trust: Trust,
}

/// A connection, plain or over TLS.
trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

impl ServerArgs {
    /// The server's address, as it was typed.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Returns whether a key is presented.
    pub(super) fn has_key(&self) -> bool {
        self.api_key.is_some()
    }
}

impl PageClient {
    /// A client of the server that a command line names. Nothing is asked yet.
    pub(super) fn new(args: &ServerArgs) -> Result<Self> {
        let address = ServerAddress::parse(&args.address)?;
        let trust = match &args.ca_cert {
            _ if args.insecure => Trust::Anyone,
            Some(file) => Trust::signed_by(file)?,
            None => Trust::Machine,
        };
        let trust = match (&args.client_cert, &args.client_key) {
            (Some(certificate), Some(key)) => trust.showing(certificate, key)?,
            _ => trust,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let link = Link { address, api_key: args.api_key.clone(), trust };
        Ok(Self { runtime, link })
    }

    /// The page at a path, as the server sends it.
    pub(super) fn text(&mut self, path: &str) -> Result<String> {
        let Self { runtime, link } = self;
        let page = runtime.block_on(link.ask(path))?;
        String::from_utf8(page).context("the page is no UTF-8")
    }

    /// The page at a path.
    pub(super) fn page<T: DeserializeOwned>(&mut self, path: &str) -> Result<T> {
        read(&self.text(path)?)
    }
}

/// Reads a page.
pub(super) fn read<T: DeserializeOwned>(text: &str) -> Result<T> {
    serde_json::from_str(text)
        .context("the answer is not a page of this version of tensord; --json shows it as it is")
}

impl Link {
    /// Asks for a page. The scheme that answered is the one that is asked from then on.
    async fn ask(&mut self, path: &str) -> Result<Vec<u8>> {
        if self.address.scheme.is_some() {
            let asked = self.ask_over(&self.address, path).await;
            return match asked {
                Ok(page) => Ok(page),
                Err(error) => Err(self.explained(error, path).await),
            };
        }
        let rest = self.address.over(Scheme::Http);
        let refused = match self.ask_over(&rest, path).await {
            Ok(page) => return Ok(self.settle(rest, page)),
            Err(error) if error.is_final() => return Err(error.into_error(&rest)),
            Err(error) => error,
        };
        let grpc = self.address.over(Scheme::Grpc);
        let error = match self.ask_over(&grpc, path).await {
            Ok(page) => return Ok(self.settle(grpc, page)),
            Err(error) => error,
        };
        Err(match (refused, error) {
            (_, error) if error.is_final() => error.into_error(&grpc),
            (AskError::Unreachable(error), AskError::Unreachable(_)) => {
                AskError::Unreachable(error).into_error(&self.address)
            }
            (refused @ AskError::Answered { .. }, _) => refused.into_error(&rest),
            (_, error @ AskError::Answered { .. }) => error.into_error(&grpc),
            (refused, _) => match self.trust.is_spoken_at(&rest).await {
                true => rest.advice("speaks TLS", &[Scheme::Https, Scheme::Grpcs]),
                false => refused.into_error(&rest),
            },
        })
    }

    fn settle(&mut self, address: ServerAddress, page: Vec<u8>) -> Vec<u8> {
        self.address = address;
        page
    }

    /// Asks over the scheme of an address.
    async fn ask_over(&self, address: &ServerAddress, path: &str) -> Result<Vec<u8>, AskError> {
        let key = self.api_key.as_deref();
        let asked = async {
            let stream = self.connect(address).await?;
            match address.is_grpc() {
                true => grpc::ask(stream, address, key, path).await,
                false => rest::ask(stream, address, key, path).await,
            }
        };
        let silent = |_| AskError::Silent(PATIENCE);
        tokio::time::timeout(PATIENCE, asked).await.map_err(silent)?
    }

    async fn connect(&self, address: &ServerAddress) -> Result<Box<dyn Duplex>, AskError> {
        let stream = TcpStream::connect((address.host(), address.port())).await;
        let stream = stream.map_err(AskError::Unreachable)?;
        stream.set_nodelay(true).map_err(AskError::Unreachable)?;
        match address.is_tls() {
            true => self.trust.secured(stream, address).await,
            false => Ok(Box::new(stream)),
        }
    }

    /// The error of a scheme that was asked for. Where another scheme is answered, the error says
    /// which.
    async fn explained(&self, error: AskError, path: &str) -> anyhow::Error {
        let address = &self.address;
        let other = match (&error, address.is_tls()) {
            (AskError::Foreign(_), false) => address.over(address.other_face()),
            (AskError::OtherFace, true) => {
                let said = format!("answers {}", face_name(address.other_face()));
                return address.advice(&said, &[address.other_face()]);
            }
            (AskError::NoTls, true) => return address.advice("speaks no TLS", &[address.plain()]),
            _ => return error.into_error(address),
        };
        match self.ask_over(&other, path).await {
            Ok(_) | Err(AskError::Answered { .. }) => {
                let said = format!("answers {}", face_name(address.other_face()));
                address.advice(&said, &[address.other_face()])
            }
            Err(_) if self.trust.is_spoken_at(address).await => {
                address.advice("speaks TLS", &[address.secured()])
            }
            Err(_) => error.into_error(address),
        }
    }
}

/// The name of what a scheme is spoken to.
fn face_name(scheme: Scheme) -> &'static str {
    match scheme {
        Scheme::Http | Scheme::Https => "REST",
        Scheme::Grpc | Scheme::Grpcs => "gRPC",
    }
}

#[cfg(test)]
mod tests {
    use pages::MemoryPage;

    use super::*;

    #[test]
    fn a_page_of_another_version_is_told() {
        let error = read::<MemoryPage>("{\"bytes\": 3}").unwrap_err();
        let text = format!("{error:#}");
        assert!(text.contains("this version of tensord") && text.contains("`bytes`"), "{text}");
    }
}
