//! APISIX's `apisix.yaml`: all objects in one file, translated into a document.
use super::object::{Invalid, Key, Kind, Objects, id_text, to_entity};
use super::translate::{configured_fields, mistakes, named_by, translate, unknown_members, without_effect};
use std::collections::{HashMap, HashSet};
use std::path::Path;
use weir_model::check::{check, entity_warnings, relation_warnings};
use weir_model::declarative::parse;
use weir_model::entity::{Entity, EntityKind};
use weir_model::node::{Entry, Node, Position, Value};
use weir_model::schema::{Json, quoted};
use weir_model::{
    ConfigError, Document, EntityError, EntityLocation, EntityWarning, Format, InvalidDocument,
    ParsedDocument, PluginSchema, Uuid,
};

/// The last line of a file: without it, APISIX takes a file for half written.
const END: &str = "#END";

/// Whether a file is APISIX's, by its end or its name, rather than Kong's.
pub(crate) fn is_apisixs(path: Option<&Path>, text: &str) -> bool {
    let name = path.and_then(Path::file_name);
    name.is_some_and(|name| name == "apisix.yaml" || name == "apisix.json") || ends(text)
}

fn ends(text: &str) -> bool {
    text.lines().rev().map(str::trim_end).find(|line| !line.is_empty()) == Some(END)
}

/// The hint for a file whose content is APISIX's, but not its name or its end.
pub(crate) fn unmarked(text: &str, format: Format) -> Option<ConfigError> {
    let root = parse(text, format).ok()?;
    let has = |(list, field): (&str, &str)| {
        root.get(list).is_some_and(|list| list.elements().iter().any(|one| one.get(field).is_some()))
    };
    let fields = [("routes", "uri"), ("routes", "uris"), ("routes", "upstream_id"), ("upstreams", "nodes")];
    let lists = ["global_rules", "plugin_configs", "ssls"];
    let is_theirs = fields.into_iter().any(has) || lists.iter().any(|list| root.get(list).is_some());
    if !is_theirs || root.get("_format_version").is_some() {
        return None;
    }
    let fix = match format {
        Format::Yaml => "write `#END` into a last line of its own",
        Format::Json => "name it apisix.json",
    };
    let message = format!(
        "this looks like APISIX's apisix.yaml; {fix}, and it is read as one. A file of Kong's starts with \
         `_format_version: \"3.0\"`"
    );
    Some(ConfigError { at: Position { line: 1, column: 1 }, path: String::new(), message })
}

/// An object of the file, and its location.
struct DeclaredObject<'n, 'a> {
    key: Key,
    value: Json,
    node: &'n Node<'a>,
    place: EntityLocation,
}

impl DeclaredObject<'_, '_> {
    fn problem(&self, message: impl Into<String>) -> ConfigError {
        ConfigError { at: self.place.at, path: self.place.path.clone(), message: message.into() }
    }

    /// A problem whose path starts at the object, with one that starts at the file.
    fn placed(&self, problem: ConfigError) -> ConfigError {
        let dot = if problem.path.is_empty() { "" } else { "." };
        ConfigError { path: format!("{}{dot}{}", self.place.path, problem.path), ..problem }
    }

    /// What of it is kept and has no effect.
    fn ignored_fields(&self, plugins: &[PluginSchema]) -> impl Iterator<Item = ConfigError> {
        let of_object =
            without_effect(&self.key, &self.value).into_iter().map(|message| self.problem(message));
        let of_plugins = unknown_members(self.key.kind, self.node, plugins).into_iter();
        of_object.chain(of_plugins.map(|problem| self.placed(problem)))
    }
}

struct ByKey<'w>(HashMap<&'w Key, &'w Json>);

impl Objects for ByKey<'_> {
    fn value(&self, key: &Key) -> Option<&Json> {
        self.0.get(key).copied()
    }
}

