//! An entity of any kind.
use super::*;
use crate::schema::{Json, Record, RecordSchema};
use std::fmt;
use std::sync::Arc;
use uuid::Uuid;

macro_rules! any_kind {
    ($($kind:ident($collection:ident: $record:ident)),* $(,)?) => {
        /// An entity of any kind. Cheap to clone.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Entity {
            $($kind(Arc<$record>),)*
            /// Of a kind that a plugin declares.
            Custom(CustomRecord),
        }

        impl Entity {
            /// Its kind.
            pub fn kind(&self) -> EntityKind {
                match self {
                    $(Entity::$kind(_) => EntityKind::$kind,)*
                    Entity::Custom(entity) => EntityKind::Custom(entity.kind()),
                }
            }

            /// Its id.
            pub fn id(&self) -> Uuid {
                match self {
                    $(Entity::$kind(entity) => entity.id,)*
                    Entity::Custom(entity) => entity.id(),
                }
            }

            /// Its tags.
            pub fn tags(&self) -> &[String] {
                match self {
                    $(Entity::$kind(entity) => entity.tags.as_deref().unwrap_or_default(),)*
                    Entity::Custom(entity) => entity.tags(),
                }
            }

            /// Whether it is the very same entity, not one that is equal.
            pub fn is_same(&self, other: &Entity) -> bool {
                match (self, other) {
                    $((Entity::$kind(one), Entity::$kind(other)) => Arc::ptr_eq(one, other),)*
                    (Entity::Custom(one), Entity::Custom(other)) => one.is_same(other),
                    _ => false,
                }
            }

            /// As JSON, every field present, null when unset.
            pub fn to_value(&self) -> Json {
                match self {
                    $(Entity::$kind(entity) => entity.to_value(),)*
                    Entity::Custom(entity) => entity.to_value(),
                }
            }
        }

        impl EntityKind {
            /// What entities of this kind are made of.
            pub fn schema(self) -> &'static RecordSchema {
                match self {
                    $(EntityKind::$kind => $record::SCHEMA,)*
                    EntityKind::Custom(kind) => kind.schema().record,
                }
            }
        }
    };
}

/// Calls a macro with every kind: `Kind(collection: Record)`. Those that others name come first.
macro_rules! entity_kinds {
    ($callback:ident) => {
        $callback! {
            CaCertificates(ca_certificates: CaCertificate),
            Certificates(certificates: Certificate),
            Snis(snis: Sni),
            Services(services: Service),
            Routes(routes: Route),
            Consumers(consumers: Consumer),
            ConsumerGroups(consumer_groups: ConsumerGroup),
            ConsumerGroupConsumers(consumer_group_consumers: ConsumerGroupConsumer),
            Upstreams(upstreams: Upstream),
            Targets(targets: Target),
            Plugins(plugins: Plugin),
            Vaults(vaults: Vault),
            KeySets(key_sets: KeySet),
            Keys(keys: Key),
            ApisixObjects(apisix_objects: ApisixObject),
        }
    };
}
pub(crate) use entity_kinds;

entity_kinds!(any_kind);

/// What happens to an entity when one that it references is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OnDelete {
    /// It is deleted as well.
    Cascade,
    /// The other cannot be deleted.
    Restrict,
}

/// An entity's reference to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reference {
    /// The field that names it.
    pub field: &'static str,
    /// Its kind.
    pub kind: EntityKind,
    /// Its id.
    pub id: Uuid,
    /// What its end means here.
    pub on_delete: OnDelete,
}

impl Entity {
    /// The name by which others may call it.
    pub fn name(&self) -> Option<&str> {
        match self {
            Entity::Services(service) => service.name.as_deref(),
            Entity::Routes(route) => route.name.as_deref(),
            Entity::Consumers(consumer) => consumer.username.as_deref(),
            Entity::ConsumerGroups(group) => Some(&group.name),
            Entity::Upstreams(upstream) => Some(&upstream.name),
            Entity::Snis(sni) => Some(&sni.name),
            Entity::Vaults(vault) => Some(&vault.prefix),
            Entity::KeySets(set) => set.name.as_deref(),
            Entity::Keys(key) => key.name.as_deref(),
            Entity::Custom(entity) => entity.text(entity.kind().schema().name_field()?),
            _ => None,
        }
    }

    /// When it ends by itself, in seconds since 1970.
    pub fn expires(&self) -> Option<i64> {
        match self {
            Entity::Custom(entity) => entity.expires(),
            _ => None,
        }
    }

