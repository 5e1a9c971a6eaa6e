//! Calls that the upstream ends by a reset: what the client is told, and what it says of the target.

use super::{configuration, gateway};
use crate::harness::Gateway;
use crate::harness::http2::{block_on, connect, read, start};
use crate::harness::http2_upstream::{Http2Upstream, all};
use bytes::Bytes;
use h2::Reason;
use h2::server::{Builder, SendResponse};
use http::{HeaderMap, Request, Response};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A gateway whose only target is out of use after one failure of its connections.
fn strict(upstream: SocketAddr) -> Gateway {
    let checks = "passive: {unhealthy: {tcp_failures: 1, timeouts: 1}}";
    let targets = format!(
        "upstreams:\n- {{name: some, targets: [{{target: \"{upstream}\"}}], healthchecks: {{{checks}}}}}\n"
    );
    gateway(&configuration(upstream, "", "", &targets).replace("host: 127.0.0.1", "host: some")).start()
}

fn message(text: &str) -> Bytes {
    let length = u32::try_from(text.len()).unwrap().to_be_bytes();
    [&[0], &length[..], text.as_bytes()].concat().into()
}

/// Makes a call of one message, and returns the status that it ends with.
async fn call(requests: &h2::client::SendRequest<Bytes>, text: &str, timeout: Option<&str>) -> String {
    let mut call = Request::post("http://a/weir.Echo/Unary")
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    if let Some(timeout) = timeout {
        call = call.header("grpc-timeout", timeout);
    }
    let (response, mut body) = start(requests, call.body(()).unwrap(), false).await.unwrap();
    body.send_data(message(text), true).unwrap();
    let (response, trailers) = read(response.await.unwrap()).await.unwrap();
    let status = trailers.as_ref().and_then(|trailers| trailers.get("grpc-status"));
    status.or_else(|| response.headers().get("grpc-status")).unwrap().to_str().unwrap().to_owned()
}

/// The milliseconds of a deadline.
fn deadline(request: &Request<h2::RecvStream>) -> Option<Duration> {
    let text = request.headers().get("grpc-timeout")?.to_str().ok()?;
    Some(Duration::from_millis(text.strip_suffix('m')?.parse().ok()?))
}

fn succeed(respond: &mut SendResponse<Bytes>) {
    let mut body = respond.send_response(Response::new(()), false).unwrap();
    body.send_data(message("ok"), false).unwrap();
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", "0".parse().unwrap());
    body.send_trailers(trailers).unwrap();
}

/// As grpc-go's server does: it counts from when it was asked, so that either side may be the first to find the time
/// over.
#[test]
fn a_call_that_its_server_cancels_at_its_deadline_has_exceeded_it() {
    let upstream =
        Http2Upstream::start(Builder::new(), usize::MAX, async |(request, mut respond), number| {
            let Some(deadline) = deadline(&request) else { return succeed(&mut respond) };
            let early = Duration::from_millis(number as u64 % 8);
            let begins = number % 2 == 1;
            let mut body = begins.then(|| respond.send_response(Response::new(()), false).unwrap());
            tokio::time::sleep(deadline - early).await;
            match &mut body {
                Some(body) => body.send_reset(Reason::CANCEL),
                None => respond.send_reset(Reason::CANCEL),
            }
        });
    let gateway = strict(upstream.address);
    block_on(async {
        let (requests, _) = connect(gateway.proxy()).await;
        for _ in 0..40 {
            assert_eq!(call(&requests, "x", Some("50m")).await, "4");
        }
        assert_eq!(call(&requests, "x", None).await, "0", "the target is healthy");
    });
}

