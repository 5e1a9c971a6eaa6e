//! A tree → a [`Document`]: each entity read by its declaration, then the rules across entities.
use super::collect::{Item, Items};
use super::{EntityLocation, EntityLocations, ignored_fields};
use crate::check;
use crate::document::Document;
use crate::entity::*;
use crate::entity_error::EntityError;
use crate::entity_reader::{COMMENT_FIELDS, EntityReader, RawEntity};
use crate::node::{Node, Position, Value};
use crate::plugin_schema::{EntityKinds, PluginSchema, custom_hint, find_plugin};
use crate::schema::{
    Choice, ConfigError, Reader, Record, RecordContext, path_text, quoted, read_record, readable,
};
use std::collections::HashMap;
use uuid::Uuid;

/// The version of the declarative format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Choice)]
pub(super) enum FormatVersion {
    #[choice("3.0")]
    V3_0,
    #[choice("2.1")]
    V2_1,
    #[choice("1.1")]
    V1_1,
}

/// What to write instead of a secret that is made up.
const WRITE_SECRET: &str =
    "write one of at least 32 random characters, or a reference such as `{vault://env/NAME}`";

/// What to write instead of an id that is made up.
const WRITE_ID: &str = "write a UUID, such as `uuidgen` prints";

/// What stands at the top of a file, beside the collections.
#[derive(Debug, Record)]
pub(super) struct Header {
    pub(super) _format_version: FormatVersion,
    /// Whether passwords are hashed on reading: false when they are already.
    #[field(default = true)]
    pub(super) _transform: bool,
}

/// Reads the header of a file.
pub(super) fn read_header(
    root: &Node<'_>,
    kinds: &EntityKinds,
    plugins: &[PluginSchema],
    reader: &mut Reader<'_>,
) -> Option<Header> {
    let remarks = ["_info", "_workspace", "_konnect"];
    let others: Vec<_> = kinds.iter().map(EntityKind::as_str).chain(COMMENT_FIELDS).chain(remarks).collect();
    let hint = |written: &str| custom_hint(plugins, None, written);
    let context = RecordContext { others: &others, hint: Some(&hint), ..RecordContext::NONE };
    read_record(root, &context, reader)
}

/// A document being read, and where each of its entities stands.
pub(super) struct DocumentReader<'i, 'n, 'a> {
    items: &'i Items<'n, 'a>,
    kinds: &'i EntityKinds,
    entities: EntityReader<'i>,
    document: Document,
    warnings: Vec<ConfigError>,
    /// For each kind, the items that its entities were read from.
    places: Vec<Vec<&'i Item<'n, 'a>>>,
    /// The place of each target, by its upstream and as it is stored.
    targets: HashMap<(Uuid, String), usize>,
}

/// What was read, and what there is to say about it.
pub(super) struct Outcome {
    pub(super) document: Document,
    pub(super) problems: Vec<ConfigError>,
    pub(super) warnings: Vec<ConfigError>,
    pub(super) ignored_fields: Vec<ConfigError>,
    pub(super) places: EntityLocations,
}

/// The kinds of which some cannot be used although they break no rule.
const USED: [EntityKind; 7] = [
    EntityKind::Services,
    EntityKind::Routes,
    EntityKind::Plugins,
    EntityKind::Targets,
    EntityKind::Certificates,
    EntityKind::Snis,
    EntityKind::CaCertificates,
];

impl<'i, 'n, 'a> DocumentReader<'i, 'n, 'a> {
    pub(super) fn new(
        items: &'i Items<'n, 'a>,
        kinds: &'i EntityKinds,
        plugins: &'i [PluginSchema],
        transform: bool,
    ) -> Self {
        DocumentReader {
            items,
            kinds,
            entities: EntityReader::new(items, plugins, transform).nested(kinds),
            document: Document::default(),
            warnings: Vec::new(),
            places: kinds.iter().map(|_| Vec::new()).collect(),
            targets: HashMap::new(),
        }
    }

    /// Reads every entity and checks them all together. `is_whole`: whether all entities of the file are among the items.
    pub(super) fn read(mut self, is_whole: bool) -> Outcome {
        for item in self.items.iter() {
            self.entities.reader.start_at(self.items.path(item));
            self.old_names(item);
            self.made_up(item);
            if let Some(entity) = self.entity(item) {
                self.keep(entity, item);
            }
        }
        let DocumentReader { items, kinds, entities, document, mut warnings, places, .. } = self;
        let places = ItemsByKind { kinds, items: places };
        let locate = |findings: Vec<EntityError>| findings.into_iter().map(|f| locate(f, items, &places));
        let mut problems = entities.reader.into_errors();
        let is_whole = is_whole && problems.is_empty();
        let findings = check::check(&document, entities.plugins)
            .into_iter()
            .filter(|finding| !follows(finding, &places));
        problems.extend(locate(findings.collect()));
        // An entity that has an error may be the one that another lacks.
        let of_rest = if is_whole { check::warnings } else { check::entity_warnings };
        warnings.extend(locate(of_rest(&document, entities.plugins)));
        let mut ignored_fields = entities.ignored_fields;
        ignored_fields.extend(locate(ignored_fields::find(&document, entities.plugins)));
        let used = USED.iter().flat_map(|kind| &places.items[kinds.index(*kind)]);
        let places = used.map(|item| {
            let place = EntityLocation::new(item.node.at, path_text(&items.path(item), ""));
            ((item.kind, item.id), place)
        });
        Outcome { document, problems, warnings, ignored_fields, places: places.collect() }
    }

