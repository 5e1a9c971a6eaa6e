//! A document as `config_table`.
use super::WORKSPACE_ID;
use super::row::{ForeignKeys, row};
use crate::wire::compat::Rules;
use crate::wire::hash::{ConfigHash, Hasher, Hashes};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use weir_model::entity::{Entity, EntityKind, Route};
use weir_model::kong_schema::{has_kind, lacks_plugin, lacks_route};
use weir_model::{Document, EntityKinds, PluginSchema, Uuid};

/// The kinds of Kong itself, in the order in which its control planes list them. Those of plugins follow.
const KINDS: [EntityKind; 12] = [
    EntityKind::Consumers,
    EntityKind::Certificates,
    EntityKind::Services,
    EntityKind::Routes,
    EntityKind::Snis,
    EntityKind::Upstreams,
    EntityKind::Targets,
    EntityKind::Plugins,
    EntityKind::CaCertificates,
    EntityKind::Vaults,
    EntityKind::KeySets,
    EntityKind::Keys,
];

/// Why a plugin is withheld with its route. A data plane would refuse its reference to what it does not get.
pub(crate) const WITHOUT_ROUTE: &str = "its route is left out";

/// Why data planes cannot have a route, if they cannot.
pub(crate) fn reason_against_route(route: &Route, takes_expressions: bool) -> Option<&'static str> {
    match route.expression {
        Some(_) if !takes_expressions => Some("the data plane's router takes no expressions"),
        _ => lacks_route(route),
    }
}

/// What of an entity data planes of Kong do not get, or get otherwise.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Withheld {
    /// The entity, with its name or id.
    pub entity: String,
    /// The path of the field; none where the whole entity is withheld.
    pub field: Option<String>,
    /// Why.
    pub reason: String,
}

impl Withheld {
    pub(crate) fn new(entity: &Entity, field: Option<String>, reason: impl Into<String>) -> Self {
        let kind = entity.kind().as_str().trim_end_matches('s');
        let label = match (entity, entity.name()) {
            (Entity::Plugins(plugin), _) => format!("plugin `{}` (id {})", plugin.name, plugin.id),
            (_, Some(name)) => format!("{kind} `{name}`"),
            (_, None) => format!("{kind} `{}`", entity.id()),
        };
        Withheld { entity: label, field, reason: reason.into() }
    }
}

impl fmt::Display for Withheld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Withheld { entity, field, reason } = self;
        match field {
            Some(field) => write!(f, "{entity}: {field}: {reason}"),
            None => write!(f, "{entity}: {reason}"),
        }
    }
}

/// The entities of a document that data planes of Kong get.
pub struct ConfigTable<'d> {
    document: &'d Document,
    plugins: &'d [PluginSchema],
    kinds: Vec<EntityKind>,
    /// Services that are switched off and their routes; routes that the data planes cannot have.
    disabled: HashSet<Uuid>,
    takes_expressions: bool,
}

impl<'d> ConfigTable<'d> {
    /// Of a document, with the plugins that there are.
    pub fn new(document: &'d Document, plugins: &'d [PluginSchema]) -> Self {
        let custom = EntityKinds::of(plugins);
        let custom =
            custom.iter().filter(|kind| matches!(kind, EntityKind::Custom(_)) && has_kind(*kind, plugins));
        let kinds = KINDS.into_iter().chain(custom).collect();
        let services = document.services.iter().filter(|service| !service.enabled);
        let mut disabled: HashSet<Uuid> = services.map(|service| service.id).collect();
        if !disabled.is_empty() {
            let routes = document.routes.iter();
            let routes = routes.filter(|route| route.service.is_some_and(|id| disabled.contains(&id)));
            let routes: Vec<_> = routes.map(|route| route.id).collect();
            disabled.extend(routes);
        }
        let lacking = document.routes.iter().filter(|route| lacks_route(route).is_some());
        disabled.extend(lacking.map(|route| route.id));
        ConfigTable { document, plugins, kinds, disabled, takes_expressions: true }
    }

    /// The same, for data planes whose router takes no expressions.
    pub fn without_expressions(mut self) -> Self {
        let routes = self.document.routes.iter().filter(|route| route.expression.is_some());
        self.disabled.extend(routes.map(|route| route.id));
        self.takes_expressions = false;
        self
    }

