//! What a data plane is started with. Plain data: where it comes from is not this crate's business.

use crate::costs::ServerTiming;
use crate::downstream::http2::Http2Options;
use crate::downstream::http3::Http3Options;
use crate::listen::{Accepted, Listen};
use crate::observe::request_debug::RequestDebug;
use crate::runtime::own::Own;
use std::net::IpAddr;
use std::time::Duration;
use weir_http1::Limits;
use weir_net::resolve::ResolverOptions;
use weir_net::tls::TlsOptions;
use weir_upstream::http2::Http2UpstreamOptions;
use weir_upstream::pool::KeepAlive;

/// What a data plane is started with.
#[derive(Debug, Clone)]
pub struct Options {
    /// Threads that serve connections.
    pub workers: usize,
    /// Where clients connect.
    pub listen: Vec<Listen>,
    /// Connections of clients that are open at a time; others wait to be accepted.
    pub max_connections: usize,
    /// How long a client may take to send a head.
    pub client_header_timeout: Duration,
    /// The longest pause within a request's body.
    pub client_body_timeout: Duration,
    /// The longest pause of a client that takes its response.
    pub send_timeout: Duration,
    /// How long a client's connection may stay idle.
    pub keepalive_timeout: Duration,
    /// Requests after which a client's connection is closed; 0 is any number.
    pub keepalive_requests: u64,
    /// The most bytes of a request's body; 0 is any number.
    pub client_max_body_size: u64,
    /// The most bytes of memory for bodies that plugins read, all together; 0 is any number.
    pub mem_bodies_size: u64,
    /// What the head of a request may hold.
    pub request_limits: Limits,
    /// What the head of an upstream's response may hold.
    pub limits: Limits,
    /// Connections to upstreams.
    pub upstream_keepalive: KeepAlive,
    /// Connections to upstreams over HTTP/2.
    pub upstream_http2: Http2UpstreamOptions,
    /// Names of upstreams.
    pub resolver: ResolverOptions,
    /// TLS towards clients.
    pub tls: TlsOptions,
    /// HTTP/2 towards clients.
    pub http2: Http2Options,
    /// HTTP/3 towards clients.
    pub http3: Http3Options,
    /// Whose forwarded headers are believed.
    pub trusted_ips: Vec<Network>,
    /// Whether clients of Unix sockets are believed as those of `trusted_ips` are.
    pub trusts_unix: bool,
    /// Where a trusted peer names the client.
    pub real_ip: RealIp,
    /// Whether to skip all trusted addresses in that header, from the right.
    pub real_ip_recursive: bool,
    /// Which headers the gateway adds.
    pub headers: AddedHeaders,
    /// Whether `Kong-Debug: 1` makes the gateway name the matched route and service.
    pub allow_debug_header: bool,
    /// Of how many requests the plugins of one are measured, on average; 0 measures none.
    pub cost_sampling: u32,
    /// Which responses tell of their time.
    pub server_timing: ServerTiming,
    /// Whether requests may ask for their times.
    pub request_debug: Option<RequestDebug>,
    /// The paths that the node answers itself.
    pub own: Own,
}

impl Default for Options {
    fn default() -> Self {
        let minute = Duration::from_secs(60);
        Self {
            workers: 1,
            listen: Vec::new(),
            max_connections: usize::MAX,
            client_header_timeout: minute,
            client_body_timeout: minute,
            send_timeout: minute,
            keepalive_timeout: Duration::from_secs(75),
            keepalive_requests: 0,
            client_max_body_size: 0,
            mem_bodies_size: 256 * 1024 * 1024,
            request_limits: Limits::default(),
            limits: Limits::default(),
            upstream_keepalive: KeepAlive::default(),
            upstream_http2: Http2UpstreamOptions::default(),
            resolver: ResolverOptions::default(),
            tls: TlsOptions::default(),
            http2: Http2Options::default(),
            http3: Http3Options::default(),
            trusted_ips: Vec::new(),
            trusts_unix: false,
            real_ip: RealIp::Header("X-Real-IP".into()),
            real_ip_recursive: false,
            headers: AddedHeaders::default(),
            allow_debug_header: false,
            cost_sampling: 64,
            server_timing: ServerTiming::default(),
            request_debug: None,
            own: Own::default(),
        }
    }
}

impl Options {
    /// Whether what the peer says of the client is believed.
    pub(crate) fn trusts(&self, accepted: &Accepted) -> bool {
        if accepted.listener.unix {
            return self.trusts_unix;
        }
        self.trusts_address(accepted.peer.ip())
    }

    /// The same of a peer at an address.
    pub(crate) fn trusts_address(&self, peer: IpAddr) -> bool {
        self.trusted_ips.iter().any(|network| network.contains(peer))
    }
}

/// Where a trusted peer names the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RealIp {
    /// In this header of each request.
    Header(String),
    /// In the PROXY protocol's header of the connection.
    ProxyProtocol,
}

/// Kong's `headers` setting: what the gateway adds to responses and to requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddedHeaders {
    /// `Via` on proxied responses.
    pub via: bool,
    /// `Server` on the gateway's own responses.
    pub server: bool,
    /// `X-Kong-Proxy-Latency`.
    pub proxy_latency: bool,
    /// `X-Kong-Response-Latency`.
    pub response_latency: bool,
    /// `X-Kong-Upstream-Latency`.
    pub upstream_latency: bool,
    /// `X-Kong-Upstream-Status`.
    pub upstream_status: bool,
    /// `X-Kong-Request-Id`, to clients.
    pub request_id: bool,
    /// `X-Kong-Request-Id`, to upstreams (`headers_upstream`).
    pub request_id_upstream: bool,
}

impl Default for AddedHeaders {
    fn default() -> Self {
        Self {
            via: true,
            server: true,
            proxy_latency: true,
            response_latency: true,
            upstream_latency: true,
            upstream_status: false,
            request_id: true,
            request_id_upstream: true,
        }
    }
}

/// A range of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    /// Any address of the range.
    pub address: IpAddr,
    /// How many leading bits all its addresses share.
    pub prefix: u8,
}

impl Network {
    /// Whether the range holds the address. IPv4 written as IPv6 is IPv4.
    pub fn contains(&self, ip: IpAddr) -> bool {
        match (self.address.to_canonical(), ip.to_canonical()) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                same_prefix(u32::from(a).into(), u32::from(b).into(), 32, self.prefix)
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => same_prefix(a.into(), b.into(), 128, self.prefix),
            _ => false,
        }
    }
}

fn same_prefix(a: u128, b: u128, bits: u32, prefix: u8) -> bool {
    let ignored = bits.saturating_sub(prefix.into());
    (a ^ b).checked_shr(ignored).unwrap_or(0) == 0
}

#[cfg(test)]
mod tests {
    use super::Network;

    #[test]
    fn networks_hold_their_addresses() {
        let cases = [
            ("10.0.0.0", 8, "10.255.0.1", true),
            ("10.0.0.0", 8, "11.0.0.1", false),
            ("0.0.0.0", 0, "11.0.0.1", true),
            ("0.0.0.0", 0, "::1", false),
            ("::", 0, "fe80::1", true),
            ("127.0.0.1", 32, "::ffff:127.0.0.1", true),
            ("127.0.0.1", 32, "127.0.0.2", false),
            ("fe80::", 10, "fec0::1", false),
        ];
        for (network, prefix, ip, holds) in cases {
            let network = Network { address: network.parse().unwrap(), prefix };
            assert_eq!(network.contains(ip.parse().unwrap()), holds, "{network:?} {ip}");
        }
    }
}
