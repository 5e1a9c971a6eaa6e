//! What is said of a plugin that there is not: whose it is, and what comes nearest.
use crate::plugin_schema::{PluginSchema, find_plugin};
use crate::schema::{closest, quoted};

const GUARD: &str = "`ai-prompt-guard` comes nearest, by regexes";

/// The plugins of Kong Enterprise that are not here, each with what comes nearest; of `ai-` there are many more.
const OF_KONG_ENTERPRISE: &[(&str, &str)] = &[
    ("ai-proxy-advanced", "`ai-proxy-multi` does the same, with `instances` for its `targets`"),
    (
        "ai-rate-limiting-advanced",
        "`ai-rate-limiting` does the same, with `limit` and `time_window` of tokens",
    ),
    ("ai-aws-guardrails", GUARD),
    ("ai-azure-content-safety", GUARD),
    ("ai-gcp-model-armor", GUARD),
    ("ai-lakera-guard", GUARD),
    ("ai-sanitizer", "`ai-request-transformer` comes nearest, with a prompt that says what to remove"),
    (
        "ai-semantic-response-guard",
        "`ai-response-transformer` comes nearest, with a prompt that says what to refuse",
    ),
    ("ai-semantic-prompt-guard", GUARD),
    ("ai-semantic-cache", "`proxy-cache` comes nearest, for requests that are the same"),
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
    ("injection-protection", "`uri-blocker` comes nearest, by regexes for paths and queries"),
    ("jq", "`response-transformer` comes nearest, and `request-transformer`"),
    (
        "json-threat-protection",
        "`request-validation` comes nearest, with a schema, and `request-size-limiting`",
    ),
    ("jwe-decrypt", ""),
    ("jwt-signer", "`jwt` comes nearest, which verifies tokens and signs none"),
    ("kafka-log", "`kafka-logger` comes nearest"),
    ("kafka-upstream", ""),
    ("key-auth-enc", "`key-auth` does the same with the same fields"),
    ("konnect-application-auth", "`key-auth` comes nearest"),
    ("ldap-auth-advanced", "`ldap-auth` comes nearest, without groups"),
    (
        "oauth2-introspection",
        "`openid-connect` comes nearest, with `bearer_only` and an `introspection_endpoint`",
    ),
    ("oas-validation", "`request-validation` comes nearest, with the schemas of headers and bodies"),
    ("opa", "`forward-auth` comes nearest"),
    ("proxy-cache-advanced", "`proxy-cache` comes nearest, with `strategy: memory`"),
    (
        "rate-limiting-advanced",
        "`rate-limiting` comes nearest: write `minute: 5` for a `limit` of 5 with a `window_size` of 60, and `policy` \
         for `strategy`",
    ),
    ("request-callout", "`forward-auth` comes nearest"),
    ("request-transformer-advanced", "`request-transformer` comes nearest"),
    (
        "request-validator",
        "`request-validation` does the same, with `body_schema` and `header_schema` in JSON Schema",
    ),
    ("response-transformer-advanced", "`response-transformer` comes nearest"),
    ("route-by-header", "`traffic-split` comes nearest, with `match`, or routes with `headers`"),
    ("route-transformer-advanced", "`request-transformer` comes nearest"),
    ("saml", "`forward-auth` comes nearest"),
    ("service-protection", "`rate-limiting` of the service comes nearest"),
    ("solace-log", "`http-log` comes nearest"),
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

/// A message lists at most so many names, because longer lists hide the rest of it.
const MAX_LISTED: usize = 8;

/// At most so many letters are mistyped. With more it is another name, perhaps that of a plugin on disk.
const MAX_TYPOS: usize = 2;

/// The message for a plugin that no configuration may use. `is_early`: it may take time to look for a misspelt name.
pub(crate) fn no_such_plugin(written: &str, plugins: &[PluginSchema], is_early: bool) -> String {
    let names = available(plugins);
    let shown = quoted(written);
    let known = find_plugin(plugins, written);
    if known.is_some_and(|plugin| plugin.broken) {
        return format!("plugin `{shown}` cannot be used, because of what is wrong with its files");
    }
    if known.is_some() {
        return match listed(&names) {
            Some(names) => {
                format!("plugin `{shown}` is switched off: the setting `plugins` names only {names}")
            }
            None => format!("plugin `{shown}` is switched off: the setting `plugins` does not name it"),
        };
    }
    let known = OF_KONG_ENTERPRISE.iter().find(|(name, _)| *name == written).map(|(_, nearest)| *nearest);
    let Some(nearest) = known.or(written.starts_with("ai-").then_some("")) else {
        return unknown(written, &names, is_early);
    };
    let what = format!("Kong Enterprise's plugin `{shown}` is not available");
    match nearest {
        "" => format!("{what}; {}", where_to_look(&names)),
        nearest => format!("{what}; {nearest}"),
    }
}

/// The message for a name that is neither Weir's nor Kong's.
fn unknown(written: &str, names: &[&str], is_early: bool) -> String {
    let shown = quoted(written);
    let meant = if is_early { closest(written, names.iter().copied()) } else { None };
    match meant {
        Some(name) if is_misspelt(written, name) => {
            format!("no such plugin `{shown}`; did you mean `{name}`?")
        }
        Some(name) => format!(
            "no such plugin `{shown}`; did you mean `{name}`? If it is one of your own in Lua, name it in the setting `plugins`"
        ),
        None => format!(
            "no such plugin `{shown}`; {}; one of your own in Lua has to be named in the setting `plugins`",
            where_to_look(names)
        ),
    }
}

/// Whether a name can only mean another: it has typing errors, or lacks a part.
fn is_misspelt(written: &str, name: &str) -> bool {
    name.contains(written) || strsim::osa_distance(written, name) <= MAX_TYPOS
}

fn available(plugins: &[PluginSchema]) -> Vec<&'static str> {
    let mut names: Vec<_> =
        plugins.iter().filter(|plugin| plugin.available).map(|plugin| plugin.name).collect();
    names.sort_unstable();
    names
}

