//! The load generator against servers whose behaviour is known.
#![allow(clippy::unwrap_used)]
mod closed;
mod command;
mod failures;
mod open;
mod requests;
mod server;
mod tls;

use server::Server;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use weirlab::load::{self, Expect, Outcome, Pace, Plan, Protocol, RequestTemplate, Requests, WarmUp};

/// A plan for a server: four connections of one thread, half a second, no warm-up.
fn plan(server: &Server) -> Plan {
    Plan {
        addresses: vec![server.address],
        host: server.address.to_string(),
        protocol: Protocol::Http1,
        tls: false,
        connections: 4,
        threads: 1,
        cpus: Vec::new(),
        keep_alive: true,
        first_byte: false,
        pace: Pace::Closed,
        warm_up: WarmUp { at_least: Duration::ZERO, at_most: Duration::ZERO },
        duration: millis(500),
        timeout: Duration::from_secs(5),
        requests: Requests { templates: vec![get("/")], variables: Vec::new() },
        seed: 1,
        live: None,
    }
}

fn get(path: &str) -> RequestTemplate {
    RequestTemplate {
        weight: 1,
        method: "GET".to_owned(),
        path: path.to_owned(),
        headers: Vec::new(),
        body: String::new(),
        expect: Expect::default(),
    }
}

fn run(plan: &Plan) -> Outcome {
    load::run(plan, &mut |_| {}, &AtomicBool::new(false)).unwrap()
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn errors(outcome: &Outcome, class: &str) -> u64 {
    outcome.errors.get(class).copied().unwrap_or(0)
}