    /// The entities that this one names.
    pub fn references(&self) -> Vec<Reference> {
        use OnDelete::{Cascade, Restrict};
        let to = |field, kind, on_delete| move |id: Uuid| Reference { field, kind, id, on_delete };
        let consumer = to("consumer", EntityKind::Consumers, Cascade);
        let group = to("consumer_group", EntityKind::ConsumerGroups, Cascade);
        match self {
            Entity::Services(service) => {
                let certificate = to("client_certificate", EntityKind::Certificates, Restrict);
                let authority = to("ca_certificates", EntityKind::CaCertificates, Restrict);
                let authorities = service.ca_certificates.iter().flatten().copied().map(authority);
                service.client_certificate.map(certificate).into_iter().chain(authorities).collect()
            }
            Entity::Routes(route) => {
                route.service.map(to("service", EntityKind::Services, Restrict)).into_iter().collect()
            }
            Entity::Upstreams(upstream) => {
                let certificate = to("client_certificate", EntityKind::Certificates, Restrict);
                upstream.client_certificate.map(certificate).into_iter().collect()
            }
            Entity::Plugins(plugin) => [
                plugin.route.map(to("route", EntityKind::Routes, Cascade)),
                plugin.service.map(to("service", EntityKind::Services, Cascade)),
                plugin.consumer.map(consumer),
                plugin.consumer_group.map(group),
            ]
            .into_iter()
            .flatten()
            .chain(authorities(&plugin.config).map(to(
                "config.ca_certificates",
                EntityKind::CaCertificates,
                Restrict,
            )))
            .collect(),
            Entity::Targets(target) => vec![to("upstream", EntityKind::Upstreams, Cascade)(target.upstream)],
            Entity::Snis(sni) => vec![to("certificate", EntityKind::Certificates, Cascade)(sni.certificate)],
            Entity::ConsumerGroupConsumers(member) => {
                vec![group(member.consumer_group), consumer(member.consumer)]
            }
            Entity::Keys(key) => key.set.map(to("set", EntityKind::KeySets, Cascade)).into_iter().collect(),
            Entity::Custom(entity) => entity.references(),
            Entity::Consumers(_)
            | Entity::ConsumerGroups(_)
            | Entity::Certificates(_)
            | Entity::CaCertificates(_)
            | Entity::Vaults(_)
            | Entity::KeySets(_)
            | Entity::ApisixObjects(_) => Vec::new(),
        }
    }

    /// The values that no other entity of the kind may have: each by its fields.
    pub fn unique_values(&self) -> Vec<Unique> {
        let one = |field: &'static str, value: &str| Unique(vec![(field, value.into())]);
        let maybe = |field: &'static str, value: &Option<String>| {
            value.as_deref().map(|value| one(field, value)).into_iter()
        };
        match self {
            Entity::Services(service) => maybe("name", &service.name).collect(),
            Entity::Routes(route) => maybe("name", &route.name).collect(),
            Entity::Consumers(consumer) => {
                maybe("username", &consumer.username).chain(maybe("custom_id", &consumer.custom_id)).collect()
            }
            Entity::ConsumerGroups(group) => vec![one("name", &group.name)],
            Entity::ConsumerGroupConsumers(member) => vec![Unique(vec![
                ("consumer", reference_value(Some(member.consumer))),
                ("consumer_group", reference_value(Some(member.consumer_group))),
            ])],
            Entity::Upstreams(upstream) => vec![one("name", &upstream.name)],
            Entity::Snis(sni) => vec![one("name", &sni.name)],
            Entity::Vaults(vault) => vec![one("prefix", &vault.prefix)],
            Entity::KeySets(set) => maybe("name", &set.name).collect(),
            Entity::Keys(key) => {
                let within_set = vec![("kid", key.kid.as_str().into()), ("set", reference_value(key.set))];
                maybe("name", &key.name).chain([Unique(within_set)]).collect()
            }
            Entity::Custom(entity) => entity.unique_values(),
            Entity::Targets(target) => vec![Unique(vec![
                ("target", target.target.as_str().into()),
                ("upstream", reference_value(Some(target.upstream))),
            ])],
            Entity::Plugins(plugin) => {
                let mut scope = vec![
                    ("consumer", reference_value(plugin.consumer)),
                    ("name", plugin.name.as_str().into()),
                    ("route", reference_value(plugin.route)),
                    ("service", reference_value(plugin.service)),
                ];
                let group = plugin.consumer_group.map(|id| ("consumer_group", reference_value(Some(id))));
                scope.extend(group);
                maybe("instance_name", &plugin.instance_name).chain([Unique(scope)]).collect()
            }
            Entity::CaCertificates(authority) => vec![one("cert", authority.cert.trim())],
            Entity::ApisixObjects(object) => vec![one("key", &object.key)],
            Entity::Certificates(_) => Vec::new(),
        }
    }
}

/// A value, or several together, that only one entity of a kind may have. `null` counts as a value.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Unique(pub Vec<(&'static str, Json)>);

/// The fields alone: a key is a secret.
impl fmt::Debug for Unique {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(field, _)| field)).finish()
    }
}

pub(super) fn reference_value(id: Option<Uuid>) -> Json {
    id.map_or(Json::Null, |id| serde_json::json!({ "id": id.to_string() }))
}

/// The authorities that a plugin's configuration names, as Kong's plugins do.
fn authorities(config: &Json) -> impl Iterator<Item = Uuid> {
    let listed = config.get("ca_certificates").and_then(Json::as_array);
    listed.into_iter().flatten().filter_map(|id| crate::rule::id(id.as_str()?))
}
