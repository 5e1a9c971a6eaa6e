//! `/oauth2/token`: tokens for clients.

use super::authorize::INVALID_REDIRECT_URI;
use super::clients::Client;
use super::refusal::{Refusal, respond};
use super::secret;
use super::tokens::{CODES, Code, TOKENS, Token, find_code, find_token, random_text};
use super::{EndpointRequest, Instance, Parameters};
use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::sync::Arc;
use weir_plugin::{LocalResponse, RowKey, Uuid, unix_time};

/// Base64 as clients write it, with padding or without.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// What a token is issued for.
pub(super) struct Grant {
    pub(super) credential: Uuid,
    pub(super) service: Option<Uuid>,
    pub(super) authenticated_userid: Option<String>,
    pub(super) scope: Option<String>,
    /// Whether there is a refresh token.
    pub(super) refreshable: bool,
}

/// The members of a response with a token.
type Issued = Result<Map<String, Value>, Refusal>;

fn invalid_client() -> Refusal {
    Refusal::new("invalid_client", "Invalid client authentication")
}

fn invalid_request(description: &'static str) -> Refusal {
    Refusal::new("invalid_request", description)
}

impl Instance {
    pub(super) async fn issue(&self, request: &EndpointRequest) -> LocalResponse {
        let state = request.parameters.text("state");
        match self.issued(request).await {
            Ok(mut members) => {
                members.extend(state.map(|state| ("state".to_owned(), state.into())));
                respond(200, members)
            }
            Err(refusal) => refusal.with_state(state),
        }
    }

    async fn issued(&self, request: &EndpointRequest) -> Issued {
        let parameters = &request.parameters;
        let grant_type = parameters.text("grant_type").unwrap_or_default();
        let client = self.client(request, grant_type).await?;
        match grant_type {
            "authorization_code" => self.of_code(request, &client).await,
            "refresh_token" => self.of_refresh_token(request, &client).await,
            "client_credentials" if self.config.enable_client_credentials => {
                if parameters.has("authenticated_userid") {
                    self.demand_provision_key(parameters)?;
                }
                let user = parameters.text("authenticated_userid").map(str::to_owned);
                self.of_client(request, &client, user, false).await
            }
            "password" if self.config.enable_password_grant => {
                let user = self.provisioned_user(parameters)?.to_owned();
                self.of_client(request, &client, Some(user), true).await
            }
            _ => Err(Refusal::new("unsupported_grant_type", "Invalid grant_type")),
        }
    }

    /// The client, once it has proved who it is. Of several errors, Kong says this one.
    async fn client(&self, request: &EndpointRequest, grant_type: &str) -> Result<Arc<Client>, Refusal> {
        let Credentials { client_id, client_secret, is_of_header } = Credentials::of(request);
        let unproved = || invalid_client().of_credentials(is_of_header);
        let client = client_id.and_then(|client_id| self.clients.named(&client_id));
        let client = client.ok_or_else(unproved)?;
        let given = client_secret.as_deref().unwrap_or_default();
        if client.is_public && !given.trim().is_empty() {
            return Err(invalid_request("client_secret is disallowed for public clients"));
        }
        if !client.is_public && (given.is_empty() || !self.clients.verify(client, given).await) {
            return Err(unproved());
        }
        if grant_type != "client_credentials" {
            let uris = client.redirect_uris.as_deref().ok_or_else(unproved)?;
            let is_known = match request.parameters.text("redirect_uri") {
                Some(uri) => uris.iter().any(|known| known == uri),
                None => !uris.is_empty(),
            };
            is_known.then_some(()).ok_or_else(|| invalid_request(INVALID_REDIRECT_URI))?;
        }
        Ok(client.clone())
    }

    async fn of_client(
        &self,
        request: &EndpointRequest,
        client: &Client,
        authenticated_userid: Option<String>,
        refreshable: bool,
    ) -> Issued {
        let (scope, service) = (self.scope(&request.parameters)?, self.service_of(request));
        self.grant(Grant { credential: client.id, service, authenticated_userid, scope, refreshable }).await
    }

    async fn of_code(&self, request: &EndpointRequest, client: &Client) -> Issued {
        let invalid_code = || invalid_request("Invalid code");
        let service = self.service_of(request);
        let text = request.parameters.text("code").ok_or_else(invalid_code)?;
        let code = find_code(&self.rows, text).await?.ok_or_else(invalid_code)?;
        let is_for_here = code.plugin == self.id && service.is_none_or(|it| code.service == Some(it));
        if !is_for_here || code.credential != client.id {
            return Err(invalid_code());
        }
        if code.challenge.is_some() || self.demands_pkce(client) {
            verify_challenge(&request.parameters, &code)?;
        }
        // Of several that use it at once, also on other nodes, one has deleted it.
        let deleted = self.rows.store().delete(CODES, code.id).await;
        if !deleted.map_err(|error| Refusal::failure(&error))? {
            return Err(invalid_code());
        }
        let Code { authenticated_userid, scope, credential, .. } = code;
        self.grant(Grant { credential, service, authenticated_userid, scope, refreshable: true }).await
    }