fn where_to_look(names: &[&str]) -> String {
    let listed = listed(names).map(|names| format!("available: {names}"));
    listed.unwrap_or_else(|| "`weir plugins` lists those that are available".to_owned())
}

/// The names, if they are few.
fn listed(names: &[&str]) -> Option<String> {
    match names.len() {
        0 => Some("none".to_owned()),
        1..=MAX_LISTED => Some(names.join(", ")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entity::Consumer;

    /// As many plugins as no message lists.
    fn many() -> Vec<PluginSchema> {
        let names = ["redirect", "key-auth", "a", "b", "c", "d", "e", "f", "g"];
        // The message is about names alone.
        names.map(PluginSchema::of::<Consumer>).into()
    }

    #[test]
    fn a_name_that_may_be_a_plugin_on_disk_says_what_to_do_for_that() {
        let said = |name: &str| no_such_plugin(name, &many(), true);
        assert_eq!(said("redirct"), "no such plugin `redirct`; did you mean `redirect`?");
        let own = "one of your own in Lua has to be named in the setting `plugins`";
        assert_eq!(
            said("my-redirect"),
            "no such plugin `my-redirect`; did you mean `redirect`? If it is one of your own in Lua, name it in the setting \
             `plugins`"
        );
        let list = "`weir plugins` lists those that are available";
        assert_eq!(said("tea"), format!("no such plugin `tea`; {list}; {own}"));
        assert_eq!(
            said("jwe-decrypt"),
            format!("Kong Enterprise's plugin `jwe-decrypt` is not available; {list}")
        );
    }

    #[test]
    fn a_plugin_of_kong_enterprise_has_the_name_of_its_counterpart() {
        for (name, counterpart) in [
            ("request-validator", "`request-validation` does the same"),
            ("oas-validation", "`request-validation` comes nearest"),
            ("ai-proxy-advanced", "`ai-proxy-multi` does the same"),
            ("ai-rate-limiting-advanced", "`ai-rate-limiting` does the same"),
            ("ai-lakera-guard", "`ai-prompt-guard` comes nearest"),
        ] {
            let said = no_such_plugin(name, &many(), true);
            let expected = format!("Kong Enterprise's plugin `{name}` is not available; {counterpart}");
            assert!(said.starts_with(&expected), "{said}");
        }
    }

    #[test]
    fn a_setting_that_names_many_plugins_is_not_repeated() {
        let mut plugins = many();
        plugins.push(PluginSchema::of::<Consumer>("tea").switched_off());
        plugins.push(PluginSchema::broken("cup"));
        let expected = "plugin `tea` is switched off: the setting `plugins` does not name it";
        assert_eq!(no_such_plugin("tea", &plugins, true), expected);
        let expected = "plugin `cup` cannot be used, because of what is wrong with its files";
        assert_eq!(no_such_plugin("cup", &plugins, true), expected);
        plugins.drain(..5);
        let expected = "plugin `tea` is switched off: the setting `plugins` names only d, e, f, g";
        assert_eq!(no_such_plugin("tea", &plugins, true), expected);
    }
}
