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
    /// Whether it is a plugin that is not here.
    pub(super) is_missing: bool,
    /// Whether it is a plugin that is here alone.
    pub(super) is_only_here: bool,
}

/// Which gateways have a plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::commands) enum Availability {
    Both,
    OnlyHere,
    NotHere,
}

/// Everything that a file says. `availability` says which gateways have a plugin; fields of plugins that one alone has are
/// left out.
pub(super) fn of(root: &Node<'_>, availability: &dyn Fn(&str) -> Availability) -> Vec<Item> {
    let mut items = Items { all: Vec::new(), availability };
    for entry in root.entries().iter().filter(|entry| is_collection(entry)) {
        items.collection(entry, None);
    }
    items.all
}

/// A setting, by its name in kong.conf.
pub(super) fn of_setting(name: &str, value: &str) -> Item {
    let path = format!("settings.{name}");
    Item {
        path,
        value: Some(value.to_owned()),
        entity: None,
        at: None,
        is_missing: false,
        is_only_here: false,
    }
}

fn is_collection(entry: &Entry<'_>) -> bool {
    COLLECTIONS.contains(&&*entry.key) && matches!(entry.node.value, Value::List(_) | Value::Map(_))
}

/// What was found so far.
struct Items<'p> {
    all: Vec<Item>,
    availability: &'p dyn Fn(&str) -> Availability,
}

impl Items<'_> {
    fn collection(&mut self, entry: &Entry<'_>, of: Option<&str>) {
        match &entry.node.value {
            // APISIX's plugins are members of an object, by their names.
            Value::Map(plugins) => {
                plugins.iter().for_each(|plugin| self.plugin(&entry.key, &plugin.key, &plugin.node, of));
            }
            _ => entry.node.elements().iter().for_each(|node| self.entity(&entry.key, node)),
        }
    }

    fn entity(&mut self, kind: &str, node: &Node<'_>) {
        let label = label(kind, node);
        let name = if kind == "plugins" { node.get("name").and_then(Node::as_str) } else { None };
        if let Some(name) = name {
            return self.plugin(kind, name, node, label.as_deref());
        }
        self.all.push(item(kind.to_owned(), node, label.as_deref()));
        self.fields(kind, node, label.as_deref());
    }

    fn plugin(&mut self, kind: &str, name: &str, node: &Node<'_>, of: Option<&str>) {
        let path = format!("{kind}.{name}");
        let availability = (self.availability)(name);
        let is_missing = availability == Availability::NotHere;
        let is_only_here = availability == Availability::OnlyHere;
        self.all.push(Item { is_missing, is_only_here, ..item(path.clone(), node, of) });
        if availability == Availability::Both {
            self.fields(&path, node, of);
        }
    }

    fn fields(&mut self, path: &str, node: &Node<'_>, of: Option<&str>) {
        for entry in node.entries() {
            if is_collection(entry) {
                self.collection(entry, of);
                continue;
            }
            let path = format!("{path}.{}", entry.key);
            match &entry.node.value {
                Value::Map(members) if !members.is_empty() => self.fields(&path, &entry.node, of),
                _ => self.all.push(item(path, &entry.node, of)),
            }
        }
    }
}

fn item(path: String, node: &Node<'_>, of: Option<&str>) -> Item {
    let (value, entity) = (text(node), of.map(str::to_owned));
    Item { path, value, entity, at: Some(node.at), is_missing: false, is_only_here: false }
}

/// A value as text, where it is a scalar or a list of texts.
fn text(node: &Node<'_>) -> Option<String> {
    match node.to_json() {
        serde_json::Value::String(text) => Some(text),
        json @ (serde_json::Value::Bool(_) | serde_json::Value::Number(_)) => Some(json.to_string()),
        serde_json::Value::Array(items) => {
            let texts = items.iter().map(|item| item.as_str());
            texts.collect::<Option<Vec<_>>>().map(|texts| texts.join(", "))
        }
        _ => None,
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::Format;
    use weir_model::declarative::parse;

    fn paths(text: &str) -> Vec<String> {
        let root = parse(text, Format::Yaml).expect("YAML");
        let shown = |item: Item| match item {
            Item { is_missing: true, .. } => item.path + ": missing",
            Item { is_only_here: true, .. } => item.path + ": only here",
            _ => item.path,
        };
        let availability = |name: &str| match name {
            "own" => Availability::NotHere,
            "new" => Availability::OnlyHere,
            _ => Availability::Both,
        };
        of(&root, &availability).into_iter().map(shown).collect()
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

    #[test]
    fn a_plugin_that_is_not_here_is_one_item() {
        let text = "plugins:\n- {name: own, config: {a: 1, b: 2}}\n- name: cors\n";
        assert_eq!(paths(text), ["plugins.own: missing", "plugins.cors", "plugins.cors.name"]);
        let text = "routes:\n- uri: /a\n  plugins:\n    own: {a: 1}\n";
        assert_eq!(paths(text), ["routes", "routes.uri", "plugins.own: missing"]);
        let text = "plugins:\n- {name: new, config: {a: 1, b: 2}}\n- name: cors\n";
        assert_eq!(paths(text), ["plugins.new: only here", "plugins.cors", "plugins.cors.name"]);
    }
}
