//! What a call of Lua costs in CPU time of the thread: `cargo bench -p weir-guests`.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use std::sync::Arc;
use weir_plugin::testing::Gateway;
use weir_plugin::{Exchange, Flow, Hooks};

/// As in the gateway.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const CALLS: u32 = 200_000;
const ROUNDS: u32 = 9;

const REQUEST: &str =
    "GET /\nUser-Agent: bench\nAccept: */*\nX-One: 1\nX-Two: 2\nX-Three: 3\nX-Four: 4\nX-Five: 5";

fn main() {
    let gateway = Gateway::new(weir_guests::PLUGINS);
    // In a benchmark that only compiles, one call is enough.
    let calls = if std::env::args().any(|arg| arg == "--bench") { CALLS } else { 1 };
    for (name, code) in [
        ("empty", "return function() end"),
        (
            "read one header, set one",
            "kong.service.request.set_header('x-two', kong.request.get_header('x-one'))",
        ),
        (
            "read ten times, set ten",
            "for _ = 1, 10 do kong.service.request.set_header('x-two', kong.request.get_header('x-one')) end",
        ),
        ("get_headers", "return function() local _ = kong.request.get_headers() end"),
        ("kong.ctx.shared", "return function() kong.ctx.shared.a = 1 end"),
        ("exit", "return function() kong.response.exit(204) end"),
    ] {
        let hooks = gateway.plugin("pre-function", json!({ "access": [code] })).unwrap();
        println!("{name}: {} ns", best(&gateway, &hooks, calls));
    }
}

/// How many calls one request gets: what it may keep from Lua is limited.
const CALLS_PER_REQUEST: u32 = 100;

/// The least CPU time of a call over some rounds.
fn best(gateway: &Gateway, hooks: &Arc<dyn Hooks>, calls: u32) -> u128 {
    (0..ROUNDS).map(|_| round(gateway, &**hooks, calls)).min().unwrap_or_default()
}

fn round(gateway: &Gateway, hooks: &dyn Hooks, calls: u32) -> u128 {
    let requests = calls.div_ceil(CALLS_PER_REQUEST);
    let spent: u128 = (0..requests).map(|_| request(&mut gateway.exchange(REQUEST), hooks)).sum();
    spent / u128::from(requests * CALLS_PER_REQUEST)
}

fn request(exchange: &mut Exchange, hooks: &dyn Hooks) -> u128 {
    let start = thread_time();
    for _ in 0..CALLS_PER_REQUEST {
        if let Flow::Wait(_) = hooks.access(exchange) {
            unreachable!("nothing here waits");
        }
    }
    thread_time() - start
}

fn thread_time() -> u128 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    u128::from(time.tv_sec.unsigned_abs()) * 1_000_000_000 + u128::from(time.tv_nsec.unsigned_abs())
}
