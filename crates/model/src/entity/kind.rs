//! The kinds of entities, by the names of their collections.
use crate::schema::Choice;

/// A kind of entity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Choice)]
pub enum EntityKind {
    Services,
    Routes,
    Consumers,
    ConsumerGroups,
    ConsumerGroupConsumers,
    KeyauthCredentials,
    BasicauthCredentials,
    HmacauthCredentials,
    JwtSecrets,
    Acls,
    Plugins,
    Upstreams,
    Targets,
    Certificates,
    Snis,
    CaCertificates,
    ApisixObjects,
}
use EntityKind::*;

impl EntityKind {
    /// What may be nested in an entity of this kind: each kind, and its field that names the parent.
    pub fn children(self) -> &'static [(EntityKind, &'static str)] {
        match self {
            Services => &[(Routes, "service"), (Plugins, "service")],
            Routes => &[(Plugins, "route")],
            Consumers => &[
                (KeyauthCredentials, "consumer"),
                (BasicauthCredentials, "consumer"),
                (HmacauthCredentials, "consumer"),
                (JwtSecrets, "consumer"),
                (Acls, "consumer"),
                (ConsumerGroupConsumers, "consumer"),
                (Plugins, "consumer"),
            ],
            ConsumerGroups => &[(ConsumerGroupConsumers, "consumer_group"), (Plugins, "consumer_group")],
            Upstreams => &[(Targets, "upstream")],
            Certificates => {
                &[(Snis, "certificate"), (Services, "client_certificate"), (Upstreams, "client_certificate")]
            }
            _ => &[],
        }
    }

    /// How files list who is in which group within an entity of this kind, and the field that names the other side.
    pub(crate) fn members(self) -> Option<(&'static str, &'static str)> {
        match self {
            Consumers => Some(("groups", "consumer_group")),
            ConsumerGroups => Some(("consumers", "consumer")),
            _ => None,
        }
    }

    /// The field by which others may name an entity of this kind.
    pub fn key(self) -> Option<&'static str> {
        match self {
            Services | Routes | ConsumerGroups | Upstreams | Snis => Some("name"),
            Consumers => Some("username"),
            ApisixObjects => Some("key"),
            _ => None,
        }
    }
}
