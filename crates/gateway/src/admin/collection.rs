//! The collections, declared once: the names of each kind of entity in paths. Every path of entities derives from this
//! and from the fields that refer to other entities.
use weir_model::entity::CustomEntitySchema;
use weir_model::entity::EntityKind::{self, *};
use weir_model::schema::Kind;
use weir_model::{EntityKinds, PluginSchema};

/// The names of a kind of entity in paths.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Collection {
    /// At the top level; none for entities that exist only below a parent.
    pub(crate) name: Option<&'static str>,
    /// Below a parent.
    pub(crate) nested: &'static str,
    /// What may stand for the id.
    pub(crate) key: Key,
}

/// By what a path may identify an entity, besides its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Key {
    /// By a field that is different for each.
    Unique(&'static str),
    /// By a field that is different for each below one parent.
    Within(&'static str),
    /// By a server name that the certificate is presented for.
    ServerName,
    /// By nothing else.
    Id,
}

impl Collection {
    /// The names of a kind.
    pub(crate) fn of(kind: EntityKind) -> Collection {
        let (name, nested, key) = match kind {
            Services => ("services", "services", Key::Unique("name")),
            Routes => ("routes", "routes", Key::Unique("name")),
            Consumers => ("consumers", "consumers", Key::Unique("username")),
            ConsumerGroups => ("consumer_groups", "consumer_groups", Key::Unique("name")),
            // Found as the consumers of a group, and as the groups of a consumer.
            ConsumerGroupConsumers => ("", "consumer_group_consumers", Key::Id),
            Custom(kind) => {
                let CustomEntitySchema { path, nested_path, record, endpoint_key, .. } = kind.schema();
                let is_unique = |field: &str| record.field(field).is_some_and(|field| field.unique);
                let key = endpoint_key.map_or(Key::Id, |field| match is_unique(field) {
                    true => Key::Unique(field),
                    false => Key::Within(field),
                });
                (*path, *nested_path, key)
            }
            Plugins => ("plugins", "plugins", Key::Unique("instance_name")),
            Upstreams => ("upstreams", "upstreams", Key::Unique("name")),
            Targets => ("", "targets", Key::Within("target")),
            Certificates => ("certificates", "certificates", Key::ServerName),
            Snis => ("snis", "snis", Key::Unique("name")),
            CaCertificates => ("ca_certificates", "ca_certificates", Key::Id),
            Vaults => ("vaults", "vaults", Key::Unique("prefix")),
            KeySets => ("key-sets", "key-sets", Key::Unique("name")),
            Keys => ("keys", "keys", Key::Unique("name")),
            // APISIX's Admin API has paths of its own for these.
            ApisixObjects => ("", "apisix_objects", Key::Unique("key")),
        };
        let name = if name.is_empty() { None } else { Some(name) };
        Collection { name, nested, key }
    }
}

/// A path of entities.
#[derive(Debug, Clone, Copy)]
pub(crate) enum EntityPath {
    /// `/routes`
    Collection(EntityKind),
    /// `/routes/x`
    Entity(EntityKind),
    /// `/services/x/routes`
    Children(Nesting),
    /// `/services/x/routes/y`
    Child(Nesting),
    /// `/routes/x/service`
    Named(Naming),
    /// `/consumer_groups/x/consumers`
    Members(Membership),
    /// `/consumer_groups/x/consumers/y`
    Member(Membership),
}

/// Entities below the one that they refer to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Nesting {
    pub(crate) parent: EntityKind,
    pub(crate) kind: EntityKind,
    /// The field that refers to the parent.
    pub(crate) field: &'static str,
}

/// The entity that another one refers to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Naming {
    pub(crate) owner: EntityKind,
    /// The owner's field.
    pub(crate) field: &'static str,
    pub(crate) kind: EntityKind,
}

/// The membership of consumers in groups, from one side.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Membership {
    pub(crate) owner: EntityKind,
    pub(crate) kind: EntityKind,
    /// The member of the body that holds the new ones.
    pub(crate) argument: &'static str,
}

impl Membership {
    /// The consumers of a group.
    pub(crate) const CONSUMERS: Membership =
        Membership { owner: ConsumerGroups, kind: Consumers, argument: "consumer" };
    /// The groups of a consumer.
    const GROUPS: Membership = Membership { owner: Consumers, kind: ConsumerGroups, argument: "group" };
}

impl EntityPath {
    /// The kind of entities here.
    pub(crate) fn kind(self) -> EntityKind {
        match self {
            EntityPath::Collection(kind) | EntityPath::Entity(kind) => kind,
            EntityPath::Children(nesting) | EntityPath::Child(nesting) => nesting.kind,
            EntityPath::Named(naming) => naming.kind,
            EntityPath::Members(membership) | EntityPath::Member(membership) => membership.kind,
        }
    }

