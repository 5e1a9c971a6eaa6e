//! An OAuth 2.0 server (RFC 6749) for the clients of a service, and the check of the tokens that it issues.
//!
//! ```yaml
//! consumers:
//!   - username: alice
//!     oauth2_credentials:
//!       - name: shop
//!         client_id: shop
//!         client_secret: correct horse battery staple
//!         redirect_uris: [https://shop.example.com/callback]
//! plugins:
//!   - name: oauth2
//!     service: orders
//!     config:
//!       scopes: [read, write]
//!       enable_client_credentials: true
//!       enable_authorization_code: true
//!       provision_key: a-long-random-text
//! ```
//!
//! ```sh
//! curl -u 'shop:correct horse battery staple' -d grant_type=client_credentials -d scope=read https://localhost:8443/orders/oauth2/token
//! curl -H 'Authorization: Bearer TOKEN' http://localhost:8000/orders
//! ```
//!
//! Each client is an entity `oauth2_credentials` of a consumer. Two paths of every route of the plugin are its endpoints, by how they
//! end: `/oauth2/token`, where clients get tokens, and `/oauth2/authorize`, which is for your own login page. Once a user has
//! logged in there and agreed, the page sends the client's parameters, `authenticated_userid` and `provision_key` to
//! `/oauth2/authorize`, and sends the user's browser to the `redirect_uri` of the response. Parameters are in the query or in
//! the body: a form, multipart, or JSON. Both endpoints are for POST over HTTPS; `accept_http_if_already_terminated` believes the
//! `X-Forwarded-Proto` of a proxy in `trusted_ips`.
//!
//! | grant | is on with | who sends what |
//! |---|---|---|
//! | authorization code | `enable_authorization_code` | your page: `response_type=code`; then the client: `grant_type=authorization_code` and the `code`, which is valid once and for 300 seconds |
//! | implicit | `enable_implicit_grant` | your page: `response_type=token` |
//! | client credentials | `enable_client_credentials` | the client: `grant_type=client_credentials` |
//! | password | `enable_password_grant` | your login page: `grant_type=password`, `authenticated_userid` and `provision_key` |
//! | refresh | always | the client: `grant_type=refresh_token` and the `refresh_token` |
//!
//! PKCE (RFC 7636) with the method `S256` is used wherever `code_challenge` is sent. `pkce: lax` demands it of public clients,
//! `strict` of all. A public client has `client_type: public`, and sends no secret.
//!
//! ## Tokens
//!
//! Tokens and codes are in the node's database, PostgreSQL or SQLite, where all nodes of it know them; they are no part of the configuration, so
//! that issuing one changes no revision. A node without a database, such as a data plane, keeps them in its memory, at most about
//! 64 MiB: they are lost when it restarts, other nodes do not know them, and `weir check` warns of it. `weir upgrade` keeps them.
//! Each node remembers for 5 seconds what the database says of a token, and for one second that it is unknown. A token that is deleted
//! on another node is valid for that long.
//!
//! A token that is not refreshed ends after `token_expiration` seconds, its refresh token after `refresh_token_ttl` seconds. A refresh
//! token is valid once, unless `reuse_refresh_token` is on. Of several that use one code or refresh token at once, one gets a token. A
//! token is for the service that it was issued for; with `global_credentials` for all services whose plugin says the same. When a
//! credential is deleted, its tokens are no longer valid; `/oauth2_tokens` lists them until they expire.
//!
//! `/oauth2_tokens` of the Admin API lists, creates, changes and deletes tokens. With `hash_secret`, a `client_secret` is stored as its hash
//! (Argon2id). Hashes are not hashed again, and those of Kong (PBKDF2, bcrypt, Argon2) are known. To hash the secret of a credential
//! that exists, send `client_secret` together with `hash_secret`. Secrets, codes and tokens are compared in constant time, or by a keyed hash.
//!
//! ## To the upstream
//!
//! `X-Consumer-ID`, `X-Consumer-Username`, `X-Consumer-Custom-ID` and `X-Credential-Identifier` (the `client_id`) identify the client,
//! `X-Authenticated-Scope` has the token's scopes, `X-Authenticated-UserId` the user. `hide_credentials` removes the token from the header,
//! the query, and a body that is a form or JSON.
//!
//! ## Responses
//!
//! They have the members `error` and `error_description`.
//!
//! | status | `error` | when |
//! |---|---|---|
//! | 401 | `invalid_request` | there is no token |
//! | 401 | `invalid_token` | the token is unknown, has expired, or is for another service |
//! | 400, 401 | those of RFC 6749 | the request to an endpoint is wrong; 401 where the client's credentials are in a header. `/oauth2/authorize` sends the error in the `redirect_uri` where the client is known |
//! | 405 | `invalid_method` | a request to an endpoint is no POST |
//! | 500 | | the database does not answer, or `anonymous` names a consumer that does not exist |
//!
//! Responses with status 401 have `WWW-Authenticate`, with the `realm` if one is set. With `anonymous`, requests without a valid token pass as that consumer
//! instead, with `X-Anonymous-Consumer: true`; and a request that another authentication plugin has authenticated needs no token.

