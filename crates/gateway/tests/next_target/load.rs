//! Targets that die under load.

use crate::harness::{Gateway, Peer, Upstream, eventually, weir};
use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

const KILLS: usize = 6;
const CLIENTS: usize = 16;
const POSTS: usize = 3_000;

/// A process that answers; it has an address of its own, which no connection of others can come from.
struct Process {
    address: SocketAddr,
    child: Child,
}

impl Process {
    fn start(last: u8) -> Process {
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, last], 0))).unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        Process { address, child: Self::spawn(address) }
    }

    fn spawn(address: SocketAddr) -> Child {
        let mut command = weir();
        command.args(["echo", &address.to_string()]).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().unwrap();
        eventually("it listens", || TcpStream::connect(address).is_ok());
        child
    }

    /// As `kill -9` does.
    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn restart(&mut self) {
        self.child = Self::spawn(self.address);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Asks until it is told to stop; counts requests, and what was no 200.
fn ask(gateway: &Gateway, stop: &AtomicBool, [asked, failed]: [&AtomicUsize; 2]) {
    let mut client = gateway.connect();
    while !stop.load(Ordering::SeqCst) {
        if client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").response().status != 200 {
            failed.fetch_add(1, Ordering::SeqCst);
        }
        asked.fetch_add(1, Ordering::SeqCst);
    }
}

/// Requests on kept connections, which are sent again in any case, and on new ones.
#[test]
fn no_get_fails_when_one_of_three_targets_is_killed() {
    for connections_kept in ["512", "0"] {
        kill_under_load(connections_kept);
    }
}

fn kill_under_load(connections_kept: &str) {
    let mut targets = [2, 3, 4].map(Process::start);
    let document = super::over(&targets.each_ref().map(|target| target.address), "");
    let gateway = Gateway::builder(&document).set("upstream_keepalive_pool_size", connections_kept).start();
    let (stop, asked, failed) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let some_more = || {
        let before = asked.load(Ordering::SeqCst);
        eventually("requests go on", || asked.load(Ordering::SeqCst) >= before + 300);
    };
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| ask(&gateway, &stop, [&asked, &failed]));
        }
        some_more();
        for kill in 0..KILLS {
            targets[kill % 3].kill();
            some_more();
            targets[kill % 3].restart();
            some_more();
        }
        stop.store(true, Ordering::SeqCst);
    });
    let (asked, failed) = (asked.into_inner(), failed.into_inner());
    assert_eq!(failed, 0, "of {asked} requests, {connections_kept} connections kept, {KILLS} kills");
}

/// A cheap source of chance.
fn chance(state: &AtomicUsize) -> usize {
    let step = |state: usize| {
        Some(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407))
    };
    state.fetch_update(Ordering::Relaxed, Ordering::Relaxed, step).unwrap() >> 33
}

type Counts = std::sync::Arc<Mutex<HashMap<String, usize>>>;

/// An upstream that resets connections: before a request, after one, within a response and after it.
fn resetting(counts: &Counts, seed: usize) -> Upstream {
    let (counts, state) = (counts.clone(), AtomicUsize::new(seed));
    Upstream::start(move |mut peer, _| {
        loop {
            let what = chance(&state) % 40;
            if what == 0 {
                return peer.reset();
            }
            let Some(request) = peer.request() else { return };
            *counts.lock().unwrap().entry(request.head.start).or_default() += 1;
            match what {
                1 => return peer.reset(),
                2 => {
                    peer.send("HTTP/1.1 20");
                    return peer.reset();
                }
                3 => return,
                _ => peer.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"),
            };
            if what == 4 {
                return peer.reset();
            }
        }
    })
}

#[test]
fn no_post_is_processed_twice() {
    let counts = Counts::default();
    let upstreams = [7, 11, 13].map(|seed| resetting(&counts, seed));
    let addresses = upstreams.each_ref().map(|upstream| upstream.address);
    let gateway = Gateway::start(&super::over(&addresses, "retries: 5"));
    let answered = Mutex::new(HashMap::new());
    thread::scope(|scope| {
        for thread in 0..CLIENTS {
            let (gateway, answered) = (&gateway, &answered);
            scope.spawn(move || {
                let mut client: Peer = gateway.connect();
                for request in 0..POSTS / CLIENTS {
                    let line = format!("POST /{thread}-{request} HTTP/1.1");
                    client.send(format!("{line}\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi"));
                    answered.lock().unwrap().insert(line, client.response().status);
                }
            });
        }
    });
    let (counts, answered) = (counts.lock().unwrap(), answered.into_inner().unwrap());
    let mut failed = 0;
    for (line, status) in &answered {
        let times = counts.get(line).copied().unwrap_or(0);
        assert!(times <= 1, "{line} was processed {times} times");
        assert!(*status == 502 || (*status, times) == (200, 1), "{line}: {status}, processed {times} times");
        failed += usize::from(*status == 502);
    }
    assert!((1..answered.len() / 4).contains(&failed), "{failed} of {} failed", answered.len());
}
