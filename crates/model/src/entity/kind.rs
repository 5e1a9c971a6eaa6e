//! The kinds of entities, by the names of their collections.
use super::CustomKind;

macro_rules! kinds {
    ($($before:ident: $before_name:literal),*; $($after:ident: $after_name:literal),* $(,)?) => {
        /// A kind of entity.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum EntityKind {
            $($before,)*
            /// Entities that a plugin declares.
            Custom(CustomKind),
            $($after),*
        }
        use EntityKind::*;

        impl EntityKind {
            /// The kinds that the gateway itself has.
            pub const BUILT_IN: &[EntityKind] = &[$($before,)* $($after),*];

            /// The name of its collection.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $($before => $before_name,)*
                    Custom(kind) => kind.schema().name,
                    $($after => $after_name),*
                }
            }

            /// The built-in kind of this name.
            pub fn from_name(name: &str) -> Option<EntityKind> {
                match name {
                    $($before_name => Some($before),)*
                    $($after_name => Some($after),)*
                    _ => None,
                }
            }
        }
    };
}

kinds! {
    Services: "services",
    Routes: "routes",
    Consumers: "consumers",
    ConsumerGroups: "consumer_groups",
    ConsumerGroupConsumers: "consumer_group_consumers";
    Plugins: "plugins",
    Upstreams: "upstreams",
    Targets: "targets",
    Certificates: "certificates",
    Snis: "snis",
    CaCertificates: "ca_certificates",
    Vaults: "vaults",
    KeySets: "key_sets",
    Keys: "keys",
    ApisixObjects: "apisix_objects",
}

impl EntityKind {
    /// The built-in kinds that may be nested in an entity of this kind, each with its field that names the parent.
    pub(crate) fn children(self) -> &'static [(EntityKind, &'static str)] {
        match self {
            Services => &[(Routes, "service"), (Plugins, "service")],
            Routes => &[(Plugins, "route")],
            Consumers => &[(ConsumerGroupConsumers, "consumer"), (Plugins, "consumer")],
            ConsumerGroups => &[(ConsumerGroupConsumers, "consumer_group"), (Plugins, "consumer_group")],
            Upstreams => &[(Targets, "upstream")],
            Certificates => {
                &[(Snis, "certificate"), (Services, "client_certificate"), (Upstreams, "client_certificate")]
            }
            KeySets => &[(Keys, "set")],
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
            Services | Routes | ConsumerGroups | Upstreams | Snis | KeySets | Keys => Some("name"),
            Vaults => Some("prefix"),
            Consumers => Some("username"),
            ApisixObjects => Some("key"),
            Custom(kind) => kind.schema().name_field(),
            _ => None,
        }
    }

    /// The kind that `foreign` of one of its fields names.
    pub fn kind_called(self, name: &str) -> Option<EntityKind> {
        match self {
            Custom(kind) => kind.schema().kind_called(name),
            _ => EntityKind::from_name(name),
        }
    }
}
