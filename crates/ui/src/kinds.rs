//! The collections of the Admin API that have pages.

use crate::form::plain;
use crate::url::segment;
use serde_json::Value;

/// A collection.
#[derive(Debug)]
pub(crate) struct Kind {
    /// Its name in the Admin API, in addresses, and in `/schemas/…`.
    pub(crate) collection: &'static str,
    /// What one and many of them are called.
    pub(crate) one: &'static str,
    pub(crate) many: &'static str,
    /// The fields that name one for people; the first that is set.
    pub(crate) names: &'static [&'static str],
    /// The columns of its list.
    pub(crate) columns: &'static [&'static str],
    /// The collections below one of them, by the last part of their path, and their kind.
    pub(crate) children: &'static [(&'static str, &'static str)],
    /// What it is for, in a sentence.
    pub(crate) about: &'static str,
}

const PLUGINS: (&str, &str) = ("plugins", "plugins");

/// Every collection, in the order of the navigation.
pub(crate) const KINDS: &[Kind] = &[
    Kind {
        collection: "services",
        one: "service",
        many: "Services",
        names: &["name", "host"],
        columns: &["protocol", "host", "port", "path", "enabled", "tags"],
        children: &[("routes", "routes"), PLUGINS],
        about: "A service is an upstream application. Routes send requests to it.",
    },
    Kind {
        collection: "routes",
        one: "route",
        many: "Routes",
        names: &["name"],
        columns: &["methods", "hosts", "paths", "expression", "service", "protocols", "tags"],
        children: &[PLUGINS],
        about: "A route says which requests go to a service.",
    },
    Kind {
        collection: "consumers",
        one: "consumer",
        many: "Consumers",
        names: &["username", "custom_id"],
        columns: &["custom_id", "tags"],
        children: &[
            ("key-auth", "key-auths"),
            ("basic-auth", "basic-auths"),
            ("hmac-auth", "hmac-auths"),
            ("jwt", "jwts"),
            ("acls", "acls"),
            PLUGINS,
        ],
        about: "A consumer is a person or program that sends requests. Its credentials say who it is.",
    },
    Kind {
        collection: "consumer_groups",
        one: "consumer group",
        many: "Consumer groups",
        names: &["name"],
        columns: &["tags"],
        children: &[("consumers", "consumers"), PLUGINS],
        about: "A consumer group has plugins of its own for the consumers in it.",
    },
    Kind {
        collection: "upstreams",
        one: "upstream",
        many: "Upstreams",
        names: &["name"],
        columns: &["algorithm", "hash_on", "tags"],
        children: &[("targets", "targets")],
        about: "An upstream balances requests between targets and watches their health.",
    },
    Kind {
        collection: "plugins",
        one: "plugin",
        many: "Plugins",
        names: &["instance_name", "name"],
        columns: &["name", "enabled", "service", "route", "consumer", "consumer_group", "tags"],
        children: &[],
        about: "A plugin changes how requests are handled: everywhere, or for a service, route, consumer or consumer group.",
    },
    Kind {
        collection: "certificates",
        one: "certificate",
        many: "Certificates",
        names: &["snis"],
        columns: &["snis", "not_after", "tags"],
        children: &[("snis", "snis")],
        about: "A certificate is presented to TLS clients that ask for one of its server names.",
    },
    Kind {
        collection: "ca_certificates",
        one: "CA certificate",
        many: "CA certificates",
        names: &[],
        columns: &["not_after", "cert_digest", "tags"],
        children: &[],
        about: "A CA certificate is an authority that upstreams or clients are verified against.",
    },
    Kind {
        collection: "snis",
        one: "SNI",
        many: "SNIs",
        names: &["name"],
        columns: &["certificate", "tags"],
        children: &[],
        about: "An SNI is a server name that has a certificate.",
    },
    Kind {
        collection: "vaults",
        one: "vault",
        many: "Vaults",
        names: &["prefix"],
        columns: &["name", "description", "tags"],
        children: &[],
        about: "A vault is a place that secrets are read from.",
    },
    Kind {
        collection: "keys",
        one: "key",
        many: "Keys",
        names: &["name", "kid"],
        columns: &["kid", "set", "tags"],
        children: &[],
        about: "A key is a public or private key in JWK or PEM.",
    },
    Kind {
        collection: "key-sets",
        one: "key set",
        many: "Key sets",
        names: &["name"],
        columns: &["tags"],
        children: &[("keys", "keys")],
        about: "A key set is a group of keys.",
    },
    Kind {
        collection: "targets",
        one: "target",
        many: "Targets",
        names: &["target"],
        columns: &["weight", "health", "tags"],
        children: &[],
        about: "A target is an address that an upstream sends requests to.",
    },
    credential("key-auths", "key", "Keys of key-auth", &[], &["ttl", "tags"]),
    credential("basic-auths", "login", "Logins of basic-auth", &["username"], &["tags"]),
    credential("hmac-auths", "login", "Logins of hmac-auth", &["username"], &["tags"]),
    credential("jwts", "JWT credential", "JWT credentials", &["key"], &["algorithm", "tags"]),
    credential("acls", "ACL group", "ACL groups", &["group"], &["tags"]),
];

const fn credential(
    collection: &'static str,
    one: &'static str,
    many: &'static str,
    names: &'static [&'static str],
    columns: &'static [&'static str],
) -> Kind {
    Kind {
        collection,
        one,
        many,
        names,
        columns,
        children: &[],
        about: "A credential belongs to a consumer.",
    }
}

/// The collections that the navigation shows: those that do not belong to one entity.
pub(crate) const IN_NAVIGATION: usize = 12;

/// The kind of a collection.
pub(crate) fn of(collection: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.collection == collection)
}

impl Kind {
    /// The name of its schema.
    pub(crate) fn schema(&self) -> &'static str {
        match self.collection {
            "key-auths" => "keyauth_credentials",
            "basic-auths" => "basicauth_credentials",
            "hmac-auths" => "hmacauth_credentials",
            "jwts" => "jwt_secrets",
            "key-sets" => "key_sets",
            other => other,
        }
    }
}

impl Kind {
    /// The path of one of them in the Admin API. The id of a target holds that of its upstream.
    pub(crate) fn path(&self, id: &str) -> String {
        match id.split_once(':').filter(|_| self.collection == "targets") {
            Some((upstream, target)) => {
                format!("/upstreams/{}/targets/{}", segment(upstream), segment(target))
            }
            None => format!("/{}/{}", self.collection, segment(id)),
        }
    }

    /// The id of an entity in addresses of pages.
    pub(crate) fn id(&self, entity: &Value) -> String {
        let id = plain(&entity["id"]);
        match self.collection {
            "targets" => format!("{}:{id}", plain(&entity["upstream"]["id"])),
            _ => id,
        }
    }

    /// The kind that one of these always belongs to, and the last part of its path there.
    pub(crate) fn parent(&self) -> Option<(&'static Kind, &'static str)> {
        let is_nested = KINDS[IN_NAVIGATION..].iter().any(|kind| kind.collection == self.collection);
        KINDS.iter().filter(|_| is_nested).find_map(|parent| {
            let (path, _) = parent.children.iter().find(|(_, child)| *child == self.collection)?;
            Some((parent, *path))
        })
    }
}
