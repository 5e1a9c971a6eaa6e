//! Requests with an access token of their own (RFC 6750).

use super::Instance;
use super::error::{ProviderError, TokenError};
use super::introspection::{Introspected, introspected, is_access_token};
use super::upstream::ACCESS_TOKEN;
use super::verify::{Claims, check_times, has_member, scopes};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use serde_json::{Value as Json, json};
use std::sync::Arc;
use std::time::Duration;
use weir_plugin::{Exchange, Flow, Known, LocalResponse, Resume, unix_time};

/// Headers that are the gateway's to set.
const OF_MESSAGES: [HeaderName; 5] = [
    header::AUTHORIZATION,
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::HOST,
    header::TRANSFER_ENCODING,
];

/// How long it is known that a token is not active.
const INACTIVE: Duration = Duration::from_secs(1);

/// The bearer token of a request: in `Authorization`, else in the header that the upstream would get it in.
pub(super) fn bearer_token(exchange: &Exchange) -> Option<String> {
    let text = |value: &[u8]| std::str::from_utf8(value).ok().map(|text| text.trim().to_owned());
    let token = match exchange.header(Known::Authorization) {
        Some(value) => {
            let (scheme, token) = value.split_at_checked(7)?;
            if scheme.eq_ignore_ascii_case(b"bearer ") { text(token) } else { None }
        }
        None => exchange.request.headers.get(ACCESS_TOKEN).and_then(text),
    };
    token.filter(|token| !token.is_empty())
}

impl Instance {
    /// Lets a request pass by its token alone.
    pub(super) fn by_token(self: &Arc<Self>, exchange: &mut Exchange, token: Option<String>) -> Flow {
        let Some(token) = token else {
            let answer = LocalResponse::message(401, "No bearer token found in request.");
            return Flow::Respond(answer.header("WWW-Authenticate", &self.challenge));
        };
        if !self.config.has_keys() {
            return self.by_introspection(exchange, token);
        }
        let seen = self.provider().key_generation();
        match self.verified(&token) {
            // The documents are not known, or the key is too new to be in them.
            Err(TokenError::NotReady | TokenError::UnknownKey) => {
                let instance = self.clone();
                Flow::Wait(Box::pin(async move {
                    instance.provider().fetch_missing(seen).await;
                    let verified = instance.verified(&token);
                    Box::new(move |exchange: &mut Exchange| instance.settle(exchange, &token, verified))
                        as Resume
                }))
            }
            verified => self.settle(exchange, &token, verified),
        }
    }

    /// The claims of a token, by its signature.
    fn verified(&self, token: &str) -> Result<Claims, TokenError> {
        let keys = if self.config.public_key.is_none() { self.provider().key_set() } else { None };
        let keys = keys.as_ref().map(|keys| keys.get()).filter(|keys| keys.version != 0);
        let claims = self.signatures.of_bearer(token, keys.as_deref().map(|keys| &**keys))?;
        check_times(&claims, unix_time(), self.config.iat_slack.into())?;
        if !is_access_token(&claims) {
            return Err(TokenError::Invalid("it is no access token"));
        }
        let issuer = claims.get("iss").and_then(Json::as_str);
        let is_trusted = match self.config.valid_issuers() {
            Some(trusted) => trusted.iter().any(|trusted| Some(&**trusted) == issuer),
            None => {
                let metadata = self.provider().metadata().ok_or(TokenError::NotReady)?;
                Some(&*metadata.issuer) == issuer
            }
        };
        if is_trusted { Ok(claims) } else { Err(TokenError::Invalid("it is another issuer's")) }
    }

    fn settle(&self, exchange: &mut Exchange, token: &str, verified: Result<Claims, TokenError>) -> Flow {
        match verified {
            Ok(claims) => self.authorize(exchange, token, &claims),
            Err(error @ TokenError::NotReady) => {
                let is_known = self.provider().metadata().is_some();
                let error = if is_known { error.into() } else { self.provider().no_metadata() };
                Flow::Respond(error.answer(exchange.id()))
            }
            Err(error) => Flow::Respond(self.invalid_token(&format!("The token is not valid: {error}"))),
        }
    }

