//! Plugins for tests, with what matters to the protocols: credentials that expire, passwords that are hashed, fields and
//! whole plugins that Kong lacks, records of records.
use serde_json::Value;
use weir_model::entity::{CustomEntity, CustomEntitySchema};
use weir_model::schema::Record;
use weir_model::{Document, Format, PluginSchema, Uuid};

/// The plugins.
pub(super) const PLUGINS: &[PluginSchema] = &[
    PluginSchema::of::<KeyAuth>("key-auth").with_entities(&[Key::ENTITY, Password::ENTITY]),
    PluginSchema::of::<RateLimiting>("rate-limiting"),
    PluginSchema::of::<RateLimiting>("own").with_extension(true).with_entities(&[OwnKey::ENTITY]),
];

/// A document of a declarative file.
pub(super) fn document(text: &str) -> Document {
    match Document::read(text, Format::Yaml, PLUGINS, &|_| None) {
        Ok(parsed) => parsed.document,
        Err(errors) => panic!("{errors:#?}"),
    }
}

/// A file of cases.
pub(super) fn cases<T: serde::de::DeserializeOwned>(text: &str) -> Vec<T> {
    serde_json::from_str::<Vec<Value>>(text)
        .unwrap()
        .into_iter()
        .map(|case| {
            let shown = case.to_string();
            serde_json::from_value(case).unwrap_or_else(|error| panic!("{error}: {shown}"))
        })
        .collect()
}

#[derive(Debug, Clone, PartialEq, Record)]
struct KeyAuth {
    #[field(default = ["apikey"])]
    key_names: Vec<String>,
    realm: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Record)]
struct RateLimiting {
    minute: Option<i64>,
    #[field(default = "local", one_of = ["local", "redis"])]
    policy: String,
    #[field(default = "!")]
    mark: Option<String>,
    redis: Redis,
    #[field(extension, default = "fixed")]
    window: String,
}

#[derive(Debug, Clone, PartialEq, Record)]
struct Redis {
    host: Option<String>,
    #[field(default = 6379)]
    port: i64,
    #[field(extension)]
    sentinel: Option<String>,
}

macro_rules! credential {
    ($name:ident { $field:ident $(, $more:ident: $kind:ty)? }, $entity:expr $(, $hash:expr)?) => {
        #[derive(Debug, Clone, PartialEq, Record)]
        struct $name {
            #[field(auto)]
            id: Uuid,
            #[field(foreign = "consumers")]
            consumer: Uuid,
            #[field(unique)]
            $field: String,
            $($more: $kind,)?
            #[field(set)]
            tags: Option<Vec<String>>,
            #[field(auto)]
            created_at: Option<i64>,
        }

        impl CustomEntity for $name {
            const ENTITY: &'static CustomEntitySchema = &$entity;
            $(fn hash_secrets(&mut self) {
                let hash: fn(&mut Self) = $hash;
                hash(self);
            })?
        }
    };
}

credential!(
    Key { key, ttl: Option<i64> },
    CustomEntitySchema::of::<Self>("keyauth_credentials").with_ttl("ttl")
);
credential!(
    Password { password },
    CustomEntitySchema::of::<Self>("basicauth_credentials").with_hashed("password"),
    |password| password.password.insert_str(0, "hashed ")
);
credential!(OwnKey { secret }, CustomEntitySchema::of::<Self>("own_keys"));
