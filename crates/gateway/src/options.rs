//! The data plane's options, from the settings.
use crate::overload;
use crate::prefix;
use crate::settings::{
    self, AccessLogFormat, Bytes, DnsRecord, ErrorContentType, HeaderBuffers, Headers, Listen, LogTarget,
    Password, Settings, TimedResponses, Trusted,
};
use crate::start_error::StartError;
use rustix::process::{Resource, getrlimit};
use serde_json::{Map, Value as Json};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use weir_guests::{LuaSettings, NodeConfiguration, PluginFiles, UntrustedLua};
use weir_net::resolve::{Lookup, ResolverOptions};
use weir_net::tls::{CipherSuites, TlsOptions, Version};
use weir_proxy::access_log::{AccessLog, Format, Target};
use weir_proxy::{
    AccessLogs, AddedHeaders, AltSvc, ErrorTemplates, ErrorType, Http2Options, Http2UpstreamOptions,
    Http3Options, InternalEndpoints, KeepAlive, Limits, MAX_PIPES, Options, PortMaps, RealIp, RequestDebug,
    ServerTiming, ServerTimingMode, Traffic,
};

/// Plugins can read bodies of this length whatever `client_body_buffer_size` is, because its default is Kong's 8k.
const MIN_READABLE_BODY: u64 = 1024 * 1024;

/// The backlog of a listener without `backlog=`, as in Kong.
const BACKLOG: u32 = 16384;

/// Open files reserved for the node itself: listeners, logs, reloads, name servers.
const FILES: usize = 64;

/// Open files of each worker's runtime.
const FILES_OF_WORKER: usize = 4;

/// The approximate size of a session in nginx's TLS session cache, because the setting counts bytes of that.
const SESSION_BYTES: u64 = 256;

/// What plugins that run Lua get of the settings.
pub(crate) fn lua(settings: &Settings) -> LuaSettings {
    LuaSettings {
        untrusted: match settings.untrusted_lua {
            settings::UntrustedLua::Off => UntrustedLua::Off,
            settings::UntrustedLua::Sandbox => UntrustedLua::Sandbox,
            settings::UntrustedLua::On => UntrustedLua::On,
        },
        sandbox_requires: settings.untrusted_lua_sandbox_requires.clone(),
        sandbox_environment: settings.untrusted_lua_sandbox_environment.clone(),
        timeout: settings.lua_timeout,
        memory: bytes(settings.lua_memory.0),
        files: Arc::new(PluginFiles::new(
            &settings.lua_package_path,
            settings.lua_package_cpath.as_deref().unwrap_or_default(),
        )),
        opens_files: true,
        cache_memory: bytes(settings.mem_cache_size.0),
        shared_dicts: settings
            .lua_shared_dict
            .0
            .iter()
            .map(|(name, size)| (name.clone(), bytes(*size)))
            .collect(),
        update_interval: settings.db_update_frequency,
        prefix: prefix::or_default(settings.prefix.clone())
            .map(|prefix| format!("{}/", prefix.display()))
            .unwrap_or_default(),
    }
}

/// The settings as Lua code sees them: without those that hold secrets.
pub(crate) fn lua_configuration(shown: &Map<String, Json>) -> NodeConfiguration {
    let secret = |value: &Json| value.to_string().contains(settings::SECRET);
    let known = shown.iter().filter(|(_, value)| !secret(value));
    NodeConfiguration(known.map(|(name, value)| (name.clone(), value.clone())).collect())
}

fn bytes(size: u64) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}