/// Reads a file and checks all of it: the document, or all errors and what there is to say of the rest.
pub(crate) fn read(
    text: &str,
    format: Format,
    plugins: &[PluginSchema],
) -> Result<ParsedDocument, InvalidDocument> {
    if format == Format::Yaml && !ends(text) {
        let line = u32::try_from(text.lines().count()).unwrap_or(u32::MAX).max(1);
        let message = format!("the file does not end with {END}; write it into a last line of its own");
        return Err(
            vec![ConfigError { at: Position { line, column: 1 }, path: String::new(), message }].into()
        );
    }
    let root = parse(text, format)?;
    let mut problems = Vec::new();
    let written = objects(&root, &mut problems);
    let by_key = ByKey(written.iter().map(|written| (&written.key, &written.value)).collect());
    let (mut document, mut places, mut refused) = (Document::default(), Vec::new(), Vec::new());
    for one in &written {
        let translated = translate(&one.key, &one.value, &by_key, plugins);
        let whole = translated.and_then(|translated| {
            let kept = to_entity(&one.key, &translated.value, None, 0)?;
            Ok(translated.entities.into_iter().chain([kept]))
        });
        match whole {
            Ok(entities) => entities.for_each(|entity| {
                let place = place(&entity, one, &written, plugins);
                places.push(((entity.kind(), entity.id()), place));
                document.push(entity);
            }),
            Err(invalid) => refused.push((one, invalid)),
        }
    }
    problems.extend(reasons(&refused, &by_key, plugins));
    let is_whole = problems.is_empty();
    let by_entity: HashMap<_, _> = places.iter().map(|(of, place)| (*of, place)).collect();
    let locate = |finding: &EntityError| located(finding, &document, &by_entity, &root);
    problems.extend(check(&document, plugins).iter().map(&locate));
    problems.sort();
    let mut ignored_fields: Vec<_> = written.iter().flat_map(|one| one.ignored_fields(plugins)).collect();
    ignored_fields.sort();
    let mut warnings: Vec<_> = warnings(&document, is_whole, plugins).iter().map(locate).collect();
    warnings.sort();
    let parsed = ParsedDocument { document, warnings, ignored_fields, places };
    match problems.is_empty() {
        true => Ok(parsed),
        false => Err(InvalidDocument { errors: problems, rest: Box::new(parsed) }),
    }
}

/// All errors of the invalid objects, each at its field. Objects that fail only because they refer to an invalid one
/// are left out.
fn reasons(
    refused: &[(&DeclaredObject<'_, '_>, Invalid)],
    by_key: &ByKey<'_>,
    plugins: &[PluginSchema],
) -> Vec<ConfigError> {
    let keys: HashSet<&Key> = refused.iter().map(|(one, _)| &one.key).collect();
    let mut problems = Vec::new();
    for (one, Invalid(message)) in refused {
        let found = mistakes(one.key.kind, one.node, by_key, plugins).into_iter();
        let mut found: Vec<_> = found.map(|problem| one.placed(problem)).collect();
        if found.is_empty() && !named_by(&one.value).any(|key| keys.contains(&key)) {
            found.push(one.problem(message.as_str()));
        }
        problems.extend(found);
    }
    problems
}

/// Every object of the file.
fn objects<'n, 'a>(root: &'n Node<'a>, problems: &mut Vec<ConfigError>) -> Vec<DeclaredObject<'n, 'a>> {
    let (mut all, mut keys) = (Vec::new(), HashSet::new());
    for entry in root.entries() {
        let Some(kind) = Kind::from_name(&entry.key).filter(|kind| kind.is_listed()) else {
            let kinds = Kind::ALL.into_iter().filter(|kind| kind.is_listed());
            let kinds = kinds.map(Kind::name).collect::<Vec<_>>().join(", ");
            let message = format!("`{}` is not available here; there are: {kinds}", entry.key);
            problems.push(ConfigError { at: entry.at, path: String::new(), message });
            continue;
        };
        if !matches!(entry.node.value, Value::List(_) | Value::Null) {
            let message = format!("expected a list, got {}; start each entry with `- `", entry.node.kind());
            problems.push(ConfigError { at: entry.node.at, path: kind.name().to_owned(), message });
        }
        for (index, node) in entry.node.elements().iter().enumerate() {
            let place = EntityLocation::new(node.at, format!("{}[{index}]", kind.name()));
            match identified(kind, index, node, &mut keys) {
                Ok((key, value)) => all.push(DeclaredObject { key, value, node, place }),
                Err(Invalid(message)) => {
                    problems.push(ConfigError { at: place.at, path: place.path, message })
                }
            }
        }
    }
    all
}