    /// Adds an entity to its collection. A target that is there already is replaced, as in Kong.
    fn keep(&mut self, entity: Entity, item: &'i Item<'n, 'a>) {
        let places = &mut self.places[self.kinds.index(item.kind)];
        if let Entity::Targets(target) = &entity {
            let next = self.document.targets.len();
            let at = *self.targets.entry((target.upstream, target.target.clone())).or_insert(next);
            if let Some(earlier) = self.document.targets.get_mut(at) {
                let message =
                    format!("the target `{}` is here twice; this one counts", quoted(&target.target));
                let path = self.entities.reader.path_of("target");
                self.warnings.push(ConfigError { at: item.node.position_of("target"), path, message });
                *earlier = target.clone();
                places[at] = item;
                return;
            }
        }
        places.push(item);
        self.document.push(entity);
    }

    /// Reads one entity.
    fn entity(&mut self, item: &Item<'_, '_>) -> Option<Entity> {
        let given = self.items.given(item);
        let written = RawEntity { kind: item.kind, node: item.node, given: &given };
        self.entities.entity(written)
    }

    /// The plugin that an item configures.
    fn plugin(&self, item: &Item<'_, '_>) -> Option<&'i PluginSchema> {
        let name = item.node.get("name").and_then(Node::as_str).filter(|_| item.kind == EntityKind::Plugins);
        find_plugin(self.entities.plugins, name?)
    }

    /// Warns of secrets of a plugin that are made up because they are left out.
    fn made_up(&mut self, item: &Item<'_, '_>) {
        let fields = self.plugin(item).map(|schema| schema.config.fields).unwrap_or_default();
        let config = item.node.get("config");
        let is_given = |name| config.and_then(|it| it.get(name)).is_some_and(|it| it.value != Value::Null);
        for field in fields.iter().filter(|it| it.auto && it.is_confidential() && !is_given(it.name)) {
            self.warnings.push(ConfigError {
                at: config.unwrap_or(item.node).at,
                path: self.entities.reader.path_of(&format!("config.{}", field.name)),
                message: format!(
                    "is made up each time that the file is read, because it is left out: it changes with each reload \
                     and restart, and differs between nodes; {}",
                    if field.uuid { WRITE_ID } else { WRITE_SECRET }
                ),
            });
        }
    }

    /// Warns of fields of a plugin that have other names now, unless these are given too.
    fn old_names(&mut self, item: &Item<'_, '_>) {
        let (Some(schema), Some(config)) = (self.plugin(item), item.node.get("config")) else { return };
        for (old, path) in schema.config.old_names {
            let is_given = path.split('.').try_fold(config, |node, name| node.get(name)).is_some();
            let Some(entry) = config.entry(old).filter(|entry| entry.node.value != Value::Null && !is_given)
            else {
                continue;
            };
            self.warnings.push(ConfigError {
                at: entry.at,
                path: self.entities.reader.path_of(&format!("config.{old}")),
                message: format!("deprecated: write `{path}`"),
            });
        }
    }
}

/// For each kind, the items that its entities were read from.
struct ItemsByKind<'i, 'n, 'a> {
    kinds: &'i EntityKinds,
    items: Vec<Vec<&'i Item<'n, 'a>>>,
}

impl<'i, 'n, 'a> ItemsByKind<'i, 'n, 'a> {
    fn item(&self, (kind, index): (EntityKind, usize)) -> Option<&'i Item<'n, 'a>> {
        self.items.get(self.kinds.index(kind))?.get(index).copied()
    }
}

/// Whether a finding follows from another: two entities of one name have one id, unless they give theirs.
fn follows(finding: &EntityError, places: &ItemsByKind<'_, '_, '_>) -> bool {
    finding.path == "id" && places.item(finding.entity).is_some_and(|item| item.node.get("id").is_none())
}

/// Says where in the file a finding is.
fn locate(finding: EntityError, items: &Items<'_, '_>, places: &ItemsByKind<'_, '_, '_>) -> ConfigError {
    let earlier = finding
        .earlier
        .and_then(|earlier| places.item(earlier))
        .map(|item| item.node.position_of(&finding.path).line);
    // It may name what is written, however long that is.
    let mut message = readable(finding.message);
    if let Some(line) = earlier {
        message.push_str(&format!(" (first at line {line})"));
    }
    match places.item(finding.entity) {
        Some(item) => ConfigError {
            at: item.node.position_of(&finding.path),
            path: path_text(&items.path(item), &finding.path),
            message,
        },
        None => ConfigError { at: Position::default(), path: finding.path, message },
    }
}

/// The sentence for a root that is no mapping at all.
pub(super) fn check_root(root: &Node<'_>) -> Option<ConfigError> {
    let message = match root.value {
        Value::Map(_) => return None,
        Value::Null => "the file is empty; start with `_format_version: \"3.0\"`".to_owned(),
        _ => format!("expected a mapping that starts with `_format_version: \"3.0\"`, got {}", root.kind()),
    };
    Some(super::tree::syntax(root.at, message))
}
