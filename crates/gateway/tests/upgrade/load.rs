//! Upgrades under load: every request is answered.
//!
//! `cargo test --release -p weir-gateway --test main upgrade::load -- --ignored --nocapture` sends 200,000 requests during
//! ten upgrades, and prints what became of them.
use super::{Node, OK};
use crate::harness::http2::{ask, connect, get};
use crate::harness::{Gateway, Haproxy, PATIENCE, Upstream, eventually, one_route};
use crate::http3::client::Client;
use serde_json::json;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
const REQUEST_REJECTED: u64 = 0x10b;
/// How long the requests between two upgrades may take.
const PATIENCE_FOR_LOAD: Duration = Duration::from_secs(600);

/// What became of the requests of some clients.
#[derive(Default)]
struct Counts {
    sent: AtomicUsize,
    lost: AtomicUsize,
    /// Connections that the server has ended as its protocol says.
    ended: AtomicUsize,
    /// Requests that the server has said not to have looked at, and that were sent again.
    repeated: AtomicUsize,
}

impl Counts {
    fn count(&self, is_answered: bool) {
        self.sent.fetch_add(1, Ordering::SeqCst);
        self.lost.fetch_add(usize::from(!is_answered), Ordering::SeqCst);
    }

    /// The same of an answer, which is printed if it is not the upstream's.
    fn count_answer(&self, head: &Option<String>) {
        if !is_ok(head) {
            eprintln!("lost at {:?}: {head:?}", SystemTime::now());
        }
        self.count(is_ok(head));
    }

    fn get(&self) -> [usize; 4] {
        [&self.sent, &self.lost, &self.ended, &self.repeated].map(|count| count.load(Ordering::SeqCst))
    }
}

/// Clients of one kind.
struct Load {
    name: &'static str,
    counts: Arc<Counts>,
    done: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    /// Each client sends one request after the other for as long as `go` says.
    fn start(
        name: &'static str,
        clients: usize,
        client: impl Fn(&Counts, &dyn Fn() -> bool) + Send + Sync + 'static,
    ) -> Load {
        let (counts, done, client) =
            (Arc::<Counts>::default(), Arc::<AtomicBool>::default(), Arc::new(client));
        let start = |_| {
            let (counts, done, client) = (counts.clone(), done.clone(), client.clone());
            thread::spawn(move || client(&counts, &|| !done.load(Ordering::SeqCst)))
        };
        let threads = (0..clients).map(start).collect();
        Load { name, counts, done, threads }
    }

    fn sent(&self) -> usize {
        self.counts.sent.load(Ordering::SeqCst)
    }

    fn end(self) -> usize {
        self.done.store(true, Ordering::SeqCst);
        for thread in self.threads {
            thread.join().unwrap();
        }
        let [sent, lost, ended, repeated] = self.counts.get();
        eprintln!(
            "{}: {sent} requests, {lost} lost, {repeated} repeated, {ended} connections ended",
            self.name
        );
        lost
    }
}

/// Whether the server has closed an idle connection; an error where it has reset it, or sent what was not asked for.
fn is_closed(stream: &TcpStream) -> Result<bool, String> {
    stream.set_nonblocking(true).unwrap();
    let peeked = stream.peek(&mut [0]);
    stream.set_nonblocking(false).unwrap();
    match peeked {
        Ok(0) => Ok(true),
        Ok(_) => Err("a response that was not asked for".to_owned()),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error.to_string()),
    }
}

/// The head of the response to a request; none where the connection ended before it was whole.
fn exchange(stream: &mut TcpStream) -> Option<String> {
    stream.write_all(GET).ok()?;
    let mut bytes = Vec::new();
    loop {
        let mut room = [0; 4096];
        match stream.read(&mut room) {
            Ok(read @ 1..) => bytes.extend(&room[..read]),
            _ => return None,
        }
        let text = String::from_utf8_lossy(&bytes);
        if let Some((head, "hi")) = text.split_once("\r\n\r\n") {
            return Some(head.to_owned());
        }
    }
}

