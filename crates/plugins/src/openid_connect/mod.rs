//! Logs users in at an OpenID provider, and accepts its access tokens. Like APISIX's plugin of this name.
//!
//! ```yaml
//! plugins:
//!   - name: openid-connect
//!     service: shop
//!     config:
//!       client_id: shop
//!       client_secret: "{vault://env/shop-secret}"
//!       discovery: https://keycloak.example.com/realms/main/.well-known/openid-configuration
//!       redirect_uri: https://shop.example.com/callback
//!       scope: openid profile email
//!       session:
//!         secret: "{vault://env/session-secret}"
//! ```
//!
//! In Keycloak, `shop` is a client with client authentication and the standard flow, and `https://shop.example.com/callback` is
//! one of its valid redirect URIs. In [dex](https://dexidp.io) it is a static client, and `discovery` is the issuer and
//! `/.well-known/openid-configuration`. The callback's path must belong to a route of the plugin (`weir check` warns if it does not), and so must `logout_path`.
//!
//! ## Logins
//!
//! A request without a session is sent to the provider's authorization endpoint, with a `state`, a `nonce` and the challenge of
//! PKCE. An encrypted cookie ties them to the browser for ten minutes; a browser may log in in up to four tabs at a time. When the
//! browser comes back with a code, the plugin redeems it, verifies the ID token, asks the userinfo endpoint, sets the
//! session's cookie, and sends the browser to the page that it asked for, on the same host. Requests of scripts and
//! images, whose `Sec-Fetch-Mode` is not `navigate`, get 401 instead, because no user would see the login.
//!
//! Set `redirect_uri` to a URL, because a path, or none, makes a URL of the request's `Host`, and providers compare it with those
//! that they know. With `unauth_action: deny` requests without a session get 401, with `pass` they pass without headers about a user. A POST that is sent to the provider loses its body: the browser comes back with a GET.
//!
//! ## Sessions
//!
//! The session is in a cookie that is encrypted and authenticated by `session.secret` (AES-256-GCM, with a key for each cookie):
//! the tokens, what the userinfo endpoint has said, and when it began. What is longer than 4096 bytes is in several cookies, up to
//! nine; `session_contents` leaves tokens out. Browsers send all of them in one line, which must not be longer than
//! [`large_client_header_buffers`](../configuration.md#large_client_header_buffers) allows: 8 KiB unless you set it. The upstream does not get the cookies. A session ends as the timeouts of
//! `session` say. When its access token expires, it is renewed by the refresh token, once for all requests of a
//! node that need it; if the provider refuses that, the user logs in again. Nodes with the same secret accept each
//! other's sessions. The cookie `…_used` says when the session was used, to a minute. It is bound to one login or renewal, and is
//! all that other requests set, so that a late response neither brings a session back after a logout, nor an older one after a renewal. Two nodes may renew one session at the same time, which providers that accept a refresh token once refuse.
//!
//! Other hosts of the domain can set cookies of the same name, such as those of their own sessions. Over HTTPS browsers refuse that, because the names
//! begin with `__Host-`: where the cookies are secure, `cookie_path` is `/` and there is no `cookie_domain`. A session that began over HTTP counts over HTTPS
//! as long as there is no other, and a login may begin over HTTP if `redirect_uri` is `https://…`: another host can set the cookies of these, so redirect HTTP to HTTPS
//! (`https_redirect_status_code` of the route). Where the prefix is not used, cookies that this secret has not made are ignored, and a request with sessions of two users is
//! refused with 400, which has the browser forget them. At most 16 cookies of one name are read.
//!
//! A request to `logout_path` has the browser forget the session, and sends it to the provider's `end_session_endpoint`, from where it comes
//! back to `post_logout_redirect_uri`. So that no other site can log users out, such a request is refused with 403 if the browser says in
//! `Sec-Fetch-Site` that another site has caused it, or, where it does not say that, if `Origin` or else `Referer` names another host. With `revoke_tokens_on_logout` the provider revokes the tokens as well. The gateway
//! keeps no sessions, so a cookie that somebody has copied is valid until its timeouts end it, also after a logout.
//!
//! ## Bearer tokens
//!
//! With `bearer_only`, requests need a token in `Authorization: Bearer …`, or else in `X-Access-Token`. With `public_key`,
//! `use_jwks` or `introspection_endpoint` a token is accepted beside sessions; one that is not valid is refused.
//!
//! ```yaml
//! plugins:
//!   - name: openid-connect
//!     service: orders
//!     config:
//!       client_id: orders
//!       discovery: https://keycloak.example.com/realms/main/.well-known/openid-configuration
//!       bearer_only: true
//!       use_jwks: true
//!       required_scopes: [orders]
//!       claim_validator:
//!         audience: {required: true, match_with_client_id: true}
//! ```
//!
//! ```sh
//! token=$(curl -s -u orders-client:its-secret -d grant_type=client_credentials -d scope=orders \
//!   https://keycloak.example.com/realms/main/protocol/openid-connect/token | jq -r .access_token)
//! curl -H "Authorization: Bearer $token" http://localhost:8000/orders
//! ```
//!
//! With `public_key` or `use_jwks` the token is a JWT: its signature, `exp`, `nbf`, `iat` and `iss` are verified. The algorithms are those of
//! [jwt](jwt.md); HS algorithms only if `token_signing_alg_values_expected` names one, with the client's secret. Set
//! `claim_validator.audience`, because otherwise a token that the provider has issued for any other client is accepted. Without
//! keys, the introspection endpoint says whether a token is active (RFC 7662), which is cached for 30 seconds, or
//! `introspection_interval`, and for one second if it is not active. `required_scopes` must be in `scope` or `scp`. Require one where tokens may come from
//! browsers' logins: ID tokens have no scope, and many providers do not mark them otherwise. Tokens that are marked as another kind by `typ`, `token_use`, or
//! the claim `events` are refused.
//!
//! ## The provider
//!
//! The discovery document and the keys are fetched when they are first needed, and again in the background when they are used after five minutes. A token with an
//! unknown `kid` waits while the keys are fetched again; if that brings nothing new, the next such fetch is ten seconds later. While
//! the provider cannot be reached, the last documents stay in use for an hour; then tokens that they would verify are answered 503. Where the discovery document comes over TLS, its endpoints must have TLS too.
//!
//! The log warns if the document has another issuer than its URL names. The document is used all the same, because providers are often reached
//! by another name than browsers use, such as one within a cluster, and those of many tenants have one document. Tokens need the issuer that the document has, or one of
//! `claim_validator.issuer.valid_issuers`, so the server at `discovery` decides whose tokens are accepted: use HTTPS and `ssl_verify: true`.
//!
//! ## To the upstream
//!
//! | header | |
//! |---|---|
//! | `X-Access-Token`, or `Authorization` | the access token |
//! | `X-ID-Token` | the claims of the session's ID token: base64 of JSON |
//! | `X-Raw-ID-Token` | that token |
//! | `X-Userinfo` | what the userinfo endpoint has said, or the claims of a bearer token: base64 of JSON |
//! | `X-Refresh-Token` | the session's refresh token |
//! | `X-Credential-Identifier` | the user's `sub`; of a token without it, `client:` and its `client_id` |
//! | `X-Consumer-ID`, `X-Consumer-Username`, `X-Consumer-Custom-ID` | the consumer that `consumer_claim` names |
//!
//! What clients send in these headers is removed from every request; `Authorization` where it holds the access token.
//!
//! ## Differences from APISIX
//!
//! - `use_pkce` is on unless it is turned off, and there is always a nonce: `use_nonce` has no effect.
//! - Tokens that are not signed, or by an unknown algorithm, are never accepted: `accept_none_alg` and `accept_unsupported_alg` have no effect.
//! - A bearer token needs `exp`. What introspection says is cached for 30 seconds rather than until the token expires.
//! - Sessions are in cookies alone: `session.storage: redis` and `session.redis` are missing. The cookie's name is one of the client
//!   rather than `session`, and has the prefix `__Host-` where that fits.
//! - The client has a secret or none: `private_key_jwt`, `client_secret_jwt` and their fields are missing, and so are `par`, `dpop`,
//!   `backchannel_logout`, `claim_schema`, `refresh_session_interval`, `force_reauthorize`, and of `proxy_opts` all but the proxies.
//! - `jwk_expires_in`, `jwt_verification_cache_ignore` and `cache_segment` have no effect: keys are used for five minutes, and what was verified
//!   is not cached.
//! - A login whose cookie is missing gets 400 rather than 500.
//! - Scripts and images get 401 rather than a redirect. `required_scopes` are compared with what the token endpoint says that a session's
//!   token has, rather than with the token's claims.
//!
//! ## Responses
//!
//! | status | message | when |
//! |---|---|---|
//! | 302 | | to the provider, back to the page, or after a logout |
//! | 200 | `Logged out` | after a logout, if there is no page to go to |
//! | 400 | `No login has begun in this browser, or it took too long; open the page again` | the callback's state is not that of a login |
//! | 400 | `The request has sessions of two users; open the page again, or else delete the cookies of this site` | another host has set a cookie, or the browser has one from before `cookie_path` or `cookie_domain` was changed |
//! | 403 | `The logout comes from another site; open it from a page of this one` | |
//! | 401 | `Unauthorized` | there is no session |
//! | 401 | `No bearer token found in request.` | there is no token |
//! | 401 | `The token is not valid: …`, `The token is not active` | the token is not accepted, with `error="invalid_token"` in `WWW-Authenticate` |
//! | 401 | `The login failed: …` | the provider refuses the user or the code |
//! | 403 | `{"error":"required scopes … not present"}` | the token lacks one of `required_scopes`, with `error="insufficient_scope"` |
//! | 403 | `{"error":"required audience claim not present"}`, `{"error":"mismatched audience"}` | by `claim_validator.audience` |
//! | 403 | `No consumer found for the claim '…'` | no consumer has this name |
//! | 500 | `An unexpected error occurred` | the provider refuses the client, an endpoint is missing, or a session does not fit into cookies; the log says which |
//! | 502 | `The OpenID provider's response is not valid` | it is no JSON, lacks tokens, or has an ID token that must not be accepted; also while its discovery document is not valid, and the log says why |
//! | 503 | `The OpenID provider did not answer` | within `timeout`, or with a status of 429 or 500 to 599; also while its discovery document or keys are missing, and the log says why |

