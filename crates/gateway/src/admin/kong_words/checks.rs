//! Kong's words for rules across the fields of an entity.
use super::{Violation, WrittenEntity};
use weir_model::entity::EntityKind;
use weir_model::schema::{FieldError, Json, quoted};
use weir_router::expressions::ERROR_PREFIX;

const OF_HTTP: &str = "'protocols' is 'http' or 'https'";
const OF_STREAMS: &str = "'protocols' is 'tcp', 'tls', 'tls_passthrough' or 'udp'";
const OF_GRPC: &str = "'protocols' is 'grpc' or 'grpcs'";

/// Rules of certificates and their keys: how our message begins, and what Kong says.
const OF_CERTIFICATES: [(&str, &str); 3] = [
    ("the private key does not belong to the certificate", "certificate does not match key"),
    (
        "cert_alt and key_alt: the private key does not belong to the certificate",
        "alternative certificate does not match key",
    ),
    (
        "cert_alt and key_alt: the key is of the same type",
        "certificate and alternative certificate need to have different type (e.g. RSA and ECDSA), the provided \
         certificates were both of the same type",
    ),
];

/// What Kong says of a certificate that does not fit its key.
pub(crate) fn of_certificate(message: &str) -> Option<Violation> {
    let (_, words) = OF_CERTIFICATES.iter().find(|(beginning, _)| message.starts_with(beginning))?;
    let (path, message, hint) = (String::new(), (*words).to_owned(), Some(message.to_owned()));
    Some(Violation { path, message, hint, is_entity: true })
}

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

pub(super) fn listed(names: &[&str]) -> String {
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
