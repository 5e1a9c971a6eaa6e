//! Kong's words for rules across the fields of an entity.
use super::{Violation, WrittenEntity};
use serde_json::json;
use std::sync::LazyLock;
use weir_model::entity::EntityKind;
use weir_model::schema::{FieldError, Json, JsonMap, quoted};
use weir_router::expressions::ERROR_PREFIX;

/// At least one of some fields must have a value: how our message begins, of which plugin it is, and the fields.
const AT_LEAST_ONE: [(&str, &str, &[&str]); 6] = [
    ("a consumer needs", "", &["custom_id", "username"]),
    ("needs an `ip`", "", &["ip", "port"]),
    (
        "set at least one limit",
        "rate-limiting",
        &["config.second", "config.minute", "config.hour", "config.day", "config.month", "config.year"],
    ),
    ("name at least one address", "ip-restriction", &["config.allow", "config.deny"]),
    ("name at least one group", "acl", &["config.allow", "config.deny"]),
    (
        "set traces_endpoint or logs_endpoint",
        "opentelemetry",
        &["config.traces_endpoint", "config.logs_endpoint"],
    ),
];

const OF_HTTP: &str = "'protocols' is 'http' or 'https'";
const OF_STREAMS: &str = "'protocols' is 'tcp', 'tls', 'tls_passthrough' or 'udp'";
const OF_GRPC: &str = "'protocols' is 'grpc' or 'grpcs'";

/// What Kong says of a rule across fields; none if there is no such rule, or no words for it.
pub(super) fn violations(written: &WrittenEntity<'_>, error: &FieldError) -> Option<Vec<Violation>> {
    let FieldError { path, message } = error;
    let hint = || Some(message.clone());
    let at_field = |path: &str, message: String| Violation {
        path: path.to_owned(),
        message,
        hint: hint(),
        is_entity: false,
    };
    let of_entity = |path: &str, message: String| Violation { is_entity: true, ..at_field(path, message) };
    if let Some(words) = at_least_one(written, message) {
        // Kong says of the whole plugin what is wrong with its configuration.
        let path = if path == "config" { "" } else { path };
        return Some(vec![of_entity(path, words)]);
    }
    match (written.kind, path.as_str()) {
        (EntityKind::Plugins, "name") if is_no_plugin(written) => {
            let name = quoted(text(written, "name")?);
            let words =
                format!("plugin '{name}' not enabled; add it to the 'plugins' configuration property");
            Some(vec![at_field(path, words)])
        }
        (EntityKind::Plugins, "") if message.contains("cannot be for one") => {
            Some(vec![at_field("consumer", "value must be null".to_owned())])
        }
        (EntityKind::Routes, "") if message.starts_with("the route matches nothing") => {
            Some(vec![of_entity("", unmatched(written)?)])
        }
        (EntityKind::Routes, _) if message.starts_with(ERROR_PREFIX) => {
            Some(vec![Violation { hint: None, ..of_entity("", message.clone()) }])
        }
        (EntityKind::Routes, "snis") if message.starts_with("needs protocols") => {
            let words =
                "'snis' can only be set when 'protocols' is 'grpcs', 'https', 'tls' or 'tls_passthrough'";
            let entity = Violation { hint: None, ..of_entity("", words.to_owned()) };
            Some(vec![entity, at_field(path, "length must be 0".to_owned())])
        }
        (EntityKind::Routes, field) if is_of_other_protocols(message) => {
            Some(vec![at_field(field, format!("cannot set '{field}' when {}", family(written)))])
        }
        (EntityKind::Routes, "protocols") if message.starts_with("protocols of one route") => {
            let words = format!("these sets are mutually exclusive: {}", sets(written));
            Some(vec![at_field(path, words)])
        }
        _ => None,
    }
}

/// Kong's rules across the fields of plugins, by the plugin's name.
static OF_PLUGINS: LazyLock<JsonMap> =
    LazyLock::new(|| serde_json::from_str(include_str!("entity_checks.json")).unwrap_or_default());