/// An object and its key. Without an id, its position is its id, as in APISIX.
fn identified(
    kind: Kind,
    index: usize,
    node: &Node<'_>,
    keys: &mut HashSet<Key>,
) -> Result<(Key, Json), Invalid> {
    let value = node.to_json();
    let id = id_text(&value[kind.id_field()]).or_else(|| id_text(&value["id"]));
    let key = Key::below(kind, &id.unwrap_or_else(|| format!("arr_{}", index + 1)))?;
    if keys.insert(key.clone()) {
        Ok((key, value))
    } else {
        Err(Invalid(format!("the id `{}` is here twice; choose another", key.id)))
    }
}

/// What is probably a mistake in plugins. What concerns other entities says how to write these for Kong. An object that has an
/// error may be the one that another lacks.
fn warnings(document: &Document, is_whole: bool, plugins: &[PluginSchema]) -> Vec<EntityWarning> {
    let relations = if is_whole { relation_warnings(document, plugins) } else { Vec::new() };
    let found = relations.into_iter().chain(entity_warnings(document, plugins));
    found.filter(|warning| warning.entity.0 == EntityKind::Plugins).collect()
}

/// Where an entity stands that an object became: a plugin where its configuration is, also if another object has it.
fn place(
    entity: &Entity,
    one: &DeclaredObject<'_, '_>,
    written: &[DeclaredObject<'_, '_>],
    schemas: &[PluginSchema],
) -> EntityLocation {
    let Entity::Plugins(plugin) = entity else { return one.place.clone() };
    let shared =
        id_text(&one.value["plugin_config_id"]).and_then(|id| Key::new(Kind::PluginConfigs, id).ok());
    let shared = written.iter().find(|other| Some(&other.key) == shared.as_ref());
    let here = [one].into_iter().chain(shared).find_map(|object| {
        let entries = object.node.get("plugins")?.entries().iter();
        let of = |entry: &Entry<'_>| Some((entry.at, configured_fields(&entry.key, &plugin.name, schemas)?));
        let (key, (at, fields)) = entries.filter_map(|entry| Some((&entry.key, of(entry)?))).next()?;
        let path = format!("{}.plugins.{}", object.place.path, quoted(key));
        Some(EntityLocation { at, path, config: Some(fields) })
    });
    here.unwrap_or_else(|| one.place.clone())
}

/// The errors across entities, each at the object that the entity derives from, and at the field if that has it.
fn located(
    finding: &EntityError,
    document: &Document,
    places: &HashMap<(EntityKind, Uuid), &EntityLocation>,
    root: &Node<'_>,
) -> ConfigError {
    let (kind, index) = finding.entity;
    let entity = document.of_kind(kind).nth(index);
    let Some(place) = entity.and_then(|entity| places.get(&(kind, entity.id()))) else {
        let message = format!("{}: {}", kind.as_str(), finding.message);
        return ConfigError { at: Position::default(), path: String::new(), message };
    };
    if place.config.is_none() {
        let message = format!("{}: {}", kind.as_str(), finding.message);
        return ConfigError { at: place.at, path: place.path.clone(), message };
    }
    let path = place.path_of(&finding.path);
    let at = if path == place.path { place.at } else { root.position_of(&path) };
    ConfigError { at, path, message: finding.message.clone() }
}

#[cfg(test)]
mod tests;
