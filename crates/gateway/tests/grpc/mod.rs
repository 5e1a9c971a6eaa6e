//! gRPC, by tonic on both sides.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
pub(crate) mod echo;
mod resets;

use crate::harness::http2::{ask, block_on, connect, read, start};
use crate::harness::http2_upstream::Http2Upstream;
use crate::harness::{Gateway, Identity, Upstream, closed_port, eventually};
use bytes::Bytes;
use echo::{Caller, serve};
use h2::server::Builder;
use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;
use tokio_stream::StreamExt;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};
use tonic::{Code, Request};

pub(crate) fn run<T>(task: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let patience = Duration::from_secs(100);
    runtime.block_on(async { tokio::time::timeout(patience, task).await.expect("it ends, in time") })
}

/// A service and a route of gRPC, and more top-level entities.
pub(crate) fn configuration(upstream: SocketAddr, service: &str, route: &str, more: &str) -> String {
    format!(
        "_format_version: \"3.0\"\nservices:\n- {{name: s, protocol: grpc, host: 127.0.0.1, port: {}, {service} \
         routes: [{{name: r, protocols: [grpc, grpcs], paths: [/weir.Echo], {route}}}]}}\n{more}",
        upstream.port()
    )
}

pub(crate) fn gateway(configuration: &str) -> crate::harness::Builder {
    Gateway::builder(configuration).set("proxy_listen", "127.0.0.1:0 http2, 127.0.0.1:0 ssl http2")
}

pub(crate) async fn caller(gateway: &Gateway) -> Caller {
    Caller::connect(format!("http://{}", gateway.proxy())).await
}

fn resident(gateway: &Gateway) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", gateway.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[test]
fn calls_of_every_kind_pass() {
    run(async {
        let gateway = gateway(&configuration(serve(None).await, "", "", "")).start();
        let mut caller = caller(&gateway).await;
        let mut request = Request::new(Bytes::from_static(b"hello"));
        request.metadata_mut().insert("x-sent", "1".parse().unwrap());
        let response = caller.unary("Unary", request).await.unwrap();
        assert_eq!(response.metadata().get("x-sent").unwrap(), "1");
        assert_eq!(response.metadata().get("via").unwrap(), "2 weir");
        assert_eq!(response.into_inner(), "hello");
        let messages = caller.server("1000 100").await.unwrap().into_inner();
        assert_eq!(messages.filter_map(Result::ok).fold(0, |sum, m| sum + m.len()).await, 100_000);
        let sent = tokio_stream::iter(vec![Bytes::from_static(b"four"); 1000]);
        assert_eq!(caller.client(sent).await.unwrap().into_inner(), "4000");
    });
}

#[test]
fn messages_pass_both_ways_one_by_one() {
    run(async {
        let gateway = gateway(&configuration(serve(None).await, "", "", "")).start();
        let mut caller = caller(&gateway).await;
        let (sender, messages) = caller.both().await;
        let mut messages = messages.unwrap().into_inner();
        for n in 0..1000 {
            sender.send(n.to_string().into()).await.unwrap();
            assert_eq!(messages.next().await.unwrap().unwrap(), n.to_string());
        }
        drop(sender);
        assert!(messages.next().await.is_none());
    });
}

#[test]
fn messages_of_100_mb_pass_in_little_memory() {
    const SIZE: usize = 100 << 20;
    run(async {
        let gateway = gateway(&configuration(serve(None).await, "", "", "")).start();
        let mut caller = caller(&gateway).await;
        caller.unary("Unary", Request::new(Bytes::from_static(b"warm"))).await.unwrap();
        let before = resident(&gateway);
        let message = Bytes::from(vec![b'x'; SIZE]);
        let echoed = caller.unary("Unary", Request::new(message)).await.unwrap().into_inner();
        assert_eq!(echoed.len(), SIZE);
        let mut messages = caller.server(&format!("2 {SIZE}")).await.unwrap().into_inner();
        for _ in 0..2 {
            assert_eq!(messages.next().await.unwrap().unwrap().len(), SIZE);
        }
        let after = resident(&gateway);
        assert!(after < before + (16 << 20), "{before} bytes before, {after} after");
    });
}