mod admin;
mod authorize;
mod bearer;
mod clients;
mod credential;
mod issue;
mod parameters;
mod refusal;
mod secret;
#[cfg(test)]
mod tests;
mod tokens;

use crate::shared::authentication::Fallback;
use crate::shared::forged_headers;
use crate::shared::row_cache::RowCache;
use clients::Clients;
use credential::OAuth2Credential;
use parameters::Parameters;
use refusal::Refusal;
use std::sync::Arc;
use tokens::Token;
use weir_plugin::{
    AccessEffect, AdminRoute, BuildContext, CustomEntity, CustomEntitySchema, Exchange, FieldError, Flow,
    Handover, Hooks, Method, Phases, Plugin, ROWS_HANDOVER, Record, Resume, Rows, Uuid, WantsBody,
};

/// Reads the parameters of a request as endpoints do, for fuzzing.
#[cfg(any(test, fuzzing))]
pub(crate) fn read_parameters(exchange: &mut Exchange) {
    let parameters = Parameters::of(exchange);
    assert!(parameters.text("client_id").is_none() || parameters.has("client_id"));
    parameters::hide(exchange, "client_secret");
    assert!(!Parameters::of(exchange).has("client_secret") || has_files(exchange));
}

/// Whether the body is a form with files, of which nothing is hidden.
#[cfg(any(test, fuzzing))]
fn has_files(exchange: &Exchange) -> bool {
    let content_type = exchange.header(weir_plugin::Known::ContentType).unwrap_or_default();
    content_type.to_ascii_lowercase().starts_with(b"multipart/")
}

/// Whether a text is the hash of a secret, for fuzzing.
#[cfg(any(test, fuzzing))]
pub(crate) fn is_hash(text: &str) -> bool {
    secret::is_hash(text)
}

/// Which grants there are, and how long tokens last.
#[derive(Clone, Record)]
#[record(check = grants)]
pub(super) struct Config {
    /// The scopes that clients may ask for.
    pub scopes: Option<Vec<String>>,
    /// Refuses clients that ask for no scope.
    #[field(default = false)]
    pub mandatory_scope: bool,
    /// What your own login page proves itself with.
    #[field(auto, unique, secret, literal)]
    pub provision_key: String,
    /// For how many seconds an access token is valid; with 0 for ever, and then there are no refresh tokens.
    #[field(default = 7200)]
    pub token_expiration: f64,
    /// Enables the authorization code grant.
    #[field(default = false)]
    pub enable_authorization_code: bool,
    /// Enables the implicit grant.
    #[field(default = false)]
    pub enable_implicit_grant: bool,
    /// Enables the client credentials grant.
    #[field(default = false)]
    pub enable_client_credentials: bool,
    /// Enables the password grant.
    #[field(default = false)]
    pub enable_password_grant: bool,
    /// Removes the token from the request before it goes to the upstream.
    #[field(default = false)]
    pub hide_credentials: bool,
    /// Accepts HTTP at the endpoints where a trusted proxy says that the client uses HTTPS.
    #[field(default = false)]
    pub accept_http_if_already_terminated: bool,
    /// The id or username of the consumer that requests without a valid token pass as.
    pub anonymous: Option<String>,
    /// Issues tokens for all services whose plugin has this on, and accepts them.
    #[field(default = false)]
    pub global_credentials: bool,
    /// The header with the token, or with the client's credentials.
    #[field(nullable, default = "authorization")]
    pub auth_header_name: String,
    /// For how many seconds a refresh token is valid; with 0 for ever.
    #[field(default = 1_209_600, between = [0, 100_000_000])]
    pub refresh_token_ttl: f64,
    /// Keeps a refresh token when it is used.
    #[field(default = false)]
    pub reuse_refresh_token: bool,
    /// Who must use PKCE: public clients, no client, or all clients.
    #[field(nullable, default = "lax", one_of = ["none", "lax", "strict"])]
    pub pkce: String,
    /// The realm in `WWW-Authenticate`.
    pub realm: Option<String>,
}