mod bearer;
mod browser;
mod callback;
mod client;
mod config;
mod error;
mod introspection;
mod login;
mod logout;
mod metadata;
mod provider;
mod renewal;
mod session;
#[cfg(test)]
mod tests;
mod upstream;
mod verify;
mod warnings;

use crate::shared::authentication::Consumers;
use crate::shared::forged_headers;
use crate::shared::row_cache::RowCache;
use bearer::bearer_token;
use client::Client;
use config::Config;
use login::Logins;
use provider::Provider;
use renewal::Renewals;
use session::{Keeper, hide};
use std::sync::Arc;
use verify::{Claims, Signatures};
use weir_plugin::{
    BuildContext, Document, EntityWarning, Exchange, FieldWarning, Flow, Hooks, Json, Known, Phases, Plugin,
};

/// A shorter secret of sessions can be guessed.
const MIN_SECRET_LEN: usize = 16;

/// Reads what a provider answers, as its metadata and as what it says of a token, for fuzzing. Returns whether the token is active.
#[cfg(any(test, fuzzing))]
pub(crate) fn read_answer(config: &Json, answer: &[u8]) -> bool {
    use crate::shared::fetched::Document;
    use weir_plugin::Record;
    if let Ok(metadata) = metadata::Metadata::read(answer.to_vec().into(), "https://issuer.test/") {
        assert!(metadata.is_fetched() && metadata.is_same_as(&metadata.clone()));
    }
    let (Ok(config), Ok(claims)) = (Config::from_value(config), serde_json::from_slice(answer)) else {
        return false;
    };
    introspection::introspected(&config, claims, 1_700_000_000).is_some()
}