fn is_ok(head: &Option<String>) -> bool {
    head.as_ref().is_some_and(|head| head.starts_with("HTTP/1.1 200 "))
}

/// A connection; when the listener is gone, the requests on it are lost.
fn dial(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Requests over one connection, which is replaced when the server ends it.
fn kept_alive(address: SocketAddr) -> impl Fn(&Counts, &dyn Fn() -> bool) {
    move |counts, goes_on| {
        let mut stream = dial(address);
        while goes_on() {
            let closed = is_closed(&stream);
            if let Err(what) = &closed {
                eprintln!("lost on an idle connection: {what}");
                counts.count(false);
            }
            if closed != Ok(false) {
                counts.ended.fetch_add(1, Ordering::SeqCst);
                stream = dial(address);
            }
            let head = exchange(&mut stream);
            counts.count_answer(&head);
            if head.is_none_or(|head| head.to_lowercase().contains("connection: close")) {
                counts.ended.fetch_add(1, Ordering::SeqCst);
                stream = dial(address);
            }
        }
    }
}

/// A connection for each request.
fn new_connections(address: SocketAddr) -> impl Fn(&Counts, &dyn Fn() -> bool) {
    move |counts, goes_on| {
        while goes_on() {
            counts.count_answer(&exchange(&mut dial(address)));
        }
    }
}

/// Whether the server has said that it has not looked at a request.
fn is_unprocessed(error: &h2::Error) -> bool {
    let leaves = error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR);
    error.is_remote() && (leaves || error.reason() == Some(h2::Reason::REFUSED_STREAM))
}

/// Requests over HTTP/2, one after the other. What GOAWAY or a reset says not to have been looked at is sent again.
fn http2(address: SocketAddr) -> impl Fn(&Counts, &dyn Fn() -> bool) {
    move |counts, goes_on| {
        let runtime = tokio::runtime::LocalRuntime::new().unwrap();
        runtime.block_on(async {
            while goes_on() {
                let (requests, _connection) = connect(address).await;
                while goes_on() {
                    // Where the server has said that it leaves, no request is sent.
                    let Ok(ready) = requests.clone().ready().await else { break };
                    match ask(&ready, get("/")).await {
                        Ok(response) => counts.count(response.status() == 200 && response.body() == "hi"),
                        Err(error) if is_unprocessed(&error) => {
                            counts.repeated.fetch_add(1, Ordering::SeqCst);
                            break;
                        }
                        Err(_) => {
                            counts.count(false);
                            break;
                        }
                    }
                }
                counts.ended.fetch_add(1, Ordering::SeqCst);
            }
        });
    }
}

