//! Ports for programs that must know theirs before they listen, so that none can ask the system for a free one.
#![allow(clippy::unwrap_used, clippy::expect_used, unreachable_pub)]
use std::net::{Ipv4Addr, TcpListener};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU16, Ordering};

/// Below the ports that the system gives away, so that no connection takes one while a server is away; and so that
/// there is a port 10000 above each, which the nodes of a Redis cluster take for themselves.
const FIRST: u16 = 12_000;
const COUNT: u16 = 10_000;

/// Begins somewhere, because another process may run tests at the same time.
static NEXT: LazyLock<AtomicU16> = LazyLock::new(|| AtomicU16::new(fastrand::u16(0..COUNT)));

/// The first of this many ports in a row that are free, and that no other test gets.
pub fn unused_ports(count: u16) -> u16 {
    let is_free = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    let mut firsts = std::iter::repeat_with(|| {
        let taken = |next: u16| Some((next + count) % (COUNT - count));
        FIRST + NEXT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken).unwrap()
    });
    let first = firsts.by_ref().take(1000).find(|first| (*first..first + count).all(is_free));
    first.expect("a free port")
}