/// One configured instance; requests that wait for the provider keep it alive.
pub(super) struct OpenIdConnect(Arc<Instance>);

struct Instance {
    client: Client,
    signatures: Signatures,
    /// Where sessions and logins are kept, unless tokens alone are accepted.
    cookies: Option<Cookies>,
    renewals: Arc<Renewals>,
    introspected: RowCache<Claims>,
    /// The consumers, if tokens may name them.
    consumers: Option<Arc<Consumers>>,
    challenge: String,
    config: Config,
}

struct Cookies {
    keeper: Keeper,
    logins: Logins,
}

impl Plugin for OpenIdConnect {
    const NAME: &'static str = "openid-connect";
    const PRIORITY: i32 = 1460;
    const FOR_CONSUMERS: bool = false;
    const EXTENSION: bool = true;
    type Config = Config;

    fn warnings(config: &Json) -> Vec<FieldWarning> {
        config::warnings(config)
    }

    fn document_warnings(document: &Document) -> Vec<EntityWarning> {
        warnings::lost_callbacks(document)
    }

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        // A vault may have no such secret.
        if config.session.as_ref().is_some_and(|session| session.secret.expose().len() < MIN_SECRET_LEN) {
            return Err(format!(
                "config.session.secret is too short; write at least {MIN_SECRET_LEN} random characters"
            ));
        }
        if config.verifies_by_secret()
            && config.client_secret.as_ref().is_none_or(|secret| secret.expose().len() < MIN_SECRET_LEN)
        {
            return Err(format!(
                "config.client_secret is too short to verify tokens by it; it needs at least {MIN_SECRET_LEN} characters"
            ));
        }
        let provider = Provider::of(&config, build)?;
        let cookies = config.session.as_ref().filter(|_| !config.bearer_only).map(|session| {
            let keeper = Keeper::new(&config, session);
            Cookies { logins: Logins::new(&config, &session.secret), keeper }
        });
        Ok(Self(Arc::new(Instance {
            client: Client::new(&config, provider),
            signatures: Signatures::new(&config),
            cookies,
            renewals: build.retained.get(),
            introspected: RowCache::default(),
            consumers: config.consumer_claim.as_ref().map(|_| build.once(Consumers::new)),
            challenge: format!("Bearer realm=\"{}\"", config.realm),
            config,
        })))
    }
}