    /// Asks the provider about a token, unless it is known what that says.
    fn by_introspection(self: &Arc<Self>, exchange: &mut Exchange, token: String) -> Flow {
        let more = self.addon_headers(exchange);
        let question = question(&token, &more);
        match self.introspected.get(&question) {
            Some(known) => self.settle_introspected(exchange, &token, known.as_deref()),
            None => {
                let instance = self.clone();
                Flow::Wait(Box::pin(async move {
                    let response = instance.client.introspect(&token, more).await;
                    let rest = move |exchange: &mut Exchange| {
                        instance.learn(exchange, (&token, &question), response)
                    };
                    Box::new(rest) as Resume
                }))
            }
        }
    }

    /// Headers of the client that the provider gets, but those that say how the request is written.
    fn addon_headers(&self, exchange: &Exchange) -> HeaderMap {
        let names = self.config.introspection_addon_headers.iter().flatten();
        let header = |name: &String| {
            let value = exchange.request.headers.get(name)?;
            let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
            (!OF_MESSAGES.contains(&name)).then_some((name, HeaderValue::from_bytes(value).ok()?))
        };
        names.filter_map(header).collect()
    }

    fn learn(
        &self,
        exchange: &mut Exchange,
        (token, question): (&str, &str),
        response: Result<Claims, ProviderError>,
    ) -> Flow {
        let response = match response {
            Ok(response) => response,
            Err(error) => return Flow::Respond(error.answer(exchange.id())),
        };
        let active = introspected(&self.config, response, unix_time());
        let (kept, claims) = match active {
            Some(Introspected { claims, kept }) => (kept, Some(Arc::new(claims))),
            None => (INACTIVE, None),
        };
        self.introspected.keep(kept, question, claims.clone());
        self.settle_introspected(exchange, token, claims.as_deref())
    }

    fn settle_introspected(&self, exchange: &mut Exchange, token: &str, claims: Option<&Claims>) -> Flow {
        match claims {
            Some(claims) => self.authorize(exchange, token, claims),
            None => Flow::Respond(self.invalid_token("The token is not active")),
        }
    }

    /// Lets a request with a valid token pass if the token may be used here.
    fn authorize(&self, exchange: &mut Exchange, token: &str, claims: &Claims) -> Flow {
        let allowed = self
            .check_scopes(&scopes(claims))
            .and_then(|()| self.check_audience(claims))
            .and_then(|()| self.describe_token(exchange, token, claims));
        allowed.map_or_else(Flow::Respond, |()| Flow::Continue)
    }

    pub(super) fn check_scopes(&self, scopes: &[&str]) -> Result<(), LocalResponse> {
        let Some(required) = &self.config.required_scopes else { return Ok(()) };
        if required.iter().all(|scope| scopes.contains(&&**scope)) {
            return Ok(());
        }
        let message = format!("required scopes {} not present", required.join(", "));
        let challenge =
            format!("{}, error=\"insufficient_scope\", scope=\"{}\"", self.challenge, required.join(" "));
        Err(forbidden(&message).header("WWW-Authenticate", challenge))
    }

    fn check_audience(&self, claims: &Claims) -> Result<(), LocalResponse> {
        let Some(rule) = self.config.audience() else { return Ok(()) };
        match claims.get(&rule.claim) {
            None if rule.required => Err(forbidden("required audience claim not present")),
            Some(audience) if rule.match_with_client_id && !has_member(audience, &self.config.client_id) => {
                Err(forbidden("mismatched audience"))
            }
            _ => Ok(()),
        }
    }

    fn invalid_token(&self, description: &str) -> LocalResponse {
        let challenge =
            format!("{}, error=\"invalid_token\", error_description=\"{description}\"", self.challenge);
        LocalResponse::message(401, description).header("WWW-Authenticate", challenge)
    }
}

/// What the provider is asked: neither tokens nor values of headers have line breaks.
fn question(token: &str, more: &HeaderMap) -> String {
    let mut lines: Vec<_> =
        more.iter().map(|(name, value)| format!("\n{name}: {}", value.as_bytes().escape_ascii())).collect();
    lines.sort_unstable();
    format!("{token}{}", lines.concat())
}

fn forbidden(error: &str) -> LocalResponse {
    LocalResponse::raw(403, Some("application/json; charset=utf-8"), json!({ "error": error }).to_string())
}
