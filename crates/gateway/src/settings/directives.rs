//! Directives of nginx, which Kong's settings `nginx_BLOCK_DIRECTIVE` inject. Those with an equivalent are other names of
//! settings, in the table. This says what takes the place of others.

/// What is said about a directive without an equivalent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Advice {
    /// It has no effect: why, or what to use.
    Ignored(&'static str),
    /// It protects something, so the node does not start without it: what to use.
    Protects(&'static str),
}

/// The blocks of nginx's configuration that Kong injects into. A block comes before one that its name begins with.
const BLOCKS: [&str; 13] = [
    "admin_gui",
    "admin",
    "debug",
    "events",
    "http",
    "location",
    "main",
    "proxy",
    "sproxy",
    "status",
    "stream",
    "supstream",
    "upstream",
];

/// Directives that decide who gets what.
const PROTECTING: &[(&str, &str)] = &[
    ("allow", "use the plugin ip-restriction, or listen on another address"),
    ("deny", "use the plugin ip-restriction, or listen on another address"),
    ("satisfy", "use plugins of authentication"),
    ("auth_basic*", "use the plugin basic-auth; for the Admin API admin_auth"),
    ("auth_request*", "use the plugin forward-auth"),
    ("auth_jwt*", "use the plugin jwt"),
    ("auth_*", "use a plugin of authentication; for the Admin API admin_auth"),
    ("access_by_lua*", "use a plugin"),
    ("rewrite_by_lua*", "use a plugin"),
    ("modsecurity*", "run the firewall before the gateway"),
    ("limit_req*", "use the plugin rate-limiting"),
    ("limit_conn*", "use the plugin rate-limiting"),
    ("limit_except", "name the methods of routes"),
    ("secure_link*", "use the plugin hmac-auth"),
    ("valid_referers", "use a route that names the header"),
    ("ssl_verify_client", "use the plugin mtls-auth; for the Admin API admin_ssl_client_ca"),
    ("ssl_client_certificate", "use the plugin mtls-auth; for the Admin API admin_ssl_client_ca"),
    ("ssl_reject_handshake", "clients without a known server name get the default certificate: leave it out"),
    ("ssl_crl", "revocation lists are not read: leave out the authority"),
    ("lua_ssl_crl", "revocation lists are not read: name authorities by lua_ssl_trusted_certificate"),
    ("ssl_ocsp", "clients' certificates are not checked for revocation: leave it out"),
    ("proxy_ssl_crl", "revocation lists are not read: name authorities by proxy_ssl_trusted_certificate"),
    ("grpc_ssl_crl", "revocation lists are not read: name authorities by proxy_ssl_trusted_certificate"),
    ("grpc_ssl_verify", "write proxy_ssl_verify, which holds for gRPC too"),
    ("grpc_ssl_trusted_certificate", "write proxy_ssl_trusted_certificate, which holds for gRPC too"),
    // Of blocks that have no setting for them.
    ("proxy_ssl_verify", "write proxy_ssl_verify, or stream_proxy_ssl_verify"),
    ("proxy_ssl_trusted_certificate", "write proxy_ssl_trusted_certificate"),
];

const BUFFERS: &str =
    "needs no setting: buffers are borrowed from the worker, and bodies stream through them";
const OF_NGINX: &str = "needs no setting: it concerns how nginx works inside";

/// Directives without effect.
const IGNORED: &[(&str, &str)] = &[
    ("gzip*", "is ignored: responses are passed on as upstreams send them, so compress there"),
    ("brotli*", "is ignored: responses are passed on as upstreams send them, so compress there"),
    ("gunzip*", "is ignored: responses are passed on as upstreams send them"),
    ("charset*", "is ignored: upstreams name the charset in Content-Type"),
    ("set_real_ip_from", "is ignored: write trusted_ips"),
    ("add_header", "is ignored: use the plugin response-transformer"),
    ("more_set_headers", "is ignored: use the plugin response-transformer"),
    ("more_clear_headers", "is ignored: use the plugin response-transformer"),
    ("proxy_hide_header", "is ignored: use the plugin response-transformer"),
    ("proxy_pass_header", "is ignored: every header is passed on"),
    ("proxy_set_header", "is ignored: use the plugin request-transformer"),
    ("proxy_ignore_headers", "is ignored: no header of a response changes what is done with it"),
    ("server_tokens", "is ignored: write headers"),
    (
        "proxy_ssl_certificate*",
        "is ignored: write client_ssl=on with client_ssl_cert and client_ssl_cert_key",
    ),
    ("proxy_ssl_name", "is ignored: the name is that of the Host that the upstream gets"),
    ("proxy_ssl_server_name", "needs no setting: the server name is always sent"),
    ("proxy_ssl_session_reuse", "needs no setting: sessions are resumed"),
    ("proxy_ssl_protocols", "is ignored: upstreams are offered TLS 1.2 and 1.3"),
    (
        "proxy_ssl_ciphers",
        "is ignored: upstreams are offered suites with forward secrecy and authenticated encryption",
    ),
    ("proxy_connect_timeout", "is ignored: write the service's connect_timeout"),
    ("proxy_send_timeout", "is ignored: write the service's write_timeout"),
    ("proxy_read_timeout", "is ignored: write the service's read_timeout"),
    ("proxy_timeout", "is ignored: write the service's read_timeout and write_timeout"),
    ("proxy_next_upstream*", "is ignored: write the service's retries"),
    ("proxy_buffering", "is ignored: write the route's response_buffering"),
    ("proxy_request_buffering", "is ignored: write the route's request_buffering"),
    ("proxy_cache*", "is ignored: use the plugin proxy-cache"),
    ("proxy_protocol", "is ignored: write `proxy_protocol: v1` with each service that is to get a header"),
    ("error_page", "is ignored: use the plugin response-transformer"),
    ("access_log", "is ignored: write proxy_access_log"),
    ("log_format", "is ignored: write proxy_access_log_format"),
    ("error_log", "is ignored: write proxy_error_log"),
    ("resolver*", "is ignored: write dns_resolver"),
    ("lua_*", "has no meaning here and is ignored: there is no Lua in nginx's sense"),
    ("ssl_dhparam", "needs no setting: keys are exchanged by elliptic curves alone"),
    ("ssl_ecdh_curve", "is ignored: X25519, P-256 and P-384 are offered"),
    ("ssl_early_data", "is ignored: early data is not accepted, because it can be replayed"),
    ("ssl_stapling_verify", "needs no setting: responses are always verified"),
    ("ssl_stapling_responder", "is ignored: the certificate names the responder"),
    ("ssl_session_ticket_key", "is ignored: keys of tickets are generated, and rotate"),
    ("client_header_buffer_size", BUFFERS),
    ("proxy_buffers", BUFFERS),
    ("proxy_busy_buffers_size", BUFFERS),
    ("proxy_max_temp_file_size", BUFFERS),
    ("proxy_temp_*", BUFFERS),
    ("client_body_temp_path", BUFFERS),
    ("client_body_in_*", BUFFERS),
    ("output_buffers", BUFFERS),
    ("postpone_output", BUFFERS),
    ("lingering_*", OF_NGINX),
    ("reset_timedout_connection", OF_NGINX),
    ("connection_pool_size", OF_NGINX),
    ("request_pool_size", OF_NGINX),
    ("sendfile*", OF_NGINX),
    ("tcp_*", OF_NGINX),
    ("aio*", OF_NGINX),
    ("directio*", OF_NGINX),
    ("open_file_cache*", OF_NGINX),
    ("types_hash_*", OF_NGINX),
    ("server_names_hash_*", OF_NGINX),
    ("variables_hash_*", OF_NGINX),
    ("map_hash_*", OF_NGINX),
    ("http2_recv_*", OF_NGINX),
    ("pcre_jit", OF_NGINX),
    ("multi_accept", OF_NGINX),
    ("accept_mutex*", OF_NGINX),
    ("use", OF_NGINX),
    ("worker_cpu_affinity", OF_NGINX),
    ("worker_priority", OF_NGINX),
    ("worker_aio_requests", OF_NGINX),
    ("thread_pool", OF_NGINX),
    ("timer_resolution", OF_NGINX),
    ("master_process", OF_NGINX),
    ("pid", "is ignored: the pid file is in prefix"),
    ("env", "needs no setting: the environment is there"),
];

/// What is said about a setting that injects a directive; none for other settings. Protection that is switched off is
/// not missed.
pub(super) fn advice(name: &str, value: &str) -> Option<Advice> {
    let directive = directive(name)?;
    let find = |known: &'static [(&str, &'static str)]| {
        known.iter().find(|(pattern, _)| is_named(directive, pattern)).map(|(_, reason)| *reason)
    };
    match find(PROTECTING) {
        Some(instead) if value.trim() != "off" => return Some(Advice::Protects(instead)),
        Some(_) => return Some(Advice::Ignored("has no effect: it is off here")),
        None => {}
    }
    Some(Advice::Ignored(find(IGNORED).unwrap_or("is ignored: there is no such directive here")))
}

