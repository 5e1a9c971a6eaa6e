//! What a configuration consists of: entities, plugins, fields and settings, each with a path such as
//! `plugins.rate-limiting.config.policy`.
use weir_model::node::{Entry, Node, Position, Value};

/// Members that hold entities, wherever they stand.
const COLLECTIONS: [&str; 21] = [
    "services",
    "routes",
    "plugins",
    "consumers",
    "consumer_groups",
    "upstreams",
    "targets",
    "certificates",
    "snis",
    "ca_certificates",
    "vaults",
    "keys",
    "key_sets",
    "keyauth_credentials",
    "basicauth_credentials",
    "hmacauth_credentials",
    "jwt_secrets",
    "oauth2_credentials",
    "acls",
    "global_rules",
    "stream_routes",
];

/// One thing that a configuration says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) path: String,
    /// Its value as text, where it is a scalar or a list of texts.
    pub(super) value: Option<String>,
    /// The entity that it is of, where that has a name.
    pub(super) entity: Option<String>,
    /// Where it stands; none for settings of the environment.
    pub(super) at: Option<Position>,
}

/// Everything that a file says.
pub(super) fn of(root: &Node<'_>) -> Vec<Item> {
    let mut items = Vec::new();
    for entry in root.entries().iter().filter(|entry| is_collection(entry)) {
        collection(entry, None, &mut items);
    }
    items
}

/// A setting, by its name in kong.conf.
pub(super) fn of_setting(name: &str, value: &str) -> Item {
    Item { path: format!("settings.{name}"), value: Some(value.to_owned()), entity: None, at: None }
}

fn is_collection(entry: &Entry<'_>) -> bool {
    COLLECTIONS.contains(&&*entry.key) && matches!(entry.node.value, Value::List(_) | Value::Map(_))
}

fn collection(entry: &Entry<'_>, of: Option<&str>, items: &mut Vec<Item>) {
    match &entry.node.value {
        // APISIX's plugins are members of an object, by their names.
        Value::Map(plugins) => plugins.iter().for_each(|plugin| {
            let path = format!("{}.{}", entry.key, plugin.key);
            push(path.clone(), &plugin.node, of, items);
            fields(&path, &plugin.node, of, items);
        }),
        _ => entry.node.elements().iter().for_each(|node| entity(&entry.key, node, items)),
    }
}

fn entity(kind: &str, node: &Node<'_>, items: &mut Vec<Item>) {
    let name = if kind == "plugins" { node.get("name").and_then(Node::as_str) } else { None };
    let path = name.map_or_else(|| kind.to_owned(), |name| format!("{kind}.{name}"));
    let label = label(kind, node);
    push(path.clone(), node, label.as_deref(), items);
    fields(&path, node, label.as_deref(), items);
}

/// The kind and the name of an entity, else its id.
fn label(kind: &str, node: &Node<'_>) -> Option<String> {
    let kind = kind.strip_suffix('s').unwrap_or(kind);
    // Two plugins of one name differ by their ids.
    let names: &[&str] =
        if kind == "plugin" { &["instance_name", "id"] } else { &["name", "username", "id"] };
    let name = names.iter().find_map(|name| node.get(name).and_then(Node::as_str))?;
    Some(format!("{kind} {name}"))
}

fn fields(path: &str, node: &Node<'_>, of: Option<&str>, items: &mut Vec<Item>) {
    for entry in node.entries() {
        if is_collection(entry) {
            collection(entry, of, items);
            continue;
        }
        let path = format!("{path}.{}", entry.key);
        match &entry.node.value {
            Value::Map(members) if !members.is_empty() => fields(&path, &entry.node, of, items),
            _ => push(path, &entry.node, of, items),
        }
    }
}

fn push(path: String, node: &Node<'_>, of: Option<&str>, items: &mut Vec<Item>) {
    let value = match node.to_json() {
        serde_json::Value::String(text) => Some(text),
        json @ (serde_json::Value::Bool(_) | serde_json::Value::Number(_)) => Some(json.to_string()),
        serde_json::Value::Array(items) => {
            let texts = items.iter().map(|item| item.as_str());
            texts.collect::<Option<Vec<_>>>().map(|texts| texts.join(", "))
        }
        _ => None,
    };
    items.push(Item { path, value, entity: of.map(str::to_owned), at: Some(node.at) });
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::Format;
    use weir_model::declarative::parse;

    fn paths(text: &str) -> Vec<String> {
        let root = parse(text, Format::Yaml).expect("YAML");
        of(&root).into_iter().map(|item| item.path).collect()
    }

    #[test]
    fn nested_entities_and_records_have_paths_of_their_own() {
        let text = "_format_version: '3.0'\nservices:\n- name: s\n  routes:\n  - paths: [/a]\n    plugins:\n    - name: cors\n      \
                    config: {origins: ['*'], a: {b: 1}}\n";
        let expected = [
            "services",
            "services.name",
            "routes",
            "routes.paths",
            "plugins.cors",
            "plugins.cors.name",
            "plugins.cors.config.origins",
            "plugins.cors.config.a.b",
        ];
        assert_eq!(paths(text), expected);
    }

    #[test]
    fn plugins_of_apisix_are_named_by_members() {
        let text = "routes:\n- uri: /a\n  plugins:\n    cors: {max_age: 5}\n";
        assert_eq!(paths(text), ["routes", "routes.uri", "plugins.cors", "plugins.cors.max_age"]);
    }
}