#[test]
fn a_reset_is_told_by_the_code_that_grpc_has_for_it() {
    let cases = [
        (Reason::CANCEL, "1"),
        (Reason::NO_ERROR, "13"),
        (Reason::INTERNAL_ERROR, "13"),
        (Reason::PROTOCOL_ERROR, "13"),
        (Reason::ENHANCE_YOUR_CALM, "8"),
        (Reason::INADEQUATE_SECURITY, "7"),
        (Reason::REFUSED_STREAM, "14"),
        (Reason::HTTP_1_1_REQUIRED, "2"),
    ];
    for begins in [false, true] {
        let upstream =
            Http2Upstream::start(Builder::new(), usize::MAX, move |(request, mut respond), _| async move {
                let mut body = request.into_body();
                let message = body.data().await.unwrap().unwrap();
                let code: u32 = std::str::from_utf8(&message[5..]).unwrap().parse().unwrap();
                if begins {
                    let mut body = respond.send_response(Response::new(()), false).unwrap();
                    body.send_data("\0\0\0\0\x01m".into(), false).unwrap();
                    body.send_reset(code.into());
                } else {
                    respond.send_reset(code.into());
                }
            });
        let gateway = gateway(&configuration(upstream.address, "", "", "")).start();
        block_on(async {
            let (requests, _) = connect(gateway.proxy()).await;
            for (reason, status) in cases {
                let code = u32::from(reason).to_string();
                for timeout in [None, Some("100S")] {
                    assert_eq!(call(&requests, &code, timeout).await, status, "{reason:?}, begun: {begins}");
                }
            }
        });
    }
}

#[test]
fn a_call_that_is_cancelled_says_nothing_of_its_target() {
    let upstream = Http2Upstream::start(Builder::new(), usize::MAX, async |(request, mut respond), _| {
        match all(request.into_body()).await {
            6 => respond.send_reset(Reason::CANCEL),
            _ => succeed(&mut respond),
        }
    });
    let gateway = strict(upstream.address);
    block_on(async {
        let (requests, _) = connect(gateway.proxy()).await;
        for _ in 0..3 {
            assert_eq!(call(&requests, "1", None).await, "1");
            assert_eq!(call(&requests, "fine", None).await, "0");
        }
    });
}

/// A server need not read a call to its end.
#[test]
fn a_response_that_is_whole_outlives_the_reset_behind_it() {
    let upstream = Http2Upstream::start(Builder::new(), usize::MAX, async |(_, mut respond), number| {
        if number % 2 == 0 {
            let failed = Response::builder().header("grpc-status", "5").body(()).unwrap();
            respond.send_response(failed, true).unwrap();
        } else {
            succeed(&mut respond);
        }
        // What ends the response goes out first.
        tokio::task::yield_now().await;
        respond.send_reset(Reason::NO_ERROR);
    });
    let gateway = strict(upstream.address);
    block_on(async {
        let (requests, _) = connect(gateway.proxy()).await;
        for number in 0..10 {
            let call = Request::post("http://a/weir.Echo/Client").header("content-type", "application/grpc");
            let (response, mut body) = start(&requests, call.body(()).unwrap(), false).await.unwrap();
            body.send_data(message("more follows"), false).unwrap();
            let (response, trailers) = read(response.await.unwrap()).await.unwrap();
            let status = if number % 2 == 0 { response.headers().get("grpc-status") } else { None };
            let status = status.or_else(|| trailers.as_ref()?.get("grpc-status")).unwrap();
            assert_eq!(status, ["5", "0"][number % 2], "{number}");
        }
    });
}

/// The server of Python's grpcio.
struct Server(Child);

impl Server {
    fn start() -> (Server, SocketAddr) {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/grpc/server.py");
        let mut command = Command::new("/usr/bin/python3");
        let mut child = command.arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port: u16 = line.trim().parse().unwrap();
        (Server(child), ([127, 0, 0, 1], port).into())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn deadlines_say_nothing_of_a_server_by_grpcio() {
    let (_server, address) = Server::start();
    let gateway = strict(address);
    block_on(async {
        let (requests, _) = connect(gateway.proxy()).await;
        let slow = (0..40).map(|_| {
            let requests = requests.clone();
            tokio::task::spawn_local(async move { call(&requests, "slow", Some("100m")).await })
        });
        for status in slow.collect::<Vec<_>>() {
            assert_eq!(status.await.unwrap(), "4");
        }
        assert_eq!(call(&requests, "fast", Some("100S")).await, "0");
    });
}
