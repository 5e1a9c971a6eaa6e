//! The objects of APISIX's Admin API: their kinds, their ids, and where they are among the entities.
use serde_json::json;
use std::borrow::Cow;
use std::fmt;
use weir_model::entity::{ApisixObject, Entity, EntityKind};
use weir_model::schema::Json;
use weir_model::{Entities, ReadOptions, Uuid};

/// A kind of object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    Upstreams,
    Services,
    PluginConfigs,
    ConsumerGroups,
    Routes,
    Consumers,
    /// Their paths are below that of their consumer.
    Credentials,
    GlobalRules,
    Ssls,
    StreamRoutes,
    /// What is configured for all uses of a plugin. Its id is the plugin's name.
    PluginMetadata,
    /// `.proto` files, which grpc-transcode uses.
    Protos,
    /// Where secrets are kept. Their paths are below the name of the manager.
    Secrets,
    /// What is said of everything together. It is in no list.
    Configs,
}

impl Kind {
    /// In an order in which referenced kinds come first.
    pub(crate) const ALL: [Kind; 14] = [
        Kind::PluginMetadata,
        Kind::Protos,
        Kind::Secrets,
        Kind::Ssls,
        Kind::Upstreams,
        Kind::Services,
        Kind::PluginConfigs,
        Kind::ConsumerGroups,
        Kind::Routes,
        Kind::Consumers,
        Kind::Credentials,
        Kind::GlobalRules,
        Kind::StreamRoutes,
        Kind::Configs,
    ];

    /// The name in paths and in `apisix.yaml`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Upstreams => "upstreams",
            Kind::Services => "services",
            Kind::PluginConfigs => "plugin_configs",
            Kind::ConsumerGroups => "consumer_groups",
            Kind::Routes => "routes",
            Kind::Consumers => "consumers",
            Kind::Credentials => CREDENTIALS,
            Kind::GlobalRules => "global_rules",
            Kind::Ssls => "ssls",
            Kind::StreamRoutes => "stream_routes",
            Kind::PluginMetadata => "plugin_metadata",
            Kind::Protos => "protos",
            Kind::Secrets => "secrets",
            Kind::Configs => "configs",
        }
    }

    /// The singular, for messages.
    pub(crate) fn singular(self) -> &'static str {
        match self {
            Kind::Upstreams => "upstream",
            Kind::Services => "service",
            Kind::PluginConfigs => "plugin config",
            Kind::ConsumerGroups => "consumer group",
            Kind::Routes => "route",
            Kind::Consumers => "consumer",
            Kind::Credentials => "credential",
            Kind::GlobalRules => "global rule",
            Kind::Ssls => "ssl",
            Kind::StreamRoutes => "stream route",
            Kind::PluginMetadata => "plugin_metadata",
            Kind::Protos => "proto",
            Kind::Secrets => "secret",
            Kind::Configs => "configs",
        }
    }

    /// Whether its objects can be listed by its name.
    pub(crate) fn is_listed(self) -> bool {
        !matches!(self, Kind::Credentials | Kind::Configs)
    }

    /// Whether its objects can be changed in part.
    pub(crate) fn supports_patch(self) -> bool {
        !matches!(self, Kind::Consumers | Kind::Credentials | Kind::PluginMetadata | Kind::Protos)
    }

    /// The kind of this name.
    pub(crate) fn from_name(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether clients choose the ids of its objects, so that none is generated.
    pub(crate) fn is_named(self) -> bool {
        use Kind::{
            ConsumerGroups, Consumers, Credentials, GlobalRules, PluginConfigs, PluginMetadata, Secrets,
        };
        matches!(
            self,
            Consumers | Credentials | ConsumerGroups | GlobalRules | PluginConfigs | PluginMetadata | Secrets
        )
    }

    /// The field that holds an object's id.
    pub(crate) fn id_field(self) -> &'static str {
        if self == Kind::Consumers { "username" } else { "id" }
    }
}

/// Identifies an object.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) kind: Kind,
    /// The consumer whose credential it is, or the manager of secrets.
    pub(crate) owner: Option<String>,
    pub(crate) id: String,
}

impl fmt::Display for Key {
    /// `routes/1`, `consumers/jack/credentials/1`, `secrets/vault/1`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = if self.kind == Kind::Credentials { Kind::Consumers } else { self.kind };
        write!(f, "{}/{}", list.name(), self.id_in_list())
    }
}

/// What is between a consumer and the id of its credential.
const CREDENTIALS: &str = "credentials";