fn grants(config: &Config) -> Vec<FieldError> {
    let is_any = config.enable_authorization_code
        || config.enable_implicit_grant
        || config.enable_client_credentials
        || config.enable_password_grant;
    let none = "at least one of these fields must be true: enable_authorization_code, enable_implicit_grant, \
        enable_client_credentials, enable_password_grant";
    let none = (!is_any).then(|| FieldError::new("", none));
    let lacks_scopes = config.mandatory_scope && config.scopes.is_none();
    let no_scopes = lacks_scopes.then(|| {
        FieldError::new("scopes", "required field missing: list the scopes, or leave out `mandatory_scope`")
    });
    none.into_iter().chain(no_scopes).collect()
}

impl Config {
    fn token_expiration(&self) -> u64 {
        self.token_expiration.max(0.0) as u64
    }

    fn refresh_token_ttl(&self) -> u64 {
        self.refresh_token_ttl as u64
    }
}

/// One configured instance.
pub(super) struct OAuth2(Arc<Instance>);

struct Instance {
    /// The plugin entity's.
    id: Uuid,
    config: Config,
    fallback: Fallback,
    clients: Arc<Clients>,
    rows: Arc<Rows>,
    cache: Arc<RowCache<Token>>,
}

/// The two paths that the plugin serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Endpoint {
    Token,
    Authorization,
}

impl Endpoint {
    fn of(path: &str) -> Option<Endpoint> {
        let path = path.strip_suffix('/').unwrap_or(path);
        if path.ends_with("/oauth2/token") {
            return Some(Endpoint::Token);
        }
        path.ends_with("/oauth2/authorize").then_some(Endpoint::Authorization)
    }

    fn name(self) -> &'static str {
        match self {
            Endpoint::Token => "token",
            Endpoint::Authorization => "authorization",
        }
    }
}

impl Plugin for OAuth2 {
    const NAME: &'static str = "oauth2";
    const PRIORITY: i32 = 1400;
    const FOR_CONSUMERS: bool = false;
    const ENTITIES: &'static [&'static CustomEntitySchema] = &[OAuth2Credential::ENTITY];
    const ADMIN_ROUTES: &'static [AdminRoute] = admin::ROUTES;
    const SECRET_PATHS: &'static [&'static str] = &["oauth2_tokens"];
    const HANDOVERS: &'static [Handover] = &[ROWS_HANDOVER];
    type Config = Config;

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        Ok(Self(Arc::new(Instance {
            id: build.entity.id,
            fallback: Fallback::of(config.anonymous.as_deref(), build),
            clients: build.once(Clients::new),
            rows: build.rows("tokens of oauth2"),
            cache: build.retained.get(),
            config,
        })))
    }
}

impl Hooks for OAuth2 {
    fn phases(&self) -> Phases {
        Phases::ACCESS
    }

    fn owns_request_header(&self, name: &[u8]) -> bool {
        let config = &self.0.config;
        let is_hidden = config.hide_credentials && forged_headers::are(&[&config.auth_header_name], name);
        is_hidden || forged_headers::are(&bearer::HEADERS, name)
    }

    fn access_effect(&self, exchange: &Exchange) -> AccessEffect {
        match Endpoint::of(exchange.path()) {
            Some(_) => AccessEffect::Answers,
            None => AccessEffect::Passes,
        }
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        let instance = &self.0;
        match Endpoint::of(exchange.path()) {
            Some(endpoint) => instance.serve(endpoint, exchange),
            None if instance.fallback.is_settled(exchange) => Flow::Continue,
            None => instance.authenticate(exchange),
        }
    }

