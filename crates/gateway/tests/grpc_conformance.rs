//! The conformance tests of Connect's makers for gRPC and gRPC-Web: their client, through the gateway, to their server by grpc-go.
//! `make test` builds both from the versions that `counterparts/go.mod` names.
//!
//! A case has a client send a call in a certain form, and compares what the server has got and what the client gets of it: messages,
//! metadata, trailers, errors with details, deadlines, cancellations, compression.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::harness::{Counterpart, Gateway, Identity, counterpart};
use prost::Message;
use std::fs;
use std::net::SocketAddr;
use std::process::{Command, Stdio};

/// Cases that this server answers with another status than they want, with or without a gateway: it calls a wrong number of
/// messages an internal error.
const OF_THE_SERVER: [&str; 4] = [
    "**/unary/multiple-requests",
    "**/unary/no-request",
    "**/server-stream/multiple-requests",
    "**/server-stream/no-request",
];

/// The longest message that the server takes, which is what the cases suppose.
const MAX_MESSAGE_BYTES: u32 = 200 * 1024;

/// What a server is to be.
#[derive(Clone, PartialEq, prost::Message)]
struct ServerCompatRequest {
    #[prost(int32, tag = "1")]
    protocol: i32,
    #[prost(int32, tag = "2")]
    http_version: i32,
    #[prost(uint32, tag = "6")]
    message_receive_limit: u32,
}

/// Where a server is, and what its clients trust.
#[derive(Clone, PartialEq, prost::Message)]
struct ServerCompatResponse {
    #[prost(string, tag = "1")]
    host: String,
    #[prost(uint32, tag = "2")]
    port: u32,
    #[prost(string, tag = "3")]
    pem_cert: String,
}

fn delimited(message: &impl Message) -> Vec<u8> {
    let message = message.encode_to_vec();
    [&u32::try_from(message.len()).unwrap().to_be_bytes()[..], &message].concat()
}

/// The server, by grpc-go.
fn server() -> Counterpart {
    // gRPC, over HTTP/2.
    let request =
        ServerCompatRequest { protocol: 2, http_version: 2, message_receive_limit: MAX_MESSAGE_BYTES };
    let arguments = |port: u16| vec!["-port".to_owned(), port.to_string()];
    Counterpart::start("grpcserver", arguments, &delimited(&request))
}

fn response(host: &str, address: SocketAddr, pem_cert: &str) -> Vec<u8> {
    let (host, pem_cert) = (host.to_owned(), pem_cert.to_owned());
    delimited(&ServerCompatResponse { host, port: address.port().into(), pem_cert })
}

/// Runs all cases that have these features, and returns how many there are. `own` are cases that the gateway answers in its own way.
#[track_caller]
fn conforms(protocols: &str, plugin: &str, features: &str, own: &[&str]) -> u32 {
    let (server, identity) = (server(), Identity::for_strict_clients("localhost"));
    let document = format!(
        "_format_version: \"3.0\"\nservices:\n- name: s\n  protocol: grpc\n  host: 127.0.0.1\n  port: {}\n  retries: 0\n  \
         routes: [{{name: r, protocols: [{protocols}], paths: [/]}}]\n  plugins: [{plugin}]\n",
        server.address.port()
    );
    let gateway = Gateway::builder(&document)
        .set("proxy_listen", "127.0.0.1:0 http2, 127.0.0.1:0 ssl http2, 127.0.0.1:0 quic")
        .set("ssl_cert", &identity.cert().display().to_string())
        .set("ssl_cert_key", &identity.key().display().to_string())
        .start();
    let cert = fs::read_to_string(identity.cert()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &[u8]| fs::write(folder.path().join(name), content).unwrap();
    file("clear", &response("127.0.0.1", gateway.proxy(), ""));
    file("tls", &response("localhost", gateway.proxy_ssl(), &cert));
    file("quic", &response("localhost", gateway.proxy_quic(), &cert));
    file("config.yaml", format!("features:\n{features}  codecs: [CODEC_PROTO]\n").as_bytes());
    // Stands in for a server. What it gets says which kind is to be started: HTTP/3, with a certificate, or neither.
    let stand_in = "request=$(mktemp -p .); cat > $request; \
                    if LC_ALL=C grep -qaP '\\x10\\x03' $request; then cat quic; \
                    elif grep -qa 'BEGIN CERTIFICATE' $request; then cat tls; else cat clear; fi; exec sleep 1000";
    // A call that hangs has no end by itself.
    let mut command = Command::new("timeout");
    command.arg("300").arg(counterpart("connectconformance"));
    command.current_dir(folder.path()).args(["--mode", "server", "--conf", "config.yaml"]);
    // Whether the client or the server is first to give up depends on the machine.
    command.args(["--known-flaky", "Timeouts/**"]);
    command.args(OF_THE_SERVER.iter().chain(own).flat_map(|case| ["--known-failing", case]));
    let output = command.args(["--", "sh", "-c", stand_in]).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let total = said.lines().find_map(|line| line.strip_prefix("Total cases: "));
    total.unwrap_or_else(|| panic!("{said}")).parse().unwrap()
}

#[test]
fn grpc_web_conforms_over_every_version_of_http() {
    let features = "  versions: [HTTP_VERSION_1, HTTP_VERSION_2, HTTP_VERSION_3]\n  protocols: [PROTOCOL_GRPC_WEB]\n  \
                    supports_half_duplex_bidi_over_http1: true\n";
    // Kong answers it 400, and the cases want 415.
    let own = ["**/unexpected-content-type"];
    assert_eq!(conforms("http, https", "{name: grpc-web}", features, &own), 930);
}

#[test]
fn grpc_conforms() {
    let features = "  versions: [HTTP_VERSION_2]\n  protocols: [PROTOCOL_GRPC]\n";
    assert_eq!(conforms("grpc, grpcs", "", features, &[]), 568);
}