#[test]
fn a_status_comes_with_its_details_and_metadata() {
    run(async {
        let gateway = gateway(&configuration(serve(None).await, "", "", "")).start();
        let mut caller = caller(&gateway).await;
        let status = caller.unary("Unary", Request::new(Bytes::from_static(b"fail"))).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::FailedPrecondition, "as “asked”"));
        assert_eq!(status.details(), b"why");
        assert_eq!(status.metadata().get("x-more").unwrap(), "1");
        let status = caller.unary("None", Request::new(Bytes::new())).await.unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented);
    });
}

#[test]
fn a_call_that_fails_is_counted_by_its_status() {
    run(async {
        let gateway = gateway(&configuration(serve(None).await, "", "", "")).start();
        let mut caller = caller(&gateway).await;
        caller.unary("Unary", Request::new(Bytes::from_static(b"hello"))).await.unwrap();
        caller.unary("Unary", Request::new(Bytes::from_static(b"fail"))).await.unwrap_err();
        let chart = || gateway.admin("/analytics/series?by=cause&step=1h").json()["columns"].to_string();
        eventually("both calls are counted", || chart().matches("\"total\":1.0").count() == 2);
        assert!(chart().contains("\"response\"") && chart().contains("\"grpc_status 9\""), "{}", chart());
        let protocols = gateway.admin("/analytics/series?by=protocol").json()["columns"].clone();
        assert_eq!(protocols.as_array().map(Vec::len), Some(1), "{protocols}");
        assert_eq!(protocols[0]["label"], "grpc");
    });
}

#[test]
fn tls_is_spoken_on_both_sides() {
    let authority = Identity::new("authority");
    let identity = Identity::signed("localhost", &authority);
    let pem = |path| std::fs::read(path).unwrap();
    let (cert, key, root) = (pem(identity.cert()), pem(identity.key()), pem(authority.cert()));
    run(async {
        let upstream = serve(Some(tonic::transport::Identity::from_pem(&cert, &key))).await;
        let configuration =
            configuration(upstream, "", "", "").replace("protocol: grpc,", "protocol: grpcs,");
        let gateway = gateway(&configuration)
            .set("ssl_cert", identity.cert().to_str().unwrap())
            .set("ssl_cert_key", identity.key().to_str().unwrap())
            .start();
        let tls =
            ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&root)).domain_name("localhost");
        let endpoint = Endpoint::from_shared(format!("https://{}", gateway.proxy_ssl())).unwrap();
        let mut caller = Caller::over(endpoint.tls_config(tls).unwrap().connect().await.unwrap());
        let response = caller.unary("Unary", Request::new(Bytes::from_static(b"hello"))).await.unwrap();
        assert_eq!(response.into_inner(), "hello");
    });
}

#[test]
fn failures_of_the_gateway_are_statuses_of_grpc() {
    run(async {
        let call = async |gateway: &Gateway| {
            caller(gateway).await.unary("Unary", Request::new(Bytes::new())).await.unwrap_err()
        };
        let gone = gateway(&configuration(closed_port(), "retries: 0,", "", "")).start();
        assert_eq!(call(&gone).await.code(), Code::Unavailable);
        let elsewhere =
            gateway(&configuration(closed_port(), "", "", "").replace("/weir.Echo", "/other")).start();
        let status = call(&elsewhere).await;
        assert_eq!((status.code(), status.message()), (Code::NotFound, "no Route matched with those values"));
        let upstream = serve(None).await;
        let slow = gateway(&configuration(upstream, "read_timeout: 300,", "", "")).start();
        let status = caller(&slow).await.unary("Hang", Request::new(Bytes::new())).await.unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded);
        assert_eq!(status.message(), "The upstream server is timing out");
    });
}

