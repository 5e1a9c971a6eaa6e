//! The collections of the Admin API that have pages.

use crate::form::plain;
use crate::texts;
use crate::url::segment;
use serde_json::Value;

/// A collection.
#[derive(Debug)]
pub(crate) struct Kind {
    /// Its name in the Admin API, in addresses, and in `/schemas/…`.
    pub(crate) collection: &'static str,
    /// What makes the first one: the path and arguments of curl; empty if it is made below another entity.
    pub(crate) example: &'static str,
    /// The field by which other entities refer to one.
    pub(crate) field: &'static str,
    /// The fields that name one for people; the first that is set.
    pub(crate) names: &'static [&'static str],
    /// The columns of its list.
    pub(crate) columns: &'static [&'static str],
    /// The collections below one of them, by the last part of their path, and their kind.
    pub(crate) children: &'static [(&'static str, &'static str)],
}

const PLUGINS: (&str, &str) = ("plugins", "plugins");

/// Every collection, in the order of the navigation.
pub(crate) const KINDS: &[Kind] = &[
    Kind {
        collection: "services",
        example: "services -d name=example -d url=http://127.0.0.1:9000",
        field: "service",
        names: &["name", "host"],
        columns: &["protocol", "host", "port", "path", "enabled", "tags"],
        children: &[("routes", "routes"), PLUGINS],
    },
    Kind {
        collection: "routes",
        example: "routes -d name=example -d 'paths[]=/example'",
        field: "route",
        names: &["name"],
        columns: &["methods", "hosts", "paths", "expression", "service", "protocols", "tags"],
        children: &[PLUGINS],
    },
    Kind {
        collection: "consumers",
        example: "consumers -d username=alice",
        field: "consumer",
        names: &["username", "custom_id"],
        columns: &["custom_id", "tags"],
        children: &[
            ("key-auth", "key-auths"),
            ("basic-auth", "basic-auths"),
            ("hmac-auth", "hmac-auths"),
            ("jwt", "jwts"),
            ("jwt-auth", "jwt-auths"),
            ("oauth2", "oauth2"),
            ("acls", "acls"),
            PLUGINS,
        ],
    },
    Kind {
        collection: "consumer_groups",
        example: "consumer_groups -d name=gold",
        field: "consumer_group",
        names: &["name"],
        columns: &["tags"],
        children: &[("consumers", "consumers"), PLUGINS],
    },
    Kind {
        collection: "upstreams",
        example: "upstreams -d name=pool",
        field: "upstream",
        names: &["name"],
        columns: &["algorithm", "hash_on", "tags"],
        children: &[("targets", "targets")],
    },
    Kind {
        collection: "plugins",
        example: "plugins -d name=correlation-id",
        field: "plugin",
        names: &["instance_name", "name"],
        columns: &["name", "enabled", "service", "route", "consumer", "consumer_group", "tags"],
        children: &[],
    },
    Kind {
        collection: "certificates",
        example: "certificates -F cert=@cert.pem -F key=@key.pem",
        field: "certificate",
        names: &["snis"],
        columns: &["snis", "not_after", "tags"],
        children: &[("snis", "snis")],
    },
    Kind {
        collection: "ca_certificates",
        example: "ca_certificates -F cert=@ca.pem",
        field: "ca_certificate",
        names: &[],
        columns: &["not_after", "cert_digest", "tags"],
        children: &[],
    },
    Kind {
        collection: "snis",
        example: "snis -d name=example.com -d certificate.id=CERTIFICATE_ID",
        field: "sni",
        names: &["name"],
        columns: &["certificate", "tags"],
        children: &[],
    },
    Kind {
        collection: "vaults",
        example: "vaults -d name=env -d prefix=my-env -d config.prefix=SECRET_",
        field: "vault",
        names: &["prefix"],
        columns: &["name", "description", "tags"],
        children: &[],
    },
    Kind {
        collection: "keys",
        example: "keys -F name=example -F kid=example -F pem.public_key=@public.pem",
        field: "key",
        names: &["name", "kid"],
        columns: &["kid", "set", "tags"],
        children: &[],
    },
    Kind {
        collection: "key-sets",
        example: "key-sets -d name=example",
        field: "set",
        names: &["name"],
        columns: &["tags"],
        children: &[("keys", "keys")],
    },
    Kind {
        collection: "targets",
        example: "",
        field: "target",
        names: &["target"],
        columns: &["weight", "health", "tags"],
        children: &[],
    },
    credential("key-auths", &[], &["ttl", "tags"]),
    credential("basic-auths", &["username"], &["tags"]),
    credential("hmac-auths", &["username"], &["tags"]),
    credential("jwts", &["key"], &["algorithm", "tags"]),
    credential("jwt-auths", &["key"], &["algorithm", "tags"]),
    credential("oauth2", &["name", "client_id"], &["client_id", "client_type", "redirect_uris", "tags"]),
    credential("acls", &["group"], &["tags"]),
];

const fn credential(
    collection: &'static str,
    names: &'static [&'static str],
    columns: &'static [&'static str],
) -> Kind {
    Kind { collection, example: "", field: "", names, columns, children: &[] }
}

/// The collections that the navigation shows: those that do not belong to one entity.
pub(crate) const IN_NAVIGATION: usize = 12;

/// The kind of a collection.
pub(crate) fn of(collection: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.collection == collection)
}

/// The kind of an entity, by the name that changes have for it, which is that of its schema.
pub(crate) fn of_entity(name: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.schema() == name)
}

/// The kinds that have a list of their own in the Admin API: those of targets are below their upstreams.
pub(crate) fn with_lists() -> impl Iterator<Item = &'static Kind> {
    KINDS.iter().filter(|kind| kind.collection != "targets")
}

impl Kind {
    /// What one of them is called.
    pub(crate) fn one(&self) -> &'static str {
        self.text("one")
    }

    /// What many of them are called.
    pub(crate) fn many(&self) -> &'static str {
        self.text("many")
    }

    /// What it is for, in a sentence.
    pub(crate) fn about(&self) -> &'static str {
        self.text("about")
    }

    fn text(&self, what: &str) -> &'static str {
        texts::of(&format!("kinds.{}.{what}", self.collection))
    }

    /// The name of its schema.
    pub(crate) fn schema(&self) -> &'static str {
        match self.collection {
            "key-auths" => "keyauth_credentials",
            "basic-auths" => "basicauth_credentials",
            "hmac-auths" => "hmacauth_credentials",
            "jwts" => "jwt_secrets",
            "jwt-auths" => "jwt_auth_credentials",
            "oauth2" => "oauth2_credentials",
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

    /// Where the Admin API says whether an entity would be accepted on its own.
    pub(crate) fn check(&self) -> String {
        format!("/schemas/{}/validate", self.schema())
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