    async fn of_refresh_token(&self, request: &EndpointRequest, client: &Client) -> Issued {
        let invalid = || invalid_request("Invalid refresh_token");
        let service = self.service_of(request);
        let text = request.parameters.text("refresh_token").ok_or_else(invalid)?;
        let found = find_token(&self.rows, RowKey::Second(text.to_owned())).await?;
        let token = found.ok_or_else(invalid)?;
        if service.is_some_and(|service| token.service != Some(service)) {
            return Err(invalid());
        }
        if token.credential != client.id {
            return Err(invalid_client());
        }
        if !self.is_still_allowed(token.scope.as_deref()) {
            return Err(Refusal::new("invalid_scope", "Scope mismatch"));
        }
        if self.config.reuse_refresh_token {
            return self.renewed(token).await.and_then(|renewed| renewed.ok_or_else(invalid));
        }
        let deleted = self.rows.store().delete(TOKENS, token.id).await;
        self.cache.forget(&token.access_token);
        if !deleted.map_err(|error| Refusal::failure(&error))? {
            return Err(invalid());
        }
        let Token { credential, authenticated_userid, scope, .. } = token;
        self.grant(Grant { credential, service, authenticated_userid, scope, refreshable: true }).await
    }

    /// Whether the configuration has the scopes of a token that was issued before.
    fn is_still_allowed(&self, scope: Option<&str>) -> bool {
        let Some(allowed) = &self.config.scopes else { return true };
        scope.unwrap_or_default().split_ascii_whitespace().all(|it| allowed.iter().any(|known| known == it))
    }

    /// The same refresh token with another access token; none if it was deleted meanwhile.
    async fn renewed(&self, token: Token) -> Result<Option<Map<String, Value>>, Refusal> {
        let expires_in = self.config.token_expiration();
        let access_token = random_text();
        let renewed =
            Token { access_token, expires_in, created_at: unix_time(), id: token.id, ..token.clone() };
        let updated = self.rows.store().update(TOKENS, renewed.to_row()).await;
        self.cache.forget(&token.access_token);
        Ok(updated.map_err(|error| Refusal::failure(&error))?.then(|| members(&renewed)))
    }

    /// Issues a token.
    pub(super) async fn grant(&self, grant: Grant) -> Issued {
        let (expires_in, refresh_ttl) = (self.config.token_expiration(), self.config.refresh_token_ttl());
        let refresh_token = (grant.refreshable && expires_in > 0).then(random_text);
        let lifetime = match (expires_in, &refresh_token, refresh_ttl) {
            (0, _, _) | (_, Some(_), 0) => None,
            (expires_in, None, 0) => Some(expires_in),
            (expires_in, None, ttl) => Some(expires_in.min(ttl)),
            (_, Some(_), ttl) => Some(ttl),
        };
        let created_at = unix_time();
        let token = Token {
            id: Uuid::new_v4(),
            created_at,
            credential: grant.credential,
            service: grant.service,
            token_type: "bearer".to_owned(),
            expires_in,
            access_token: random_text(),
            refresh_token,
            authenticated_userid: grant.authenticated_userid,
            scope: grant.scope,
            // Its last second belongs to it.
            ends: lifetime.map(|lifetime| created_at.saturating_add(lifetime).saturating_add(1)),
        };
        let inserted = self.rows.store().insert(TOKENS, token.to_row()).await;
        inserted.map_err(|error| Refusal::failure(&error))?;
        Ok(members(&token))
    }
}

/// What a client gets to know of its token.
fn members(token: &Token) -> Map<String, Value> {
    let mut members = Map::new();
    members.extend(token.refresh_token.clone().map(|text| ("refresh_token".to_owned(), text.into())));
    members.insert("token_type".to_owned(), token.token_type.clone().into());
    members.insert("access_token".to_owned(), token.access_token.clone().into());
    if token.expires_in > 0 {
        members.insert("expires_in".to_owned(), token.expires_in.into());
    }
    members
}

fn verify_challenge(parameters: &Parameters, code: &Code) -> Result<(), Refusal> {
    if !parameters.has("code_verifier") {
        return Err(invalid_request("code_verifier is required for PKCE authorization requests"));
    }
    let verifier = parameters.text("code_verifier");
    let verifier = verifier.ok_or_else(|| invalid_request("code_verifier is not a string"))?;
    if !(43..=128).contains(&verifier.len()) {
        return Err(invalid_request("code_verifier must be between 43 and 128 characters"));
    }
    let hash = URL_SAFE_NO_PAD.encode(Sha256::digest(verifier));
    match code.challenge.as_deref().is_some_and(|challenge| secret::is_same(&hash, challenge)) {
        true => Ok(()),
        false => Err(Refusal::new("invalid_grant", "Invalid code")),
    }
}

/// Who a client says that it is.
#[derive(Default)]
struct Credentials<'r> {
    client_id: Option<Cow<'r, str>>,
    client_secret: Option<Cow<'r, str>>,
    is_of_header: bool,
}

impl<'r> Credentials<'r> {
    /// Those among the parameters, or else those of the header.
    fn of(request: &'r EndpointRequest) -> Self {
        let text = |name| request.parameters.text(name).map(Cow::Borrowed);
        let (client_id, client_secret) = (text("client_id"), text("client_secret"));
        match &request.authorization {
            Some(header) if client_id.is_none() || client_secret.is_none() => {
                let (client_id, client_secret) = basic(header).unzip();
                Self { client_id, client_secret, is_of_header: true }
            }
            _ => Self { client_id, client_secret, is_of_header: false },
        }
    }
}

/// The name and password in `Basic …`.
fn basic<'r>(header: &str) -> Option<(Cow<'r, str>, Cow<'r, str>)> {
    let (scheme, token) = header.trim().split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = String::from_utf8(BASE64.decode(token.trim()).ok()?).ok()?;
    let (name, password) = decoded.split_once(':')?;
    Some((name.to_owned().into(), password.to_owned().into()))
}
