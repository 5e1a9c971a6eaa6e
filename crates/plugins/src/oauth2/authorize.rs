//! `/oauth2/authorize`: codes, and the tokens of the implicit grant.

use super::clients::Client;
use super::issue::Grant;
use super::refusal::{Refusal, respond};
use super::tokens::{Code, insert_code};
use super::{EndpointRequest, Instance, Parameters};
use base64::Engine;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::{Map, Value};
use std::sync::Arc;
use weir_plugin::form::{self, Pair};
use weir_plugin::{LocalResponse, Uuid};

pub(super) const INVALID_REDIRECT_URI: &str =
    "Invalid redirect_uri that does not match with any redirect_uri created with the application";

/// Where a user is sent to.
struct Target<'c> {
    uri: &'c str,
    is_implicit: bool,
}

impl Instance {
    pub(super) async fn authorize(&self, request: &EndpointRequest) -> LocalResponse {
        let parameters = &request.parameters;
        let state = parameters.text("state");
        let user = match self.provisioned_user(parameters) {
            Ok(user) => user,
            Err(refusal) => return refusal.with_state(state),
        };
        let client = parameters.text("client_id").and_then(|client_id| self.clients.named(client_id));
        let uris = client.and_then(|client| client.redirect_uris.as_deref()).unwrap_or_default();
        let (Some(client), Some(first)) = (client, uris.first()) else {
            return Refusal::new("invalid_client", "Invalid client authentication").with_state(state);
        };
        let asked = parameters.text("redirect_uri").unwrap_or(first);
        let known = uris.iter().find(|uri| *uri == asked);
        let mut target = Target { uri: known.unwrap_or(first), is_implicit: false };
        let outcome = match self.authorizable(parameters, client, known.is_some()) {
            Ok(authorizable) => {
                target.is_implicit = authorizable.is_implicit;
                self.authorized(request, client, user, authorizable).await
            }
            Err(refusal) => Err(refusal),
        };
        match outcome {
            Ok(members) => redirect(200, &target, members, state),
            Err(refusal) if refusal.is_failure() => refusal.with_state(state),
            Err(refusal) => redirect(400, &Target { is_implicit: false, ..target }, refusal.members(), state),
        }
    }

    /// What is to be issued. The last error counts, as in Kong.
    fn authorizable(
        &self,
        parameters: &Parameters,
        client: &Client,
        has_redirect_uri: bool,
    ) -> Result<Authorizable, Refusal> {
        let challenge = challenge(parameters)?;
        if challenge.is_none() && self.demands_pkce(client) {
            let description = "code_challenge is required for public clients";
            return Err(Refusal::new("invalid_request", description));
        }
        if !has_redirect_uri {
            return Err(Refusal::new("invalid_request", INVALID_REDIRECT_URI));
        }
        let scope = self.scope(parameters)?;
        let is_implicit = match parameters.text("response_type") {
            Some("code") if self.config.enable_authorization_code => false,
            Some("token") if self.config.enable_implicit_grant => true,
            _ => return Err(Refusal::new("unsupported_response_type", "Invalid response_type")),
        };
        Ok(Authorizable { scope, challenge, is_implicit })
    }

    async fn authorized(
        &self,
        request: &EndpointRequest,
        client: &Arc<Client>,
        user: &str,
        Authorizable { scope, challenge, is_implicit }: Authorizable,
    ) -> Result<Map<String, Value>, Refusal> {
        let (authenticated_userid, service) = (Some(user.to_owned()), self.service_of(request));
        if is_implicit {
            let refreshable = false;
            let grant = Grant { credential: client.id, service, authenticated_userid, scope, refreshable };
            return self.grant(grant).await;
        }
        let (id, plugin) = (Uuid::new_v4(), self.id);
        let code =
            Code { id, credential: client.id, service, plugin, authenticated_userid, scope, challenge };
        let code = insert_code(&self.rows, &code).await?;
        Ok(Map::from_iter([("code".to_owned(), code.into())]))
    }

    /// Whether a client may use no code without PKCE.
    pub(super) fn demands_pkce(&self, client: &Client) -> bool {
        match &*self.config.pkce {
            "none" => false,
            "strict" => true,
            _ => client.is_public,
        }
    }
}

/// What a request asks for, and may get.
struct Authorizable {
    scope: Option<String>,
    challenge: Option<String>,
    is_implicit: bool,
}

/// PKCE's challenge, as the hash of a verifier is written.
fn challenge(parameters: &Parameters) -> Result<Option<String>, Refusal> {
    const LENIENT: GeneralPurposeConfig =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let invalid = |description| Refusal::new("invalid_request", description);
    let method = parameters.text("code_challenge_method");
    let Some(challenge) = parameters.text("code_challenge") else {
        return match method {
            Some(_) => Err(invalid("code_challenge is required when code_method is present")),
            None => Ok(None),
        };
    };
    if method.is_some_and(|method| !matches!(method, "S256" | "s256")) {
        return Err(invalid("code_challenge_method is not supported, must be S256"));
    }
    // Some clients write the other alphabet, or padding.
    let decode = |alphabet| GeneralPurpose::new(alphabet, LENIENT).decode(challenge);
    let decoded = decode(&URL_SAFE).or_else(|_| decode(&STANDARD));
    Ok(Some(decoded.map_or_else(|_| challenge.to_owned(), |bytes| URL_SAFE_NO_PAD.encode(bytes))))
}

/// Responds with where to send the user, with what is for the client.
fn redirect(
    status: u16,
    target: &Target<'_>,
    mut members: Map<String, Value>,
    state: Option<&str>,
) -> LocalResponse {
    members.extend(state.map(|state| ("state".to_owned(), state.into())));
    let mut names: Vec<&String> = members.keys().collect();
    names.sort_unstable();
    let (base, query) = target.uri.split_once('?').map_or((target.uri, None), |(uri, it)| (uri, Some(it)));
    // What the URI has of the same name is replaced.
    let kept =
        names.iter().fold(query.unwrap_or_default().to_owned(), |query, name| form::without(&query, name));
    let added = names.iter().map(|name| {
        let text = members[*name].as_str().map_or_else(|| members[*name].to_string(), str::to_owned);
        Pair::new(name, Some(text.into_bytes().into())).raw.into_owned()
    });
    let added = added.collect::<Vec<_>>().join("&");
    let uri = match (target.is_implicit, query, &*kept) {
        (true, _, _) => format!("{}#{added}", target.uri),
        (false, _, "") => format!("{base}?{added}"),
        (false, _, kept) => format!("{base}?{kept}&{added}"),
    };
    respond(status, Map::from_iter([("redirect_uri".to_owned(), uri.into())]))
}
