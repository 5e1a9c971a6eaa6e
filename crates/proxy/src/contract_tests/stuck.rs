//! A plugin that blocks its worker, or panics: what that costs others.

use super::{Client, connect};
use crate::observe::access_log::{AccessLog, Format, Target};
use crate::testing::{Gateway, entity, id};
use crate::{AccessLogs, Finding, Listen, Options, Proxy, RunningHook};
use serde_json::json;
use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use tokio::time::Instant;
use weir_plugin::*;

/// Blocks while that is on, or panics.
struct Unruly(Arc<Gate>);

#[derive(Default)]
struct Gate {
    is_closed: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    fn set(&self, is_closed: bool) {
        *self.is_closed.lock().unwrap() = is_closed;
        self.changed.notify_all();
    }
}

#[derive(Debug, Clone, Record)]
struct Config {}

impl Plugin for Unruly {
    const NAME: &'static str = "unruly";
    const PRIORITY: i32 = 10;
    type Config = Config;

    fn new(_: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        Ok(Self(build.retained.get()))
    }
}

impl Hooks for Unruly {
    fn access(&self, exchange: &mut Exchange) -> Flow {
        match exchange.request.headers.get("X-Do").unwrap_or_default() {
            b"block" => drop(self.0.changed.wait_while(self.0.is_closed.lock().unwrap(), |closed| *closed)),
            b"panic" => panic!("on purpose"),
            _ => {}
        }
        Flow::Respond(LocalResponse::message(200, "done"))
    }
}

static PLUGINS: &[Definition] = &[define::<Unruly>()];

/// A gateway with two workers, and what holds its plugin up.
fn start() -> (Proxy, Arc<Gate>) {
    let mut gateway = Gateway::new();
    gateway.document.routes = vec![entity(json!({ "id": id(0x61), "paths": ["/"] }))];
    gateway.document.plugins = vec![entity(json!({ "id": id(0xf1), "name": "unruly", "config": {} }))];
    let gate = gateway.retained.get::<Gate>();
    let listen = vec![Listen::http(SocketAddr::from(([127, 0, 0, 1], 0)))];
    let off = || AccessLog::open(Target::Stderr, Format::Off).unwrap();
    let options = Options { listen, workers: 2, ..Options::default() };
    let logs = AccessLogs { requests: off(), sessions: off() };
    (Proxy::start(options, logs, gateway.snapshot_with(PLUGINS), &gateway.retained).unwrap(), gate)
}

fn client(proxy: &Proxy) -> Client<TcpStream> {
    Client(BufReader::new(connect(proxy.listening()[0].address.ip().unwrap())))
}

/// Checks once a second until something is found.
fn found(proxy: &Proxy, watchdog: &mut crate::Watchdog) -> Vec<Finding> {
    let (end, (_wait, never)) = (Instant::now() + Duration::from_secs(90), std::sync::mpsc::channel::<()>());
    loop {
        let found = watchdog.check();
        if !found.is_empty() {
            return found;
        }
        assert!(Instant::now() < end, "{:?}", proxy.totals());
        let _ = never.recv_timeout(Duration::from_secs(1));
    }
}

#[test]
fn a_worker_that_is_stuck_is_found_and_gets_no_new_connections() {
    let (proxy, gate) = start();
    let mut watchdog = proxy.watchdog();
    gate.set(true);
    let mut blocked = client(&proxy);
    blocked.0.get_mut().write_all(b"GET / HTTP/1.1\r\nHost: a\r\nX-Do: block\r\n\r\n").unwrap();
    let found_stuck = found(&proxy, &mut watchdog);
    let [Finding::Stuck { worker, running }] = found_stuck[..] else { panic!("{found_stuck:?}") };
    assert_eq!(running, Some(RunningHook { plugin: id(0xf1), route: Some(id(0x61)) }));
    assert!(!watchdog.is_content());
    // More than the stuck worker has.
    let mut others: Vec<_> = (0..4).map(|_| client(&proxy)).collect();
    others.iter_mut().for_each(|client| assert_eq!(client.get("").0, 200));
    gate.set(false);
    let recovered = found(&proxy, &mut watchdog);
    assert_eq!(recovered, [Finding::Recovered { worker }]);
    assert!(watchdog.is_content());
}

#[test]
fn a_panic_costs_its_request_alone() {
    let (proxy, _) = start();
    let mut others: Vec<_> = (0..4).map(|_| client(&proxy)).collect();
    others.iter_mut().for_each(|client| assert_eq!(client.get("").0, 200));
    assert_eq!(client(&proxy).get("X-Do: panic\r\n").0, 500);
    others.iter_mut().for_each(|client| assert_eq!(client.get("").0, 200));
}
