//! One entity as bytes: what is sent, stored in the cache, and hashed.
//!
//! A record is self-contained, so that a sequence of them can be cut anywhere and continued later:
//!
//! ```text
//! operation (1 byte: 0 delete, 1 put) │ length of the kind (1) │ kind │ id (16) │ length of the body (4, big-endian) │ body
//! ```
//! The body of a put is JSON with sorted keys, without the id and without fields that are unset and have no default. A
//! delete has none.
use super::Refusal;
use super::identity::Digest;
use weir_model::entity::{Entity, EntityKind};
use weir_model::schema::Json;
use weir_model::{Change, PluginSchema, ReadOptions, Uuid, find_kind};

/// The longest body of one entity.
pub const MAX_BODY_LEN: usize = 32 << 20;

/// The operation, the length of the kind, the id, and the length of the body.
const FIXED_LEN: usize = 1 + 1 + 16 + 4;

const DELETE: u8 = 0;
const PUT: u8 = 1;

/// An entity that is put, or deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'b> {
    /// The name of its kind.
    pub kind: &'b str,
    /// Its id.
    pub id: Uuid,
    /// The entity as JSON; none if it is deleted.
    pub body: Option<&'b [u8]>,
}

/// Bytes that are no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidRecord(pub &'static str);

impl<'b> Record<'b> {
    /// Appends the record to bytes.
    pub fn write(&self, out: &mut Vec<u8>) {
        let body = self.body.unwrap_or_default();
        out.push(if self.body.is_some() { PUT } else { DELETE });
        out.push(self.kind.len() as u8);
        out.extend_from_slice(self.kind.as_bytes());
        out.extend_from_slice(self.id.as_bytes());
        out.extend_from_slice(&(body.len() as u32).to_be_bytes());
        out.extend_from_slice(body);
    }

    /// The record at the start of bytes, and its length; none where it has not arrived whole.
    ///
    /// # Errors
    /// The bytes are no record, or it is too long.
    pub fn parse(bytes: &'b [u8]) -> Result<Option<(Record<'b>, usize)>, InvalidRecord> {
        let [operation, kind_len, rest @ ..] = bytes else { return Ok(None) };
        let is_put = match *operation {
            PUT => true,
            DELETE => false,
            _ => return Err(InvalidRecord("a record begins with an unknown operation")),
        };
        let Some((kind, rest)) = rest.split_at_checked(usize::from(*kind_len)) else { return Ok(None) };
        let kind = str::from_utf8(kind).map_err(|_| InvalidRecord("the kind of a record is not UTF-8"))?;
        let Some((id, rest)) = rest.split_first_chunk::<16>() else { return Ok(None) };
        let Some((body_len, rest)) = rest.split_first_chunk::<4>() else { return Ok(None) };
        let body_len = u32::from_be_bytes(*body_len) as usize;
        if body_len > MAX_BODY_LEN {
            return Err(InvalidRecord("a record is longer than 32 MiB"));
        }
        let Some(body) = rest.get(..body_len) else { return Ok(None) };
        let record = Record { kind, id: Uuid::from_bytes(*id), body: is_put.then_some(body) };
        Ok(Some((record, FIXED_LEN + kind.len() + body_len)))
    }

    /// The digest of the entity; none if it is deleted.
    pub fn digest(&self) -> Option<Digest> {
        self.body.map(|body| Digest::of_entity(self.kind, self.id, body))
    }

    /// The change that the record is. Deleting an entity of a kind that this node does not know changes nothing.
    ///
    /// # Errors
    /// This node cannot read the entity.
    pub fn read(&self, plugins: &[PluginSchema]) -> Result<Option<Change>, Vec<Refusal>> {
        let Some(kind) = find_kind(plugins, self.kind) else {
            let message =
                "this version knows no such kind of entity: upgrade the data plane, or remove the entity";
            return self
                .body
                .map_or(Ok(None), |_| Err(vec![self.refusal(None, message.to_owned(), &Json::Null)]));
        };
        let Some(body) = self.body else { return Ok(Some(Change::delete(kind, self.id))) };
        // The parser's message may quote a secret.
        let Ok(body) = serde_json::from_slice::<Json>(body) else {
            return Err(vec![self.refusal(None, "it is not JSON".to_owned(), &Json::Null)]);
        };
        let reading = ReadOptions { plugins, references: &(), hash_passwords: false };
        let read = Entity::read(kind, &body, &[("id", self.id)], reading);
        let refusal = |error: weir_model::schema::FieldError| {
            let field = (!error.path.is_empty()).then_some(error.path);
            self.refusal(field, error.message, &body)
        };
        match read {
            Ok(entity) => Ok(Some(Change::put(entity))),
            Err(errors) => Err(errors.into_iter().map(refusal).collect()),
        }
    }

    fn refusal(&self, field: Option<String>, message: String, body: &Json) -> Refusal {
        let name = EntityKind::from_name(self.kind).and_then(EntityKind::key);
        let name = name.or(Some("name")).and_then(|name| body.get(name)?.as_str());
        Refusal { entity: label(self.kind, self.id, name), field, message }
    }
}

/// What messages call an entity: "route `orders` (id …)".
fn label(kind: &str, id: Uuid, name: Option<&str>) -> String {
    let kind = kind.strip_suffix('s').unwrap_or(kind);
    match name {
        Some(name) => format!("{kind} `{}` (id {id})", weir_model::schema::quoted(name)),
        None => format!("{kind} `{id}`"),
    }
}

/// The body of an entity: the same bytes for equal entities on every control plane of one version.
pub fn body_of(entity: &Entity) -> Vec<u8> {
    let schema = entity.kind().schema();
    let mut value = entity.to_value();
    if let Json::Object(members) = &mut value {
        members.remove("id");
        // Read back, such a field is unset too.
        let is_implied =
            |name: &str| schema.field(name).is_some_and(|field| field.default.is_none() && !field.auto);
        members.retain(|name, value| !value.is_null() || !is_implied(name));
    }
    value.to_string().into_bytes()
}
