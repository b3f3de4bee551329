//! `Trust`: which servers are believed over TLS, and the certificate that is shown to them.

use std::io;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{self, CryptoProvider};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, Error, InvalidMessage,
    RootCertStore, SignatureScheme,
};

use super::address::ServerAddress;
use super::failure::AskError;
use super::{Duplex, PATIENCE};

/// The authorities that vouch for a server, and our own certificate.
#[derive(Debug)]
pub(super) enum Trust {
    /// Those that this machine trusts.
    Machine,
    /// Any server.
    Anyone,
    /// Those of a file.
    Authorities(Arc<RootCertStore>),
    /// One of the others, with a certificate of our own.
    Showing(Box<Trust>, Identity),
}

/// A certificate and its key.
#[derive(Debug)]
pub(super) struct Identity {
    certificates: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Trust {
    /// Trust in what the authorities of a file have signed.
    pub(super) fn signed_by(file: &Path) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(file)? {
            roots.add(certificate).with_context(|| format!("{}", file.display()))?;
        }
        Ok(Self::Authorities(Arc::new(roots)))
    }

    /// The same trust, with a certificate and its key to show.
    pub(super) fn showing(self, certificate: &Path, key: &Path) -> Result<Self> {
        let certificates = certificates(certificate)?;
        let read = PrivateKeyDer::from_pem_file(key);
        let key = read.with_context(|| format!("{} is no key (PEM)", key.display()))?;
        Ok(Self::Showing(Box::new(self), Identity { certificates, key }))
    }

    /// Speaks TLS over a connection.
    pub(super) async fn secured(
        &self,
        stream: TcpStream,
        address: &ServerAddress,
    ) -> Result<Box<dyn Duplex>, AskError> {
        let mut config = self.config().map_err(|error| untrusted(&error))?;
        let protocol: &[u8] = if address.is_grpc() { b"h2" } else { b"http/1.1" };
        config.alpn_protocols = vec![protocol.to_vec()];
        let name = server_name(address)?;
        match TlsConnector::from(Arc::new(config)).connect(name, stream).await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) => Err(failure(&error)),
        }
    }

    /// Returns whether TLS is spoken at an address, with whatever certificate.
    pub(super) async fn is_spoken_at(&self, address: &ServerAddress) -> bool {
        let greet = async {
            let place = (address.host(), address.port());
            let Ok(stream) = TcpStream::connect(place).await else { return false };
            let (Ok(config), Ok(name)) = (Self::Anyone.config(), server_name(address)) else {
                return false;
            };
            let greeted = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
            match greeted.as_ref().map_err(tls_error) {
                Ok(_) => true,
                // An alert is an answer in TLS.
                Err(error) => error.is_some_and(|error| !is_gibberish(error)),
            }
        };
        tokio::time::timeout(PATIENCE, greet).await.unwrap_or(false)
    }

    fn config(&self) -> Result<ClientConfig, Error> {
        let (trust, identity) = match self {
            Self::Showing(trust, identity) => (&**trust, Some(identity)),
            trust => (trust, None),
        };
        let provider = Arc::new(crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?;
        let builder = match trust {
            Self::Anyone => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(Unchecked { provider })),
            Self::Authorities(roots) => builder.with_root_certificates(Arc::clone(roots)),
            Self::Machine | Self::Showing(..) => builder.with_root_certificates(of_machine()),
        };
        match identity {
            None => Ok(builder.with_no_client_auth()),
            Some(Identity { certificates, key }) => {
                builder.with_client_auth_cert(certificates.clone(), key.clone_key())
            }
        }
    }
}

/// The authorities that this machine trusts. One that cannot be read vouches for nobody.
fn of_machine() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    let _ = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let wrong = || format!("{} has no certificates (PEM)", file.display());
    let read = CertificateDer::pem_file_iter(file).with_context(wrong)?;
    let all: Vec<_> = read.collect::<Result<_, _>>().with_context(wrong)?;
    ensure!(!all.is_empty(), wrong());
    Ok(all)
}

fn server_name(address: &ServerAddress) -> Result<ServerName<'static>, AskError> {
    let name = ServerName::try_from(address.host().to_owned());
    name.map_err(|error| AskError::Untrusted(format!("{}: {error}", address.host())))
}

/// The error of TLS within an error of the connection.
fn tls_error(error: &io::Error) -> Option<&Error> {
    error.get_ref()?.downcast_ref()
}

/// Returns whether the other side sent something that is no TLS.
fn is_gibberish(error: &Error) -> bool {
    matches!(error, Error::InvalidMessage(InvalidMessage::InvalidContentType))
}

fn failure(error: &io::Error) -> AskError {
    match tls_error(error) {
        None => AskError::Foreign(format!("no TLS: {error}")),
        Some(error) if is_gibberish(error) => AskError::NoTls,
        Some(
            Error::AlertReceived(AlertDescription::NoApplicationProtocol)
            | Error::NoApplicationProtocol,
        ) => AskError::OtherFace,
        Some(error) => untrusted(error),
    }
}

/// The reason why a server is not believed, and the flag that helps.
fn untrusted(error: &Error) -> AskError {
    let hint = match error {
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "; ask it by a name that its certificate has",
        Error::InvalidCertificate(_) => {
            "; give the certificates of its authority with --ca_cert=FILE"
        }
        Error::AlertReceived(
            AlertDescription::CertificateRequired | AlertDescription::UnknownCA,
        ) => "; it wants a certificate: --client_cert=FILE --client_key=FILE",
        _ => "",
    };
    AskError::Untrusted(format!("{error}{hint}"))
}

/// Believes every certificate; what the server signs must still fit the certificate.
#[derive(Debug)]
struct Unchecked {
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Unchecked {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _between: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        crypto::verify_tls12_signature(message, certificate, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        crypto::verify_tls13_signature(message, certificate, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