/// Tonic sees to deadlines on both sides, so neither is here.
#[test]
fn a_call_ends_at_its_deadline() {
    let upstream = Upstream::start(|mut peer, _| {
        let _ = peer.rest();
    });
    let gateway = gateway(&configuration(upstream.address, "", "", "")).start();
    block_on(async {
        let (requests, _) = connect(gateway.proxy()).await;
        let call =
            http::Request::post("http://a/weir.Echo/Unary").header("content-type", "application/grpc+proto");
        let response = ask(&requests, call.header("grpc-timeout", "300m").body(()).unwrap()).await.unwrap();
        assert_eq!((response.status().as_u16(), response.body().as_str()), (200, ""));
        assert_eq!(response.headers()["grpc-status"], "4");
        assert_eq!(response.headers()["grpc-message"], "The time for the call is over");
        assert_eq!(response.headers()["content-type"], "application/grpc");
    });
}

/// Neither messages that go on coming nor a client that has more to say keep a call beyond its deadline.
#[test]
fn a_call_whose_messages_do_not_end_ends_at_its_deadline() {
    let upstream = Http2Upstream::start(Builder::new(), usize::MAX, async |(_, mut respond), _| {
        let mut body = respond.send_response(http::Response::new(()), false).unwrap();
        while body.send_data("\0\0\0\0\x01m".into(), false).is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    let gateway = gateway(&configuration(upstream.address, "", "", "")).start();
    block_on(async {
        let (requests, _) = connect(gateway.proxy()).await;
        let call =
            http::Request::post("http://localhost/weir.Echo/Both").header("content-type", "application/grpc");
        let call = call.header("grpc-timeout", "300m").body(()).unwrap();
        let (response, _sending) = start(&requests, call, false).await.unwrap();
        let (_, trailers) = read(response.await.unwrap()).await.unwrap();
        assert_eq!(trailers.unwrap()["grpc-status"], "4");
    });
}

#[test]
fn plugins_run_for_calls() {
    let more = "plugins:\n- {name: key-auth, config: {key_names: [apikey]}}\n- {name: rate-limiting, config: {hour: 1, \
                policy: local}}\nconsumers:\n- {username: alice, keyauth_credentials: [{key: secret}]}\n";
    run(async {
        let gateway = gateway(&configuration(serve(None).await, "", "", more)).start();
        let mut caller = caller(&gateway).await;
        let with = |key: Option<&str>| {
            let mut request = Request::new(Bytes::from_static(b"x"));
            if let Some(key) = key {
                request.metadata_mut().insert("apikey", key.parse().unwrap());
            }
            request
        };
        let status = caller.unary("Unary", with(None)).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::Unauthenticated, "No API key found in request"));
        assert!(
            caller
                .unary("Unary", with(Some("wrong")))
                .await
                .is_err_and(|s| s.code() == Code::Unauthenticated)
        );
        let response = caller.unary("Unary", with(Some("secret"))).await.unwrap();
        assert_eq!(response.metadata().get("x-consumer-username").unwrap(), "alice");
        assert_eq!(response.metadata().get("ratelimit-remaining").unwrap(), "0");
        let status = caller.unary("Unary", with(Some("secret"))).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::ResourceExhausted, "API rate limit exceeded"));
    });
}

#[test]
fn what_is_no_call_is_refused_as_kong_does() {
    let gateway = gateway(&configuration(closed_port(), "", "", "")).start();
    let post = |content_type: &str| {
        gateway.send(&format!(
            "POST /weir.Echo/Unary HTTP/1.1\r\nHost: a\r\nContent-Type: {content_type}\r\nContent-Length: 0\r\n\r\n"
        ))
    };
    let refused = post("application/grpc");
    assert_eq!((refused.status, refused.header("upgrade")), (426, Some("HTTP/2")));
    assert_eq!(refused.json()["message"], "Please use HTTP2 protocol");
    for refused in [post("application/json"), gateway.get("/weir.Echo/Unary")] {
        assert_eq!(refused.status, 415);
        assert_eq!(refused.json()["message"], "Non-gRPC request matched gRPC route");
    }
}

#[test]
fn a_call_in_clear_on_a_route_of_grpcs_is_told_so() {
    run(async {
        let configuration = configuration(closed_port(), "", "", "").replace("[grpc, grpcs]", "[grpcs]");
        let gateway = gateway(&configuration).start();
        let status = caller(&gateway).await.unary("Unary", Request::new(Bytes::new())).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::Cancelled, "gRPC request matched gRPCs route"));
    });
}