/// The data plane's options.
pub(crate) fn options(settings: &Settings, internal: InternalEndpoints) -> Options {
    let max_connections = max_connections(getrlimit(Resource::Nofile).current, files(settings))
        .min(connections_of_workers(settings));
    Options {
        workers: settings.workers.0,
        listen: listeners(settings).collect(),
        max_connections,
        connections_per_ip: overload::connections_per_ip(settings, max_connections),
        worker_requests_in_flight: overload::requests_in_flight(settings, max_connections),
        memory: overload::memory(settings),
        client_header_timeout: settings.client_header_timeout,
        client_body_timeout: settings.client_body_timeout,
        client_body_min_rate: settings.client_body_min_rate,
        send_timeout: settings.send_timeout,
        keepalive_timeout: settings.keepalive_timeout,
        keepalive_requests: settings.keepalive_requests.into(),
        client_max_body_size: settings.client_max_body_size.0,
        request_limits: request_limits(settings.large_client_header_buffers),
        limits: Limits { max_head_bytes: head_of_response(settings.proxy_buffer_size), ..Limits::default() },
        client_body_buffer_size: usize::try_from(settings.client_body_buffer_size.0.max(MIN_READABLE_BODY))
            .unwrap_or(usize::MAX),
        mem_bodies_size: settings.mem_bodies_size.0,
        upstream_keepalive: KeepAlive {
            pool_size: settings.upstream_keepalive_pool_size as usize,
            max_requests: settings.upstream_keepalive_max_requests,
            idle_timeout: settings.upstream_keepalive_idle_timeout,
        },
        upstream_http2: Http2UpstreamOptions {
            max_concurrent_streams: settings.upstream_http2_max_concurrent_streams.max(1),
            max_connections: settings.upstream_http2_max_connections.max(1) as usize,
            ping_interval: settings.http2_ping_interval,
        },
        resolver: resolver(settings),
        tls: tls(settings),
        http2: Http2Options {
            max_concurrent_streams: settings.http2_max_concurrent_streams.max(1),
            max_header_list_size: size(settings.http2_max_header_list_size),
            connection_header_list_size: size(settings.http2_connection_header_list_size),
            // With less, bodies would arrive in tiny pieces, or not at all.
            body_preread_size: size(settings.http2_body_preread_size).max(16 * 1024),
            connection_window_size: size(settings.http2_connection_window_size),
            max_resets: settings.http2_max_resets,
            ping_interval: settings.http2_ping_interval,
        },
        http3: http3(settings),
        trusted_ips: settings.trusted_ips.iter().filter_map(network).collect(),
        trusts_unix: settings.trusted_ips.contains(&Trusted::Unix),
        real_ip: real_ip(&settings.real_ip_header.0),
        real_ip_recursive: settings.real_ip_recursive,
        headers: headers(&settings.headers, settings.headers_upstream.request_id),
        allow_debug_header: settings.allow_debug_header,
        cost_sampling: settings.cost_sampling,
        server_timing: server_timing(settings),
        request_debug: request_debug(settings),
        error_templates: error_templates(settings),
        instrumentations: settings.tracing_instrumentations.0,
        port_maps: PortMaps::new(settings.port_maps.iter().map(|map| (map.own, map.public))),
        internal,
    }
}

fn request_limits(HeaderBuffers { total, size }: HeaderBuffers) -> Limits {
    Limits { max_head_bytes: total, max_target_bytes: size, max_field_bytes: size, ..Limits::default() }
}

/// The largest head of a response, from 1 KiB, which every response needs, to 16 MiB.
fn head_of_response(Bytes(size): Bytes) -> usize {
    size.clamp(1 << 10, 16 << 20) as usize
}

/// How many clients the workers' connections are enough for, each with one to an upstream.
fn connections_of_workers(settings: &Settings) -> usize {
    let of_worker = settings.worker_connections.0.map_or(usize::MAX, |number| number as usize);
    (of_worker.saturating_mul(settings.workers.0) / 2).max(1)
}

fn server_timing(settings: &Settings) -> ServerTiming {
    let who = match settings.server_timing {
        TimedResponses::Off => ServerTimingMode::Off,
        TimedResponses::OnRequest => ServerTimingMode::OnRequest,
        TimedResponses::Always => ServerTimingMode::Always,
    };
    ServerTiming { who, networks: settings.server_timing_ips.clone() }
}

fn request_debug(settings: &Settings) -> Option<RequestDebug> {
    let token = settings.request_debug_token.as_ref().filter(|_| settings.request_debug);
    token.map(|Password(token)| RequestDebug { token: token.clone() })
}

/// Custom templates, in the order of [`ErrorType`].
fn error_templates(settings: &Settings) -> ErrorTemplates {
    let default_type = match settings.error_default_type {
        ErrorContentType::Json => ErrorType::Json,
        ErrorContentType::Plain => ErrorType::Plain,
        ErrorContentType::Html => ErrorType::Html,
        ErrorContentType::Xml => ErrorType::Xml,
    };
    let custom = [
        &settings.error_template_json,
        &settings.error_template_plain,
        &settings.error_template_html,
        &settings.error_template_xml,
    ];
    ErrorTemplates::new(default_type, custom.map(|file| file.as_ref().map(|file| file.0.as_str())))
}

