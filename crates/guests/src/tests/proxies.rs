//! Requests by way of a proxy, and with a client's certificate.

use super::waiting::{on_worker, value_in};
use super::{gateway, settings};
use crate::UntrustedLua;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_local;
use tokio_rustls::TlsAcceptor;

/// A certificate and its key, as PEM and for a server.
struct Identity(rcgen::CertifiedKey<rcgen::KeyPair>);

impl Identity {
    fn new(name: &str) -> Self {
        Self(rcgen::generate_simple_self_signed([name.to_owned()]).unwrap())
    }

    /// A server with this certificate, which wants one of the client.
    fn acceptor(&self, client: &Self) -> TlsAcceptor {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(client.0.cert.der().clone()).unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
        let verifier = verifier.allow_unauthenticated().build().unwrap();
        let config =
            ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let key = PrivateKeyDer::try_from(self.0.signing_key.serialize_der()).unwrap();
        let config = config.with_client_cert_verifier(verifier);
        let config = config.with_single_cert(vec![self.0.cert.der().clone()], key).unwrap();
        TlsAcceptor::from(Arc::new(config))
    }
}

/// The head of the next message.
async fn head(stream: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r\n") {
        read.push(stream.read_u8().await.ok()?);
    }
    String::from_utf8(read).ok()
}

async fn answer(stream: &mut (impl AsyncWrite + Unpin), body: &str) {
    let text = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(text.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
}

/// A proxy that answers for every server: with the heads that it got, and how many certificates the client has shown.
async fn proxy(acceptor: TlsAcceptor) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    spawn_local(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            spawn_local(serve(stream, acceptor.clone()));
        }
    });
    port
}

async fn serve(mut stream: TcpStream, acceptor: TlsAcceptor) {
    while let Some(asked) = head(&mut stream).await {
        if asked.starts_with("CONNECT refused.test") {
            stream.write_all(b"HTTP/1.1 403 Forbidden\r\n\r\n").await.unwrap();
        } else if asked.starts_with("CONNECT ") {
            stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.unwrap();
            let Ok(mut secure) = acceptor.accept(stream).await else { return };
            while let Some(inner) = head(&mut secure).await {
                let shown = secure.get_ref().1.peer_certificates().map_or(0, <[_]>::len);
                answer(&mut secure, &format!("{asked}{inner}{shown}")).await;
            }
            return;
        } else {
            answer(&mut stream, &asked).await;
        }
    }
}

/// What code returns that has `http`, the proxy's address as `PROXY`, and a client's `cert` and `key`.
fn proxied(code: &str) -> String {
    on_worker(async {
        let (server, client) = (Identity::new("server.test"), Identity::new("client.test"));
        let port = proxy(server.acceptor(&client)).await;
        let begin = format!(
            "local http, ssl = require('resty.http').new(), require('ngx.ssl') \
             local cert = assert(ssl.parse_pem_cert([[{}]])) local key = assert(ssl.parse_pem_priv_key([[{}]])) \
             local PROXY = 'http://127.0.0.1:{port}' http:set_proxy_options({{ http_proxy = PROXY, https_proxy = PROXY, \
             http_proxy_authorization = 'Basic cA==', https_proxy_authorization = 'Basic cQ==', no_proxy = 'own.test, .local.test' }}) \
             local function get(uri, options) local r, e = http:request_uri(uri, options or {{ ssl_verify = false }}) \
             return r and r.body or 'error: ' .. e end ",
            client.0.cert.pem(),
            client.0.signing_key.serialize_pem()
        );
        value_in(&gateway(settings(UntrustedLua::On)), &format!("{begin}{code}")).await
    })
}

#[test]
fn a_request_in_clear_names_the_whole_uri() {
    let found = proxied("return get('http://shop.test:81/a?b=c')");
    assert!(found.starts_with("GET http://shop.test:81/a?b=c HTTP/1.1\r\n"), "{found}");
    assert!(
        found.contains("Proxy-Authorization: Basic cA==\r\n") && found.contains("Host: shop.test:81\r\n"),
        "{found}"
    );
}

#[test]
fn a_request_over_tls_goes_through_a_tunnel() {
    let found = proxied(
        "get('https://shop.test/a') local body = get('https://shop.test/b') \
         assert(http:connect({ scheme = 'https', host = 'shop.test', port = 443, ssl_verify = false })) \
         return body .. http:get_reused_times()",
    );
    assert!(
        found.starts_with(
            "CONNECT shop.test:443 HTTP/1.1\r\nHost: shop.test:443\r\nProxy-Authorization: Basic cQ==\r\n\r\n"
        ),
        "{found}"
    );
    assert!(found.contains("GET /b HTTP/1.1\r\n") && found.contains("Host: shop.test\r\n"), "{found}");
    // No certificate was shown, and the connection was used twice before.
    assert!(found.ends_with("\r\n\r\n02"), "{found}");
    assert!(found.matches("Proxy-Authorization").count() == 1, "{found}");
}

#[test]
fn proxies_that_refuse_or_are_excepted() {
    let found = proxied("return get('https://refused.test/a')");
    assert_eq!(found, "error: failed to establish a tunnel through a proxy: 403");
    for host in ["own.test", "a.own.test", "x.local.test"] {
        let found = proxied(&format!("return get('http://{host}:1/')"));
        assert!(found.contains("could not be resolved"), "{found}");
    }
    let found =
        proxied("http:set_proxy_options({ http_proxy = 'https://p.test' }) return get('http://a.test/')");
    assert_eq!(found, "error: protocol https not supported for proxy connections");
}

#[test]
fn a_client_shows_its_certificate() {
    let options = "{ ssl_verify = false, ssl_client_cert = cert, ssl_client_priv_key = key }";
    let found = proxied(&format!("return get('https://a.test/', {options})"));
    assert!(found.ends_with("\r\n\r\n1"), "{found}");
    // A connection that has shown one is not used for requests that have none.
    let found = proxied(&format!("get('https://a.test/', {options}) return get('https://a.test/')"));
    assert!(found.ends_with("\r\n\r\n0"), "{found}");
    let found = proxied("return get('https://a.test/', { ssl_verify = false, ssl_client_cert = cert })");
    assert_eq!(found, "error: could not set client certificate: bad client pkey type");
    let found = proxied("return tostring(ssl.parse_pem_cert('x')) .. select(2, ssl.parse_pem_priv_key('x'))");
    assert_eq!(found, "nilPEM_read_bio_PrivateKey() failed");
}
