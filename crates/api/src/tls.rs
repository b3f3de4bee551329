//! `Tls`: who the server says it is, and whom it lets in.
//!
//! Keys may be replaced while connections are open: those go on with what they began with.

use std::sync::Arc;

use arc_swap::ArcSwap;
use status::Status;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

/// Keys and certificates, as PEM text.
#[derive(Clone, PartialEq, Eq)]
pub struct Pem {
    /// The server's private key.
    pub key: String,
    /// The server's certificate, and those between it and an authority that clients trust.
    pub certificates: String,
    /// The authorities that sign the certificates of clients. Without them, anyone is let in.
    pub client_authorities: Option<String>,
}

/// The protocol of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1, for REST.
    Http1,
    /// HTTP/2, for gRPC.
    Http2,
    /// Either of them, for an address that serves both.
    Either,
}

/// The keys in use. Clones are one and the same.
#[derive(Clone)]
pub struct Tls {
    shared: Arc<ArcSwap<Configs>>,
}

struct Configs {
    http1: Arc<ServerConfig>,
    http2: Arc<ServerConfig>,
}

impl Tls {
    /// Makes use of some keys.
    ///
    /// # Errors
    /// If the text is no PEM, or the key does not fit the certificate.
    pub fn new(pem: &Pem) -> Result<Self, Status> {
        let configs = Configs::new(pem)?;
        Ok(Self { shared: Arc::new(ArcSwap::from_pointee(configs)) })
    }

    /// Makes use of other keys from now on.
    ///
    /// # Errors
    /// As [`Tls::new`]; then the keys in use stay.
    pub fn replace(&self, pem: &Pem) -> Result<(), Status> {
        self.shared.store(Arc::new(Configs::new(pem)?));
        Ok(())
    }

    /// The settings for a new connection.
    pub(crate) fn config(&self, protocol: Protocol) -> Arc<ServerConfig> {
        let configs = self.shared.load();
        Arc::clone(match protocol {
            Protocol::Http1 | Protocol::Either => &configs.http1,
            Protocol::Http2 => &configs.http2,
        })
    }
}

impl Configs {
    fn new(pem: &Pem) -> Result<Self, Status> {
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| Status::invalid(format!("TLS: {error}")))?;
        let builder = match &pem.client_authorities {
            None => builder.with_no_client_auth(),
            Some(authorities) => {
                builder.with_client_cert_verifier(verifier(authorities, provider)?)
            }
        };
        let key = PrivateKeyDer::from_pem_slice(pem.key.as_bytes())
            .map_err(|error| Status::invalid(format!("the server's key: {error}")))?;
        let chain = certificates(&pem.certificates, "the server's certificate")?;
        let config = builder
            .with_single_cert(chain, key)
            .map_err(|error| Status::invalid(format!("the server's key: {error}")))?;
        let speaking = |protocol: &[u8]| {
            let mut config = config.clone();
            config.alpn_protocols = vec![protocol.to_vec()];
            Arc::new(config)
        };
        Ok(Self { http1: speaking(b"http/1.1"), http2: speaking(b"h2") })
    }
}

/// Lets in those whom one of the authorities vouches for.
fn verifier(
    authorities: &str,
    provider: Arc<tokio_rustls::rustls::crypto::CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, Status> {
    let wrong = |error: String| Status::invalid(format!("the authority of clients: {error}"));
    let mut roots = RootCertStore::empty();
    for certificate in certificates(authorities, "the authority of clients")? {
        roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|error| wrong(error.to_string()))
}

fn certificates(pem: &str, whose: &str) -> Result<Vec<CertificateDer<'static>>, Status> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    let certificates =
        certificates.map_err(|error| Status::invalid(format!("{whose}: {error}")))?;
    if certificates.is_empty() {
        return Err(Status::invalid(format!("{whose}: there is none in the text")));
    }
    Ok(certificates)
}
