//! `kong.sync.v2`: increments of a configuration, in the forms of Kong 3.9 and 3.10.
use crate::wire::payload::{ForeignKeys, WORKSPACE_ID, read_entity, row};
use crate::wire::{Refusal, lua};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Number, Value, json};
use std::collections::HashSet;
use std::fmt;
use weir_model::entity::{Entity, EntityKind};
use weir_model::kong_schema::has;
use weir_model::{Change, Document, PluginSchema, Uuid, check, find_kind};

/// What a side lists that can be called for the methods below.
pub const SYNC_CAPABILITY: &str = "kong.sync.v2";
/// A data plane asks for what is new.
pub const GET_DELTA: &str = "kong.sync.v2.get_delta";
/// A control plane says that there is something new.
pub const NOTIFY_NEW_VERSION: &str = "kong.sync.v2.notify_new_version";
/// A data plane says that it cannot serve a version. Since 3.10.
pub const NOTIFY_VALIDATION_ERROR: &str = "kong.sync.v2.notify_validation_error";

/// The kinds that Kong sends and Weir has no use for.
const WITHOUT_USE: [&str; 3] = ["workspaces", "parameters", "clustering_data_planes"];

/// A version of a configuration: a number in 3.9, a text that begins with `v02_` in 3.10.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum SyncVersion {
    /// Of 3.9.
    Number(#[serde(deserialize_with = "whole_number")] u64),
    /// Of 3.10.
    Text(String),
}

/// A number as Lua writes it: one of more than 14 digits with an exponent.
fn whole_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let number = Number::deserialize(deserializer)?;
    let of_float = || number.as_f64().filter(|float| float.fract() == 0.0 && (0.0..1e16).contains(float));
    number
        .as_u64()
        .or_else(|| of_float().map(|float| float as u64))
        .ok_or_else(|| D::Error::custom("no whole number"))
}

impl SyncVersion {
    /// None yet.
    pub const NONE: SyncVersion = SyncVersion::Number(0);

    /// In the form of 3.10.
    pub fn text(number: u64) -> SyncVersion {
        SyncVersion::Text(format!("v02_{number:028x}"))
    }

    /// Another number in the form of this one.
    pub fn with(&self, number: u64) -> SyncVersion {
        match self {
            SyncVersion::Number(_) => SyncVersion::Number(number),
            SyncVersion::Text(_) => SyncVersion::text(number),
        }
    }

    /// What a control plane shows of a data plane that serves it: 32 characters in either form.
    pub fn hash(&self) -> String {
        match self {
            SyncVersion::Number(number) => format!("{number:032}"),
            SyncVersion::Text(text) => text.clone(),
        }
    }

    /// What a result is called that brings everything.
    pub(super) fn wipe_name(&self) -> &'static str {
        match self {
            SyncVersion::Number(_) => "wipe",
            SyncVersion::Text(_) => "full_sync",
        }
    }

    /// The number, in either form.
    pub fn number(&self) -> Option<u64> {
        match self {
            SyncVersion::Number(number) => Some(*number),
            SyncVersion::Text(text) => u64::from_str_radix(text.strip_prefix("v02_")?, 16).ok(),
        }
    }
}

/// What is said of each workspace; there is one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct PerWorkspace<T> {
    default: T,
}

/// Reads the first of the parameters of a call.
fn first<T: for<'de> Deserialize<'de>>(params: Vec<Value>) -> Option<T> {
    let first = params.into_iter().next()?;
    serde_json::from_value(first).ok().map(|PerWorkspace { default }| default)
}

fn one<T: Serialize>(value: &T) -> Vec<Value> {
    vec![json!({ "default": value })]
}

/// The parameter of [`GET_DELTA`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GetDelta {
    /// What the data plane has.
    pub version: SyncVersion,
}

impl GetDelta {
    /// As parameters.
    pub fn params(&self) -> Vec<Value> {
        one(self)
    }

    /// Reads parameters.
    pub fn read(params: Vec<Value>) -> Option<Self> {
        first(params)
    }
}

/// The parameter of [`NOTIFY_NEW_VERSION`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NotifyNewVersion {
    /// What there is.
    pub new_version: SyncVersion,
}

impl NotifyNewVersion {
    /// As parameters.
    pub fn params(&self) -> Vec<Value> {
        one(self)
    }

    /// Reads parameters.
    pub fn read(params: Vec<Value>) -> Option<Self> {
        first(params)
    }
}

/// The parameter of [`NOTIFY_VALIDATION_ERROR`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ValidationError {
    /// What the data plane cannot serve.
    pub version: SyncVersion,
    /// Why.
    pub error: Value,
}

impl ValidationError {
    /// As parameters.
    pub fn params(&self) -> Vec<Value> {
        vec![json!(self)]
    }

    /// Reads parameters.
    pub fn read(params: Vec<Value>) -> Option<Self> {
        serde_json::from_value(params.into_iter().next()?).ok()
    }
}

/// The result of [`GET_DELTA`].
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct SyncResult {
    /// Whether these are all entities, and others are to be forgotten. `full_sync` in 3.10.
    #[serde(alias = "full_sync", default)]
    pub wipe: bool,
    /// What changed, or everything.
    #[serde(deserialize_with = "lua::list")]
    pub deltas: Vec<Delta>,
}

impl SyncResult {
    /// As the result of a call by a data plane that has versions of this form.
    pub fn to_value(&self, form: &SyncVersion) -> Value {
        json!({ "default": { form.wipe_name(): self.wipe, "deltas": self.deltas } })
    }

    /// Reads the result of a call.
    pub fn read(result: Value) -> Option<Self> {
        first(vec![result])
    }

