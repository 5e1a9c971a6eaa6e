//! Real handshakes over loopback.

mod certificates;
mod clients;
mod openssl;
mod upstreams;

use super::*;
use rcgen::{CertificateParams, DnType, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, HandshakeKind, ProtocolVersion, ServerConfig};
use std::io;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use weir_model::entity::{Certificate, Sni};
use weir_model::{Document, Uuid};

/// A self-signed certificate for one name, as PEM, with its key.
#[derive(Clone)]
struct Issued {
    cert: String,
    key: String,
}

fn self_signed(name: &str, key: &KeyPair) -> Issued {
    let mut params = CertificateParams::new([name.to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    Issued { cert: params.self_signed(key).unwrap().pem(), key: key.serialize_pem() }
}

fn ecdsa(name: &str) -> Issued {
    self_signed(name, &KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap())
}

/// RSA keys take long to make, so all share one.
fn rsa(name: &str) -> Issued {
    static KEY: OnceLock<KeyPair> = OnceLock::new();
    self_signed(name, KEY.get_or_init(|| KeyPair::generate_for(&PKCS_RSA_SHA256).unwrap()))
}

fn certificate(id: u128, issued: &Issued) -> Certificate {
    Certificate {
        id: Uuid::from_u128(id),
        cert: issued.cert.clone(),
        key: issued.key.clone(),
        cert_alt: None,
        key_alt: None,
        tags: None,
        created_at: None,
        updated_at: None,
    }
}

fn sni(name: &str, certificate: u128) -> Sni {
    let (id, certificate) = (Uuid::new_v4(), Uuid::from_u128(certificate));
    Sni { id, name: name.into(), certificate, tags: None, created_at: None, updated_at: None }
}

fn document(certificates: Vec<Certificate>, snis: Vec<Sni>) -> Document {
    Document {
        certificates: certificates.into_iter().map(Arc::new).collect(),
        snis: snis.into_iter().map(Arc::new).collect(),
        ..Document::default()
    }
}

fn default() -> Arc<CertifiedKey> {
    default_certificate(None).unwrap()
}

/// One certificate for every name.
fn certificates(issued: &Issued) -> Certificates {
    Certificates::build(&document(vec![certificate(1, issued)], vec![sni("*", 1)]), default()).unwrap()
}

fn server(options: &TlsOptions, issued: &Issued) -> ServerTls {
    ServerTls::new(options, certificates(issued)).unwrap()
}

/// Accepts connections for as long as the test runs, and greets each.
async fn serve(config: Arc<ServerConfig>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let acceptor = TlsAcceptor::from(config.clone());
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(socket).await else { return };
                stream.write_all(b"hello").await.unwrap();
                let _ = stream.read(&mut [0]).await;
            });
        }
    });
    address
}

/// What a client saw of a connection.
#[derive(Debug)]
struct Seen {
    cert: Vec<u8>,
    kind: HandshakeKind,
    version: ProtocolVersion,
    alpn: Option<Vec<u8>>,
}

async fn connect(address: SocketAddr, config: &Arc<ClientConfig>, name: &str) -> io::Result<Seen> {
    let socket = TcpStream::connect(address).await?;
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut stream = TlsConnector::from(config.clone()).connect(name, socket).await?;
    // The session ticket comes before the greeting.
    stream.read_exact(&mut [0; 5]).await?;
    let connection = stream.get_ref().1;
    Ok(Seen {
        cert: connection.peer_certificates().unwrap()[0].to_vec(),
        kind: connection.handshake_kind().unwrap(),
        version: connection.protocol_version().unwrap(),
        alpn: connection.alpn_protocol().map(<[u8]>::to_vec),
    })
}

fn trusting() -> Arc<ClientConfig> {
    client_config(None, None).unwrap()
}

fn der(issued: &Issued) -> Vec<u8> {
    ca_certificates(&issued.cert).unwrap()[0].to_vec()
}
