//! What policies cost, measured without sockets: requests pass through the whole engine over connections in memory.
//!
//! ```text
//! cargo bench -p weir-proxy --bench serve                    a table of nanoseconds per request
//! cargo bench -p weir-proxy --bench serve -- CASE COUNT      that many requests of one case, for callgrind
//! ```
//!
//! `COST_SAMPLING=N` in the environment has the plugins of one request in N measured, 0 of none; else it is 64.
//!
//! Cases are taken in turn, round by round, and each is compared with `plain-1` of the same round.
#![allow(clippy::print_stdout, clippy::expect_used, clippy::panic)]

use std::fmt::Write;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;
use weir_model::{Document, Format};
use weir_proxy::in_memory::InMemory;
use weir_proxy::plugins::PLUGINS;
use weir_proxy::{Compiler, Options, Retained};

/// The credentials that a case's requests carry.
#[derive(Clone, Copy, PartialEq)]
enum Auth {
    None,
    Key,
    Basic,
}

struct Case {
    name: &'static str,
    routes: usize,
    consumers: usize,
    rate_limiting: bool,
    auth: Auth,
    /// More plugins, as a declarative file lists them.
    plugins: &'static str,
}

const fn case(name: &'static str, routes: usize, consumers: usize, rate_limiting: bool, auth: Auth) -> Case {
    Case { name, routes, consumers, rate_limiting, auth, plugins: "" }
}

/// One route and these plugins.
const fn with(name: &'static str, plugins: &'static str) -> Case {
    Case { plugins, ..case(name, 1, 1, false, Auth::None) }
}

/// Every operation on headers.
const TRANSFORMED: &str = "- {name: request-transformer, config: {remove: {headers: [accept]}, rename: {headers: ['user-agent:x-agent']}, \
                           replace: {headers: ['x-agent:replaced']}, add: {headers: ['x-a:1']}, append: {headers: ['x-a:2']}}}\n";

/// What Supabase's file does to nearly every request.
const TEMPLATES: &str = "- name: request-transformer\n  config:\n    replace: &authorization {headers: [\"Authorization: \
                         $((headers.authorization ~= nil and headers.authorization:sub(1, 10) ~= 'Bearer sb_' and \
                         headers.authorization) or headers.apikey)\"]}\n    add: *authorization\n";

const CASES: &[Case] = &[
    case("plain-1", 1, 1, false, Auth::None),
    case("plain-100", 100, 100, false, Auth::None),
    case("plain-10000", 10_000, 1, false, Auth::None),
    case("rate-limiting-1", 1, 1, true, Auth::None),
    case("rate-limiting-100", 100, 100, true, Auth::None),
    case("rate-limiting-key-auth-1", 1, 1, true, Auth::Key),
    case("rate-limiting-key-auth-100", 100, 100, true, Auth::Key),
    case("rate-limiting-basic-auth-1", 1, 1, true, Auth::Basic),
    case("rate-limiting-basic-auth-100", 100, 100, true, Auth::Basic),
    with("request-transformer-1", TRANSFORMED),
    with("request-transformer-templates-1", TEMPLATES),
];

const ROUNDS: usize = 31;
const REQUESTS: usize = 20_000;

fn main() {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    match arguments.as_slice() {
        [name, count] => {
            let case = CASES.iter().find(|case| case.name == name).expect("a case of the table");
            let (engine, requests) = case.prepare();
            black_box(engine.serve(&requests, count.parse().expect("a number of requests")));
        }
        _ => compare(),
    }
}

fn compare() {
    // `cargo test --benches` only sees whether it still runs.
    let rounds = if cfg!(debug_assertions) { 1 } else { ROUNDS };
    let prepared: Vec<_> = CASES.iter().map(Case::prepare).collect();
    let mut nanos = vec![Vec::new(); CASES.len()];
    for round in 0..=rounds {
        for ((engine, requests), nanos) in prepared.iter().zip(&mut nanos) {
            let start = Instant::now();
            assert_eq!(engine.serve(requests, REQUESTS), REQUESTS, "every request is answered 200");
            if round > 0 {
                nanos.push(start.elapsed().as_nanos() as f64 / REQUESTS as f64);
            }
        }
    }
    println!("{:32}{:>12}{:>26}", "case", "ns/request", "added to plain-1 (95 %)");
    for (case, measured) in CASES.iter().zip(&nanos) {
        let added: Vec<f64> = measured.iter().zip(&nanos[0]).map(|(this, plain)| this - plain).collect();
        let (low, middle, high) = median_interval(&added);
        let (_, absolute, _) = median_interval(measured);
        println!("{:32}{absolute:12.0}{:>26}", case.name, format!("{middle:.0} ({low:.0}..{high:.0})"));
    }
}