fn http3(settings: &Settings) -> Http3Options {
    Http3Options {
        max_concurrent_streams: settings.http3_max_concurrent_streams.max(1),
        max_header_list_size: size(settings.http3_max_header_list_size),
        connection_header_list_size: size(settings.http3_connection_header_list_size),
        body_preread_size: size(settings.http3_body_preread_size).max(16 * 1024),
        connection_window_size: size(settings.http3_connection_window_size).max(16 * 1024),
        max_resets: settings.http3_max_resets,
        idle_timeout: settings.http3_idle_timeout.max(Duration::from_secs(1)),
        max_unproven_handshakes: settings.http3_max_unproven_handshakes,
        alt_svc: AltSvc {
            max_age: settings.http3_alt_svc_max_age,
            port: Some(settings.http3_alt_svc_port).filter(|port| *port != 0),
        },
    }
}

/// A number of bytes, at most what HTTP/2 can express.
fn size(bytes: Bytes) -> u32 {
    bytes.0.min(i32::MAX as u64) as u32
}

/// Where clients connect: streams, then requests on Kong's listeners, then on APISIX's.
fn listeners(settings: &Settings) -> impl Iterator<Item = weir_proxy::Listen> {
    let apisix = settings.apisix_admin.then_some(&settings.apisix_proxy_listen.0);
    let http = settings.proxy_listen.0.iter().chain(apisix.into_iter().flatten());
    let streams = settings.stream_listen.0.iter().map(|listen| {
        let traffic = if listen.udp { Traffic::Datagram } else { Traffic::Stream };
        self::listen(listen, traffic, OPEN_TO_ALL)
    });
    let http = http.map(|listen| {
        let traffic = if listen.quic { Traffic::Quic } else { Traffic::Http };
        self::listen(listen, traffic, OPEN_TO_ALL)
    });
    streams.chain(http)
}

/// The mode of Unix sockets for clients, as in nginx.
const OPEN_TO_ALL: u32 = 0o666;

fn network(trusted: &Trusted) -> Option<weir_proxy::Network> {
    match trusted {
        Trusted::Network(network) => Some(*network),
        Trusted::Unix => None,
    }
}

fn real_ip(header: &str) -> RealIp {
    match header {
        "proxy_protocol" => RealIp::ProxyProtocol,
        header => RealIp::Header(header.to_owned()),
    }
}

/// The number of open files reserved for the node itself.
fn files(settings: &Settings) -> usize {
    let pipes = if settings.stream_listen.0.is_empty() { 0 } else { 2 * MAX_PIPES };
    let control = control_listeners(settings) * control_connections();
    FILES + settings.workers.0 * (FILES_OF_WORKER + pipes) + control
}

/// How many connections clients may have. Each may need another to an upstream, and the node itself needs some files;
/// the limit keeps enough for connected clients, however many more connect.
fn max_connections(open_files: Option<u64>, kept: usize) -> usize {
    let Some(open_files) = open_files else { return usize::MAX };
    let open_files = usize::try_from(open_files).unwrap_or(usize::MAX);
    (open_files.saturating_sub(kept) / 2).max(1)
}

/// How many connections each listener of the node's own APIs may have.
pub(crate) fn control_connections() -> usize {
    let open_files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(open_files / 32).unwrap_or(usize::MAX).clamp(16, 256)
}

fn control_listeners(settings: &Settings) -> usize {
    let apisix = settings.apisix_admin.then_some(&settings.apisix_admin_listen);
    let always = [&settings.admin_listen, &settings.admin_gui_listen, &settings.status_listen];
    always.into_iter().chain(apisix).map(|all| all.0.len()).sum()
}

/// Opens the logs of proxied requests and of sessions.
pub(crate) fn access_logs(settings: &Settings) -> Result<AccessLogs, StartError> {
    let requests = access_log(settings)
        .map_err(|error| StartError::of_log("proxy_access_log", &settings.proxy_access_log, error))?;
    let target = &settings.proxy_stream_access_log.0;
    let sessions = open_log(target, Format::Basic)
        .map_err(|error| StartError::of_log("proxy_stream_access_log", target, error))?;
    Ok(AccessLogs { requests, sessions })
}

