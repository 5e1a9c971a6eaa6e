//! `/oauth2_tokens`: the tokens, as Kong's Admin API has them.

mod change;

use super::tokens::{TOKENS, Token};
use crate::shared::row_cache::RowCache;
use change::{Change, Invalid, error};
use serde_json::{Value, json};
use std::sync::Arc;
use weir_plugin::{
    AdminMethod, AdminRequest, AdminResponse, AdminRoute, PendingResponse, Row, RowError, RowKey, Rows, Uuid,
};

const ALL: &str = "/oauth2_tokens";
const ONE: &str = "/oauth2_tokens/{access_token}";

pub(super) const ROUTES: &[AdminRoute] = &[
    AdminRoute::later(AdminMethod::Get, ALL, "list-oauth2_tokens", "List the tokens of OAuth 2.0", list),
    AdminRoute::later(AdminMethod::Post, ALL, "create-oauth2_token", "Create a token of OAuth 2.0", create),
    AdminRoute::later(AdminMethod::Get, ONE, "get-oauth2_token", "A token of OAuth 2.0", show),
    AdminRoute::later(
        AdminMethod::Put,
        ONE,
        "replace-oauth2_token",
        "Create or replace a token of OAuth 2.0",
        replace,
    ),
    AdminRoute::later(AdminMethod::Patch, ONE, "update-oauth2_token", "Change a token of OAuth 2.0", update),
    AdminRoute::later(AdminMethod::Delete, ONE, "delete-oauth2_token", "Delete a token of OAuth 2.0", delete),
];

const USUAL_SIZE: usize = 100;
const LARGEST_SIZE: usize = 1000;

/// An outcome whose error is a response too.
type Outcome = Result<AdminResponse, AdminResponse>;

fn pending(work: impl Future<Output = Outcome> + Send + 'static) -> PendingResponse {
    Box::pin(async { work.await.unwrap_or_else(|response| response) })
}

fn unavailable(error: RowError) -> AdminResponse {
    AdminResponse::message(503, &error.to_string())
}

/// The tokens of a node.
struct Tokens {
    rows: Arc<Rows>,
    cache: Arc<RowCache<Token>>,
}

impl Tokens {
    fn of(request: &AdminRequest<'_>) -> Tokens {
        Tokens { rows: request.retained.get(), cache: request.retained.get() }
    }

    /// The token of an id, or an access token.
    async fn find(&self, named: &str) -> Result<Option<Token>, AdminResponse> {
        let key = match Uuid::try_parse(named) {
            Ok(id) if named.contains('-') => RowKey::Id(id),
            _ => RowKey::First(named.to_owned()),
        };
        let row = self.rows.store().find(TOKENS, key).await.map_err(unavailable)?;
        Ok(row.as_ref().and_then(Token::of))
    }

    async fn insert(&self, token: Token, status: u16) -> Outcome {
        match self.rows.store().insert(TOKENS, token.to_row()).await.map_err(unavailable)? {
            true => Ok(self.stored(&token, status)),
            false => Err(self.taken(&token).await),
        }
    }

    async fn write(&self, old: &Token, token: Token) -> Outcome {
        self.cache.forget(&old.access_token);
        match self.rows.store().update(TOKENS, token.to_row()).await.map_err(unavailable)? {
            true => Ok(self.stored(&token, 200)),
            false => Err(self.taken(&token).await),
        }
    }

    fn stored(&self, token: &Token, status: u16) -> AdminResponse {
        self.cache.forget(&token.access_token);
        AdminResponse::json(status, token.to_json())
    }

    /// Which of a token's values another one has.
    async fn taken(&self, token: &Token) -> AdminResponse {
        let id = (RowKey::Id(token.id), "id");
        let access_token = (RowKey::First(token.access_token.clone()), "access_token");
        let refresh_token = token.refresh_token.clone().map(|it| (RowKey::Second(it), "refresh_token"));
        for (key, field) in [Some(access_token), refresh_token, Some(id)].into_iter().flatten() {
            let found = self.rows.store().find(TOKENS, key).await;
            if found.is_ok_and(|found| found.is_some_and(|row| row.id != token.id || field == "id")) {
                let message = format!("UNIQUE violation detected on '{{{field}=\"(secret)\"}}'");
                let fields = json!({ field: "(secret)" });
                return error(409, (5, "unique constraint violation"), &message, fields);
            }
        }
        AdminResponse::not_found()
    }
}

