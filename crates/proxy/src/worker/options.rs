//! The options of a data plane, as plain data: this crate does not know where they come from.

use super::InternalEndpoints;
use crate::limits::MemoryLimit;
use crate::listen::{Accepted, Listen, Network};
use crate::observe::request_debug::RequestDebug;
use crate::observe::server_timing::ServerTiming;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use weir_http1::Limits;
use weir_net::resolve::ResolverOptions;
use weir_net::tls::TlsOptions;
use weir_plugin::{ErrorTemplates, Instrumentations};
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
    /// The same of one client address, unless it is of `trusted_ips`; further ones are closed.
    pub connections_per_ip: usize,
    /// Requests that each worker serves at a time; others are shed.
    pub worker_requests_in_flight: usize,
    /// The most memory of the process; while it uses more, all requests are shed.
    pub memory: Option<MemoryLimit>,
    /// How long a client may take to send a head.
    pub client_header_timeout: Duration,
    /// The longest pause within a request's body.
    pub client_body_timeout: Duration,
    /// The least bytes a second of a request's body whose length is known, once `client_body_timeout` has passed; 0 is any.
    pub client_body_min_rate: u32,
    /// The longest pause of a client that takes its response.
    pub send_timeout: Duration,
    /// How long a client's connection may stay idle.
    pub keepalive_timeout: Duration,
    /// Requests after which a client's connection is closed; 0 is any number.
    pub keepalive_requests: u64,
    /// The most bytes of a request's body; 0 is any number.
    pub client_max_body_size: u64,
    /// The most bytes of a request's body that plugins read.
    pub client_body_buffer_size: usize,
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
    /// How error responses are written.
    pub error_templates: ErrorTemplates,
    /// What is recorded of requests for tracing plugins.
    pub instrumentations: Instrumentations,
    /// The public ports of listeners whose clients connect to another port.
    pub port_maps: PortMaps,
    /// The paths that the node answers itself.
    pub internal: InternalEndpoints,
}

impl Default for Options {
    fn default() -> Self {
        let minute = Duration::from_secs(60);
        Self {
            workers: 1,
            listen: Vec::new(),
            max_connections: usize::MAX,
            connections_per_ip: usize::MAX,
            worker_requests_in_flight: usize::MAX,
            memory: None,
            client_header_timeout: minute,
            client_body_timeout: minute,
            client_body_min_rate: 0,
            send_timeout: minute,
            keepalive_timeout: Duration::from_secs(75),
            keepalive_requests: 0,
            client_max_body_size: 0,
            client_body_buffer_size: 1024 * 1024,
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
            error_templates: ErrorTemplates::default(),
            instrumentations: Instrumentations::default(),
            port_maps: PortMaps::default(),
            internal: InternalEndpoints::default(),
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

/// Kong's `port_maps`: the port that clients connect to, by the port that receives their connections.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PortMaps(Vec<(u16, u16)>);

impl PortMaps {
    /// Pairs of a listener's port and its public port.
    pub fn new(ports: impl IntoIterator<Item = (u16, u16)>) -> Self {
        Self(ports.into_iter().collect())
    }

    /// The port that clients connect to.
    pub(crate) fn public(&self, port: u16) -> u16 {
        self.0.iter().find(|(own, _)| *own == port).map_or(port, |(_, public)| *public)
    }

    /// The address with that port.
    pub(crate) fn public_address(&self, local: SocketAddr) -> SocketAddr {
        SocketAddr::new(local.ip(), self.public(local.port()))
    }
}

/// How clients may use HTTP/2.
#[derive(Debug, Clone)]
pub struct Http2Options {
    /// Requests of one connection that are served at a time; more are refused.
    pub max_concurrent_streams: u32,
    /// The most bytes of a request's fields, as RFC 9113 (6.5.2) counts them.
    pub max_header_list_size: u32,
    /// The same for all requests of one connection that are served at a time; more are refused.
    pub connection_header_list_size: u32,
    /// How much of a request's body may come before it is asked for.
    pub body_preread_size: u32,
    /// The same for all requests of one connection together.
    pub connection_window_size: u32,
    /// How many requests a client may give up, at once and in each second.
    pub max_resets: u32,
    /// How often a connection with requests in flight is pinged.
    pub ping_interval: Duration,
}

impl Default for Http2Options {
    fn default() -> Self {
        Self {
            max_concurrent_streams: 128,
            max_header_list_size: 64 * 1024,
            connection_header_list_size: 256 * 1024,
            body_preread_size: 64 * 1024,
            connection_window_size: 1024 * 1024,
            max_resets: 256,
            ping_interval: Duration::from_secs(30),
        }
    }
}

/// How clients may use HTTP/3.
#[derive(Debug, Clone)]
pub struct Http3Options {
    /// Requests of one connection that are served at a time; more have to wait at the client.
    pub max_concurrent_streams: u32,
    /// The most bytes of a request's fields, as RFC 9114 (4.2.2) counts them.
    pub max_header_list_size: u32,
    /// The same for all requests of one connection that are served at a time; more are refused.
    pub connection_header_list_size: u32,
    /// How much of a request's body may come before it is asked for.
    pub body_preread_size: u32,
    /// The same for all requests of one connection together.
    pub connection_window_size: u32,
    /// How many requests a client may give up, at once and in each second.
    pub max_resets: u32,
    /// How long a client may be silent. It is asked whether it is still there three times as often.
    pub idle_timeout: Duration,
    /// How many handshakes with unvalidated client addresses may be in progress; further ones get a Retry.
    pub max_unproven_handshakes: u32,
    /// What responses over TLS say of HTTP/3 on the same port.
    pub alt_svc: AltSvc,
}

/// What `Alt-Svc` says.
#[derive(Debug, Clone, Copy)]
pub struct AltSvc {
    /// How long clients may remember it; zero says nothing.
    pub max_age: Duration,
    /// The port where clients reach the listener; none is the listener's own.
    pub port: Option<u16>,
}

impl Default for Http3Options {
    fn default() -> Self {
        Self {
            max_concurrent_streams: 128,
            max_header_list_size: 64 * 1024,
            connection_header_list_size: 256 * 1024,
            body_preread_size: 64 * 1024,
            connection_window_size: 1024 * 1024,
            max_resets: 256,
            idle_timeout: Duration::from_secs(60),
            max_unproven_handshakes: 100,
            alt_svc: AltSvc { max_age: Duration::from_secs(24 * 60 * 60), port: None },
        }
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

impl RealIp {
    /// The name of the header.
    pub(crate) fn header(&self) -> Option<&str> {
        match self {
            RealIp::Header(name) => Some(name),
            RealIp::ProxyProtocol => None,
        }
    }
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