    /// Whether there is nothing but what Kong's data planes take for empty.
    pub fn is_empty(&self) -> bool {
        self.kinds.iter().all(|kind| self.entities(*kind).next().is_none())
    }

    /// The names of the plugins that are configured.
    pub fn configured_plugins(&self) -> HashSet<&'d str> {
        let plugins = self.document.plugins.iter();
        let sent = plugins.filter(|plugin| self.is_sent(&Entity::Plugins((*plugin).clone())));
        sent.map(|plugin| plugin.name.as_str()).collect()
    }

    /// Whether there are routes with an expression among those that are sent, and routes without one.
    pub fn has_mixed_routes(&self) -> bool {
        let routes = self.entities(EntityKind::Routes);
        let mut flavors = routes.filter_map(|entity| match entity {
            Entity::Routes(route) => Some(route.expression.is_some()),
            _ => None,
        });
        flavors.next().is_some_and(|first| flavors.any(|other| other != first))
    }

    /// Kong's hash of everything, and of its parts. What is the same as before is not hashed again.
    pub fn hashes(&self, before: Option<(&ConfigTable<'_>, &Hashes)>) -> Hashes {
        let parts = Hashes::PARTS.into_iter().enumerate().map(|(index, part)| {
            let kind = EntityKind::from_name(part)?;
            let known = before.filter(|(before, _)| self.is_same(before, kind));
            Some(known.map_or_else(|| self.list_hash(kind), |(_, hashes)| hashes.parts()[index]))
        });
        let mut hashes = [ConfigHash::EMPTY; 5];
        for (to, hash) in hashes.iter_mut().zip(parts) {
            *to = hash.unwrap_or(ConfigHash::EMPTY);
        }
        let mut others = self.kinds.iter().filter(|kind| !Hashes::PARTS.contains(&kind.as_str()));
        let known = before.filter(|(before, _)| others.all(|kind| self.is_same(before, *kind)));
        Hashes::of_parts(hashes, known.map_or_else(|| self.rest_hash(), |(_, hashes)| hashes.rest()))
    }

    /// What is withheld from data planes, or sent otherwise.
    pub fn withheld(&self, rules: &Rules) -> Vec<Withheld> {
        let mut found = Vec::new();
        for kind in [EntityKind::ConsumerGroups, EntityKind::ConsumerGroupConsumers] {
            let of_kind = self.document.of_kind(kind);
            found
                .extend(of_kind.map(|it| Withheld::new(&it, None, "Kong 3.9 does not have consumer groups")));
        }
        for (kind, list) in self.document.custom.iter() {
            let kind = EntityKind::Custom(kind);
            if !self.kinds.contains(&kind) {
                let entities = list.iter().cloned().map(Entity::Custom);
                found
                    .extend(entities.map(|it| Withheld::new(&it, None, "Kong 3.9 does not have its plugin")));
            }
        }
        let mut routes = HashSet::new();
        for route in &self.document.routes {
            let Some(reason) = reason_against_route(route, self.takes_expressions) else { continue };
            routes.insert(route.id);
            found.push(Withheld::new(&Entity::Routes(route.clone()), None, reason));
        }
        for plugin in self.document.plugins.iter().filter(|plugin| plugin.enabled) {
            let without_route = || plugin.route.filter(|id| routes.contains(id)).map(|_| WITHOUT_ROUTE);
            let reason = lacks_plugin(plugin, self.plugins).or_else(without_route);
            let entity = Entity::Plugins(plugin.clone());
            found.extend(reason.map(|reason| Withheld::new(&entity, None, reason)));
        }
        for entity in self.kinds.iter().flat_map(|kind| self.entities(*kind)) {
            let (mut row, taken) = row(&entity, ForeignKeys::Bare, self.plugins);
            let lacks = |path| Withheld::new(&entity, Some(path), "Kong 3.9 does not have it");
            found.extend(taken.into_iter().map(lacks));
            let altered = rules.apply(entity.kind().as_str(), &mut row);
            let alter = |(field, reason)| Withheld::new(&entity, field, reason);
            found.extend(altered.into_iter().map(alter));
        }
        found
    }

    /// The table, changed for data planes of an older version.
    pub fn for_version<'t>(&'t self, rules: &'t Rules) -> impl Serialize + 't {
        Versioned { table: self, rules }
    }

    fn entities(&self, kind: EntityKind) -> impl Iterator<Item = Entity> + '_ {
        self.document.of_kind(kind).filter(|entity| self.is_sent(entity))
    }

    fn rows(&self, kind: EntityKind) -> impl ExactSizeIterator<Item = Value> + '_ {
        let count = self.entities(kind).count();
        let rows = self.entities(kind).map(|entity| row(&entity, ForeignKeys::Bare, self.plugins).0);
        Counted { rows, left: count }
    }

    fn is_sent(&self, entity: &Entity) -> bool {
        let is_off = |id: Option<Uuid>| id.is_some_and(|id| self.disabled.contains(&id));
        match entity {
            Entity::Services(service) => service.enabled,
            Entity::Routes(route) => !is_off(route.service) && !is_off(Some(route.id)),
            Entity::Plugins(plugin) => {
                let is_off = is_off(plugin.service) || is_off(plugin.route);
                plugin.enabled && !is_off && lacks_plugin(plugin, self.plugins).is_none()
            }
            _ => true,
        }
    }

    fn is_same(&self, before: &ConfigTable<'_>, kind: EntityKind) -> bool {
        let (mut ours, mut theirs) = (self.entities(kind), before.entities(kind));
        loop {
            match (ours.next(), theirs.next()) {
                (None, None) => return true,
                (Some(one), Some(other)) if one.is_same(&other) => {}
                _ => return false,
            }
        }
    }

    fn list_hash(&self, kind: EntityKind) -> ConfigHash {
        let rows = self.rows(kind);
        if rows.len() == 0 { ConfigHash::EMPTY } else { Hasher::list_hash(rows) }
    }

    /// The hash of what belongs to no part.
    fn rest_hash(&self) -> ConfigHash {
        let header = header().into_iter().map(|(name, value)| (name, Err(value)));
        let others = self.kinds.iter().filter(|kind| !Hashes::PARTS.contains(&kind.as_str()));
        let lists = others.map(|kind| (kind.as_str(), Ok(*kind)));
        let members: BTreeMap<&str, Result<EntityKind, Value>> = header.chain(lists).collect();
        let mut hasher = Hasher::default();
        for (name, member) in members {
            match member {
                Err(value) => hasher.member(name, |hasher| hasher.value(&value)),
                Ok(kind) => {
                    let rows = self.rows(kind);
                    if rows.len() > 0 {
                        hasher.member(name, |hasher| hasher.list(rows));
                    }
                }
            }
        }
        hasher.finish()
    }
}

