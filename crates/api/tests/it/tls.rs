//! TLS and mutual TLS before both faces.

use std::sync::Arc;

use api::{Pem, Tls};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, Issuer, KeyPair};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

use crate::support::{Server, Setup};

/// A certificate and its key, as PEM.
struct Identity {
    certificate: String,
    key: String,
}

/// An authority that signs certificates.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    fn sign(&self, name: &str) -> Identity {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let issuer: &Issuer<'_, KeyPair> = &self.0;
        let certificate = params.signed_by(&key, issuer).unwrap();
        Identity { certificate: certificate.pem(), key: key.serialize_pem() }
    }
}

fn pem(identity: &Identity, client_authorities: Option<String>) -> Pem {
    Pem {
        key: identity.key.clone(),
        certificates: identity.certificate.clone(),
        client_authorities,
    }
}

/// A client that trusts `authority` and presents `identity`.
fn client(authority: &Authority, identity: Option<&Identity>, protocol: &[u8]) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let chain =
                vec![CertificateDer::from_pem_slice(identity.certificate.as_bytes()).unwrap()];
            let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    };
    config.alpn_protocols = vec![protocol.to_vec()];
    TlsConnector::from(Arc::new(config))
}

async fn connect(
    server: &Server,
    connector: &TlsConnector,
) -> std::io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(server.rest).await?;
    connector.connect(ServerName::try_from("localhost").unwrap(), stream).await
}

/// Asks over REST whether all is well.
async fn ask(server: &Server, connector: &TlsConnector) -> std::io::Result<String> {
    let mut stream = connect(server, connector).await?;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// Asks over gRPC whether all is well.
async fn ask_grpc(server: &Server, connector: &TlsConnector) -> Result<(), String> {
    let (address, connector) = (server.grpc, connector.clone());
    let channel = tonic::transport::Endpoint::from_static("http://localhost")
        .connect_with_connector(tower::service_fn(move |_| {
            let connector = connector.clone();
            async move {
                let stream = TcpStream::connect(address).await?;
                let name = ServerName::try_from("localhost").unwrap();
                connector.connect(name, stream).await.map(hyper_util::rt::TokioIo::new)
            }
        }))
        .await
        .map_err(|error| error.to_string())?;
    let mut client =
        proto::serving::prediction_service_client::PredictionServiceClient::new(channel);
    let answer = client.predict(crate::grpc::request("serving_default", 2.0)).await;
    answer.map(drop).map_err(|status| status.to_string())
}

#[tokio::test]
async fn both_faces_speak_tls() {
    let authority = Authority::new();
    let tls = Tls::new(&pem(&authority.sign("localhost"), None)).unwrap();
    let server = Setup { tls: Some(tls), ..Setup::new() }.start().await;
    let answer = ask(&server, &client(&authority, None, b"http/1.1")).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    ask_grpc(&server, &client(&authority, None, b"h2")).await.unwrap();
    // Those who do not trust the authority find out.
    ask(&server, &client(&Authority::new(), None, b"http/1.1")).await.unwrap_err();
    // In plain text nothing is said but that.
    let plain = crate::support::exchange(server.rest, b"GET /healthz HTTP/1.1\r\n\r\n").await;
    let plain = String::from_utf8(plain).unwrap();
    assert!(plain.starts_with("HTTP/1.1 400") && plain.contains("speaks TLS"), "{plain}");
}

#[tokio::test]
async fn clients_show_a_certificate_if_that_is_asked_for() {
    let (servers, clients) = (Authority::new(), Authority::new());
    let tls = Tls::new(&pem(&servers.sign("localhost"), Some(clients.pem()))).unwrap();
    let server = Setup { tls: Some(tls), ..Setup::new() }.start().await;
    let known = clients.sign("client");
    let stranger = servers.sign("client");
    ask(&server, &client(&servers, Some(&known), b"http/1.1")).await.unwrap();
    ask_grpc(&server, &client(&servers, Some(&known), b"h2")).await.unwrap();
    for identity in [None, Some(&stranger)] {
        // In TLS 1.3, a client hears of its refusal only when it reads.
        let answer = ask(&server, &client(&servers, identity, b"http/1.1")).await;
        assert!(answer.is_err() || answer.is_ok_and(|answer| answer.is_empty()));
        ask_grpc(&server, &client(&servers, identity, b"h2")).await.unwrap_err();
    }
}

#[tokio::test]
async fn keys_are_replaced_while_connections_are_open() {
    let (old, new) = (Authority::new(), Authority::new());
    let tls = Tls::new(&pem(&old.sign("localhost"), None)).unwrap();
    let server = Setup { tls: Some(tls.clone()), ..Setup::new() }.start().await;
    let mut open = connect(&server, &client(&old, None, b"http/1.1")).await.unwrap();
    tls.replace(&pem(&new.sign("localhost"), None)).unwrap();
    ask(&server, &client(&new, None, b"http/1.1")).await.unwrap();
    ask(&server, &client(&old, None, b"http/1.1")).await.unwrap_err();
    open.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    open.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
}

#[tokio::test]
async fn keys_that_do_not_work_are_refused_and_the_old_ones_kept() {
    let authority = Authority::new();
    let good = authority.sign("localhost");
    let tls = Tls::new(&pem(&good, None)).unwrap();
    let server = Setup { tls: Some(tls.clone()), ..Setup::new() }.start().await;
    let other = authority.sign("localhost");
    let wrong = [
        Pem { key: String::new(), ..pem(&good, None) },
        Pem { key: "nonsense".to_owned(), ..pem(&good, None) },
        Pem { certificates: String::new(), ..pem(&good, None) },
        Pem { certificates: other.certificate, ..pem(&good, None) },
        pem(&good, Some(String::new())),
    ];
    for pem in wrong {
        assert!(Tls::new(&pem).is_err());
        assert!(tls.replace(&pem).is_err());
    }
    ask(&server, &client(&authority, None, b"http/1.1")).await.unwrap();
}

#[tokio::test]
async fn a_client_that_says_nothing_holds_nobody_up() {
    let authority = Authority::new();
    let tls = Tls::new(&pem(&authority.sign("localhost"), None)).unwrap();
    let server = Setup { tls: Some(tls), ..Setup::new() }.start().await;
    let _silent = TcpStream::connect(server.rest).await.unwrap();
    ask(&server, &client(&authority, None, b"http/1.1")).await.unwrap();
}