const NAMESPACE: Uuid = Uuid::from_u128(0x7c1d_52a4_6f0e_4b53_9a1f_61b7_0c3d_95e2);

impl Key {
    /// The object of a kind with this id, if an id may look like this.
    pub(crate) fn new(kind: Kind, id: impl Into<String>) -> Result<Key, Invalid> {
        let id = id.into();
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if (1..=64).contains(&id.len()) && id.bytes().all(fits) {
            return Ok(Key { kind, owner: None, id });
        }
        let field = kind.id_field();
        Err(Invalid::configuration(format!(
            "property \"{field}\" validation failed: expected 1 to 64 letters, digits and - _ ."
        )))
    }

    /// A credential of a consumer.
    pub(crate) fn credential(consumer: &str, id: impl Into<String>) -> Result<Key, Invalid> {
        let owner = Key::new(Kind::Consumers, consumer)?.id;
        Ok(Key { owner: Some(owner), ..Key::new(Kind::Credentials, id)? })
    }

    /// A secret of a manager.
    pub(crate) fn secret(manager: &str, id: impl Into<String>) -> Result<Key, Invalid> {
        let owner = Key::new(Kind::Secrets, manager)?.id;
        Ok(Key { owner: Some(owner), ..Key::new(Kind::Secrets, id)? })
    }

    /// The id within the list of its kind: `jack/credentials/1` and `vault/1`.
    pub(crate) fn id_in_list(&self) -> Cow<'_, str> {
        match (&self.owner, self.kind) {
            (None, _) => self.id.as_str().into(),
            (Some(owner), Kind::Credentials) => format!("{owner}/{CREDENTIALS}/{}", self.id).into(),
            (Some(owner), _) => format!("{owner}/{}", self.id).into(),
        }
    }

    /// The id of an entity that is derived from this object: always the same for the same part of it.
    pub(crate) fn uuid(&self, part: &str) -> Uuid {
        Uuid::new_v5(&NAMESPACE, format!("{self}/{part}").as_bytes())
    }

    /// The id of the entity that holds the object itself.
    pub(crate) fn object_uuid(&self) -> Uuid {
        self.uuid("object")
    }

    /// The tag of the entities derived from this object.
    pub(crate) fn tag(&self) -> String {
        let owner = self.owner.as_ref().map(|owner| format!("{owner}:")).unwrap_or_default();
        format!("apisix:{}:{owner}{}", self.kind.name(), self.id)
    }

    /// The object that a tag names.
    pub(crate) fn from_tag(tag: &str) -> Option<Key> {
        let (kind, id) = tag.strip_prefix("apisix:")?.split_once(':')?;
        let kind = Kind::from_name(kind)?;
        match id.split_once(':') {
            Some((owner, id)) if kind == Kind::Credentials => Key::credential(owner, id).ok(),
            Some((manager, id)) if kind == Kind::Secrets => Key::secret(manager, id).ok(),
            _ => Some(Key { kind, owner: None, id: id.to_owned() }),
        }
    }

    /// The key of a stored object.
    pub(crate) fn of(object: &ApisixObject) -> Option<Key> {
        let (kind, id) = object.key.split_once('/')?;
        Key::below(Kind::from_name(kind)?, id).ok()
    }

    /// The id within the list of a kind; the list of consumers holds their credentials too.
    pub(crate) fn below(kind: Kind, id: &str) -> Result<Key, Invalid> {
        match kind {
            Kind::Consumers => match id.split_once("/credentials/") {
                Some((owner, id)) => Key::credential(owner, id),
                None => Key::new(kind, id),
            },
            Kind::Secrets => {
                let parts = id.split_once('/').ok_or_else(|| {
                    Invalid::configuration(format!(
                        "the id {id:?} of a secret has a manager: write vault/{id}"
                    ))
                });
                parts.and_then(|(manager, id)| Key::secret(manager, id))
            }
            _ => Key::new(kind, id),
        }
    }
}

/// An id as it may be written: a text or a whole number.
pub(crate) fn id_text(id: &Json) -> Option<String> {
    match id {
        Json::String(text) => Some(text.clone()),
        Json::Number(number) if number.is_u64() => Some(number.to_string()),
        _ => None,
    }
}

/// Finds objects.
pub(crate) trait Objects {
    /// The value of an object.
    fn value(&self, key: &Key) -> Option<&Json>;
}

