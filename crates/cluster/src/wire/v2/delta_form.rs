//! What data planes get of entities as deltas: Kong's fields alone, changed for older versions.
use super::{Delta, SyncVersion};
use crate::wire::compat::Rules;
use crate::wire::payload::{ForeignKeys, WITHOUT_ROUTE, Withheld, reason_against_route, row};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use weir_model::entity::{Entity, EntityKind, Plugin};
use weir_model::kong_schema::{has_kind, lacks_plugin};
use weir_model::{Change, Document, PluginSchema};

/// The form in which some data planes take entities.
pub struct DeltaForm<'f> {
    /// The plugins that there are.
    pub plugins: &'f [PluginSchema],
    /// What is changed for the version of the data planes.
    pub rules: Rules,
    /// Whether their router takes routes with expressions.
    pub takes_expressions: bool,
    /// All entities, in the order of their ids.
    pub document: &'f Document,
}

impl DeltaForm<'_> {
    /// A change, if the data planes can have entities of its kind. An entity that they cannot have is deleted.
    pub fn delta(&self, change: &Change, version: SyncVersion) -> Option<Delta> {
        let change = match &change.entity {
            Some(entity) if self.reason_against(entity).is_some() => &Change::delete(change.kind, change.id),
            _ => change,
        };
        Delta::of(change, version, self.plugins).map(|delta| self.changed(delta))
    }

    /// Everything, as the result of a call.
    pub fn everything(&self, version: SyncVersion) -> impl Serialize + '_ {
        Everything { form: self, version }
    }

    /// What of an entity the data planes do not get, or get otherwise.
    pub fn withheld(&self, entity: &Entity) -> Vec<Withheld> {
        if entity.kind() == EntityKind::ApisixObjects {
            return Vec::new();
        }
        if let Some(reason) = self.reason_against(entity) {
            return vec![Withheld::new(entity, None, reason)];
        }
        let (mut row, taken) = row(entity, ForeignKeys::Objects, self.plugins);
        let lacks = |path| Withheld::new(entity, Some(path), "Kong 3.9 does not have it");
        let altered = self.rules.apply(entity.kind().as_str(), &mut row);
        let altered = altered.into_iter().map(|(field, reason)| Withheld::new(entity, field, reason));
        taken.into_iter().map(lacks).chain(altered).collect()
    }

    /// Why the data planes cannot have an entity, if they cannot.
    fn reason_against(&self, entity: &Entity) -> Option<&'static str> {
        match entity {
            Entity::Plugins(plugin) => {
                lacks_plugin(plugin, self.plugins).or_else(|| self.reason_against_route_of(plugin))
            }
            Entity::Routes(route) => reason_against_route(route, self.takes_expressions),
            Entity::Custom(_) if !has_kind(entity.kind(), self.plugins) => {
                Some("Kong 3.9 does not have its plugin")
            }
            _ if !has_kind(entity.kind(), self.plugins) => Some("Kong 3.9 does not have consumer groups"),
            _ => None,
        }
    }

    fn reason_against_route_of(&self, plugin: &Plugin) -> Option<&'static str> {
        match self.document.find(EntityKind::Routes, plugin.route?)? {
            Entity::Routes(route) => {
                reason_against_route(&route, self.takes_expressions).map(|_| WITHOUT_ROUTE)
            }
            _ => None,
        }
    }

    fn whole(&self, entity: &Entity, version: SyncVersion) -> Option<Delta> {
        self.reason_against(entity)
            .is_none()
            .then(|| Delta::of_all(entity, version, self.plugins))?
            .map(|delta| self.changed(delta))
    }

    fn changed(&self, mut delta: Delta) -> Delta {
        if let Some(row) = &mut delta.entity {
            self.rules.apply(&delta.r#type, row);
        }
        delta
    }
}

/// All entities of a document. Each row is made while it is written, so that there is no second copy of a configuration.
struct Everything<'e, 'f> {
    form: &'e DeltaForm<'f>,
    version: SyncVersion,
}

impl Serialize for Everything<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut result = serializer.serialize_map(Some(1))?;
        result.serialize_entry("default", &Whole(self))?;
        result.end()
    }
}

struct Whole<'w, 'e, 'f>(&'w Everything<'e, 'f>);

impl Serialize for Whole<'_, '_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut whole = serializer.serialize_map(Some(2))?;
        whole.serialize_entry(self.0.version.wipe_name(), &true)?;
        whole.serialize_entry("deltas", &Deltas(self.0))?;
        whole.end()
    }
}

struct Deltas<'w, 'e, 'f>(&'w Everything<'e, 'f>);

impl Serialize for Deltas<'_, '_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Everything { form, version } = self.0;
        let workspace = form.changed(Delta::of_workspace(version.clone()));
        let entities = form.document.entities().filter_map(|entity| form.whole(&entity, version.clone()));
        serializer.collect_seq(std::iter::once(workspace).chain(entities))
    }
}