    /// Whether many are here, rather than one.
    pub(crate) fn is_collection(self) -> bool {
        matches!(self, EntityPath::Collection(_) | EntityPath::Children(_) | EntityPath::Members(_))
    }
}

/// Every path of entities, with its pattern for the router.
pub(crate) fn entity_paths(plugins: &[PluginSchema]) -> Vec<(String, EntityPath)> {
    let kinds = EntityKinds::of(plugins);
    let tops = kinds.iter().filter_map(|kind| Some((kind, Collection::of(kind).name?)));
    tops.flat_map(|(kind, name)| paths_of(kind, name, &kinds)).collect()
}

fn paths_of(kind: EntityKind, name: &str, kinds: &EntityKinds) -> Vec<(String, EntityPath)> {
    let entity = format!("/{name}/{{id}}");
    let mut entity_paths =
        vec![(format!("/{name}"), EntityPath::Collection(kind)), (entity.clone(), EntityPath::Entity(kind))];
    for (child, field) in kinds.children(kind).iter().filter(|(child, _)| *child != ConsumerGroupConsumers) {
        let nested = Collection::of(*child).nested;
        // Entities that a plugin keeps to itself.
        if nested.is_empty() {
            continue;
        }
        let nesting = Nesting { parent: kind, kind: *child, field };
        entity_paths.push((format!("{entity}/{nested}"), EntityPath::Children(nesting)));
        entity_paths.push((format!("{entity}/{nested}/{{child}}"), EntityPath::Child(nesting)));
    }
    let memberships = [Membership::CONSUMERS, Membership::GROUPS];
    for membership in memberships.into_iter().filter(|membership| membership.owner == kind) {
        let nested = Collection::of(membership.kind).nested;
        entity_paths.push((format!("{entity}/{nested}"), EntityPath::Members(membership)));
        entity_paths.push((format!("{entity}/{nested}/{{child}}"), EntityPath::Member(membership)));
    }
    for (field, named) in naming_fields(kind) {
        let naming = Naming { owner: kind, field, kind: named };
        entity_paths.push((format!("{entity}/{field}"), EntityPath::Named(naming)));
    }
    entity_paths
}

/// The names in paths that a secret may follow in the place of an id.
pub(super) fn secret_paths(plugins: &[PluginSchema]) -> Vec<&'static str> {
    let schemas = plugins.iter().flat_map(|plugin| plugin.entities);
    let is_secret = |schema: &&&CustomEntitySchema| {
        let key = schema.endpoint_key.and_then(|key| schema.record.field(key));
        key.is_some_and(|key| key.is_confidential())
    };
    let paths = schemas.filter(is_secret).flat_map(|schema| [schema.path, schema.nested_path]);
    let of_routes = plugins.iter().flat_map(|plugin| plugin.secret_paths.iter().copied());
    paths.filter(|path| !path.is_empty()).chain(of_routes).collect()
}

/// The fields of a kind that each refer to one entity, with the kind of that entity.
pub(super) fn naming_fields(kind: EntityKind) -> impl Iterator<Item = (&'static str, EntityKind)> {
    let single = kind.schema().fields.iter().filter(|field| matches!(field.kind, Kind::Uuid));
    single.filter_map(move |field| Some((field.name, kind.kind_called(field.foreign?)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_of_kongs_is_there() {
        let plugins = crate::plugins::bundled();
        let paths: Vec<String> = entity_paths(&plugins).into_iter().map(|(path, _)| path).collect();
        for path in [
            "/services",
            "/services/{id}/routes/{child}",
            "/services/{id}/client_certificate",
            "/routes/{id}/service",
            "/consumers/{id}/key-auth",
            "/consumers/{id}/acls/{child}",
            "/consumers/{id}/consumer_groups/{child}",
            "/consumer_groups/{id}/consumers/{child}",
            "/consumer_groups/{id}/plugins",
            "/plugins/{id}/consumer_group",
            "/key-auths/{id}/consumer",
            "/jwts",
            "/plugins/{id}/route",
            "/upstreams/{id}/targets/{child}",
            "/certificates/{id}/snis",
            "/certificates/{id}/upstreams",
            "/snis/{id}/certificate",
            "/ca_certificates/{id}",
            "/vaults/{id}",
            "/key-sets/{id}/keys/{child}",
            "/keys/{id}/set",
        ] {
            assert!(paths.iter().any(|known| known == path), "{path} is not among {paths:?}");
        }
        assert!(!paths.iter().any(|path| path.starts_with("/targets")), "targets have no list of their own");
    }
}