    fn wants_body(&self) -> WantsBody {
        WantsBody::Form
    }
}

impl Instance {
    fn serve(self: &Arc<Self>, endpoint: Endpoint, exchange: &mut Exchange) -> Flow {
        if exchange.request.method != Method::Post {
            let method = exchange.request.method_str().to_owned();
            let description =
                format!("The HTTP method {method} is invalid for the {} endpoint", endpoint.name());
            let refusal = Refusal::new("invalid_method", description);
            return Flow::Respond(refusal.of_bearer(405, self.config.realm.as_deref()));
        }
        let parameters = Parameters::of(exchange);
        if let Err(refusal) = self.demand_https(exchange) {
            return Flow::Respond(refusal.with_state(parameters.text("state")));
        }
        let request = EndpointRequest {
            service: exchange.service().map(|service| service.id),
            authorization: self.authorization(exchange),
            parameters,
        };
        let instance = self.clone();
        Flow::Wait(Box::pin(async move {
            let response = match endpoint {
                Endpoint::Token => instance.issue(&request).await,
                Endpoint::Authorization => instance.authorize(&request).await,
            };
            let rest: Resume = Box::new(move |_| Flow::Respond(response));
            rest
        }))
    }

    /// The header with credentials.
    fn authorization(&self, exchange: &Exchange) -> Option<String> {
        let header = exchange.request.headers.get(&self.config.auth_header_name)?;
        Some(String::from_utf8_lossy(header).into_owned())
    }

    fn demand_https(&self, exchange: &Exchange) -> Result<(), Refusal> {
        let is_terminated = self.config.accept_http_if_already_terminated;
        let error = match exchange.was_encrypted(is_terminated) {
            Ok(true) => return Ok(()),
            Ok(false) => "You must use HTTPS",
            Err(error) => error,
        };
        Err(Refusal::new("access_denied", error))
    }

    /// The service that a token is for; none if it is for all.
    fn service_of(&self, request: &EndpointRequest) -> Option<Uuid> {
        request.service.filter(|_| !self.config.global_credentials)
    }

    /// The scopes that are asked for, if they are allowed.
    fn scope(&self, parameters: &Parameters) -> Result<Option<String>, Refusal> {
        let invalid = |description: String| Refusal::new("invalid_scope", description);
        let Some(allowed) = self.config.scopes.as_deref().filter(|_| parameters.has("scope")) else {
            return match self.config.mandatory_scope && !parameters.has("scope") {
                true => Err(invalid("You must specify a scope".to_owned())),
                false => Ok(None),
            };
        };
        let scope = parameters.text("scope").ok_or_else(|| invalid("scope must be a string".to_owned()))?;
        let scopes: Vec<&str> = scope.split_ascii_whitespace().collect();
        match scopes.iter().find(|scope| !allowed.iter().any(|allowed| allowed == *scope)) {
            Some(wrong) => Err(invalid(format!("\"{wrong}\" is an invalid scope"))),
            None => Ok((!scopes.is_empty()).then(|| scopes.join(" "))),
        }
    }

    /// The user, where the request has the provision key and so comes from the login page.
    fn provisioned_user<'p>(&self, parameters: &'p Parameters) -> Result<&'p str, Refusal> {
        self.demand_provision_key(parameters)?;
        let user = parameters.text("authenticated_userid").filter(|user| !user.trim().is_empty());
        user.ok_or_else(|| {
            Refusal::new("invalid_authenticated_userid", "Missing authenticated_userid parameter")
        })
    }

    fn demand_provision_key(&self, parameters: &Parameters) -> Result<(), Refusal> {
        let given = parameters.text("provision_key").unwrap_or_default();
        match secret::is_same(given, &self.config.provision_key) && !given.is_empty() {
            true => Ok(()),
            false => Err(Refusal::new("invalid_provision_key", "Invalid provision_key")),
        }
    }
}

/// A request to one of the endpoints.
struct EndpointRequest {
    /// The route's.
    service: Option<Uuid>,
    authorization: Option<String>,
    parameters: Parameters,
}
