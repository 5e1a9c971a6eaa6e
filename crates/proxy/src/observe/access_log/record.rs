//! What is known of a finished request.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime};
use weir_model::Uuid;

/// A finished request. Bytes from the network come as they are: the log escapes them.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// The client's address, by `trusted_ips`.
    pub client_ip: IpAddr,
    /// The user name of basic authentication.
    pub remote_user: Option<&'a [u8]>,
    /// When the request began.
    pub time: SystemTime,
    /// The request's method.
    pub method: &'a [u8],
    /// The request's target, with its query string.
    pub target: &'a [u8],
    /// `HTTP/1.1`
    pub version: &'a str,
    /// `http` or `https`
    pub scheme: &'a str,
    /// The request's host, with its port if the client sent one.
    pub host: Option<&'a [u8]>,
    /// The TLS connection it came by.
    pub tls: Option<Tls<'a>>,
    /// The response's status.
    pub status: u16,
    /// Bytes of the response's body.
    pub bytes_sent: u64,
    /// Bytes of the request, head and body.
    pub request_size: u64,
    /// Bytes of the response, head and body.
    pub response_size: u64,
    /// The request's `Referer`.
    pub referer: Option<&'a [u8]>,
    /// The request's `User-Agent`.
    pub user_agent: Option<&'a [u8]>,
    /// From the request's first byte to the response's last.
    pub latency: Duration,
    /// From asking the upstream to the head of its response.
    pub upstream_latency: Option<Duration>,
    /// From the head of the upstream's response to its last byte.
    pub receive_latency: Option<Duration>,
    /// The request's id.
    pub request_id: &'a str,
    /// The upstream that was asked.
    pub upstream: Option<Upstream<'a>>,
    /// The route that matched.
    pub route: Option<Entity<'a>>,
    /// The service of the route.
    pub service: Option<Entity<'a>>,
    /// Who called.
    pub consumer: Option<Consumer<'a>>,
    /// Who made the response, in Kong's words: `upstream`, `exit` or `error`.
    pub source: &'a str,
    /// Why the client got no response of the upstream's, or only its beginning.
    pub error: Option<&'a str>,
}

/// A session of a stream listener that has ended.
#[derive(Debug, Clone, Copy)]
pub struct SessionRecord {
    /// The client's address, by `trusted_ips`.
    pub client_ip: IpAddr,
    /// When it ended.
    pub ended: SystemTime,
    /// `TCP` or `UDP`
    pub protocol: &'static str,
    /// How it went, in nginx's numbers.
    pub status: u16,
    /// Bytes to the client.
    pub sent: u64,
    /// Bytes from the client.
    pub received: u64,
    /// How long it took.
    pub duration: Duration,
}

/// A TLS connection.
#[derive(Debug, Clone, Copy)]
pub struct Tls<'a> {
    /// `TLSv1.3`
    pub version: &'a str,
    /// The cipher suite, by its OpenSSL or IANA name.
    pub cipher: &'a str,
}

/// The upstream that was asked last.
#[derive(Debug, Clone, Copy)]
pub struct Upstream<'a> {
    /// Its address.
    pub address: SocketAddr,
    /// The target of the request to it.
    pub uri: &'a [u8],
    /// The status of its response, if there was one.
    pub status: Option<u16>,
}

/// An entity by id and name.
#[derive(Debug, Clone, Copy)]
pub struct Entity<'a> {
    /// Its id.
    pub id: Uuid,
    /// Its name, if it has one.
    pub name: Option<&'a str>,
}

/// A consumer.
#[derive(Debug, Clone, Copy)]
pub struct Consumer<'a> {
    /// Its id.
    pub id: Uuid,
    /// Its user name.
    pub username: Option<&'a str>,
    /// Its id in another system.
    pub custom_id: Option<&'a str>,
}
