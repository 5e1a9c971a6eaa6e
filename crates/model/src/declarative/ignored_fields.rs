//! Fields that are accepted but have no effect: one row each, to be removed when they have.
use crate::document::Document;
use crate::entity::*;
use crate::entity_error::EntityError;
use crate::label;
use crate::node::{Node, Value};
use crate::plugin_schema::{EntityKinds, PluginSchema, Streams, find_plugin};
use crate::schema::{ConfigError, Json, Kind, RecordSchema, quoted};
use crate::secret_reference::is_reference;
use std::fmt::Write;
use std::sync::Arc;

/// A field that has no effect when `set` says that it differs from its default.
struct Row<T> {
    field: &'static str,
    set: fn(&T) -> bool,
    instead: &'static str,
}

const ROUTES: &[Row<Route>] = &[Row {
    field: "path_handling",
    set: |r| r.path_handling != PathHandling::V0,
    instead: "paths are joined as by v0, unless router_flavor is traditional",
}];

const UPSTREAMS: &[Row<Upstream>] = &[Row {
    field: "healthchecks.active.type",
    set: |u| matches!(u.healthchecks.active.r#type, ProbeType::Grpc | ProbeType::Grpcs),
    instead: "targets are probed as by tcp",
}];

impl Document {
    /// The fields that are accepted but have no effect: a line for each of the first `most`, and how many more there
    /// are.
    pub fn ignored_fields(&self, plugins: &[PluginSchema], most: usize) -> (Vec<String>, usize) {
        let found = find(self, plugins);
        let lines = found.iter().take(most).map(|finding| self.line(finding));
        (lines.collect(), found.len().saturating_sub(most))
    }

    /// A finding, after the entity that it is about.
    pub fn line(&self, finding: &EntityError) -> String {
        let label = self.at(finding.entity).map(|entity| label::of_entity(&entity, self));
        let place = [label.as_deref().unwrap_or_default(), &finding.path];
        let place = place.iter().filter(|part| !part.is_empty()).map(|part| format!("{part}: "));
        format!("{}{}", place.collect::<String>(), finding.message)
    }
}

/// Adds to each problem which entity it is about.
pub(super) fn name_entities(root: &Node<'_>, kinds: &EntityKinds, problems: &mut [ConfigError]) {
    for problem in problems {
        if let Some(label) = label::on_path(root, &problem.path, kinds) {
            problem.message.push_str(&format!(" ({label})"));
        }
    }
}

/// What is said of a reference that is not resolved.
const UNRESOLVED: &str = "without effect in this version: vault references are taken literally here; write ${NAME} to read \
                          the environment";

/// References to secrets in fields that take none. `path` leads to the node; long keys are shortened in it, because each
/// value below one repeats it.
pub(super) fn vault_references(node: &Node<'_>, path: &mut String, found: &mut Vec<ConfigError>) {
    let before = path.len();
    match &node.value {
        Value::Str(text, _) if is_reference(text) => {
            found.push(ConfigError { at: node.at, path: path.clone(), message: UNRESOLVED.to_owned() });
        }
        Value::List(elements) => {
            for (index, element) in elements.iter().enumerate() {
                let _ = write!(path, "[{index}]");
                vault_references(element, path, found);
                path.truncate(before);
            }
        }
        Value::Map(entries) => {
            let resolved = resolved_fields(path);
            for entry in entries.iter().filter(|entry| !resolved.contains(&entry.key.as_ref())) {
                path.push_str(if before == 0 { "" } else { "." });
                path.push_str(&quoted(&entry.key));
                vault_references(&entry.node, path, found);
                path.truncate(before);
            }
        }
        _ => {}
    }
}

/// The fields in which references are resolved, of the entity that a path leads to. Which of those in plugins'
/// configurations are not, [`unresolved`] finds.
fn resolved_fields(path: &str) -> &'static [&'static str] {
    let last = path.rsplit('.').next().filter(|last| last.ends_with(']'));
    match last.and_then(|last| last.split_once('[')) {
        Some(("plugins" | "vaults", _)) => &["config"],
        Some(("certificates", _)) => &["cert", "key", "cert_alt", "key_alt"],
        Some(("keys", _)) => &["jwk", "pem"],
        _ => &[],
    }
}

/// Every field of a document that has no effect.
pub(super) fn find(document: &Document, plugins: &[PluginSchema]) -> Vec<EntityError> {
    let mut found = Vec::new();
    rows(EntityKind::Routes, &document.routes, ROUTES, &mut found);
    rows(EntityKind::Upstreams, &document.upstreams, UPSTREAMS, &mut found);
    plugin_fields(&document.plugins, plugins, &mut found);
    found
}

fn rows<T>(kind: EntityKind, entities: &[Arc<T>], rows: &[Row<T>], found: &mut Vec<EntityError>) {
    for (index, entity) in entities.iter().enumerate() {
        for row in rows.iter().filter(|row| (row.set)(entity)) {
            found.push(EntityError::new(
                (kind, index),
                row.field,
                format!("without effect in this version: {}", row.instead),
            ));
        }
    }
}

fn plugin_fields(entities: &[Arc<Plugin>], plugins: &[PluginSchema], found: &mut Vec<EntityError>) {
    for (index, plugin) in entities.iter().enumerate() {
        let Some(schema) = find_plugin(plugins, &plugin.name) else { continue };
        for violation in (schema.ignored_fields)(&plugin.config) {
            let path = format!("config.{}", violation.path);
            let message = format!("without effect in this version: {}", violation.message);
            found.push(EntityError::new((EntityKind::Plugins, index), path, message));
        }
        unresolved(&plugin.config, schema.config, &mut "config".to_owned(), &mut |path| {
            found.push(EntityError::new((EntityKind::Plugins, index), path, UNRESOLVED.to_owned()));
        });
        if schema.streams == Streams::Accepted && plugin.protocols.iter().any(|it| it.is_stream()) {
            let message = format!(
                "without effect in this version: for streams, {} runs for requests alone",
                plugin.name
            );
            found.push(EntityError::new((EntityKind::Plugins, index), "protocols", message));
        }
    }
}

/// Calls `found` with the path of each reference of a plugin's configuration that is in a field which takes none.
fn unresolved(config: &Json, schema: &RecordSchema, path: &mut String, found: &mut impl FnMut(&str)) {
    let Json::Object(members) = config else { return };
    let before = path.len();
    for (name, value) in members {
        let Some(field) = schema.field(name) else { continue };
        let _ = write!(path, ".{name}");
        match field.kind {
            Kind::Record(schema) => unresolved(value, schema, path, found),
            Kind::Array(Kind::Record(schema)) => {
                for (index, element) in value.as_array().into_iter().flatten().enumerate() {
                    let before = path.len();
                    let _ = write!(path, "[{index}]");
                    unresolved(element, schema, path, found);
                    path.truncate(before);
                }
            }
            _ if field.takes_references() || !has_reference(value) => {}
            _ => found(path),
        }
        path.truncate(before);
    }
}

fn has_reference(value: &Json) -> bool {
    match value {
        Json::String(text) => is_reference(text),
        Json::Array(values) => values.iter().any(has_reference),
        Json::Object(members) => members.values().any(has_reference),
        _ => false,
    }
}