/// The same over HTTP/3.
fn http3(address: SocketAddr) -> impl Fn(&Counts, &dyn Fn() -> bool) {
    move |counts, goes_on| {
        while goes_on() {
            let mut client = Client::connect(address);
            while goes_on() && !client.is_leaving() {
                match client.ask("get", ("GET", "/"), &json!({})).response_or_end("get") {
                    Some(response)
                        if response.reset() == Some(REQUEST_REJECTED)
                            && response.field(":status").is_none() =>
                    {
                        counts.repeated.fetch_add(1, Ordering::SeqCst);
                    }
                    response => counts.count(response.is_some_and(|response| {
                        response.reset().is_none() && response.status() == 200 && response.text() == "hi"
                    })),
                }
            }
            counts.ended.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Upgrades so often under load of every kind, with at least so many requests before each upgrade. Returns how many were
/// lost.
fn upgrade_under_load(upgrades: usize, requests: usize) -> usize {
    let upstream = Upstream::answering(OK);
    let listen = "127.0.0.1:0 http2, 127.0.0.1:0 ssl http2, 127.0.0.1:0 quic";
    let builder = Gateway::builder(&one_route(upstream.address)).set("proxy_listen", listen);
    let node = Node::start(builder.set("workers", "2"));
    let (tcp, quic) = (node.gateway.proxy(), node.gateway.proxy_quic());
    let loads = [
        Load::start("HTTP/1.1, kept alive", 12, kept_alive(tcp)),
        Load::start("HTTP/1.1, new connections", 8, new_connections(tcp)),
        Load::start("HTTP/2", 8, http2(tcp)),
        Load::start("HTTP/3", 4, http3(quic)),
    ];
    for upgrade in 1..=upgrades {
        let before = goes_on(&loads, requests);
        node.upgrade();
        eprintln!("upgrade {upgrade}, after {before} requests");
    }
    goes_on(&loads, requests);
    loads.into_iter().map(Load::end).sum()
}

/// Waits until so many more requests were sent, some of each kind; returns how many there were.
fn goes_on(loads: &[Load], requests: usize) -> usize {
    let each: Vec<_> = loads.iter().map(Load::sent).collect();
    let sent = || loads.iter().map(Load::sent).sum::<usize>();
    let enough = each.iter().sum::<usize>() + requests;
    let end = Instant::now() + PATIENCE_FOR_LOAD;
    while sent() < enough || loads.iter().zip(&each).any(|(load, before)| load.sent() < before + 5) {
        assert!(Instant::now() < end, "no more requests are sent");
        thread::park_timeout(Duration::from_millis(20));
    }
    sent()
}

#[test]
fn no_request_is_lost_over_upgrades() {
    assert_eq!(upgrade_under_load(3, 500), 0);
}

#[test]
#[ignore = "takes minutes: for releases"]
fn no_request_of_200_000_is_lost_over_ten_upgrades() {
    assert_eq!(upgrade_under_load(10, 20_000), 0);
}

/// Restarts both nodes behind HAProxy, one after the other, so often. Returns how many requests were lost.
fn restart_behind_a_balancer(rounds: usize) -> usize {
    let upstream = Upstream::answering(OK);
    let configuration = one_route(upstream.address);
    let start = |proxy: &str, status: &str| {
        let builder =
            Gateway::builder(&configuration).set("proxy_listen", proxy).set("status_listen", status);
        builder.set("shutdown_delay", "5s").start()
    };
    let mut nodes = [(); 2].map(|()| start("127.0.0.1:0", "127.0.0.1:0"));
    let servers = nodes.each_ref().map(|node| (node.proxy().to_string(), node.status_address()));
    let check = |(proxy, status): &(String, SocketAddr)| {
        let name = status.port();
        format!("server s{name} {proxy} check port {name} inter 1s fall 1 rise 1")
    };
    let section = format!(
        "mode http\n  retries 0\n  timeout check 20s\n  option httpchk GET /status/ready\n  {}\n  {}",
        check(&servers[0]),
        check(&servers[1])
    );
    let balancer = Haproxy::start(&section);
    let loads = [
        Load::start("HTTP/1.1, kept alive", 4, kept_alive(balancer.address)),
        Load::start("HTTP/1.1, new connections", 4, new_connections(balancer.address)),
    ];
    nodes.iter().for_each(serves);
    for _ in 0..rounds {
        for (node, (proxy, status)) in nodes.iter_mut().zip(&servers) {
            assert_eq!(node.command("quit").status.code(), Some(0));
            *node = start(proxy, &status.to_string());
            // A node that is ready is not yet used: until the balancer's next check, the other is its only one.
            serves(node);
        }
    }
    loads.into_iter().map(Load::end).sum()
}

/// Waits until the balancer sends a node requests.
fn serves(node: &Gateway) {
    let requests = || node.status("/status").json()["server"]["total_requests"].as_u64().unwrap();
    let before = requests();
    eventually("the balancer uses the node", || requests() > before + 100);
}

#[test]
fn no_request_is_lost_while_nodes_restart_behind_a_balancer() {
    assert_eq!(restart_behind_a_balancer(1), 0);
}

#[test]
#[ignore = "takes minutes: for releases"]
fn no_request_is_lost_over_five_rolling_restarts() {
    assert_eq!(restart_behind_a_balancer(5), 0);
}
