//! The collections, declared once: what entities of each kind are called in paths. Every path of entities follows from
//! this, and from which fields name other entities.
use weir_model::entity::EntityKind::{self, *};
use weir_model::schema::{Choice, Kind};

/// What entities of a kind are called in paths.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Collection {
    /// At the top; none where they are only found below their parents.
    pub(crate) name: Option<&'static str>,
    /// Below a parent.
    pub(crate) nested: &'static str,
    /// What stands for an id.
    pub(crate) key: Key,
}

/// How a path may call an entity, other than by its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Key {
    /// By a field that is different for each.
    Unique(&'static str),
    /// By a field that is different for each below one parent.
    Within(&'static str),
    /// By a server name that the certificate is presented for.
    ServerName,
    /// Not at all.
    Id,
}

impl Collection {
    /// The names of a kind.
    pub(crate) const fn of(kind: EntityKind) -> Collection {
        let (name, nested, key) = match kind {
            Services => ("services", "services", Key::Unique("name")),
            Routes => ("routes", "routes", Key::Unique("name")),
            Consumers => ("consumers", "consumers", Key::Unique("username")),
            ConsumerGroups => ("consumer_groups", "consumer_groups", Key::Unique("name")),
            // Found as the consumers of a group, and as the groups of a consumer.
            ConsumerGroupConsumers => ("", "consumer_group_consumers", Key::Id),
            KeyauthCredentials => ("key-auths", "key-auth", Key::Unique("key")),
            BasicauthCredentials => ("basic-auths", "basic-auth", Key::Unique("username")),
            HmacauthCredentials => ("hmac-auths", "hmac-auth", Key::Unique("username")),
            JwtSecrets => ("jwts", "jwt", Key::Unique("key")),
            Acls => ("acls", "acls", Key::Within("group")),
            Plugins => ("plugins", "plugins", Key::Unique("instance_name")),
            Upstreams => ("upstreams", "upstreams", Key::Unique("name")),
            Targets => ("", "targets", Key::Within("target")),
            Certificates => ("certificates", "certificates", Key::ServerName),
            Snis => ("snis", "snis", Key::Unique("name")),
            CaCertificates => ("ca_certificates", "ca_certificates", Key::Id),
            // APISIX's Admin API has paths of its own for these.
            ApisixObjects => ("", "apisix_objects", Key::Unique("key")),
        };
        let name = if name.is_empty() { None } else { Some(name) };
        Collection { name, nested, key }
    }
}

/// Where entities are found.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Place {
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

/// Entities below the one that they name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Nesting {
    pub(crate) parent: EntityKind,
    pub(crate) kind: EntityKind,
    /// The field that names the parent.
    pub(crate) field: &'static str,
}

/// The entity that another one names.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Naming {
    pub(crate) owner: EntityKind,
    /// The owner's field.
    pub(crate) field: &'static str,
    pub(crate) kind: EntityKind,
}

/// Consumers and groups that belong together, from one side.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Membership {
    pub(crate) owner: EntityKind,
    pub(crate) kind: EntityKind,
    /// What a body calls those that are added.
    pub(crate) argument: &'static str,
}

impl Membership {
    /// The consumers of a group.
    pub(crate) const CONSUMERS: Membership =
        Membership { owner: ConsumerGroups, kind: Consumers, argument: "consumer" };
    /// The groups of a consumer.
    const GROUPS: Membership = Membership { owner: Consumers, kind: ConsumerGroups, argument: "group" };
}

impl Place {
    /// The kind of entities here.
    pub(crate) fn kind(self) -> EntityKind {
        match self {
            Place::Collection(kind) | Place::Entity(kind) => kind,
            Place::Children(nesting) | Place::Child(nesting) => nesting.kind,
            Place::Named(naming) => naming.kind,
            Place::Members(membership) | Place::Member(membership) => membership.kind,
        }
    }

    /// Whether many are here, rather than one.
    pub(crate) fn is_collection(self) -> bool {
        matches!(self, Place::Collection(_) | Place::Children(_) | Place::Members(_))
    }
}

/// Every place, with its path as the router writes it.
pub(crate) fn places() -> Vec<(String, Place)> {
    let tops = EntityKind::ALL.iter().filter_map(|kind| Some((*kind, Collection::of(*kind).name?)));
    tops.flat_map(|(kind, name)| places_of(kind, name)).collect()
}

fn places_of(kind: EntityKind, name: &str) -> Vec<(String, Place)> {
    let entity = format!("/{name}/{{id}}");
    let mut places =
        vec![(format!("/{name}"), Place::Collection(kind)), (entity.clone(), Place::Entity(kind))];
    for (child, field) in kind.children().iter().filter(|(child, _)| *child != ConsumerGroupConsumers) {
        let nested = Collection::of(*child).nested;
        let nesting = Nesting { parent: kind, kind: *child, field };
        places.push((format!("{entity}/{nested}"), Place::Children(nesting)));
        places.push((format!("{entity}/{nested}/{{child}}"), Place::Child(nesting)));
    }
    let memberships = [Membership::CONSUMERS, Membership::GROUPS];
    for membership in memberships.into_iter().filter(|membership| membership.owner == kind) {
        let nested = Collection::of(membership.kind).nested;
        places.push((format!("{entity}/{nested}"), Place::Members(membership)));
        places.push((format!("{entity}/{nested}/{{child}}"), Place::Member(membership)));
    }
    for (field, named) in naming_fields(kind) {
        let naming = Naming { owner: kind, field, kind: named };
        places.push((format!("{entity}/{field}"), Place::Named(naming)));
    }
    places
}

/// The fields of a kind that name one entity each, and of which kind.
pub(super) fn naming_fields(kind: EntityKind) -> impl Iterator<Item = (&'static str, EntityKind)> {
    let single = kind.schema().fields.iter().filter(|field| matches!(field.kind, Kind::Uuid));
    single.filter_map(|field| Some((field.name, EntityKind::from_name(field.foreign?)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_of_kongs_is_there() {
        let paths: Vec<String> = places().into_iter().map(|(path, _)| path).collect();
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
        ] {
            assert!(paths.iter().any(|known| known == path), "{path} is not among {paths:?}");
        }
        assert!(!paths.iter().any(|path| path.starts_with("/targets")), "targets have no list of their own");
    }
}