/// The directive that a setting injects.
pub(super) fn directive(name: &str) -> Option<&str> {
    in_block(name).map(|(_, directive)| directive)
}

/// The same, behind its block.
pub(super) fn in_block(name: &str) -> Option<(&'static str, &str)> {
    let injected = name.strip_prefix("nginx_")?;
    let parts =
        BLOCKS.iter().find_map(|block| Some((*block, injected.strip_prefix(block)?.strip_prefix('_')?)));
    parts.filter(|(_, directive)| !directive.is_empty())
}

fn is_named(directive: &str, pattern: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => directive.starts_with(start),
        None => directive == pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_and_directive_is_told_apart() {
        for (name, expected) in [
            ("nginx_proxy_gzip_types", Some("gzip_types")),
            ("nginx_admin_gui_gzip", Some("gzip")),
            ("nginx_admin_deny", Some("deny")),
            ("nginx_sproxy_proxy_ssl_crl", Some("proxy_ssl_crl")),
            ("nginx_proxy_", None),
            ("nginx_daemon", None),
            ("proxy_listen", None),
        ] {
            assert_eq!(directive(name), expected, "{name}");
        }
    }

    #[test]
    fn what_protects_is_never_passed_over() {
        let advice = |name| advice(name, "all");
        assert!(matches!(advice("nginx_admin_deny"), Some(Advice::Protects(_))));
        assert!(matches!(advice("nginx_http_limit_req_zone"), Some(Advice::Protects(_))));
        assert!(matches!(advice("nginx_proxy_grpc_ssl_verify"), Some(Advice::Protects(_))));
        assert!(matches!(advice("nginx_location_proxy_ssl_verify"), Some(Advice::Protects(_))));
        assert!(matches!(advice("nginx_proxy_auth_ldap"), Some(Advice::Protects(_))));
        assert!(matches!(advice("nginx_http_lua_ssl_crl"), Some(Advice::Protects(_))));
        assert!(matches!(advice("nginx_http_lua_shared_dict"), Some(Advice::Ignored(_))));
        assert!(matches!(advice("nginx_proxy_gzip"), Some(Advice::Ignored(_))));
        assert!(matches!(super::advice("nginx_proxy_auth_basic", "off"), Some(Advice::Ignored(_))));
        assert_eq!(advice("nginx_daemon"), None);
    }

    #[test]
    fn no_directive_is_listed_behind_one_that_hides_it() {
        let all: Vec<_> = PROTECTING.iter().chain(IGNORED).collect();
        for (at, (pattern, _)) in all.iter().enumerate() {
            let hidden = all[..at].iter().any(|(before, _)| is_named(pattern.trim_end_matches('*'), before));
            assert!(!hidden, "{pattern}");
        }
    }
}