/// The median, between the bounds that hold it with 95 % confidence (order statistics of a binomial).
fn median_interval(values: &[f64]) -> (f64, f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len() as f64;
    let reach = 0.98 * n.sqrt();
    let low = ((n / 2.0 - reach).floor().max(0.0)) as usize;
    let high = ((n / 2.0 + reach).ceil() as usize).min(sorted.len() - 1);
    (sorted[low], sorted[sorted.len() / 2], sorted[high])
}

impl Case {
    fn prepare(&self) -> (InMemory, Vec<Vec<u8>>) {
        let schemas: Vec<_> = PLUGINS.iter().map(|plugin| plugin.schema).collect();
        let read = Document::read(&self.configuration(), Format::Yaml, &schemas, &|_| None);
        let document = read.unwrap_or_else(|problems| panic!("{problems:?}")).document;
        let compiler = Compiler {
            workers: 1,
            default_certificate: weir_proxy::tls::default_certificate(None).expect("a certificate"),
            client_certificate: None,
            trusted_certificates: Vec::new(),
            retained: Arc::new(Retained::default()),
        };
        let snapshot = compiler.compile(&document).unwrap_or_else(|errors| panic!("{errors:?}"));
        let sampling = std::env::var("COST_SAMPLING").ok().and_then(|sampling| sampling.parse().ok());
        let cost_sampling = sampling.unwrap_or(Options::default().cost_sampling);
        let options = Options { cost_sampling, ..Options::default() };
        let engine = InMemory::new(options, snapshot).expect("an engine");
        (engine, self.requests())
    }

    fn configuration(&self) -> String {
        let mut yaml = String::from(
            "_format_version: \"3.0\"\nservices:\n- name: upstream\n  url: http://127.0.0.1:9\n  routes:\n",
        );
        for route in 0..self.routes {
            let _ = writeln!(yaml, "  - {{name: r{route}, paths: [/p{route}/]}}");
        }
        yaml.push_str("plugins:\n");
        if self.rate_limiting {
            yaml.push_str("- {name: rate-limiting, config: {minute: 1000000000, policy: local}}\n");
        }
        match self.auth {
            Auth::None => {}
            Auth::Key => yaml.push_str("- name: key-auth\n"),
            Auth::Basic => yaml.push_str("- name: basic-auth\n"),
        }
        yaml.push_str(self.plugins);
        yaml.push_str("consumers:\n");
        for consumer in 0..self.consumers {
            let _ = write!(
                yaml,
                "- username: c{consumer}\n  keyauth_credentials: [{{key: key-{consumer}}}]\n  \
                 basicauth_credentials: [{{username: user-{consumer}, password: pass-{consumer}}}]\n"
            );
        }
        yaml
    }

    /// Requests that meet every route and every consumer, in an order that is no order.
    fn requests(&self) -> Vec<Vec<u8>> {
        let many = self.routes.max(self.consumers);
        let request = |i: usize| {
            let (route, consumer) = (i * 7919 % self.routes, i * 6007 % self.consumers);
            let credential = match self.auth {
                Auth::None => String::new(),
                Auth::Key => format!("apikey: key-{consumer}\r\n"),
                Auth::Basic => {
                    use base64::Engine;
                    let pair = format!("user-{consumer}:pass-{consumer}");
                    format!("Authorization: Basic {}\r\n", base64::prelude::BASE64_STANDARD.encode(pair))
                }
            };
            format!(
                "GET /p{route}/x HTTP/1.1\r\nHost: gateway.test\r\nUser-Agent: benchmark\r\nAccept: */*\r\n{credential}\r\n"
            )
            .into_bytes()
        };
        (0..many).map(request).collect()
    }
}
