//! Tokens and authorization codes, which are rows.

use super::refusal::Refusal;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use weir_plugin::{Row, RowKey, Rows, Uuid, unix_time};

/// The kinds of rows.
pub(super) const TOKENS: &str = "oauth2_tokens";
pub(super) const CODES: &str = "oauth2_authorization_codes";

/// For how many seconds a code is valid.
const CODE_LIFETIME: u64 = 300;

/// An access token, with the refresh token that it was issued with.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Token {
    pub(super) id: Uuid,
    /// In seconds since 1970.
    pub(super) created_at: u64,
    pub(super) credential: Uuid,
    /// The service that it is for; none if it is for all.
    pub(super) service: Option<Uuid>,
    pub(super) token_type: String,
    /// After how many seconds it expires; 0 if never.
    pub(super) expires_in: u64,
    pub(super) access_token: String,
    pub(super) refresh_token: Option<String>,
    pub(super) authenticated_userid: Option<String>,
    pub(super) scope: Option<String>,
    /// When the row ends, which is when the refresh token does.
    pub(super) ends: Option<u64>,
}

/// What a client exchanges for a token.
pub(super) struct Code {
    pub(super) id: Uuid,
    pub(super) credential: Uuid,
    pub(super) service: Option<Uuid>,
    /// The plugin entity that issued it.
    pub(super) plugin: Uuid,
    pub(super) authenticated_userid: Option<String>,
    pub(super) scope: Option<String>,
    /// PKCE's.
    pub(super) challenge: Option<String>,
}

impl Token {
    pub(super) fn is_expired(&self) -> bool {
        self.expires_in > 0 && unix_time() > self.created_at.saturating_add(self.expires_in)
    }

    /// As the Admin API shows it.
    pub(super) fn to_json(&self) -> Value {
        json!({
            "id": self.id,
            "created_at": self.created_at,
            "credential": reference(Some(self.credential)),
            "service": reference(self.service),
            "token_type": self.token_type,
            "expires_in": self.expires_in,
            "access_token": self.access_token,
            "refresh_token": self.refresh_token,
            "authenticated_userid": self.authenticated_userid,
            "scope": self.scope,
            "ttl": self.ends.map(|ends| ends.saturating_sub(unix_time())),
        })
    }

    pub(super) fn to_row(&self) -> Row {
        Row {
            id: self.id,
            first: Some(self.access_token.clone()),
            second: self.refresh_token.clone(),
            body: self.to_json(),
            expires: self.ends,
        }
    }

    pub(super) fn of(row: &Row) -> Option<Token> {
        let body = &row.body;
        Some(Token {
            id: row.id,
            created_at: body["created_at"].as_u64()?,
            credential: referenced(&body["credential"])?,
            service: referenced(&body["service"]),
            token_type: text(&body["token_type"])?,
            expires_in: body["expires_in"].as_u64()?,
            access_token: row.first.clone()?,
            refresh_token: row.second.clone(),
            authenticated_userid: text(&body["authenticated_userid"]),
            scope: text(&body["scope"]),
            ends: row.expires,
        })
    }
}

fn reference(id: Option<Uuid>) -> Value {
    id.map_or(Value::Null, |id| json!({ "id": id }))
}

/// The id in a reference.
pub(super) fn referenced(value: &Value) -> Option<Uuid> {
    value["id"].as_str()?.parse().ok()
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

/// 32 random characters.
pub(super) fn random_text() -> String {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    // Both ids are of the system's random numbers, 122 bits each.
    let random = Sha256::new().chain_update(Uuid::new_v4()).chain_update(Uuid::new_v4()).finalize();
    random.iter().map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()])).collect()
}

/// Finds a token. A text that is longer than any token is not looked for.
pub(super) async fn find_token(rows: &Rows, key: RowKey) -> Result<Option<Token>, Refusal> {
    if let RowKey::First(text) | RowKey::Second(text) = &key
        && !(1..=MAX_LEN).contains(&text.len())
    {
        return Ok(None);
    }
    let row = rows.store().find(TOKENS, key).await.map_err(|error| Refusal::failure(&error))?;
    Ok(row.as_ref().and_then(Token::of))
}

/// The longest token or code.
pub(super) const MAX_LEN: usize = 1024;

/// Keeps a code and returns it.
pub(super) async fn insert_code(rows: &Rows, code: &Code) -> Result<String, Refusal> {
    let text = random_text();
    let row = Row {
        id: code.id,
        first: Some(text.clone()),
        second: None,
        body: json!({
            "credential": reference(Some(code.credential)),
            "service": reference(code.service),
            "plugin": reference(Some(code.plugin)),
            "authenticated_userid": code.authenticated_userid,
            "scope": code.scope,
            "challenge": code.challenge,
        }),
        expires: Some(unix_time() + CODE_LIFETIME),
    };
    rows.store().insert(CODES, row).await.map_err(|error| Refusal::failure(&error))?;
    Ok(text)
}

pub(super) async fn find_code(rows: &Rows, code: &str) -> Result<Option<Code>, Refusal> {
    if !(1..=MAX_LEN).contains(&code.len()) {
        return Ok(None);
    }
    let found = rows.store().find(CODES, RowKey::First(code.to_owned())).await;
    Ok(found.map_err(|error| Refusal::failure(&error))?.and_then(|row| {
        let body = &row.body;
        Some(Code {
            id: row.id,
            credential: referenced(&body["credential"])?,
            service: referenced(&body["service"]),
            plugin: referenced(&body["plugin"])?,
            authenticated_userid: text(&body["authenticated_userid"]),
            scope: text(&body["scope"]),
            challenge: text(&body["challenge"]),
        })
    }))
}