/// What stands before the entities.
fn header() -> [(&'static str, Value); 3] {
    let workspace = json!({ "id": WORKSPACE_ID, "name": "default", "comment": null, "created_at": null, "updated_at": null });
    [("_format_version", "3.0".into()), ("_transform", false.into()), ("workspaces", json!([workspace]))]
}

/// Rows of which it is known how many there are.
struct Counted<I> {
    rows: I,
    left: usize,
}

impl<I: Iterator> Iterator for Counted<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        self.left = self.left.saturating_sub(1);
        self.rows.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<I: Iterator> ExactSizeIterator for Counted<I> {}

struct Versioned<'t, 'd> {
    table: &'t ConfigTable<'d>,
    rules: &'t Rules,
}

impl Serialize for Versioned<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut table = serializer.serialize_map(None)?;
        for (name, mut value) in header() {
            let rows = value.as_array_mut().into_iter().flatten();
            rows.for_each(|row| drop(self.rules.apply(name, row)));
            table.serialize_entry(name, &value)?;
        }
        for kind in &self.table.kinds {
            let rows = Rows { of: self, kind: *kind };
            if self.table.entities(*kind).next().is_some() {
                table.serialize_entry(kind.as_str(), &rows)?;
            }
        }
        table.end()
    }
}

struct Rows<'r, 't, 'd> {
    of: &'r Versioned<'t, 'd>,
    kind: EntityKind,
}

impl Serialize for Rows<'_, '_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Versioned { table, rules } = self.of;
        serializer.collect_seq(table.rows(self.kind).map(|mut row| {
            rules.apply(self.kind.as_str(), &mut row);
            row
        }))
    }
}
