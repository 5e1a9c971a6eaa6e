//! The table of settings. A setting is declared here, once: its doc comment, name, type, default, and the other
//! names it goes by. ReadOptions, checking and `docs/configuration.md` derive from this.
use super::admin_auth::AdminAuth;
use super::apisix_key::AdminKey;
use super::ciphers::Ciphers;
use super::headers::{Headers, UpstreamHeaders};
use super::listen::{Listeners, StreamListeners};
use super::source::{Given, Problem};
use super::value::*;
use std::path::PathBuf;
use std::time::Duration;
use weir_proxy::Network;

/// What is known of a setting before any value is given.
#[derive(Debug)]
pub(crate) struct Declaration {
    /// The key in `weir.toml`.
    pub(crate) name: &'static str,
    /// The kind of value.
    pub(crate) kind: &'static str,
    /// The text that stands for the value when none is given.
    pub(crate) default: &'static str,
    /// Lines of documentation.
    pub(crate) doc: &'static [&'static str],
    /// Other names, as kong.conf's `nginx_*` directives.
    pub(crate) aliases: &'static [&'static str],
}

macro_rules! settings {
    ($( $(#[doc = $doc:literal])+ $name:ident: $type:ty = $default:literal $(| $alias:literal)*; )+) => {
        /// The settings of a node, checked.
        #[derive(Debug, Clone)]
        #[allow(dead_code, reason = "a value may be accepted and checked before anything depends on it")]
        pub(crate) struct Settings { $( $(#[doc = $doc])+ pub(crate) $name: $type, )+ }

        /// Every setting, in the order of the documentation.
        pub(crate) const TABLE: &[Declaration] = &[$( Declaration {
            name: stringify!($name),
            kind: <$type as Value>::KIND,
            default: $default,
            doc: &[$($doc),+],
            aliases: &[$($alias),*],
        } ),+];

        impl Settings {
            /// Reads every setting from what was given; each that cannot be read adds a problem.
            pub(super) fn read(given: &Given, problems: &mut Vec<Problem>) -> Option<Settings> {
                $( let $name = given.value::<$type>(stringify!($name), $default, problems); )+
                Some(Settings { $( $name: $name? ),+ })
            }
        }
    };
}

settings! {
    /// The folder of this node: its pid file and the socket that `weir reload` talks to. Must be the node's own.
    /// Without one: `/var/lib/weir` for root, otherwise `$XDG_STATE_HOME/weir` or `$HOME/.local/state/weir`.
    prefix: Option<PathBuf> = "";
    /// The declarative file to serve, as `--config`.
    declarative_config: Option<PathBuf> = "";
    /// The declarative configuration itself, in YAML or, where it starts with `{`, JSON; in place of
    /// `declarative_config`. It stays in force until the node ends, as there is no file to read again.
    declarative_config_string: Option<DeclarativeText> = "";
    /// Where the configuration lives: in a declarative file (`off`), in a file of the node's own (`sqlite`), or in
    /// PostgreSQL, which several nodes may share. Without a value: `off` when a declarative file is given, otherwise
    /// `sqlite`.
    database: Option<Database> = "";
    /// The file of `database=sqlite`. A relative path starts at `prefix`.
    sqlite_path: PathBuf = "weir.sqlite";
    /// Where PostgreSQL is, for `database=postgres`: a host, or the folder of its socket. The system resolves the host's name,
    /// not `dns_resolver`.
    pg_host: String = "127.0.0.1";
    /// The port of PostgreSQL.
    pg_port: u16 = "5432";
    /// How long PostgreSQL may take to accept a connection, and to answer.
    pg_timeout: Milliseconds = "5000";
    /// Who logs in to PostgreSQL.
    pg_user: String = "kong";
    /// The password of `pg_user`.
    pg_password: Option<Password> = "";
    /// The database; it must be there. `weir migrations bootstrap` creates its tables.
    pg_database: String = "kong";
    /// The schema of the tables; without one, the first of the user's `search_path`.
    pg_schema: Option<String> = "";
    /// Speaks TLS with PostgreSQL if the server does.
    pg_ssl: bool = "off";
    /// With `pg_ssl`: does not connect to a server without TLS.
    pg_ssl_required: bool = "off";
    /// With `pg_ssl`: connects only to a server with a certificate for `pg_host` from one of
    /// `lua_ssl_trusted_certificate`. Implies `pg_ssl_required`.
    pg_ssl_verify: bool = "off";
    /// How many workers serve traffic; `auto` is one per core.
    workers: Workers = "auto" | "nginx_worker_processes" | "nginx_main_worker_processes";
    /// Where clients connect: addresses with ports, and Unix sockets as `unix:/path`. Flags: `ssl`, `http2`,
    /// `quic`, `proxy_protocol`, `backlog=N` and, of a Unix socket, `mode=0660` for who may connect; `reuseport`, `deferred`,
    /// `bind` and `so_keepalive=…` are accepted and change nothing. Port 0 asks the system for a free one.
    /// With `quic`, HTTP/3 is spoken there, which is experimental: see [HTTP/3](http3.md). It is named beside the same address
    /// with `ssl`, as in `0.0.0.0:8443 ssl http2, 0.0.0.0:8443 quic`, and its port 0 is the port that that one was given.
    /// With `proxy_protocol`, each connection must begin with a header of the PROXY protocol, version 1 or 2. It names the
    /// client if it comes from one of `trusted_ips` and `real_ip_header` is `proxy_protocol`.
    /// A Unix socket is open to everybody on this machine (`mode=0666`) unless it has another mode.
    /// Of the files that the process may open (`ulimit -Hn`), 64 and 4 for each worker are kept for the node, with
    /// `stream_listen` 256 more for each worker, up to 256 for each listener of `admin_listen`, `status_listen` and
    /// `apisix_admin_listen`, and half of the others are for clients, who may each need a connection to an upstream; further
    /// clients wait in the backlog.
    proxy_listen: Listeners = "0.0.0.0:8000, 0.0.0.0:8443 ssl http2";
    /// Where connections and datagrams are passed on as they are, by routes of the protocols tcp, tls, tls_passthrough and
    /// udp. Flags: `ssl`, `udp`, `proxy_protocol`, `backlog=N`, and those of `proxy_listen` that change nothing. With
    /// `ssl`, TLS ends here for routes of `tls` and passes through for those of `tls_passthrough`. See
    /// [Streams](streams.md).
    stream_listen: StreamListeners = "off";
    /// Where the Admin API listens; with the flag `ssl` it speaks TLS, with the certificate of `ssl_cert`. Beyond loopback
    /// it stays closed unless `admin_auth` or, with `ssl`, `admin_ssl_client_ca` says who may use it, or
    /// `admin_allow_insecure` is on. A Unix socket is open to the node's own user alone (`mode=0600`) unless it has
    /// another mode.
    admin_listen: Listeners = "127.0.0.1:8001";
    /// The tokens that open the Admin API, as hashes: `weir admin token` makes a token and prints both. Requests send the
    /// token as `Authorization: Bearer …` or in `Kong-Admin-Token`. A token's name is told in the audit log.
    admin_auth: AdminAuth = "";
    /// The authorities, as a file of PEM, whose certificates clients of an `admin_listen` with `ssl` must show.
    admin_ssl_client_ca: Option<PathBuf> = "";
    /// Opens the Admin API beyond loopback although it asks nobody who they are.
    admin_allow_insecure: bool = "off";
    /// Where `/status`, `/status/ready` and `/metrics` are served; with the flag `ssl` over TLS, with the certificate of
    /// `ssl_cert`.
    status_listen: Listeners = "127.0.0.1:8007";
    /// The least severe messages that are logged; `info` and `notice` are the same here, and so are `error` and above.
    log_level: LogLevel = "notice";
    /// Where the node's own messages go. Relative paths of logs start at `prefix`.
    proxy_error_log: LogTarget = "/dev/stderr";
    /// Where a line for each proxied request goes.
    proxy_access_log: LogTarget = "off";
    /// The shape of `proxy_access_log`'s lines.
    proxy_access_log_format: AccessLogFormat = "combined";
    /// Where a line for each session of `stream_listen` goes, in nginx's words: `$remote_addr [$time_local] $protocol
    /// $status $bytes_sent $bytes_received $session_time`.
    proxy_stream_access_log: SessionLog = "off";
    /// Where a line for each request to the Admin API goes.
    admin_access_log: LogTarget = "off";
    /// Which headers the gateway adds to responses.
    headers: Headers = "server_tokens, latency_tokens, X-Kong-Request-Id";
    /// Which headers the gateway adds to requests for upstreams.
    headers_upstream: UpstreamHeaders = "X-Kong-Request-Id";
    /// Whose `X-Forwarded-*`, `real_ip_header` and PROXY protocol headers are believed; `unix:` stands for all clients of
    /// Unix sockets.
    trusted_ips: Vec<Trusted> = "";
    /// The header a trusted client names the real one in; `proxy_protocol` is the header of the connection.
    real_ip_header: RealIpHeader = "X-Real-IP";
    /// Takes the last address of `real_ip_header` that is not trusted, rather than the last.
    real_ip_recursive: bool = "off";
    /// Answers `Kong-Debug: 1` with the names of the route and the service.
    allow_debug_header: bool = "off";
    /// Of how many requests the plugins of one are measured, on average: see [what plugins cost](costs.md). 1 measures all,
    /// 0 none.
    cost_sampling: u32 = "64";
    /// Which responses say in `Server-Timing` how long each plugin, the upstream and all of it took: `on_request` those to
    /// requests with `Weir-Server-Timing: 1` from `server_timing_ips`, `always` all, to everybody.
    server_timing: TimedResponses = "off";
    /// The clients that `server_timing=on_request` tells. One behind a proxy counts where `trusted_ips` has that proxy.
    server_timing_ips: Vec<Network> = "127.0.0.0/8, ::1";
    /// Answers `X-Kong-Request-Debug: *` with [where the time went](debugging-requests.md). Clients on this machine may ask;
    /// others need the token, in `X-Kong-Request-Debug-Token`.
    request_debug: bool = "on";
    /// That token. Without one, the node makes one when it starts. It is in the file `.request_debug_token` of `prefix`.
    request_debug_token: Option<Password> = "";
    /// The longest request body; 0 is no limit.
    client_max_body_size: Bytes = "0" | "nginx_http_client_max_body_size" | "nginx_proxy_client_max_body_size";
    /// How large the head of a request may be: so many lines' worth in all (431), and the target (414) and each field (431)
    /// no longer than one of them. Empty: 64k in all, 8k for the target. Over HTTP/2 and HTTP/3, all of a head is bounded by
    /// `http2_max_header_list_size` and `http3_max_header_list_size` instead.
    large_client_header_buffers: Option<HeaderBuffers> = "" | "nginx_http_large_client_header_buffers" | "nginx_proxy_large_client_header_buffers";
    /// How much of a request body is held in memory at a time.
    client_body_buffer_size: Bytes = "8k" | "nginx_http_client_body_buffer_size" | "nginx_proxy_client_body_buffer_size";
    /// How much memory the bodies that plugins read may take, all those of the node together; 0 is no limit. When it is
    /// used up, requests whose bodies a plugin has to read are answered 503: see
    /// [bodies in memory](deployment.md#bodies-in-memory).
    mem_bodies_size: Bytes = "256m";
    /// How long a client may take to send the head of a request.
    client_header_timeout: Duration = "60s" | "nginx_http_client_header_timeout" | "nginx_proxy_client_header_timeout";
    /// How long a client may pause while it sends a body.
    client_body_timeout: Duration = "60s" | "nginx_http_client_body_timeout" | "nginx_proxy_client_body_timeout";
    /// How long a client may pause while it takes a response.
    send_timeout: Duration = "60s" | "nginx_http_send_timeout" | "nginx_proxy_send_timeout";
    /// How long an idle connection of a client stays open; 0 closes it after every response.
    keepalive_timeout: Duration = "75s" | "nginx_http_keepalive_timeout" | "nginx_proxy_keepalive_timeout";
    /// How long a client of an Admin API may take to send the head of a request; without a value, `client_header_timeout`.
    admin_client_header_timeout: Option<Duration> = "" | "nginx_admin_client_header_timeout";
    /// How long an idle connection of such a client stays open; without a value, `keepalive_timeout`.
    admin_keepalive_timeout: Option<Duration> = "" | "nginx_admin_keepalive_timeout";
    /// How many requests a connection of a client may carry.
    keepalive_requests: u32 = "10000" | "nginx_http_keepalive_requests" | "nginx_proxy_keepalive_requests";
    /// How many requests of one connection over HTTP/2 are served at a time; more are refused.
    http2_max_concurrent_streams: u32 = "128" | "nginx_http_http2_max_concurrent_streams" | "nginx_proxy_http2_max_concurrent_streams";
    /// How many bytes the fields of a request over HTTP/2 may have, with 32 more for each; a longer one gets 431.
    http2_max_header_list_size: Bytes = "64k";
    /// The same for all requests of one connection over HTTP/2 that are served at a time; a request beyond it is refused,
    /// so that its client may send it again, unless no other is served.
    http2_connection_header_list_size: Bytes = "256k";
    /// How much of the body of a request over HTTP/2 a client may send before it is asked for; at least 16k.
    http2_body_preread_size: Bytes = "64k" | "nginx_http_http2_body_preread_size" | "nginx_proxy_http2_body_preread_size";
    /// The same for all requests of one connection together.
    http2_connection_window_size: Bytes = "1m";
    /// How many requests a client over HTTP/2 may give up or have reset for breaking a rule, at once and in each second.
    /// One that was given up after 10 ms or more counts less, one that has a response or lived for 1 s nothing. Beyond it
    /// the connection takes no more requests (GOAWAY); beyond twice as many it is closed.
    http2_max_resets: u32 = "256";
    /// How often clients and upstreams with requests under way over HTTP/2 are asked whether they are still there; one
    /// that has not said so until it would be asked again has its connection closed; 0 asks nobody.
    http2_ping_interval: Duration = "30s";
    /// How many requests of one connection over HTTP/3 are served at a time; the client waits with more.
    http3_max_concurrent_streams: u32 = "128" | "nginx_http_http3_max_concurrent_streams" | "nginx_proxy_http3_max_concurrent_streams";
    /// How many bytes the fields of a request over HTTP/3 may have, with 32 more for each; a longer one gets 431.
    http3_max_header_list_size: Bytes = "64k";
    /// The same for all requests of one connection over HTTP/3 that are served at a time; a request beyond it is refused,
    /// so that its client may send it again, unless no other is served.
    http3_connection_header_list_size: Bytes = "256k";
    /// How much of the body of a request over HTTP/3 a client may send before it is asked for; at least 16k.
    http3_body_preread_size: Bytes = "64k" | "nginx_http_http3_stream_buffer_size" | "nginx_proxy_http3_stream_buffer_size";
    /// The same for all requests of one connection together.
    http3_connection_window_size: Bytes = "1m";
    /// How many requests a client over HTTP/3 may give up or have reset for breaking a rule, at once and in each second,
    /// counted as by `http2_max_resets`.
    http3_max_resets: u32 = "256";
    /// How long a client over HTTP/3 may be silent before its connection is given up. It is asked whether it is still there
    /// three times as often. At least 1s.
    http3_idle_timeout: Duration = "60s";
    /// How many handshakes over QUIC may be under way with clients whose address is not proven. Further clients have to
    /// prove theirs first (Retry), which costs them a round trip; 0 asks all, as nginx's `quic_retry on`.
    http3_max_unproven_handshakes: u32 = "100";
    /// How long clients may remember, as responses on a port with `ssl` tell in `Alt-Svc`, that the port is served with
    /// `quic` too; 0 tells nobody.
    http3_alt_svc_max_age: Duration = "1d";
    /// The port that `Alt-Svc` names, where clients reach `quic` on another than the listener's; 0 is the listener's.
    http3_alt_svc_port: u16 = "0";
    /// How many idle connections a worker keeps to each target; 0 keeps none.
    upstream_keepalive_pool_size: u32 = "512";
    /// How many requests a connection to a target may carry; 0 is no limit.
    upstream_keepalive_max_requests: u32 = "10000";
    /// How long an idle connection to a target stays open; 0 is no limit.
    upstream_keepalive_idle_timeout: Duration = "60";
    /// How many requests a connection to a target over HTTP/2 carries at a time.
    upstream_http2_max_concurrent_streams: u32 = "100";
    /// How many connections over HTTP/2 a worker opens to each target, for each name that it is asked for over TLS; further
    /// requests wait until one has room.
    upstream_http2_max_connections: u32 = "16";
    /// The name servers to ask; without any, those of `/etc/resolv.conf`.
    dns_resolver: Vec<NameServer> = "";
    /// The file of names that need no name server.
    dns_hostsfile: PathBuf = "/etc/hosts";
    /// The kinds of record to ask for, in order.
    dns_order: Vec<DnsRecord> = "LAST, SRV, A, CNAME";
    /// How long an answer holds, whatever its own TTL says.
    dns_valid_ttl: Option<Duration> = "";
    /// How long an answer past its TTL is still used while a new one is fetched.
    dns_stale_ttl: Duration = "3600";
    /// How long a failed lookup is remembered.
    dns_error_ttl: Duration = "1";
    /// How long a name that does not exist is remembered.
    dns_not_found_ttl: Duration = "30";
    /// The certificate for names that no certificate entity serves, in PEM; without one, one is generated.
    ssl_cert: Option<PathBuf> = "";
    /// The file of `ssl_cert`'s private key, in PEM.
    ssl_cert_key: Option<KeyFile> = "";
    /// The versions of TLS offered to clients.
    ssl_protocols: TlsVersions = "TLSv1.2 TLSv1.3" | "nginx_http_ssl_protocols";
    /// The cipher suites offered to clients: `modern` is TLS 1.3 alone; `old` has the suites of `intermediate`, as weaker
    /// ones are not implemented, and prefers them in its own order; `custom` is what `ssl_ciphers` says.
    ssl_cipher_suite: CipherSuite = "intermediate";
    /// With `ssl_cipher_suite=custom`: the cipher suites of TLS 1.2. Those of TLS 1.3 are always offered. Suites without
    /// forward secrecy or authenticated encryption are not implemented, and named in a warning.
    ssl_ciphers: Ciphers = "" | "nginx_http_ssl_ciphers";
    /// With `ssl_cipher_suite=custom`: whether the order of `ssl_ciphers` counts, rather than the client's.
    ssl_prefer_server_ciphers: bool = "on" | "nginx_http_ssl_prefer_server_ciphers";
    /// Whether clients keep TLS sessions themselves, in tickets whose keys all workers share. Otherwise those in the cache
    /// alone are resumed.
    ssl_session_tickets: bool = "on" | "nginx_http_ssl_session_tickets";
    /// Whether clients are shown a proof that the certificate stands (OCSP stapling). Proofs are fetched from the responders
    /// that certificates name, beside traffic; the entity's `cert` must have the issuer's certificate behind its own.
    ssl_stapling: bool = "off" | "nginx_http_ssl_stapling" | "nginx_proxy_ssl_stapling";
    /// How much memory remembered TLS sessions may take.
    ssl_session_cache_size: CacheSize = "10m";
    /// How long a TLS session can be resumed.
    ssl_session_timeout: Duration = "1d" | "nginx_http_ssl_session_timeout";
    /// Presents the certificate of `client_ssl_cert` to upstreams that ask for one, where neither the service nor the
    /// upstream entity has a `client_certificate`.
    client_ssl: bool = "off";
    /// With `client_ssl`: the certificate, in PEM; without one, the same as clients are shown by `ssl_cert`.
    client_ssl_cert: Option<PathBuf> = "";
    /// The file of `client_ssl_cert`'s private key, in PEM.
    client_ssl_cert_key: Option<KeyFile> = "";
    /// The authorities that certificates of upstreams, and of servers that plugins connect to, are checked against: paths, or
    /// `system`, or both, as in `system,/path/to/ca.pem`.
    lua_ssl_trusted_certificate: Vec<String> = "system";
    /// Whether servers that the plugins http-log, tcp-log, opentelemetry and zipkin send to over TLS must have a certificate
    /// from one of `lua_ssl_trusted_certificate`. With `off` any certificate passes, as with Kong, so that an attacker on
    /// the network can read the logs and the tokens in their headers.
    log_tls_verify: bool = "on";
    /// How long requests in flight may take to finish once the node is asked to stop.
    drain_timeout: Duration = "10s" | "nginx_main_worker_shutdown_timeout";
    /// The plugins that a configuration may use; `bundled` is all of them.
    plugins: Vec<String> = "bundled";
    /// How routes are ordered. `traditional` is read as `traditional_compatible`, with a warning.
    router_flavor: RouterFlavor = "traditional_compatible";
    /// Serves APISIX's Admin API, and traffic on a port of APISIX's. See [Coming from APISIX](coming-from-apisix.md).
    apisix_admin: bool = "off";
    /// The key that clients of APISIX's Admin API show. Without one, one is made up at the first start, written to the
    /// standard error once, and kept in `prefix` as a hash.
    apisix_admin_key: Option<AdminKey> = "";
    /// With `apisix_admin`: where clients connect, beside `proxy_listen`.
    apisix_proxy_listen: Listeners = "0.0.0.0:9080";
    /// With `apisix_admin`: where APISIX's Admin API and the metrics by APISIX's names are served.
    apisix_admin_listen: Listeners = "127.0.0.1:9180";
    /// With `apisix_admin`: serves `/apisix/admin` on `apisix_proxy_listen` too, for clients on this machine.
    apisix_admin_on_proxy: bool = "on";
}
