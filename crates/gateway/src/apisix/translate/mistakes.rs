//! All errors of an object in a file, each at its field. (A response of the Admin API holds only the first one, as
//! APISIX's does.)
use super::super::object::{Key, PROTO_ID, TRANSCODE, id_text};
use super::schema::{
    Consumer, Credential, PluginSet, Route, Secrets, Service, Ssl, StreamRoute, Upstream, is_unavailable,
};
use super::{Kind, Objects, plugins, proto, upstream};
use weir_model::node::{Entry, Node, Value};
use weir_model::schema::{ConfigWarning, Json, Reader, Record, RecordContext, RecordSchema, read_record};
use weir_model::{ConfigError, PluginSchema};

/// The fields by which objects name others.
const NAMING: [(&str, Kind); 4] = [
    ("upstream_id", Kind::Upstreams),
    ("service_id", Kind::Services),
    ("plugin_config_id", Kind::PluginConfigs),
    ("group_id", Kind::ConsumerGroups),
];

/// The errors of an object and of its references. Paths start at the object.
pub(crate) fn mistakes(
    kind: Kind,
    written: &Node<'_>,
    objects: &dyn Objects,
    schemas: &[PluginSchema],
) -> Vec<ConfigError> {
    let (mut node, mut found) = (written.clone(), Vec::new());
    let record = if kind == Kind::StreamRoutes { StreamRoute::SCHEMA } else { Route::SCHEMA };
    take_unavailable(&mut node, record, "", &mut found);
    found.extend(match kind {
        Kind::Upstreams => fields::<Upstream>(&node),
        Kind::Services => fields::<Service>(&node),
        Kind::Routes => fields::<Route>(&node),
        Kind::Consumers => fields::<Consumer>(&node),
        Kind::Credentials => fields::<Credential>(&node),
        Kind::Ssls => fields::<Ssl>(&node),
        Kind::Protos => proto::mistakes_of(&node),
        Kind::Secrets => fields::<Secrets>(&node),
        Kind::StreamRoutes => fields::<StreamRoute>(&node),
        Kind::PluginConfigs | Kind::ConsumerGroups | Kind::GlobalRules => fields::<PluginSet>(&node),
        Kind::PluginMetadata | Kind::Configs => Vec::new(),
    });
    found.extend(match kind {
        Kind::Upstreams => nodes(&node, ""),
        _ => node.get("upstream").and_then(|upstream| nodes(upstream, "upstream.")),
    });
    for entry in plugins_of(&node) {
        found.extend(plugins::mistakes_of(entry, has_credentials(kind), schemas));
    }
    found.extend(NAMING.iter().filter_map(|(field, kind)| names_nobody(&node, field, *kind, objects)));
    found
}

/// Warns of members of plugins' configurations that have no effect. Paths start at the object.
pub(crate) fn unknown_members(
    kind: Kind,
    written: &Node<'_>,
    schemas: &[PluginSchema],
) -> Vec<ConfigWarning> {
    let of = |entry| plugins::unknown_members_of(entry, has_credentials(kind), schemas);
    plugins_of(written).iter().flat_map(of).collect()
}

fn plugins_of<'n, 'a>(object: &'n Node<'a>) -> &'n [Entry<'a>] {
    object.get("plugins").map(Node::entries).unwrap_or_default()
}

/// Whether plugins of objects of this kind may be credentials.
fn has_credentials(kind: Kind) -> bool {
    matches!(kind, Kind::Consumers | Kind::Credentials)
}

/// The objects that an object names.
pub(crate) fn named_by(value: &Json) -> impl Iterator<Item = Key> + '_ {
    let named = NAMING.iter().filter_map(|(field, kind)| Key::new(*kind, id_text(&value[field])?).ok());
    let rules = value["plugins"]["traffic-split"]["rules"].as_array().into_iter().flatten();
    let shares = rules.flat_map(|rule| rule["weighted_upstreams"].as_array().into_iter().flatten());
    let shares = shares.filter_map(|of| Key::new(Kind::Upstreams, id_text(&of["upstream_id"])?).ok());
    let proto = id_text(&value["plugins"][TRANSCODE][PROTO_ID]);
    named.chain(shares).chain(proto.and_then(|id| Key::new(Kind::Protos, id).ok()))
}

/// All errors of a record.
pub(super) fn fields<T: Record>(node: &Node<'_>) -> Vec<ConfigError> {
    let mut reader = Reader::new(&());
    read_record::<T>(node, &RecordContext::NONE, &mut reader);
    reader.into_errors()
}

/// The same problems, with a path before theirs.
pub(super) fn below(path: &str, found: Vec<ConfigError>) -> impl Iterator<Item = ConfigError> {
    found.into_iter().map(move |problem| {
        let path = if problem.path.is_empty() { path.to_owned() } else { format!("{path}.{}", problem.path) };
        ConfigError { path, ..problem }
    })
}

/// Removes the fields that are not supported here.
fn take_unavailable(node: &mut Node<'_>, record: &RecordSchema, path: &str, found: &mut Vec<ConfigError>) {
    let Value::Map(entries) = &mut node.value else { return };
    entries.retain(|entry| {
        let is_taken = is_unavailable(&entry.key, record) && entry.node.value != Value::Null;
        if is_taken {
            let message = "is not available here; leave it out".to_owned();
            found.push(ConfigError { at: entry.at, path: format!("{path}{}", entry.key), message });
        }
        !is_taken
    });
    if let Some(upstream) = entries.iter_mut().find(|entry| entry.key == "upstream") {
        take_unavailable(&mut upstream.node, Upstream::SCHEMA, "upstream.", found);
    }
}

/// The errors of an upstream's nodes, if the rest of it is valid.
fn nodes(node: &Node<'_>, path: &str) -> Option<ConfigError> {
    let upstream = Upstream::from_value(&node.to_json()).ok()?;
    let invalid = upstream::nodes(&upstream).err()?;
    let at = node.position_of("nodes");
    Some(ConfigError { at, path: format!("{path}nodes"), message: invalid.reason().to_owned() })
}

fn names_nobody(node: &Node<'_>, field: &str, kind: Kind, objects: &dyn Objects) -> Option<ConfigError> {
    let id = node.get(field)?;
    let key = id_text(&id.to_json()).and_then(|id| Key::new(kind, id).ok());
    if key.is_some_and(|key| objects.value(&key).is_some()) {
        return None;
    }
    let message = format!("names no {} of the file; write the id of one", kind.singular());
    Some(ConfigError { at: id.at, path: field.to_owned(), message })
}