fn access_log(settings: &Settings) -> io::Result<AccessLog> {
    let format = match settings.proxy_access_log_format {
        AccessLogFormat::Combined => Format::Combined,
        AccessLogFormat::Json => Format::Json,
    };
    open_log(&settings.proxy_access_log, format)
}

fn open_log(log: &LogTarget, format: Format) -> io::Result<AccessLog> {
    match log {
        LogTarget::Off => AccessLog::open(Target::Stderr, Format::Off),
        LogTarget::Path(path) => AccessLog::open(target(path), format),
    }
}

fn target(path: &Path) -> Target {
    match path.to_str() {
        Some("/dev/stdout") => Target::Stdout,
        Some("/dev/stderr") => Target::Stderr,
        _ => Target::File(path.to_owned()),
    }
}

/// The options of a listener; `mode` is the default for Unix sockets.
pub(crate) fn listen(listen: &Listen, traffic: Traffic, mode: u32) -> weir_proxy::Listen {
    weir_proxy::Listen {
        address: listen.address.clone(),
        traffic,
        tls: listen.ssl || listen.quic,
        http2: listen.http2,
        proxy_protocol: listen.proxy_protocol,
        backlog: listen.backlog.unwrap_or(BACKLOG),
        mode: listen.mode.unwrap_or(mode),
    }
}

fn headers(headers: &Headers, request_id_upstream: bool) -> AddedHeaders {
    AddedHeaders {
        via: headers.via,
        server: headers.server,
        proxy_latency: headers.proxy_latency,
        response_latency: headers.response_latency,
        upstream_latency: headers.upstream_latency,
        upstream_status: headers.upstream_status,
        request_id: headers.request_id,
        request_id_upstream,
    }
}

/// The TLS options of listeners.
pub(crate) fn tls(settings: &Settings) -> TlsOptions {
    let versions = settings.ssl_protocols;
    let protocols = [(versions.v1_2, Version::Tls12), (versions.v1_3, Version::Tls13)];
    TlsOptions {
        protocols: protocols.into_iter().filter_map(|(spoken, version)| spoken.then_some(version)).collect(),
        prefer_server_ciphers: match settings.ssl_cipher_suite {
            settings::CipherSuite::Custom => settings.ssl_prefer_server_ciphers,
            suite => suite == settings::CipherSuite::Old,
        },
        session_tickets: settings.ssl_session_tickets,
        stapling: settings.ssl_stapling,
        cipher_suites: match settings.ssl_cipher_suite {
            settings::CipherSuite::Modern => CipherSuites::Modern,
            settings::CipherSuite::Intermediate => CipherSuites::Intermediate,
            settings::CipherSuite::Old => CipherSuites::Old,
            settings::CipherSuite::Custom => CipherSuites::Custom(settings.ssl_ciphers.offered.clone()),
        },
        session_timeout: settings.ssl_session_timeout,
        session_cache: usize::try_from(settings.ssl_session_cache_size.0 / SESSION_BYTES)
            .unwrap_or(usize::MAX),
    }
}

fn resolver(settings: &Settings) -> ResolverOptions {
    let lookup = |record: &DnsRecord| match record {
        DnsRecord::Last => Some(Lookup::Last),
        DnsRecord::Srv => Some(Lookup::Srv),
        DnsRecord::A => Some(Lookup::A),
        DnsRecord::Aaaa => Some(Lookup::Aaaa),
        // Aliases are followed in every lookup.
        DnsRecord::Cname => None,
    };
    ResolverOptions {
        servers: settings.dns_resolver.iter().map(|server| server.0).collect(),
        hosts_file: Some(settings.dns_hostsfile.clone()),
        order: settings.dns_order.iter().filter_map(lookup).collect(),
        valid_ttl: settings.dns_valid_ttl,
        stale_ttl: settings.dns_stale_ttl,
        error_ttl: settings.dns_error_ttl,
        not_found_ttl: settings.dns_not_found_ttl,
        ..ResolverOptions::default()
    }
}

#[cfg(test)]
mod tests {
    use super::max_connections;

    #[test]
    fn half_of_the_files_are_for_clients() {
        assert_eq!(max_connections(Some(1024), 136), 444);
        assert_eq!(max_connections(Some(20), 68), 1);
        assert_eq!(max_connections(None, 132), usize::MAX);
    }
}