/// Which part of the list is asked for.
fn page(request: &AdminRequest<'_>) -> Result<(Option<Uuid>, usize), AdminResponse> {
    let invalid_size = |message: &str| error(400, (9, "invalid size"), message, Value::Null);
    let size = match request.argument("size").map(str::parse::<f64>) {
        None => USUAL_SIZE,
        Some(Err(_)) => return Err(invalid_size("size must be a number")),
        Some(Ok(size)) if size.fract() == 0.0 && (1.0..=LARGEST_SIZE as f64).contains(&size) => size as usize,
        Some(Ok(_)) => return Err(invalid_size("size must be an integer between 1 and 1000")),
    };
    let after = request.argument("offset").map(|offset| {
        let message = format!("'{offset}' is not a valid offset: take it from the page before");
        Uuid::try_parse(offset).map_err(|_| error(400, (7, "invalid offset"), &message, Value::Null))
    });
    Ok((after.transpose()?, size))
}

fn list(request: &AdminRequest<'_>) -> PendingResponse {
    let (tokens, asked) = (Tokens::of(request), page(request));
    let size_argument = request.argument("size").map(|size| format!("&size={size}")).unwrap_or_default();
    pending(async move {
        let (after, size) = asked?;
        // One more says whether another page follows.
        let mut rows = tokens.rows.store().page(TOKENS, after, size + 1).await.map_err(unavailable)?;
        let follows = rows.len() > size;
        rows.truncate(size);
        let offset = rows.last().filter(|_| follows).map(|row: &Row| row.id.simple().to_string());
        let next = offset.as_ref().map(|offset| format!("{ALL}?offset={offset}{size_argument}"));
        let data: Vec<_> = rows.iter().filter_map(Token::of).map(|token| token.to_json()).collect();
        let mut body = json!({ "data": data, "next": next });
        if let Some(offset) = offset {
            body["offset"] = offset.into();
        }
        Ok(AdminResponse::json(200, body))
    })
}

fn show(request: &AdminRequest<'_>) -> PendingResponse {
    let (tokens, named) = (Tokens::of(request), request.parameter("access_token").to_owned());
    pending(async move {
        let found = tokens.find(&named).await?.ok_or_else(AdminResponse::not_found)?;
        Ok(AdminResponse::json(200, found.to_json()))
    })
}

fn create(request: &AdminRequest<'_>) -> PendingResponse {
    let (tokens, change) = (Tokens::of(request), Change::read(request));
    pending(async move {
        let token = change.and_then(Change::into_token).map_err(Invalid::response)?;
        tokens.insert(token, 201).await
    })
}

fn replace(request: &AdminRequest<'_>) -> PendingResponse {
    let (tokens, change) = (Tokens::of(request), Change::read(request));
    let named = request.parameter("access_token").to_owned();
    pending(async move {
        let found = tokens.find(&named).await?;
        let change = change.map_err(Invalid::response)?.named(&named, found.as_ref());
        let token = change.into_token().map_err(Invalid::response)?;
        match found {
            Some(old) => tokens.write(&old, token).await,
            None => tokens.insert(token, 200).await,
        }
    })
}

fn update(request: &AdminRequest<'_>) -> PendingResponse {
    let (tokens, change) = (Tokens::of(request), Change::read(request));
    let named = request.parameter("access_token").to_owned();
    pending(async move {
        let old = tokens.find(&named).await?.ok_or_else(AdminResponse::not_found)?;
        let token = change.and_then(|change| change.applied_to(&old)).map_err(Invalid::response)?;
        tokens.write(&old, token).await
    })
}

fn delete(request: &AdminRequest<'_>) -> PendingResponse {
    let (tokens, named) = (Tokens::of(request), request.parameter("access_token").to_owned());
    pending(async move {
        if let Some(token) = tokens.find(&named).await? {
            tokens.cache.forget(&token.access_token);
            tokens.rows.store().delete(TOKENS, token.id).await.map_err(unavailable)?;
            // A request may have read it meanwhile.
            tokens.cache.forget(&token.access_token);
        }
        Ok(AdminResponse::no_content())
    })
}
