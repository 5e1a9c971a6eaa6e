//! The table of settings. A setting is declared here, once: its doc comment, name, type, default, and the other
//! names it goes by. Reading, checking and `docs/configuration.md` derive from this.
use super::admin_auth::AdminAuth;
use super::apisix_key::AdminKey;
use super::ciphers::Ciphers;
use super::cluster::{Labels, Pem};
use super::declaration::Declaration;
use super::headers::{Headers, UpstreamHeaders};
use super::listen::{Listeners, StreamListeners};
use super::source::{Given, Problem};
use super::value::*;
use std::path::PathBuf;
use std::time::Duration;
use weir_cluster::connect::{Endpoint, ForwardProxy};
use weir_model::Uuid;
use weir_proxy::Network;

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
            shown: <$type as Value>::shown,
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
    /// The folder of this node, with its pid file and the socket of `weir reload`. Nodes must not share it.
    /// Without one: `/var/lib/weir` for root, otherwise `$XDG_STATE_HOME/weir` or `$HOME/.local/state/weir`.
    prefix: Option<PathBuf> = "";
    /// The id of this node in monitoring, and at its control plane. Without one, each start generates another; a data
    /// plane keeps it in the file `kong.id` of `prefix`.
    node_id: Option<Uuid> = "";
    /// What the node does in a [fleet](hybrid.md): everything (`traditional`); the Admin API and the database, without
    /// traffic (`control_plane`); or traffic, with what a control plane sends (`data_plane`).
    role: Role = "traditional";
    /// Where a control plane listens for data planes, always over TLS.
    cluster_listen: Listeners = "0.0.0.0:8005";
    /// The control planes of a data plane. It connects to one of them, and to another if that fails.
    cluster_control_plane: Vec<Endpoint> = "127.0.0.1:8005";
    /// The certificate of the node for the connection between control plane and data plane. `weir hybrid gen_cert`
    /// generates one for `cluster_mtls=shared`.
    cluster_cert: Option<Pem> = "";
    /// The private key of `cluster_cert`.
    cluster_cert_key: Option<Pem> = "";
    /// How control planes and data planes verify each other: all have the same certificate (`shared`), or each has its
    /// own, issued by `cluster_ca_cert` (`pki`).
    cluster_mtls: ClusterMtls = "shared";
    /// With `cluster_mtls=pki`: the authorities of the other side's certificate. Data planes trust those of
    /// `lua_ssl_trusted_certificate`, too.
    cluster_ca_cert: Option<Pem> = "";
    /// With `cluster_mtls=pki`: the name that a data plane sends (SNI) and that the control plane's certificate must be
    /// for; without one, the host of `cluster_control_plane`.
    cluster_server_name: Option<String> = "";
    /// With `cluster_mtls=pki`: whether a control plane asks by OCSP if the certificate of a data plane was revoked. With
    /// `on`, a data plane without an answer is refused; with `optional`, only one whose certificate was revoked.
    cluster_ocsp: ClusterOcsp = "off";
    /// Seconds after which a control plane forgets a data plane that is gone; at least 60.
    cluster_data_plane_purge_delay: u32 = "1209600";
    /// The largest message that control plane and data plane accept of each other, in bytes and compressed; at least
    /// 4194304. It limits Kong's protocol alone: between nodes of Weir there is no limit.
    cluster_max_payload: u32 = "16777216";
    /// Whether a data plane connects through `proxy_server`.
    cluster_use_proxy: bool = "off";
    /// With `cluster_use_proxy`: the proxy, by HTTP's CONNECT. User and password are percent-encoded.
    proxy_server: Option<ForwardProxy> = "";
    /// Whether a `proxy_server` of `https://` must have a certificate from one of `lua_ssl_trusted_certificate`.
    proxy_server_ssl_verify: bool = "on";
    /// The labels of a data plane, which the control plane shows: at most 10.
    cluster_dp_labels: Labels = "";
    /// The keys of labels by which a control plane selects what a data plane gets: with `region`, a service, a route or a
    /// consumer with the tag `region:eu` goes to data planes with that label alone. Without keys, all get everything.
    cluster_select_by_labels: Vec<String> = "";
    /// Whether a control plane speaks Kong's second protocol (`/v2/outlet`), too.
    cluster_rpc: bool = "off";
    /// With `cluster_rpc`: whether changes are sent by Kong's second protocol, instead of the whole configuration by the first.
    /// A data plane uses the first if the control plane does not offer the second.
    cluster_incremental_sync: bool = "off";
    /// The pause of a control plane after it has sent the configuration by Kong's first protocol, which sends all of it:
    /// changes within the pause are sent together. Also how often a node looks for events that Lua on other nodes has broadcast.
    db_update_frequency: Duration = "5";
    /// Whether a data plane reports errors in the configuration to a control plane that is not Weir's, as Konnect expects.
    konnect_mode: bool = "off";
    /// The declarative file to serve, as `--config`.
    declarative_config: Option<PathBuf> = "";
    /// The declarative configuration itself, in YAML or, where it starts with `{`, JSON; in place of
    /// `declarative_config`. It stays active until the node stops, because there is no file to reload.
    declarative_config_string: Option<DeclarativeText> = "";
    /// Where the configuration is stored: in a declarative file (`off`), in a SQLite file of this node (`sqlite`), or
    /// in PostgreSQL (`postgres`), which several nodes may share. Without a value: `off` when a declarative file is
    /// given, otherwise `sqlite`.
    database: Option<Database> = "";
    /// The file of `database=sqlite`. A relative path starts at `prefix`.
    sqlite_path: PathBuf = "weir.sqlite";
    /// The host of PostgreSQL, or the folder of its socket, for `database=postgres`. The system resolves the name, not
    /// `dns_resolver`. Of several, the node uses [the first that accepts writes](backup.md#failover), and another once
    /// that one is gone.
    pg_host: PgHosts = "127.0.0.1";
    /// The port of PostgreSQL: one for all hosts, or one for each.
    pg_port: PgPorts = "5432";
    /// The timeout for connecting to PostgreSQL, and for each response.
    pg_timeout: Milliseconds = "5000";
    /// The user for PostgreSQL.
    pg_user: String = "kong";
    /// The password of `pg_user`.
    pg_password: Option<Password> = "";
    /// The database; it must exist. `weir migrations bootstrap` creates its tables.
    pg_database: String = "kong";
    /// The schema of the tables; without one, the first of the user's `search_path`.
    pg_schema: Option<String> = "";
    /// Uses TLS for PostgreSQL if the server supports it.
    pg_ssl: bool = "off";
    /// With `pg_ssl`: does not connect to a server without TLS.
    pg_ssl_required: bool = "off";
    /// With `pg_ssl`: verifies that the server has a certificate for `pg_host` from one of
    /// `lua_ssl_trusted_certificate`. Implies `pg_ssl_required`.
    pg_ssl_verify: bool = "off";
    /// The host of a read-only replica of PostgreSQL, or several, of which the first that answers is used. Whenever a node
    /// reads all entities, it reads them from there, and what the replica lacks yet from `pg_host`; if no replica answers,
    /// everything from `pg_host`. Changes are read from and written to `pg_host`.
    pg_ro_host: Option<PgHosts> = "";
    /// The port of the replica: one for all hosts, or one for each; without one, `pg_port`.
    pg_ro_port: Option<PgPorts> = "";
    /// The timeout for the replica; without one, `pg_timeout`.
    pg_ro_timeout: Option<Milliseconds> = "";
    /// The user for the replica; without one, `pg_user`.
    pg_ro_user: Option<String> = "";
    /// The password of `pg_ro_user`; without one, `pg_password`.
    pg_ro_password: Option<Password> = "";
    /// The database of the replica; without one, `pg_database`.
    pg_ro_database: Option<String> = "";
    /// The schema of the replica; without one, `pg_schema`.
    pg_ro_schema: Option<String> = "";
    /// Uses TLS for the replica if it supports it; without a value, `pg_ssl`.
    pg_ro_ssl: Option<bool> = "";
    /// With TLS: does not connect to a replica without; without a value, `pg_ssl_required`.
    pg_ro_ssl_required: Option<bool> = "";
    /// With TLS: verifies the replica's certificate; without a value, `pg_ssl_verify`.
    pg_ro_ssl_verify: Option<bool> = "";
    /// How many workers serve traffic; `auto` is one per core.
    workers: Workers = "auto" | "nginx_worker_processes" | "nginx_main_worker_processes";
    /// Whether `weir start` returns once the node serves, which then runs in the background. `weir run` and
    /// `weir docker-start` always stay in the foreground.
    nginx_daemon: bool = "on" | "nginx_main_daemon";
    /// The user, and the group behind a space, that `weir docker-start` continues as if it is started by root. Without a
    /// value, a system that does not have this user changes nothing.
    nginx_user: String = "kong kong" | "nginx_main_user";
    /// How many files the process may open; `auto` is as many as the system allows (`ulimit -Hn`).
    worker_rlimit_nofile: AutoOr = "auto" | "nginx_main_worker_rlimit_nofile";
    /// How many connections each worker may have, with clients and upstreams; `auto` is as many as there are files.
    worker_connections: AutoOr = "auto" | "nginx_events_worker_connections";
    /// How many connections a client address may have; further ones are closed. All addresses of a /64 network of IPv6 count
    /// as one. Addresses of `trusted_ips` may have any number. `auto` is half of all connections that clients may have, at
    /// least 1024. See [Overload](overload.md).
    max_connections_per_ip: AutoOr = "auto";
    /// How many requests each worker serves at a time; further ones get 503. `auto`: [Overload](overload.md) says.
    worker_requests_in_flight: AutoOr = "auto";
    /// The memory of the process beyond which requests get 503; 0 is no limit. Without one: 90 % of its control group's, or of the machine's.
    memory_limit: Option<Bytes> = "";
    /// Where clients connect: addresses with ports, and Unix sockets as `unix:/path`. Flags: `ssl`, `http2`, `quic`,
    /// `proxy_protocol`, `backlog=N` and, of a Unix socket, `mode=0660` for who may connect; `reuseport`, `deferred`,
    /// `bind` and `so_keepalive=…` are accepted and change nothing. Port 0 asks the system for a free one. With `quic`,
    /// the address serves [HTTP/3](http3.md). Give it in addition to the same
    /// address with `ssl`, as in `0.0.0.0:8443 ssl http2, 0.0.0.0:8443 quic`, and its port 0 is the port of that one.
    /// With `proxy_protocol`, each connection must begin with a header of the PROXY protocol, version 1 or 2. It names
    /// the client if it comes from one of `trusted_ips` and `real_ip_header` is `proxy_protocol`. All users of this
    /// machine can connect to a Unix socket (`mode=0666`), unless it has another mode. Of the files that the process
    /// may open (`ulimit -Hn`), 64 and 4 for each worker are reserved for the node, with `stream_listen` 256 more for
    /// each worker, and up to 256 for each listener of `admin_listen`, `admin_gui_listen`, `status_listen` and
    /// `apisix_admin_listen`. Half of the others are for clients, because each may need a connection to an upstream; further clients wait in the
    /// backlog.
    proxy_listen: Listeners = "0.0.0.0:8000, 0.0.0.0:8443 ssl http2";
    /// Where TCP connections and UDP datagrams are proxied, by routes of the protocols tcp, tls, tls_passthrough and
    /// udp. Flags: `ssl`, `udp`, `proxy_protocol`, `backlog=N`, and those of `proxy_listen` that change nothing. With
    /// `ssl`, the gateway terminates TLS for routes of `tls`, and passes it through for those of `tls_passthrough`. See
    /// [Streams](streams.md).
    stream_listen: StreamListeners = "off";
    /// The ports by which clients reach listeners, where these have others, as behind a load balancer or in a
    /// container: each pair is the public port and the listener's. Upstreams get the public port in
    /// `X-Forwarded-Port`, and `destinations` of stream routes match it.
    port_maps: Vec<PortMap> = "";
    /// Where the Admin API listens; with the flag `ssl` over TLS, with the certificate of `admin_ssl_cert`. An address beyond
    /// loopback stays closed unless clients authenticate by `admin_auth` or, with `ssl`, `admin_ssl_client_ca`, or
    /// `admin_allow_insecure` is on. Only the node's own user can connect to a Unix socket (`mode=0600`), unless it has
    /// another mode.
    admin_listen: Listeners = "127.0.0.1:8001";
    /// The tokens of the Admin API, as hashes: `weir admin token` generates a token and prints both. Requests send the
    /// token as `Authorization: Bearer …` or in `Kong-Admin-Token`. The audit log has the token's name. With `read_only`
    /// behind its hash, a token reads and does not write.
    admin_auth: AdminAuth = "";
    /// A PEM file of authorities. Clients of an `admin_listen` or `apisix_admin_listen` with `ssl` must present a
    /// certificate from one of them; without one they get 400.
    admin_ssl_client_ca: Option<PathBuf> = "";
    /// Opens the Admin API beyond loopback without authentication.
    admin_allow_insecure: bool = "off";
    /// The certificate of `admin_listen` and `apisix_admin_listen` with `ssl`, in PEM; without one, that of `ssl_cert`.
    admin_ssl_cert: Option<PathBuf> = "";
    /// The file of `admin_ssl_cert`'s private key, in PEM.
    admin_ssl_cert_key: Option<KeyFile> = "";
    /// Where the [web UI](web-ui.md) listens, with the same rules as `admin_listen`. If nothing is set and the port is in
    /// use, the node starts without it.
    admin_gui_listen: Listeners = "127.0.0.1:8002";
    /// Where [Kong Manager](web-ui.md#kong-manager) is served, if it is used: the pages of these origins may use the Admin
    /// API from a browser.
    admin_gui_url: Vec<PageUrl> = "";
    /// The path below which `admin_gui_listen` serves its pages and `kconfig.js`.
    admin_gui_path: BasePath = "/";
    /// Where Kong Manager finds the Admin API. If nothing is set, it takes the host of its own page and the port of
    /// `admin_listen`.
    admin_gui_api_url: Option<String> = "";
    /// The certificate of `admin_gui_listen` with `ssl`, in PEM; without one, that of `ssl_cert`.
    admin_gui_ssl_cert: Option<PathBuf> = "";
    /// The file of `admin_gui_ssl_cert`'s private key, in PEM.
    admin_gui_ssl_cert_key: Option<KeyFile> = "";
    /// Where `/status`, `/status/ready`, `/metrics`, and the targets and health of upstreams are served; with the flag
    /// `ssl` over TLS, with the certificate of `status_ssl_cert`, and with `http2` over HTTP/2 too.
    status_listen: Listeners = "127.0.0.1:8007";
    /// The certificate of `status_listen` with `ssl`, in PEM; without one, that of `ssl_cert`.
    status_ssl_cert: Option<PathBuf> = "";
    /// The file of `status_ssl_cert`'s private key, in PEM.
    status_ssl_cert_key: Option<KeyFile> = "";
    /// The least severe messages that are logged. Lua code alone logs at `info`, with `kong.log.info` and `ngx.log(ngx.INFO, …)`;
    /// the node's own messages at INFO are notices, which both `info` and `notice` show. `error` and above are the same.
    log_level: LogLevel = "notice";
    /// The log of the node's own messages. Relative paths of logs start at `prefix`.
    proxy_error_log: LogTarget = "/dev/stderr";
    /// The log with a line for each proxied request.
    proxy_access_log: LogTarget = "off";
    /// The format of `proxy_access_log`.
    proxy_access_log_format: AccessLogFormat = "combined";
    /// The log with a line for each session of `stream_listen`, in nginx's terms: `$remote_addr [$time_local] $protocol
    /// $status $bytes_sent $bytes_received $session_time`.
    proxy_stream_access_log: SessionLog = "off";
    /// The log with a line for each request to the Admin API.
    admin_access_log: LogTarget = "off";
    /// Which headers the gateway adds to responses, those of the Admin API included. `off` alone adds none.
    headers: Headers = "server_tokens, latency_tokens, X-Kong-Request-Id";
    /// Which headers the gateway adds to requests for upstreams.
    headers_upstream: UpstreamHeaders = "X-Kong-Request-Id";
    /// The peers whose `X-Forwarded-*`, `real_ip_header` and PROXY protocol headers are trusted; `unix:` stands for all
    /// clients of Unix sockets.
    trusted_ips: Vec<Trusted> = "";
    /// The header in which a trusted peer sends the address of the real client; `proxy_protocol` is the header of the
    /// connection.
    real_ip_header: RealIpHeader = "X-Real-IP" | "nginx_http_real_ip_header" | "nginx_proxy_real_ip_header";
    /// Uses the last address of `real_ip_header` that is not trusted, instead of the last one.
    real_ip_recursive: bool = "off" | "nginx_http_real_ip_recursive" | "nginx_proxy_real_ip_recursive";
    /// The content type of errors of the proxy itself, such as 400 and 502, for clients that send neither `Accept` nor
    /// `Content-Type`.
    error_default_type: ErrorContentType = "text/plain";
    /// A file with the body of errors for clients that accept HTML: its first `%s` becomes the message, its second the
    /// request's id.
    error_template_html: Option<TextFile> = "";
    /// The same for clients that accept JSON.
    error_template_json: Option<TextFile> = "";
    /// The same for clients that accept XML.
    error_template_xml: Option<TextFile> = "";
    /// The same for clients that accept plain text.
    error_template_plain: Option<TextFile> = "";
    /// Answers `Kong-Debug: 1` with the names of the route and the service.
    allow_debug_header: bool = "off";
    /// The cost of plugins is measured for one of so many requests, on average: see [what plugins cost](costs.md). 1
    /// measures all, 0 none.
    cost_sampling: u32 = "64";
    /// Which responses have `Server-Timing`, with the time of each plugin, of the upstream, and in total: `on_request`
    /// those to requests with `Weir-Server-Timing: 1` from `server_timing_ips`; `always` all, to all clients.
    server_timing: TimedResponses = "off";
    /// The clients of `server_timing=on_request`. Clients behind a proxy count if that proxy is in `trusted_ips`.
    server_timing_ips: Vec<Network> = "127.0.0.0/8, ::1";
    /// Answers `X-Kong-Request-Debug: *` with [where the time went](debugging-requests.md). Clients on this machine may
    /// send it; others need the token, in `X-Kong-Request-Debug-Token`.
    request_debug: bool = "on";
    /// The token of `request_debug`. Without one, the node generates one when it starts. It is in the file
    /// `.request_debug_token` of `prefix`.
    request_debug_token: Option<Password> = "";
    /// Remembers what each request came to, for the [analytics](analytics.md) of this node. A control plane adds up what its
    /// data planes have counted.
    analytics: bool = "on";
    /// The memory of analytics. If it is exceeded, the oldest measurements go first. 2m for each worker come on top.
    analytics_memory: Bytes = "64m";
    /// How much of the disk analytics may take, in `analytics` of `prefix`; 0 keeps them in memory alone.
    analytics_disk: Bytes = "256m";
    /// A Prometheus that scrapes this node or its fleet, such as `http://prometheus.example.com:9090`, with user and
    /// password if it asks for them. It [answers](analytics.md#from-prometheus) what this node does not remember.
    analytics_prometheus: Option<HttpUrl> = "";
    /// A collector of OTLP/HTTP that gets [metrics](analytics.md#to-opentelemetry) of this node, such as
    /// `http://collector.example.com:4318/v1/metrics`. A control plane sends none; its data planes send their own.
    analytics_otlp_endpoint: Option<HttpUrl> = "";
    /// How often they are sent.
    analytics_otlp_interval: ExportInterval = "60s";
    /// Headers of these requests, as in `authorization=Bearer%20TOKEN, x-scope=edge`; in values, write `,` as %2C and `%` as
    /// %25. They are not shown.
    analytics_otlp_headers: SecretHeaders = "";
    /// Which requests analytics keep in full, without bodies and without the values of query arguments: `errors` keeps
    /// errors and the slowest requests of each route, `all` some of the others too, `off` none. They take at most 8m of
    /// `analytics_memory`. While somebody [watches requests](analytics.md#watching-requests), others are kept as well.
    analytics_samples: SampledRequests = "errors";
    /// The headers of requests and responses whose values these samples have. Of others they have the length. The values
    /// of `Authorization`, `Cookie` and other headers that hold credentials are never kept.
    analytics_sample_headers: Vec<String> = "accept, accept-encoding, content-encoding, content-length, content-type, date, grpc-status, host, origin, retry-after, server, upgrade, user-agent, via";
    /// The longest request body; 0 is no limit.
    client_max_body_size: Bytes = "0" | "nginx_http_client_max_body_size" | "nginx_proxy_client_max_body_size";
    /// The limits of a request's head: number and size of buffers. The whole head must fit into all of them (else 400),
    /// the target (else 414) and each field (else 400) into one. More than 1,000 fields are answered 431. Over HTTP/2 and
    /// HTTP/3, all of a head is bounded by `http2_max_header_list_size` and `http3_max_header_list_size` instead.
    large_client_header_buffers: HeaderBuffers = "4 8k" | "nginx_http_large_client_header_buffers" | "nginx_proxy_large_client_header_buffers";
    /// How long a request body may be for plugins to read it, if that is more than 1m; a longer one streams past them.
    /// Bodies are buffered in memory alone, all of them together within `mem_bodies_size`. `request_buffering` holds up
    /// to 64k of a body, whatever this is.
    client_body_buffer_size: Bytes = "8k" | "nginx_http_client_body_buffer_size" | "nginx_proxy_client_body_buffer_size";
    /// How much memory all bodies that plugins read may take together; 0 is no limit. When it is used up, requests
    /// whose bodies a plugin must read get 503: see [bodies in memory](deployment.md#bodies-in-memory).
    mem_bodies_size: Bytes = "256m";
    /// How long a client may take to send the head of a request.
    client_header_timeout: Duration = "60s" | "nginx_http_client_header_timeout" | "nginx_proxy_client_header_timeout";
    /// How long a client may pause while it sends a body.
    client_body_timeout: Duration = "60s" | "nginx_http_client_body_timeout" | "nginx_proxy_client_body_timeout";
    /// The bytes a second of a request's body that a client must send after `client_body_timeout`; 0 is any number.
    client_body_min_rate: u32 = "240";
    /// How long a client may pause while it receives a response.
    send_timeout: Duration = "60s" | "nginx_http_send_timeout" | "nginx_proxy_send_timeout";
    /// How long an idle connection of a client stays open; 0 closes it after every response.
    keepalive_timeout: Duration = "75s" | "nginx_http_keepalive_timeout" | "nginx_proxy_keepalive_timeout";
    /// How long a client of an Admin API may take to send the head of a request; without a value,
    /// `client_header_timeout`.
    admin_client_header_timeout: Option<Duration> = "" | "nginx_admin_client_header_timeout";
    /// How long an idle connection of a client of an Admin API stays open; without a value, `keepalive_timeout`.
    admin_keepalive_timeout: Option<Duration> = "" | "nginx_admin_keepalive_timeout";
    /// How many requests a connection of a client may carry.
    keepalive_requests: u32 = "10000" | "nginx_http_keepalive_requests" | "nginx_proxy_keepalive_requests";
    /// How many requests of one HTTP/2 connection are served at a time; more are refused.
    http2_max_concurrent_streams: u32 = "128" | "nginx_http_http2_max_concurrent_streams" | "nginx_proxy_http2_max_concurrent_streams";
    /// The maximum size of the fields of an HTTP/2 request, with 32 bytes more for each field; a larger one gets 431.
    http2_max_header_list_size: Bytes = "64k";
    /// The same for all requests of one HTTP/2 connection that are served at a time; a request beyond it is refused, so
    /// that its client may send it again, unless no other is served.
    http2_connection_header_list_size: Bytes = "256k";
    /// How much of the body of an HTTP/2 request a client may send before a plugin or the upstream reads it; at least
    /// 16k.
    http2_body_preread_size: Bytes = "64k" | "nginx_http_http2_body_preread_size" | "nginx_proxy_http2_body_preread_size";
    /// The same for all requests of one connection together.
    http2_connection_window_size: Bytes = "1m";
    /// How many HTTP/2 requests a client may reset, or have reset for breaking a rule, at once and in each second. One
    /// that is reset after 10 ms or more counts less, and one that has a response or is older than 1 s not at all.
    /// Beyond the limit the connection accepts no more requests (GOAWAY); beyond twice the limit it is closed.
    http2_max_resets: u32 = "256";
    /// The interval of HTTP/2 PINGs to clients and upstreams with requests in flight; a connection without a response
    /// to the last PING is closed; 0 sends none.
    http2_ping_interval: Duration = "30s";
    /// How many requests of one HTTP/3 connection are served at a time; the client waits with more.
    http3_max_concurrent_streams: u32 = "128" | "nginx_http_http3_max_concurrent_streams" | "nginx_proxy_http3_max_concurrent_streams";
    /// The maximum size of the fields of an HTTP/3 request, with 32 bytes more for each field; a larger one gets 431.
    http3_max_header_list_size: Bytes = "64k";
    /// The same for all requests of one HTTP/3 connection that are served at a time; a request beyond it is refused, so
    /// that its client may send it again, unless no other is served.
    http3_connection_header_list_size: Bytes = "256k";
    /// How much of the body of an HTTP/3 request a client may send before a plugin or the upstream reads it; at least
    /// 16k.
    http3_body_preread_size: Bytes = "64k" | "nginx_http_http3_stream_buffer_size" | "nginx_proxy_http3_stream_buffer_size";
    /// The same for all requests of one connection together.
    http3_connection_window_size: Bytes = "1m";
    /// How many HTTP/3 requests a client may reset, or have reset for breaking a rule, at once and in each second,
    /// counted as by `http2_max_resets`.
    http3_max_resets: u32 = "256";
    /// How long an HTTP/3 client may be silent before its connection is closed. Keep-alive PINGs are sent three times
    /// as often. At least 1s.
    http3_idle_timeout: Duration = "60s";
    /// How many QUIC handshakes may be in progress with clients whose address is not validated. Further clients must
    /// validate theirs first (Retry), which costs them a round trip; 0 makes all do so, as nginx's `quic_retry on`.
    http3_max_unproven_handshakes: u32 = "100";
    /// For how long responses on a port with `ssl` advertise in `Alt-Svc` that the port also serves `quic`; 0 sends no
    /// `Alt-Svc`.
    http3_alt_svc_max_age: Duration = "1d";
    /// The port in `Alt-Svc`, if clients reach `quic` on another than the listener's; 0 is the listener's.
    http3_alt_svc_port: u16 = "0";
    /// The maximum size of the head of an upstream's response; a larger one is answered 502.
    proxy_buffer_size: Bytes = "64k" | "nginx_http_proxy_buffer_size" | "nginx_proxy_proxy_buffer_size";
    /// Whether upstreams must have a certificate from a trusted authority where their service has no `tls_verify`;
    /// others are answered 502.
    proxy_ssl_verify: bool = "off" | "nginx_http_proxy_ssl_verify" | "nginx_proxy_proxy_ssl_verify";
    /// The same for the services of stream routes.
    stream_proxy_ssl_verify: bool = "off" | "nginx_stream_proxy_ssl_verify" | "nginx_sproxy_proxy_ssl_verify";
    /// The authorities for verifying upstreams, in PEM, in place of `lua_ssl_trusted_certificate`. A service's
    /// `ca_certificates` take precedence.
    proxy_ssl_trusted_certificate: Option<PathBuf> = "" | "nginx_http_proxy_ssl_trusted_certificate" | "nginx_proxy_proxy_ssl_trusted_certificate" | "nginx_stream_proxy_ssl_trusted_certificate" | "nginx_sproxy_proxy_ssl_trusted_certificate";
    /// How many certificates may be between an upstream's and an authority's, where its service has no
    /// `tls_verify_depth`; without a value, any number.
    proxy_ssl_verify_depth: Option<u32> = "" | "nginx_http_proxy_ssl_verify_depth" | "nginx_proxy_proxy_ssl_verify_depth" | "nginx_stream_proxy_ssl_verify_depth" | "nginx_sproxy_proxy_ssl_verify_depth";
    /// How many idle connections a worker keeps to each target; 0 keeps none. One more closes the one that was idle for longest.
    upstream_keepalive_pool_size: u32 = "512" | "nginx_upstream_keepalive";
    /// How many requests a connection to a target may carry; 0 is no limit.
    upstream_keepalive_max_requests: u32 = "10000" | "nginx_upstream_keepalive_requests";
    /// How long an idle connection to a target stays open; 0 is no limit.
    upstream_keepalive_idle_timeout: Duration = "60" | "nginx_upstream_keepalive_timeout";
    /// How many requests an HTTP/2 connection to a target carries at a time.
    upstream_http2_max_concurrent_streams: u32 = "100";
    /// How many HTTP/2 connections a worker opens to each target, for each TLS server name; further requests wait until
    /// one has room.
    upstream_http2_max_connections: u32 = "16";
    /// The name servers; without any, those of `/etc/resolv.conf`.
    dns_resolver: Vec<NameServer> = "";
    /// The hosts file, whose names need no name server.
    dns_hostsfile: PathBuf = "/etc/hosts";
    /// The record types to query, in order.
    dns_order: Vec<DnsRecord> = "LAST, SRV, A, CNAME";
    /// How long an answer is valid, instead of its own TTL.
    dns_valid_ttl: Option<Duration> = "";
    /// How long an answer past its TTL is still used while a new one is fetched.
    dns_stale_ttl: Duration = "3600";
    /// How long a failed lookup is remembered.
    dns_error_ttl: Duration = "1";
    /// How long a name that does not exist is remembered.
    dns_not_found_ttl: Duration = "30";
    /// The certificate for names that no certificate entity has, in PEM; without one, one is generated.
    ssl_cert: Option<PathBuf> = "";
    /// The file of `ssl_cert`'s private key, in PEM.
    ssl_cert_key: Option<KeyFile> = "";
    /// The versions of TLS offered to clients.
    ssl_protocols: TlsVersions = "TLSv1.2 TLSv1.3" | "nginx_http_ssl_protocols" | "nginx_proxy_ssl_protocols";
    /// The cipher suites offered to clients: `modern` is TLS 1.3 alone; `old` has the suites of `intermediate` in the
    /// gateway's order of preference, because weaker ones are not implemented; `custom` is `ssl_ciphers`.
    ssl_cipher_suite: CipherSuite = "intermediate";
    /// With `ssl_cipher_suite=custom`: the cipher suites of TLS 1.2. Those of TLS 1.3 are always offered. Suites
    /// without forward secrecy or authenticated encryption are not implemented; a warning lists them. Given as a
    /// directive of nginx, it implies `ssl_cipher_suite=custom`.
    ssl_ciphers: Ciphers = "" | "nginx_http_ssl_ciphers" | "nginx_proxy_ssl_ciphers";
    /// With `ssl_cipher_suite=custom`: whether the order of `ssl_ciphers` decides, instead of the client's.
    ssl_prefer_server_ciphers: bool = "on" | "nginx_http_ssl_prefer_server_ciphers" | "nginx_proxy_ssl_prefer_server_ciphers";
    /// Whether clients get session tickets, whose keys all workers share. Otherwise only sessions in the cache are
    /// resumed.
    ssl_session_tickets: bool = "on" | "nginx_http_ssl_session_tickets" | "nginx_proxy_ssl_session_tickets";
    /// OCSP stapling: clients get a proof that the certificate is not revoked. Proofs are fetched in the background
    /// from the responders of the certificates; the entity's `cert` must contain the issuer's certificate after its
    /// own.
    ssl_stapling: bool = "off" | "nginx_http_ssl_stapling" | "nginx_proxy_ssl_stapling";
    /// How much memory the cache of TLS sessions may take; 0 and `off` store none. nginx's `shared:NAME:SIZE` is read
    /// too.
    ssl_session_cache_size: CacheSize = "10m" | "nginx_http_ssl_session_cache" | "nginx_proxy_ssl_session_cache";
    /// How long a TLS session can be resumed.
    ssl_session_timeout: Duration = "1d" | "nginx_http_ssl_session_timeout" | "nginx_proxy_ssl_session_timeout";
    /// Presents the certificate of `client_ssl_cert` to upstreams that request one, if neither the service nor the
    /// upstream entity has a `client_certificate`.
    client_ssl: bool = "off";
    /// With `client_ssl`: the certificate, in PEM; without one, that of `ssl_cert`.
    client_ssl_cert: Option<PathBuf> = "";
    /// The file of `client_ssl_cert`'s private key, in PEM.
    client_ssl_cert_key: Option<KeyFile> = "";
    /// The authorities for verifying upstreams, and servers that plugins connect to: paths, or `system`, or both, as in
    /// `system,/path/to/ca.pem`.
    lua_ssl_trusted_certificate: Vec<String> = "system";
    /// Whether servers that the plugins http-log, tcp-log, opentelemetry and zipkin send to over TLS must have a
    /// certificate from one of `lua_ssl_trusted_certificate`. With `off` any certificate is accepted, as in Kong, so
    /// that an attacker on the network can read the logs and the tokens in their headers.
    log_tls_verify: bool = "on";
    /// Where [plugins in Lua](lua.md#plugins-on-disk) and the modules that they require are, each with a `?` for the
    /// module's name. The places of LuaRocks below `/usr/local` follow.
    lua_package_path: String = "./?.lua;./?/init.lua;";
    /// Where C modules are. None is loaded: a message names the file that a plugin would need.
    lua_package_cpath: Option<String> = "";
    /// Whether [Lua](lua.md) that stands in the configuration runs, as in pre-function and post-function: in a sandbox
    /// (`sandbox`), with all that plugins may do (`on`), or not at all (`off`).
    untrusted_lua: UntrustedLua = "sandbox";
    /// With `untrusted_lua=sandbox`: the modules that such code may `require`, as in `cjson, resty.http`.
    untrusted_lua_sandbox_requires: Vec<String> = "";
    /// With `untrusted_lua=sandbox`: further globals that such code sees, as in `os.getenv, setmetatable`.
    untrusted_lua_sandbox_environment: Vec<String> = "";
    /// How much CPU time Lua code may take for one request, in all phases. A call that takes more is ended: in rewrite and
    /// access the request gets 500, in other phases the code is skipped.
    lua_timeout: Duration = "50ms";
    /// How much memory the Lua code on each worker may take.
    lua_memory: Bytes = "64m";
    /// Further dictionaries that Lua code on all workers [shares](lua.md#shared-dictionaries), as in `tokens 10m, counters
    /// 1m`. One of Kong's names has this size then.
    lua_shared_dict: SharedDicts = "" | "nginx_http_lua_shared_dict";
    /// How much memory the dictionary of `kong.cache` may take, which Lua code on all workers shares.
    mem_cache_size: Bytes = "128m";
    /// Which spans tracing plugins such as opentelemetry send: `request`, `balancer`, `router`, `dns_query`,
    /// `plugin_rewrite`, `plugin_access`, `plugin_header_filter`, or `all`. With `off` they send those of `request` and
    /// `balancer`. `http_client` and `db_query` have no spans.
    tracing_instrumentations: TracingInstrumentations = "off" | "opentelemetry_tracing";
    /// The fraction of traces that is sampled, from 0 to 1, unless a plugin has its own `sampling_rate`.
    tracing_sampling_rate: Fraction = "0.01" | "opentelemetry_tracing_sampling_rate";
    /// The vaults that references may ask, by kind: `bundled` for all, `off` for none. See [Vaults](vaults.md).
    vaults: EnabledVaults = "bundled";
    /// What the names of environment variables begin with that `{vault://env/…}` reads.
    vault_env_prefix: Option<String> = "";
    /// The folder of the secrets that `{vault://file/…}` reads. No reference leads to files outside of it.
    vault_file_directory: PathBuf = "/run/secrets";
    /// The protocol of the HashiCorp Vault or OpenBao that `{vault://hcv/…}` asks: `http` or `https`. Its certificate is
    /// verified against `lua_ssl_trusted_certificate`.
    vault_hcv_protocol: HcvProtocol = "http";
    /// Its host. The system resolves the name, not `dns_resolver`.
    vault_hcv_host: String = "127.0.0.1";
    /// Its port.
    vault_hcv_port: u16 = "8200";
    /// Its namespace.
    vault_hcv_namespace: Option<String> = "";
    /// The path of its secrets engine.
    vault_hcv_mount: String = "secret";
    /// The version of its secrets engine: `v1` or `v2`.
    vault_hcv_kv: KvVersion = "v1";
    /// How the node logs in: `token`, `kubernetes` or `approle`.
    vault_hcv_auth_method: HcvAuthMethod = "token";
    /// With `vault_hcv_auth_method=token`: the token.
    vault_hcv_token: Option<Password> = "";
    /// With `vault_hcv_auth_method=kubernetes`: the role.
    vault_hcv_kube_role: Option<String> = "";
    /// The path of the Kubernetes auth method; without one, `kubernetes`.
    vault_hcv_kube_auth_path: Option<String> = "";
    /// The file of the service account's token; without one, the file where Kubernetes puts it.
    vault_hcv_kube_api_token_file: Option<String> = "";
    /// The path of the AppRole auth method; without one, `approle`.
    vault_hcv_approle_auth_path: Option<String> = "";
    /// With `vault_hcv_auth_method=approle`: the id of the role.
    vault_hcv_approle_role_id: Option<String> = "";
    /// With `vault_hcv_auth_method=approle`: the secret id.
    vault_hcv_approle_secret_id: Option<Password> = "";
    /// The file of the secret id, in place of `vault_hcv_approle_secret_id`.
    vault_hcv_approle_secret_id_file: Option<String> = "";
    /// Seconds after which a secret is fetched again; without it, that is at each rotation.
    vault_hcv_ttl: Option<u32> = "";
    /// Seconds after which a missing secret is asked for again; without it, that is at each rotation.
    vault_hcv_neg_ttl: Option<u32> = "";
    /// Seconds beyond `vault_hcv_ttl` for which a secret that cannot be fetched any more is used; without it, there is no
    /// limit.
    vault_hcv_resurrect_ttl: Option<u32> = "";
    /// How often secrets of vaults are read again; `0` is never. If one has changed, the configuration is compiled with it.
    vault_rotation_interval: Duration = "60s";
    /// How long a node that is to stop still accepts connections, while `/status/ready` says that it is not ready, so that
    /// balancers notice before. As a `preStop` hook that sleeps does in Kubernetes.
    shutdown_delay: Duration = "0s";
    /// How long requests in flight may take to finish when the node stops, after `shutdown_delay`.
    drain_timeout: Duration = "10s" | "nginx_main_worker_shutdown_timeout";
    /// The same after an [upgrade](upgrades.md), after which no command waits for the old process: WebSockets, gRPC streams and
    /// sessions stay on it for so long. By default `drain_timeout`.
    upgrade_drain_timeout: Option<Duration> = "";
    /// The plugins that a configuration may use; `bundled` is all those of the program. Other names are those of [plugins in
    /// Lua](lua.md#plugins-on-disk).
    plugins: Vec<String> = "bundled";
    /// How routes are written and ordered. With `expressions`, routes may have an `expression`: see
    /// [Expressions](expressions.md). With `traditional`, the older of two equal routes comes first, and `path_handling: v1`
    /// has an effect.
    router_flavor: RouterFlavor = "traditional_compatible";
    /// Serves APISIX's Admin API, and traffic on APISIX's port. See [Coming from APISIX](coming-from-apisix.md).
    apisix_admin: bool = "off";
    /// The key of APISIX's Admin API. Without one, the first start generates one, writes it to standard error once, and
    /// stores its hash in `prefix`.
    apisix_admin_key: Option<AdminKey> = "";
    /// With `apisix_admin`: where clients connect, in addition to `proxy_listen`.
    apisix_proxy_listen: Listeners = "0.0.0.0:9080";
    /// With `apisix_admin`: where APISIX's Admin API, and metrics with APISIX's names, are served.
    apisix_admin_listen: Listeners = "127.0.0.1:9180";
    /// With `apisix_admin`: serves `/apisix/admin` on `apisix_proxy_listen` too, for clients on this machine.
    apisix_admin_on_proxy: bool = "on";
    /// The etcd of an APISIX installation, which holds the configuration in the place of a database: the node serves what
    /// is there, and follows each change. See [Coming from APISIX](coming-from-apisix.md).
    apisix_etcd: Option<EtcdEndpoints> = "";
    /// Where in etcd the objects are.
    apisix_etcd_prefix: String = "/apisix";
    /// The user of etcd, if it asks for one.
    apisix_etcd_user: Option<String> = "";
    /// The user's password.
    apisix_etcd_password: Option<Password> = "";
    /// How long etcd may take to answer.
    apisix_etcd_timeout: Duration = "30s";
    /// Verifies the certificates of etcd against `lua_ssl_trusted_certificate`.
    apisix_etcd_ssl_verify: bool = "on";
    /// The certificate that is presented to etcd.
    apisix_etcd_ssl_cert: Option<PathBuf> = "";
    /// Its private key.
    apisix_etcd_ssl_cert_key: Option<KeyFile> = "";
    /// The keys of APISIX's `data_encryption.keyring`, 16 characters each: private keys and credentials are encrypted with the
    /// first, and decrypted with any. The default is APISIX's.
    apisix_keyring: Keyring = "qeddd145sfvddff3, edd1c9f0985e76a2";
}