impl Hooks for OpenIdConnect {
    fn phases(&self) -> Phases {
        Phases::ACCESS | Phases::RESPONSE.only_if(self.0.cookies.is_some())
    }

    fn owns_request_header(&self, name: &[u8]) -> bool {
        forged_headers::are(&upstream::HEADERS, name)
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        self.0.access(exchange)
    }

    fn response(&self, exchange: &mut Exchange) {
        let cookies = self.0.set_cookies(exchange);
        if !cookies.is_empty() {
            // A shared cache would hand the session to others.
            exchange.response.headers.append("Cache-Control", b"private");
        }
        for cookie in cookies {
            exchange.response.headers.append("Set-Cookie", cookie.as_bytes());
        }
    }
}

impl Instance {
    fn access(self: &Arc<Self>, exchange: &mut Exchange) -> Flow {
        let token = if self.config.checks_bearer_tokens() { bearer_token(exchange) } else { None };
        forged_headers::remove(&mut exchange.request.headers, &upstream::HEADERS);
        if self.config.set_access_token_header && self.config.access_token_in_authorization_header {
            exchange.request.headers.remove_known(Known::Authorization);
        }
        if let (Some(cookies), Some(_)) = (&self.cookies, &token) {
            hide(exchange, &cookies.keeper.name);
        }
        match &self.cookies {
            Some(cookies) if token.is_none() => self.by_session(exchange, cookies),
            _ => self.by_token(exchange, token),
        }
    }

    fn provider(&self) -> &Arc<Provider> {
        &self.client.provider
    }
}