/// Those of a plugin, as `/schemas/plugins/NAME` shows them.
pub(crate) fn of_plugin(name: &str) -> Json {
    OF_PLUGINS.get(name).cloned().unwrap_or_else(|| json!([]))
}

fn at_least_one(written: &WrittenEntity<'_>, message: &str) -> Option<String> {
    let plugin = if written.kind == EntityKind::Plugins { text(written, "name")? } else { "" };
    let is_it = |(ours, of, _): &&(&str, &str, &[&str])| message.starts_with(ours) && *of == plugin;
    let (_, _, fields) = AT_LEAST_ONE.iter().find(is_it)?;
    Some(format!("at least one of these fields must be non-empty: {}", listed(fields)))
}

fn listed(names: &[&str]) -> String {
    names.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ")
}

fn text<'w>(written: &WrittenEntity<'w>, field: &str) -> Option<&'w str> {
    written.members.get(field)?.as_str()
}

fn is_no_plugin(written: &WrittenEntity<'_>) -> bool {
    let name = text(written, "name");
    name.is_some_and(|name| !written.plugins.iter().any(|plugin| plugin.available && plugin.name == name))
}

fn has(written: &WrittenEntity<'_>, protocol: &str) -> bool {
    match written.members.get("protocols").and_then(Json::as_array) {
        Some(protocols) => protocols.iter().any(|it| it == protocol),
        None => ["http", "https"].contains(&protocol),
    }
}

/// Which fields a route that matches nothing needs one of.
fn unmatched(written: &WrittenEntity<'_>) -> Option<String> {
    const HTTP: [&str; 5] = ["methods", "hosts", "headers", "paths", "snis"];
    let named =
        |fields: &[&str], of: &str| format!("must set one of {} when 'protocols' is {of}", listed(fields));
    let is = |protocol| has(written, protocol);
    Some(match () {
        () if is("https") => named(&HTTP, "'https'"),
        () if is("http") => named(&HTTP[..4], "'http'"),
        () if is("grpcs") => named(&HTTP[1..], "'grpcs'"),
        () if is("grpc") => named(&HTTP[1..4], "'grpc'"),
        () if is("tls_passthrough") => "must set snis when 'protocols' is 'tls_passthrough'".to_owned(),
        () if ["tcp", "tls", "udp"].into_iter().any(is) => {
            named(&["sources", "destinations", "snis"], "'tcp', 'tls' or 'udp'")
        }
        () => return None,
    })
}

fn is_of_other_protocols(message: &str) -> bool {
    ["has no meaning for a stream route", "has no meaning for a gRPC route", "needs protocols tcp"]
        .iter()
        .any(|beginning| message.starts_with(beginning))
}

fn family(written: &WrittenEntity<'_>) -> &'static str {
    if ["http", "https"].iter().any(|protocol| has(written, protocol)) {
        OF_HTTP
    } else if ["grpc", "grpcs"].iter().any(|protocol| has(written, protocol)) {
        OF_GRPC
    } else {
        OF_STREAMS
    }
}

/// The sets that the protocols are of.
fn sets(written: &WrittenEntity<'_>) -> String {
    const SETS: [&[&str]; 4] =
        [&["http", "https"], &["tcp", "tls", "udp"], &["tls_passthrough"], &["grpc", "grpcs"]];
    let used = SETS.iter().filter(|set| set.iter().any(|protocol| has(written, protocol)));
    used.map(|set| format!("({})", listed(set))).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_of_a_plugin_is_what_is_refused() {
        for (_, plugin, fields) in AT_LEAST_ONE.iter().filter(|(_, plugin, _)| !plugin.is_empty()) {
            let shown = of_plugin(plugin);
            assert!(shown.as_array().unwrap().contains(&json!({ "at_least_one_of": fields })), "{plugin}");
        }
    }
}
