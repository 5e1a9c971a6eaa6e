//! Lua that waits, asks other servers, and runs beside requests, on a node.

use crate::harness::{Gateway, PATIENCE, Peer, RedisServer, Upstream, document, eventually, service};
use std::time::Instant;

/// A service whose requests run this code first, which may require the clients; and its upstream.
fn start(code: &str) -> (Gateway, Upstream) {
    let upstream = Upstream::start(|mut peer: Peer, _| {
        while peer.request().is_some() {
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nupstream");
        }
    });
    let code = code.replace("UPSTREAM", &upstream.address.to_string());
    let lines: String = code.lines().map(|line| format!("        {line}\n")).collect();
    let plugin = format!("plugins:\n- name: pre-function\n  config:\n    access:\n    - |\n{lines}");
    let configuration = document(&[service("/", upstream.address, "", "")], &plugin);
    let modules = "resty.http,resty.redis,kong.tools.queue,ngx.semaphore";
    (Gateway::builder(&configuration).set("untrusted_lua_sandbox_requires", modules).start(), upstream)
}

#[test]
fn a_request_asks_another_server_and_then_passes() {
    let (gateway, _upstream) = start(
        "local response, err = require('resty.http').new():request_uri('http://UPSTREAM/ask')\n\
         if not response then return kong.response.exit(502, err) end\n\
         kong.response.set_header('x-asked', response.status .. response.body)",
    );
    for _ in 0..3 {
        let answer = gateway.get("/");
        assert_eq!((answer.status, answer.header("x-asked")), (200, Some("200upstream")));
    }
}

#[test]
fn a_body_that_code_discards_does_not_reach_the_upstream() {
    let upstream = Upstream::echoing();
    let code = "if kong.request.get_header('reads') then ngx.req.read_body() end ngx.req.discard_body()";
    let plugin = format!("plugins:\n- name: pre-function\n  config:\n    access:\n    - |\n        {code}\n");
    let gateway = Gateway::start(&document(&[service("/", upstream.address, "", "")], &plugin));
    let mut client = gateway.connect();
    let mut ask = |headers: &str, body: &str| {
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\n{headers}Content-Length: {}\r\n\r\n", body.len());
        client.send(head).send(body).response()
    };
    let discarded = ask("", "secret");
    assert!(discarded.status == 200 && !discarded.text().contains("secret"), "{}", discarded.text());
    assert!(ask("Reads: 1\r\n", "kept").text().contains("kept"), "as in OpenResty");
    let too_long = ask("", &"x".repeat(2 << 20));
    assert_eq!(too_long.status, 500);
    let why = "too long to be discarded: raise client_body_buffer_size";
    eventually("the log says why", || gateway.log().contains(why));
}

#[test]
fn requests_that_wait_do_not_hold_up_others() {
    let (gateway, _upstream) = start(
        "if kong.request.get_header('slow') then ngx.sleep(3600) end\n\
         ngx.sleep(0.001)\n\
         kong.response.exit(200, 'quick')",
    );
    let mut slow = gateway.connect();
    slow.send("GET / HTTP/1.1\r\nHost: a\r\nSlow: 1\r\n\r\n");
    for _ in 0..10 {
        assert_eq!(gateway.get("/").body, b"quick");
    }
    drop(slow);
    assert_eq!(gateway.get("/").body, b"quick");
}

#[test]
fn redis_counts_what_requests_and_timers_tell_it() {
    let redis = RedisServer::start();
    let (gateway, _upstream) = start(&format!(
        "local function count(premature, key)\n\
         \x20 local redis = require('resty.redis'):new()\n\
         \x20 redis:set_timeouts(1000, 1000, 60000)\n\
         \x20 assert(redis:connect('127.0.0.1', {}))\n\
         \x20 local n = assert(redis:incr(key))\n\
         \x20 redis:set_keepalive(10000, 10)\n\
         \x20 return n\n\
         end\n\
         local light = ngx.thread.spawn(count, false, 'light')\n\
         ngx.timer.at(0, count, 'timers')\n\
         local ok, n = ngx.thread.wait(light)\n\
         kong.response.exit(200, count(false, 'requests') .. ' ' .. n)",
        redis.port
    ));
    assert_eq!(gateway.get("/").body, b"1 1");
    assert_eq!(gateway.get("/").body, b"2 2");
    eventually("timers have counted", || redis.number("timers") == 2);
}

#[test]
fn a_node_that_stops_hands_its_queues_over() {
    let redis = RedisServer::start();
    let (mut gateway, _upstream) = start(&format!(
        "local queue = require('kong.tools.queue')\n\
         local function handler(_, entries)\n\
         \x20 local redis = require('resty.redis'):new()\n\
         \x20 assert(redis:connect('127.0.0.1', {}))\n\
         \x20 return redis:incrby('entries', #entries)\n\
         end\n\
         assert(queue.enqueue({{ name = 'q', max_batch_size = 100, max_coalescing_delay = 3600 }}, handler, nil, 'entry'))\n\
         kong.response.exit(200, 'queued')",
        redis.port
    ));
    for _ in 0..5 {
        assert_eq!(gateway.get("/").body, b"queued");
    }
    assert_eq!(redis.number("entries"), 0);
    let begun = Instant::now();
    gateway.signal(rustix::process::Signal::TERM);
    assert!(gateway.exit().success());
    assert_eq!(redis.number("entries"), 5);
    assert!(begun.elapsed() < PATIENCE, "it did not wait for the queue's delay");
}