/// The object as it is stored.
pub(crate) fn stored<'e>(entities: &'e Entities, key: &Key) -> Option<&'e ApisixObject> {
    match entities.get(EntityKind::ApisixObjects, key.object_uuid())? {
        Entity::ApisixObjects(object) => Some(object),
        _ => None,
    }
}

/// Every object of a kind.
pub(crate) fn all(entities: &Entities, kind: Kind) -> impl Iterator<Item = (Key, &ApisixObject)> {
    let objects = entities.after(EntityKind::ApisixObjects, None).filter_map(|entity| match entity {
        Entity::ApisixObjects(object) => Some((Key::of(object)?, &**object)),
        _ => None,
    });
    objects.filter(move |(key, _)| key.kind == kind)
}

impl Objects for Entities {
    fn value(&self, key: &Key) -> Option<&Json> {
        stored(self, key).map(|object| &object.value)
    }
}

/// The objects that refer to this one.
pub(crate) fn naming<'e>(entities: &'e Entities, named: &Key) -> Vec<(Key, &'e ApisixObject)> {
    match named.kind {
        Kind::PluginMetadata => return using(entities, |plugins| plugins.get(&named.id).is_some()),
        Kind::Protos => return using(entities, |plugins| names(&plugins[TRANSCODE], PROTO_ID, &named.id)),
        _ => {}
    }
    let fields = naming_fields(named.kind).iter();
    let objects = fields.flat_map(|(kind, field)| {
        all(entities, *kind).filter(move |(_, object)| names(&object.value, field, &named.id))
    });
    objects.collect()
}

/// The plugin that names a proto, and the member that does.
pub(crate) const TRANSCODE: &str = "grpc-transcode";
pub(crate) const PROTO_ID: &str = "proto_id";

/// The objects with such plugins.
fn using(entities: &Entities, is_used: impl Fn(&Json) -> bool) -> Vec<(Key, &ApisixObject)> {
    let objects = Kind::ALL.into_iter().flat_map(|kind| all(entities, kind));
    objects.filter(|(_, object)| is_used(&object.value["plugins"])).collect()
}

/// The kinds of objects that refer to those of a kind, and the field that does.
fn naming_fields(kind: Kind) -> &'static [(Kind, &'static str)] {
    match kind {
        Kind::Upstreams => &[
            (Kind::Services, "upstream_id"),
            (Kind::Routes, "upstream_id"),
            (Kind::StreamRoutes, "upstream_id"),
        ],
        Kind::Services => &[(Kind::Routes, "service_id"), (Kind::StreamRoutes, "service_id")],
        Kind::PluginConfigs => &[(Kind::Routes, "plugin_config_id")],
        Kind::ConsumerGroups => &[(Kind::Consumers, "group_id")],
        _ => &[],
    }
}

/// Whether a field of an object holds this id.
fn names(value: &Json, field: &str, id: &str) -> bool {
    match &value[field] {
        Json::String(text) => text == id,
        Json::Number(number) => number.to_string() == id,
        _ => false,
    }
}

/// Why an object is invalid, in the words of APISIX's `error_msg`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Invalid(pub(crate) String);

/// The prefix of a message about a broken rule.
const CONFIGURATION: &str = "invalid configuration: ";

impl Invalid {
    /// An object that breaks a rule of its kind.
    pub(crate) fn configuration(what: impl fmt::Display) -> Invalid {
        Invalid(format!("{CONFIGURATION}{what}"))
    }

    /// The rule, without the prefix.
    pub(crate) fn reason(&self) -> &str {
        self.0.trim_start_matches(CONFIGURATION)
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The entity that holds an object.
pub(crate) fn to_entity(
    key: &Key,
    value: &Json,
    before: Option<&ApisixObject>,
    index: i64,
) -> Result<Entity, Invalid> {
    let created = before.map_or(index, |before| before.created_index);
    let modified = before.map_or(index, |before| index.max(before.modified_index + 1));
    object_entity(key, value, [created, modified])
}

/// The same, with the indices of its creation and of its last change.
pub(crate) fn object_entity(
    key: &Key,
    value: &Json,
    [created, modified]: [i64; 2],
) -> Result<Entity, Invalid> {
    let written = json!({
        "key": key.to_string(),
        "value": value,
        "created_index": created,
        "modified_index": modified,
    });
    let reading = ReadOptions { plugins: &[], references: &(), hash_passwords: false };
    let given = [("id", key.object_uuid())];
    Entity::read(EntityKind::ApisixObjects, &written, &given, reading)
        .map_err(|found| Invalid::configuration(found.iter().map(|v| v.message.as_str()).collect::<String>()))
}
