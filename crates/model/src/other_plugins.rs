//! What is said of a plugin that there is not: whose it is, and what comes nearest.
use crate::plugin_schema::{PluginSchema, find_plugin};
use crate::schema::{did_you_mean, quoted};

/// The plugins of Kong Enterprise that are not here, each with what comes nearest; of `ai-` there are many more.
const OF_KONG_ENTERPRISE: &[(&str, &str)] = &[
    ("app-dynamics", "`opentelemetry` comes nearest"),
    ("application-registration", ""),
    ("canary", "`traffic-split` does the same, with `rules` of upstreams and their weights"),
    ("confluent", "`kafka-logger` comes nearest"),
    ("degraphql", ""),
    ("exit-transformer", "`response-transformer` comes nearest"),
    ("forward-proxy", ""),
    ("graphql-proxy-cache-advanced", "`proxy-cache` comes nearest"),
    ("graphql-rate-limiting-advanced", "`rate-limiting` comes nearest"),
    ("header-cert-auth", "`mtls-auth` comes nearest"),
    ("injection-protection", ""),
    ("jq", "`response-transformer` comes nearest, and `request-transformer`"),
    ("json-threat-protection", "`request-size-limiting` comes nearest"),
    ("jwe-decrypt", ""),
    ("jwt-signer", "`jwt` comes nearest, which verifies tokens and signs none"),
    ("kafka-log", "`kafka-logger` comes nearest"),
    ("kafka-upstream", ""),
    ("key-auth-enc", "`key-auth` does the same with the same fields"),
    ("konnect-application-auth", ""),
    ("ldap-auth-advanced", "`ldap-auth` comes nearest, without groups"),
    ("oauth2-introspection", "`forward-auth` comes nearest, or `jwt` for tokens that are signed"),
    ("oas-validation", ""),
    ("opa", "`forward-auth` comes nearest"),
    ("openid-connect", "`jwt` comes nearest, with the provider's keys in `jwks_uri`"),
    ("proxy-cache-advanced", "`proxy-cache` comes nearest, with `strategy: memory`"),
    (
        "rate-limiting-advanced",
        "`rate-limiting` comes nearest: write `minute: 5` for a `limit` of 5 with a `window_size` of 60, and `policy` \
         for `strategy`",
    ),
    ("request-callout", "`forward-auth` comes nearest"),
    ("request-transformer-advanced", "`request-transformer` comes nearest"),
    ("request-validator", ""),
    ("response-transformer-advanced", "`response-transformer` comes nearest"),
    ("route-by-header", "routes with `headers` come nearest"),
    ("route-transformer-advanced", "`request-transformer` comes nearest"),
    ("saml", "`forward-auth` comes nearest"),
    ("service-protection", "`rate-limiting` of the service comes nearest"),
    ("statsd-advanced", "`statsd` comes nearest"),
    ("tls-handshake-modifier", "`mtls-auth` comes nearest"),
    ("tls-metadata-headers", "`mtls-auth` comes nearest"),
    ("upstream-oauth", ""),
    ("upstream-timeout", "`connect_timeout`, `write_timeout` and `read_timeout` of a service come nearest"),
    ("vault-auth", "`key-auth` comes nearest"),
    ("websocket-size-limit", ""),
    ("websocket-validator", ""),
    ("xml-threat-protection", "`request-size-limiting` comes nearest"),
];

/// The message for a plugin that no configuration may use. `is_early`: it may take time to look for a misspelt name.
pub(crate) fn no_such_plugin(written: &str, plugins: &[PluginSchema], is_early: bool) -> String {
    let mut names: Vec<_> =
        plugins.iter().filter(|plugin| plugin.available).map(|plugin| plugin.name).collect();
    names.sort_unstable();
    let hint = if is_early { did_you_mean(written, names.iter().copied()) } else { String::new() };
    let shown = quoted(written);
    let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    if find_plugin(plugins, written).is_some() {
        return format!("plugin `{written}` is switched off: the setting `plugins` names only {names}");
    }
    let known = OF_KONG_ENTERPRISE.iter().find(|(name, _)| *name == written).map(|(_, nearest)| *nearest);
    let Some(nearest) = known.or(written.starts_with("ai-").then_some("")) else {
        if !hint.is_empty() {
            return format!("no such plugin `{shown}`{hint}");
        }
        return format!(
            "no such plugin `{shown}`; available: {names}; one of your own in Lua has to be named in the setting `plugins`"
        );
    };
    let otherwise = if nearest.is_empty() { format!("available: {names}") } else { nearest.to_owned() };
    format!("Kong Enterprise's plugin `{shown}` is not available; {otherwise}")
}
