//! What a client of the Admin API writes of a token, and what is wrong with it.

use super::super::credential::OAuth2Credential;
use super::super::tokens::{MAX_LEN, Token, random_text, referenced};
use serde_json::{Map, Value, json};
use weir_plugin::entity::{CustomKind, EntityKind};
use weir_plugin::{AdminRequest, AdminResponse, Uuid, unix_time};

const FIELDS: [&str; 11] = [
    "id",
    "created_at",
    "credential",
    "service",
    "token_type",
    "expires_in",
    "access_token",
    "refresh_token",
    "authenticated_userid",
    "scope",
    "ttl",
];

/// The longest `ttl`, as in Kong.
const MAX_TTL: u64 = 100_000_000;

/// Members that are right, each by itself.
pub(super) struct Change(Map<String, Value>);

/// What is wrong with them.
pub(super) enum Invalid {
    Fields(Map<String, Value>),
    /// There is no such entity.
    Reference(&'static str, Uuid, &'static str),
}

impl Invalid {
    fn field(name: &str, message: &str) -> Invalid {
        Invalid::Fields(Map::from_iter([(name.to_owned(), message.into())]))
    }

    pub(super) fn response(self) -> AdminResponse {
        match self {
            Invalid::Fields(fields) => {
                let named = fields.iter().map(|(name, message)| match message.as_str() {
                    Some(message) => format!("{name}: {message}"),
                    None => format!("{name}: {message}"),
                });
                let named = named.collect::<Vec<_>>().join("; ");
                let count = if fields.len() > 1 { format!("{} ", fields.len()) } else { String::new() };
                let plural = if fields.len() > 1 { "violations" } else { "violation" };
                let message = format!("{count}schema {plural} ({named})");
                error(400, (2, "schema violation"), &message, Value::Object(fields))
            }
            Invalid::Reference(field, id, kind) => {
                let message = format!(
                    "the foreign key '{{id=\"{id}\"}}' does not reference an existing '{kind}' entity."
                );
                error(400, (4, "foreign key violation"), &message, json!({ field: { "id": id } }))
            }
        }
    }
}

/// An error in Kong's terms.
pub(super) fn error(status: u16, (code, name): (u8, &str), message: &str, fields: Value) -> AdminResponse {
    let mut body = json!({ "code": code, "name": name, "message": message });
    if !fields.is_null() {
        body["fields"] = fields;
    }
    AdminResponse::json(status, body)
}

impl Change {
    pub(super) fn read(request: &AdminRequest<'_>) -> Result<Change, Invalid> {
        let mut wrong = Map::new();
        let mut members = request.body.clone();
        for (name, value) in &mut members {
            // Numbers in forms are texts.
            if let (true, Some(text)) = (is_number(name), value.as_str())
                && let Ok(number) = text.parse::<u64>()
            {
                *value = number.into();
            }
            if let Some(message) = problem(name, value) {
                wrong.insert(name.clone(), message);
            }
        }
        if !wrong.is_empty() {
            return Err(Invalid::Fields(wrong));
        }
        let credentials = EntityKind::Custom(CustomKind::of::<OAuth2Credential>());
        for (field, kind) in [("credential", credentials), ("service", EntityKind::Services)] {
            if let Some(id) = members.get(field).and_then(referenced)
                && !request.has(kind, id)
            {
                return Err(Invalid::Reference(field, id, kind.as_str()));
            }
        }
        Ok(Change(members))
    }

    /// The change as a whole token, named by its path.
    pub(super) fn named(mut self, named: &str, found: Option<&Token>) -> Change {
        let (field, value) = match (Uuid::try_parse(named), found) {
            (_, Some(found)) => ("id", found.id.to_string()),
            (Ok(id), None) if named.contains('-') => ("id", id.to_string()),
            _ => ("access_token", named.to_owned()),
        };
        self.0.insert(field.to_owned(), value.into());
        self
    }

    pub(super) fn into_token(self) -> Result<Token, Invalid> {
        let required = "required field missing";
        let credential =
            self.reference("credential").ok_or_else(|| Invalid::field("credential", required))?;
        let expires_in = self.number("expires_in").ok_or_else(|| Invalid::field("expires_in", required))?;
        let token = Token {
            id: self.text("id").and_then(|id| id.parse().ok()).unwrap_or_else(Uuid::new_v4),
            created_at: unix_time(),
            credential,
            service: None,
            token_type: "bearer".to_owned(),
            expires_in,
            access_token: random_text(),
            refresh_token: None,
            authenticated_userid: None,
            scope: None,
            ends: None,
        };
        self.applied_to(&token)
    }

    /// A token with this change.
    pub(super) fn applied_to(&self, old: &Token) -> Result<Token, Invalid> {
        let text = |name: &str, old: &Option<String>| match self.0.get(name) {
            Some(value) => value.as_str().map(str::to_owned),
            None => old.clone(),
        };
        let credential = match self.0.get("credential") {
            Some(Value::Null) => return Err(Invalid::field("credential", "required field missing")),
            _ => self.reference("credential").unwrap_or(old.credential),
        };
        Ok(Token {
            id: old.id,
            created_at: self.number("created_at").unwrap_or(old.created_at),
            credential,
            service: if self.0.contains_key("service") { self.reference("service") } else { old.service },
            token_type: self.text("token_type").unwrap_or(&old.token_type).to_owned(),
            expires_in: self.number("expires_in").unwrap_or(old.expires_in),
            access_token: self.text("access_token").unwrap_or(&old.access_token).to_owned(),
            refresh_token: text("refresh_token", &old.refresh_token),
            authenticated_userid: text("authenticated_userid", &old.authenticated_userid),
            scope: text("scope", &old.scope),
            ends: match self.0.get("ttl") {
                Some(ttl) => ttl.as_u64().filter(|ttl| *ttl > 0).map(|ttl| unix_time() + ttl),
                None => old.ends,
            },
        })
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.as_str()
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.0.get(name)?.as_u64()
    }

    fn reference(&self, name: &str) -> Option<Uuid> {
        self.0.get(name).and_then(referenced)
    }
}

fn is_number(name: &str) -> bool {
    matches!(name, "created_at" | "expires_in" | "ttl")
}

/// What is wrong with the value of a field, in Kong's words.
fn problem(name: &str, value: &Value) -> Option<Value> {
    if !FIELDS.contains(&name) {
        return Some("unknown field".into());
    }
    let is_required = matches!(name, "id" | "token_type" | "expires_in" | "access_token" | "credential");
    let message = match (name, value) {
        (_, Value::Null) if is_required => "required field missing",
        (_, Value::Null) => return None,
        ("credential" | "service", Value::Object(_)) if referenced(value).is_none() => {
            return Some(json!({ "id": "expected a valid UUID" }));
        }
        ("credential" | "service", Value::Object(_)) => return None,
        ("credential" | "service", _) => "expected a record",
        ("id", _) if value.as_str().is_none_or(|id| Uuid::try_parse(id).is_err()) => "expected a valid UUID",
        ("token_type", _) if value != "bearer" => "expected one of: bearer",
        ("ttl", _) if value.as_u64().is_none_or(|ttl| ttl > MAX_TTL) => {
            "value should be between 0 and 100000000"
        }
        (_, _) if is_number(name) => value.as_u64().is_none().then_some("expected an integer")?,
        (_, Value::String(text)) if text.is_empty() => "length must be at least 1",
        (_, Value::String(text)) if text.len() > MAX_LEN => "length must be at most 1024",
        (_, Value::String(_)) => return None,
        _ => "expected a string",
    };
    Some(message.into())
}