    /// The changes that count: of several of one entity, the last.
    pub fn effective(&self) -> Vec<&Delta> {
        let mut seen = HashSet::new();
        let newest_first = self.deltas.iter().rev();
        let mut effective: Vec<_> = newest_first
            .filter(|delta| delta.id().is_none_or(|id| seen.insert((&delta.r#type, id))))
            .collect();
        effective.reverse();
        effective
    }

    /// The version that a data plane has once it has applied it, which is that of the last change.
    pub fn version(&self) -> Option<&SyncVersion> {
        self.deltas.last().map(|delta| &delta.version)
    }
}

/// A change of one entity.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct Delta {
    /// The version that it belongs to.
    pub version: SyncVersion,
    /// The kind of entity.
    pub r#type: String,
    /// Its primary key; none where everything is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pk: Option<Value>,
    /// Its workspace.
    #[serde(default)]
    pub ws_id: Option<String>,
    /// The entity; null once it is deleted.
    #[serde(default)]
    pub entity: Option<Value>,
}

/// The entity may hold secrets.
impl fmt::Debug for Delta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Delta({} {:?} of {:?})", self.r#type, self.pk, self.version)
    }
}

/// A delta that is no change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeltaError(pub Vec<Refusal>);

impl fmt::Display for DeltaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<_> = self.0.iter().map(Refusal::to_string).collect();
        f.write_str(&lines.join("; "))
    }
}

impl std::error::Error for DeltaError {}

impl Delta {
    /// Of a change, if Kong can have the entity. One that it cannot have any more is deleted.
    pub fn of(change: &Change, version: SyncVersion, plugins: &[PluginSchema]) -> Option<Delta> {
        if !weir_model::kong_schema::has_kind(change.kind, plugins) {
            return None;
        }
        let entity = change.entity.as_ref().filter(|entity| has(entity, plugins));
        let entity = entity.map(|entity| row(entity, ForeignKeys::Objects, plugins).0);
        Some(Delta {
            version,
            r#type: change.kind.as_str().to_owned(),
            pk: Some(json!({ "id": change.id })),
            ws_id: Some(WORKSPACE_ID.to_owned()),
            entity,
        })
    }

    /// Of an entity, where everything is sent.
    pub fn of_all(entity: &Entity, version: SyncVersion, plugins: &[PluginSchema]) -> Option<Delta> {
        let delta = Delta::of(&Change::put(entity.clone()), version, plugins)?;
        delta.entity.is_some().then_some(Delta { pk: None, ..delta })
    }

    /// Of the workspace that everything is in. It goes first where everything is sent, so that there is a version even if there
    /// is nothing else.
    pub fn of_workspace(version: SyncVersion) -> Delta {
        let workspace = json!({ "id": WORKSPACE_ID, "name": "default", "created_at": 0, "updated_at": 0 });
        let ws_id = Some(WORKSPACE_ID.to_owned());
        Delta { version, r#type: "workspaces".to_owned(), pk: None, ws_id, entity: Some(workspace) }
    }

    /// The change; none for what Weir has no use for. `now`, in seconds since 1970: what has expired is deleted.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn change(&self, plugins: &[PluginSchema], now: i64) -> Result<Option<Change>, DeltaError> {
        if WITHOUT_USE.contains(&self.r#type.as_str()) {
            return Ok(None);
        }
        let Some(kind) = find_kind(plugins, &self.r#type) else {
            return Err(self.refused("entities of this kind are not known in this version"));
        };
        let read = self.entity.as_ref().map(|entity| read_entity(kind, entity, plugins, now));
        match read.transpose().map_err(DeltaError)?.flatten() {
            Some(entity) => Ok(Some(Change::put(entity))),
            None => self.deletion(kind).map(Some),
        }
    }

    /// The id of its entity, if it names one.
    fn id(&self) -> Option<&str> {
        self.pk.as_ref().or(self.entity.as_ref())?.get("id")?.as_str()
    }

    fn deletion(&self, kind: EntityKind) -> Result<Change, DeltaError> {
        let id = self.id().and_then(|id| Uuid::try_parse(id).ok());
        id.map(|id| Change::delete(kind, id)).ok_or_else(|| self.refused("it names no id"))
    }

    fn refused(&self, message: &str) -> DeltaError {
        let named = self.entity.as_ref().or(self.pk.as_ref());
        let id = named.and_then(|named| named.get("id")?.as_str()).unwrap_or_default();
        let entity =
            format!("{} `{}`", weir_model::schema::quoted(&self.r#type), weir_model::schema::quoted(id));
        DeltaError(vec![Refusal { entity, field: None, message: message.to_owned() }])
    }
}

/// The document of changes that bring everything, with the rules across entities checked.
///
/// # Errors
/// Everything that breaks a rule.
pub fn document(changes: Vec<Change>, plugins: &[PluginSchema]) -> Result<Document, Vec<Refusal>> {
    let mut entities: Vec<Entity> = changes.into_iter().filter_map(|change| change.entity).collect();
    entities.sort_unstable_by_key(|entity| (entity.kind(), entity.id()));
    let mut document = Document::default();
    entities.into_iter().for_each(|entity| document.push(entity));
    let errors = check::check(&document, plugins);
    if errors.is_empty() {
        return Ok(document);
    }
    Err(errors
        .into_iter()
        .map(|error| {
            let (kind, index) = error.entity;
            let entity = document.of_kind(kind).nth(index);
            let name =
                entity.map(|entity| entity.name().map_or_else(|| entity.id().to_string(), str::to_owned));
            let entity = format!("{} `{}`", kind.as_str().trim_end_matches('s'), name.unwrap_or_default());
            Refusal {
                entity,
                field: Some(error.path).filter(|path| !path.is_empty()),
                message: error.message,
            }
        })
        .collect())
}
