//! What HTTP/3 costs the gateway beside HTTP/2, over real sockets: CPU time per request and per MiB.
//!
//! ```text
//! cargo build --release -p weir-gateway
//! cargo bench -p weir-proxy --bench http3 -- target/release/weir                    a table
//! cargo bench -p weir-proxy --bench http3 -- target/release/weir --datagram 65527   of clients that take large datagrams
//! cargo bench -p weir-proxy --bench http3 -- target/release/weir --callgrind        instructions instead of CPU time
//! ```
//!
//! `--case NAME` measures one case alone, `--rounds N` takes more of them, `--set name=value` gives the gateway a setting.
//!
//! A gateway of one worker serves both protocols, on one port, with the same upstream, certificate and cipher suite. In
//! each round both have their turn with the same requests, over connections that were opened before. The CPU time is that
//! of all threads of the gateway, as the scheduler counts it, in the kernel too. A ratio is taken within a round; its
//! median and its range over all rounds are printed. With `--callgrind` the instructions outside the kernel are counted.
#![allow(clippy::print_stdout, clippy::expect_used, clippy::disallowed_methods)]

mod gateway;
mod http2;
mod http3;
mod tls;
mod upstream;

use gateway::Gateway;
use std::rc::Rc;
use tokio::runtime::LocalRuntime;
use tokio::task::JoinHandle;

/// A load, the same for both protocols.
struct Case {
    name: &'static str,
    connections: usize,
    /// Requests in flight of each connection.
    streams: usize,
    /// Bytes of a response's body.
    bytes: usize,
    /// Bytes of a request's body.
    sent: usize,
    /// Requests of a turn, one after the other, of each of these.
    each: usize,
}

const MIB: usize = 1024 * 1024;
/// So many times fewer requests are sent under valgrind.
const SLOWER: usize = 10;

const CASES: [Case; 5] = [
    Case { name: "one-by-one", connections: 16, streams: 1, bytes: 1024, sent: 0, each: 300 },
    Case { name: "side-by-side", connections: 8, streams: 8, bytes: 1024, sent: 0, each: 150 },
    Case { name: "many", connections: 4, streams: 64, bytes: 1024, sent: 0, each: 50 },
    Case { name: "download", connections: 4, streams: 1, bytes: 16 * MIB, sent: 0, each: 3 },
    Case { name: "upload", connections: 4, streams: 1, bytes: 16, sent: 16 * MIB, each: 3 },
];

impl Case {
    /// What a cost is divided by, and what of.
    fn unit(&self) -> (f64, &'static str) {
        let requests = self.each * self.connections * self.streams;
        match (self.bytes + self.sent) / MIB {
            0 => (requests as f64, "request"),
            mib => ((requests * mib) as f64, "MiB"),
        }
    }
}

/// A connection's request: sends so much, and awaits a response of so many bytes.
pub(crate) trait Connection {
    async fn exchange(&self, sent: usize, bytes: usize);
}

struct Given {
    weir: String,
    datagram: u16,
    rounds: usize,
    callgrind: bool,
    case: Option<String>,
    settings: Vec<String>,
}

fn given() -> Given {
    let mut given = Given {
        weir: String::new(),
        datagram: 1472,
        rounds: 15,
        callgrind: false,
        case: None,
        settings: Vec::new(),
    };
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().expect("a value");
        match argument.as_str() {
            "--datagram" => given.datagram = value().parse().expect("bytes"),
            "--rounds" => given.rounds = value().parse().expect("a number"),
            "--case" => given.case = Some(value()),
            "--set" => given.settings.push(value()),
            "--callgrind" => given.callgrind = true,
            path => given.weir = path.to_owned(),
        }
    }
    assert!(!given.weir.is_empty(), "the path of the gateway's binary is missing");
    given
}

fn main() {
    let given = given();
    let upstream = upstream::start();
    LocalRuntime::new().expect("a runtime").block_on(measure(&given, upstream));
}

async fn measure(given: &Given, upstream: u16) {
    println!("{:14}{:>22}{:>12}{:>24}", "", "HTTP/2", "HTTP/3", "HTTP/3 / HTTP/2");
    for case in CASES.iter().filter(|case| given.case.as_deref().is_none_or(|name| name == case.name)) {
        let case = &Case { each: case.each.div_ceil(if given.callgrind { SLOWER } else { 1 }), ..*case };
        let gateway = Gateway::start(given, upstream).await;
        let (two, three) =
            (http2::connect(&gateway, case).await, http3::connect(&gateway, case, given).await);
        let (mut costs_two, mut costs_three, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..=given.rounds {
            let (cost_two, cost_three);
            if round % 2 == 0 {
                cost_two = turn(&gateway, &two, case).await;
                cost_three = turn(&gateway, &three, case).await;
            } else {
                cost_three = turn(&gateway, &three, case).await;
                cost_two = turn(&gateway, &two, case).await;
            }
            // In the first round, caches are filled and windows grow.
            if round > 0 {
                costs_two.push(cost_two);
                costs_three.push(cost_three);
                ratios.push(cost_three / cost_two);
            }
        }
        let (unit, amount) = if given.callgrind { ("instructions", 1.0) } else { ("µs", 1000.0) };
        let per = |costs: &mut Vec<f64>| median(costs) / amount / case.unit().0;
        let (cost_two, cost_three) = (per(&mut costs_two), per(&mut costs_three));
        let ratio = median(&mut ratios);
        let (least, most) = (ratios[0], ratios[ratios.len() - 1]);
        let label = format!("{unit} per {}", case.unit().1);
        println!(
            "{:14}{cost_two:>10.1}{cost_three:>12.1}  {label:24}{ratio:.2} ({least:.2} to {most:.2})",
            case.name
        );
    }
}

/// What the gateway spends while all connections send their requests.
async fn turn<C: Connection + 'static>(gateway: &Gateway, connections: &[Rc<C>], case: &Case) -> f64 {
    let before = gateway.cost();
    let (each, sent, bytes) = (case.each, case.sent, case.bytes);
    let streams = connections.iter().flat_map(|connection| vec![connection.clone(); case.streams]);
    let tasks: Vec<JoinHandle<()>> = streams
        .map(|connection| {
            tokio::task::spawn_local(async move {
                for _ in 0..each {
                    connection.exchange(sent, bytes).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("every request is answered");
    }
    gateway.cost() - before
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
