//! Programs that are not ours: h2load and curl, and Python's websockets and grpcio, against the upstream and before the
//! generator.
use super::{GRPC, WEBSOCKET, case, is_all_good, plan, upstream};
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use weirlab::scenario::Scheme;

/// A program of Python's; ends when it is dropped.
struct Python(Child);

impl Python {
    fn start(text: &str, argument: &str) -> Python {
        let mut child = Command::new("/usr/bin/python3")
            .args(["-", argument])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // How connections end that a load leaves is none of a test's business.
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        Python(child)
    }

    /// The next line that it prints.
    fn line(&mut self) -> String {
        let mut line = String::new();
        BufReader::new(self.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    fn listens_at(&mut self) -> SocketAddr {
        format!("127.0.0.1:{}", self.line()).parse().unwrap()
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn h2load_and_curl_are_answered_by_the_upstream() {
    let upstream = upstream(false);
    for (url, options) in [
        (format!("http://{}/", upstream.listen[0]), "--http2-prior-knowledge"),
        (format!("https://{}/", upstream.listen_tls[0]), "--http2"),
    ] {
        let printed = said("h2load", &["-n", "500", "-c", "3", "-m", "20", &url]);
        assert!(printed.contains("500 succeeded, 0 failed, 0 errored"), "{printed}");
        let got = said("curl", &["-sk", "-o", "-", "-w", " %{http_code} %{http_version}", options, &url]);
        assert_eq!(got, format!("{} 200 2", "x".repeat(1024)));
    }
}

#[test]
fn bodies_sent_by_h2load_are_taken_in() {
    let (upstream, folder) = (upstream(false), tempfile::tempdir().unwrap());
    let body = folder.path().join("body");
    std::fs::write(&body, "y".repeat(200_000)).unwrap();
    let url = format!("http://{}/", upstream.listen[0]);
    let printed = said("h2load", &["-n", "50", "-c", "2", "-m", "5", "-d", body.to_str().unwrap(), &url]);
    assert!(printed.contains("50 succeeded, 0 failed, 0 errored"), "{printed}");
}

const WEBSOCKET_SERVER: &str = "
import asyncio, websockets
async def echo(socket, path=None):
    await socket.ping()
    async for message in socket:
        await socket.send(message)
async def main():
    async with websockets.serve(echo, '127.0.0.1', 0) as server:
        print(server.sockets[0].getsockname()[1], flush=True)
        await asyncio.Future()
asyncio.run(main())
";

#[test]
fn a_websocket_server_of_pythons_returns_messages() {
    let mut server = Python::start(WEBSOCKET_SERVER, "");
    let plan = plan(&case(WEBSOCKET, Scheme::Http), server.listens_at());
    is_all_good("Python's websockets", &plan, 101);
}

const WEBSOCKET_CLIENT: &str = "
import asyncio, sys, websockets
async def main():
    async with websockets.connect(sys.argv[1]) as socket:
        for message in ['', 'short', b'\\x00\\xff' * 100, 'x' * 70000, iter(['in ', 'two ', 'parts'])]:
            sent = list(message) if not isinstance(message, (str, bytes)) else [message]
            await socket.send(sent if len(sent) > 1 else sent[0])
            whole = sent[0] if len(sent) == 1 else ''.join(sent)
            assert await socket.recv() == whole, whole
        await asyncio.wait_for(await socket.ping(), 5)
    print('closed', socket.close_code, flush=True)
asyncio.run(main())
";

#[test]
fn a_websocket_client_of_pythons_gets_its_messages_back() {
    let upstream = upstream(false);
    let mut client = Python::start(WEBSOCKET_CLIENT, &format!("ws://{}/", upstream.listen[0]));
    assert_eq!(client.line(), "closed 1000");
}

const GRPC_SERVER: &str = "
import grpc
from concurrent import futures
class Echo(grpc.GenericRpcHandler):
    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(lambda message, context: message)
server = grpc.server(futures.ThreadPoolExecutor(4))
server.add_generic_rpc_handlers((Echo(),))
print(server.add_insecure_port('127.0.0.1:0'), flush=True)
server.start()
server.wait_for_termination()
";

#[test]
fn a_grpc_server_of_pythons_answers_calls() {
    let mut server = Python::start(GRPC_SERVER, "");
    is_all_good("Python's grpcio", &plan(&case(GRPC, Scheme::H2c), server.listens_at()), 200);
}

const GRPC_CLIENT: &str = "
import grpc, sys
channel = grpc.insecure_channel(sys.argv[1])
call = channel.unary_unary('/weirlab.Echo/Unary')
for length in [0, 5, 100000]:
    answer = call(b'y' * length, timeout=10)
    assert answer == b'x' * 1024, answer
print('answered', flush=True)
";

#[test]
fn a_grpc_client_of_pythons_is_answered_by_the_upstream() {
    let upstream = upstream(true);
    let mut client = Python::start(GRPC_CLIENT, &upstream.listen[0].to_string());
    assert_eq!(client.line(), "answered");
}
