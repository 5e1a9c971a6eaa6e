//! For tests against the real binary: a gateway on free ports, a client that sends exactly the bytes it is told, and
//! an upstream that behaves as a closure says.
//!
//! ```ignore
//! let upstream = Upstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
//! let gateway = Gateway::start(&format!("…url: http://{}…", upstream.address));
//! assert_eq!(gateway.get("/x").status, 200);
//! ```
#![allow(dead_code, unused_imports, unreachable_pub, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod cases;
mod counterparts;
mod declarative;
mod dex;
mod disk;
mod etcd;
mod gateway;
mod http;
pub mod http2;
pub mod http2_upstream;
mod kafka;
mod ldap;
mod limited_user;
mod name_server;
mod openssl;
mod pebble;
mod ports;
mod postgres;
mod programs;
mod redis;
mod relay;
mod upstream;

pub use cases::unescape;
pub use counterparts::{Counterpart, counterpart};
pub use declarative::{document, service};
pub use dex::Dex;
pub use disk::Disk;
pub use etcd::EtcdServer;
pub use gateway::{Builder, Gateway, weir};
pub use http::{Head, Message, Peer};
pub use kafka::{KafkaBroker, KafkaMessage};
pub use ldap::LdapServer;
pub use limited_user::LimitedUser;
pub use name_server::{NameServer, Service};
pub use openssl::{Identity, TlsPeer, TlsUpstream, handshake};
pub use pebble::{Pebble, PebblePlan};
pub use ports::unused_ports;
pub use postgres::PostgresServer;
pub use programs::{Haproxy, NginxOnSocket, NginxOverTls, chromium, curl};
pub use redis::RedisServer;
pub use relay::{Break, Relay};
pub use upstream::{Upstream, closed_port};

use std::time::{Duration, Instant};

/// Longer than anything here takes on a slow machine; what takes longer hangs.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// Waits until something is so.
#[track_caller]
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "never happened: {what}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// A declarative file with one service and one route, `/`, to an address.
pub fn one_route(upstream: std::net::SocketAddr) -> String {
    format!(
        "_format_version: \"3.0\"\nservices:\n- name: s\n  url: http://{upstream}\n  routes:\n  - name: r\n    paths: [/]\n"
    )
}
