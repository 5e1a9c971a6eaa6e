//! The whole configuration as one value.
use crate::entity::*;
use std::sync::Arc;
use uuid::Uuid;

/// Every entity, flat: parents are named by id. Built by the declarative reader, checked before use. A clone shares the
/// entities.
#[derive(Debug, Clone, Default, PartialEq)]
#[allow(missing_docs)]
pub struct Document {
    pub services: Vec<Arc<Service>>,
    pub routes: Vec<Arc<Route>>,
    pub consumers: Vec<Arc<Consumer>>,
    pub consumer_groups: Vec<Arc<ConsumerGroup>>,
    pub consumer_group_consumers: Vec<Arc<ConsumerGroupConsumer>>,
    pub plugins: Vec<Arc<Plugin>>,
    pub upstreams: Vec<Arc<Upstream>>,
    pub targets: Vec<Arc<Target>>,
    pub certificates: Vec<Arc<Certificate>>,
    pub snis: Vec<Arc<Sni>>,
    pub ca_certificates: Vec<Arc<CaCertificate>>,
    pub vaults: Vec<Arc<Vault>>,
    pub key_sets: Vec<Arc<KeySet>>,
    pub keys: Vec<Arc<Key>>,
    pub apisix_objects: Vec<Arc<ApisixObject>>,
    /// Those of the kinds that plugins declare.
    pub custom: CustomEntities,
}

macro_rules! collections {
    ($($kind:ident($collection:ident: $record:ident)),* $(,)?) => {
        impl Document {
            /// Adds an entity to its collection.
            pub fn push(&mut self, entity: Entity) {
                match entity {
                    $(Entity::$kind(entity) => self.$collection.push(entity),)*
                    Entity::Custom(entity) => self.custom.push(entity),
                }
            }

            /// Applies a change to a document whose entities stand in the order of their ids.
            pub fn apply(&mut self, change: &Change) {
                match change.kind {
                    $(EntityKind::$kind => {
                        let list = &mut self.$collection;
                        let place = list.binary_search_by_key(&change.id, |entity| entity.id);
                        match (&change.entity, place) {
                            (Some(Entity::$kind(entity)), Ok(at)) => list[at] = entity.clone(),
                            (Some(Entity::$kind(entity)), Err(at)) => list.insert(at, entity.clone()),
                            (_, Ok(at)) => drop(list.remove(at)),
                            (_, Err(_)) => {}
                        }
                    })*
                    EntityKind::Custom(kind) => {
                        let entity = match &change.entity {
                            Some(Entity::Custom(entity)) => Some(entity.clone()),
                            _ => None,
                        };
                        self.custom.apply(kind, change.id, entity);
                    }
                }
            }

            /// The entity with this id, in a document whose entities stand in the order of their ids.
            pub fn find(&self, kind: EntityKind, id: Uuid) -> Option<Entity> {
                match kind {
                    $(EntityKind::$kind => {
                        let place = self.$collection.binary_search_by_key(&id, |entity| entity.id).ok()?;
                        Some(Entity::$kind(self.$collection[place].clone()))
                    })*
                    EntityKind::Custom(kind) => {
                        let list = self.custom.list(kind);
                        let place = list.binary_search_by_key(&id, CustomRecord::id).ok()?;
                        Some(Entity::Custom(list[place].clone()))
                    }
                }
            }

            /// Puts the entities of each kind in the order of their ids.
            pub fn sort(&mut self) {
                $(self.$collection.sort_by_key(|entity| entity.id);)*
                self.custom.sort();
            }

            /// Whether the entities of each kind stand in the order of their ids.
            pub fn is_sorted(&self) -> bool {
                $(self.$collection.is_sorted_by_key(|entity| entity.id) &&)*
                self.custom.iter().all(|(_, list)| list.is_sorted_by_key(CustomRecord::id))
            }

            /// Every entity, those that others name before these.
            pub fn entities(&self) -> impl Iterator<Item = Entity> + '_ {
                std::iter::empty()
                    $(.chain(self.$collection.iter().cloned().map(Entity::$kind)))*
                    .chain(self.custom.entities().cloned().map(Entity::Custom))
            }

            /// How many entities there are.
            pub fn len(&self) -> usize {
                $(self.$collection.len() +)* self.custom.iter().map(|(_, list)| list.len()).sum::<usize>()
            }

            /// Whether there is no entity.
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }

            /// The entity at this place of its collection.
            pub(crate) fn at(&self, (kind, index): (EntityKind, usize)) -> Option<Entity> {
                match kind {
                    $(EntityKind::$kind => self.$collection.get(index).cloned().map(Entity::$kind),)*
                    EntityKind::Custom(kind) => self.custom.list(kind).get(index).cloned().map(Entity::Custom),
                }
            }

            /// The entity with this id. Searches the whole collection: for messages, not for requests.
            pub(crate) fn search(&self, kind: EntityKind, id: Uuid) -> Option<Entity> {
                match kind {
                    $(EntityKind::$kind => {
                        self.$collection.iter().find(|entity| entity.id == id).cloned().map(Entity::$kind)
                    })*
                    EntityKind::Custom(kind) => {
                        let found = self.custom.list(kind).iter().find(|entity| entity.id() == id);
                        found.cloned().map(Entity::Custom)
                    }
                }
            }

            /// The entities of a kind, in their order.
            pub fn of_kind(&self, kind: EntityKind) -> Box<dyn ExactSizeIterator<Item = Entity> + '_> {
                match kind {
                    $(EntityKind::$kind => Box::new(self.$collection.iter().cloned().map(Entity::$kind)),)*
                    EntityKind::Custom(kind) => {
                        Box::new(self.custom.list(kind).iter().cloned().map(Entity::Custom))
                    }
                }
            }

            /// Every entity, those that others name before these.
            pub fn into_entities(self) -> Vec<Entity> {
                let mut all = Vec::new();
                $(all.extend(self.$collection.into_iter().map(Entity::$kind));)*
                all.extend(self.custom.into_entities().map(Entity::Custom));
                all
            }
        }
    };
}

entity_kinds!(collections);
