//! The configuration, with the fields and defaults of APISIX's plugin.

use crate::jwt::key::{Verifier, names};
use crate::session::{attribute, cookie_name};
use std::collections::BTreeMap;
use std::time::Duration;
use weir_plugin::{
    FieldError, FieldWarning, HttpProxies, HttpProxy, Json, Record, Secret, is_reference, rule,
};

/// The provider, the client that the gateway is there, and what requests need.
#[derive(Debug, Clone, Record)]
#[record(check = violations)]
#[record(hint("issuer", "write `discovery`, the issuer's URL and /.well-known/openid-configuration"))]
#[record(hint("scopes", "write `scope`, with spaces between them"))]
#[record(hint("scopes_required", "write `required_scopes`"))]
#[record(hint("auth_methods", "write `bearer_only: true` for tokens alone"))]
pub(crate) struct Config {
    /// The client's id at the provider.
    #[field(len_min = 1, referenceable)]
    pub client_id: String,
    /// The client's secret. It may be left out with `use_pkce`, for a public client, and where no endpoint needs it.
    #[field(secret)]
    pub client_secret: Option<Secret>,
    /// The URL of the provider's discovery document.
    #[field(matches = url)]
    pub discovery: String,
    /// The scopes that a login asks for, with spaces between them.
    #[field(default = "openid")]
    pub scope: String,
    /// The scopes that a token must have.
    #[field(len_min = 1)]
    pub required_scopes: Option<Vec<String>>,
    /// The realm in `WWW-Authenticate`.
    #[field(default = "apisix", check = quotable)]
    pub realm: String,
    /// Accepts bearer tokens alone: no browser is sent to the provider.
    #[field(default = false)]
    pub bearer_only: bool,
    /// What happens to requests without a session or token: they are sent to the provider (`auth`), refused (`deny`), or
    /// pass (`pass`).
    #[field(default = "auth", one_of = ["auth", "deny", "pass"])]
    pub unauth_action: String,
    /// Where the provider sends the browser back to: a URL, or a path on the host of the request. If unset, the request's path
    /// and `/.apisix/redirect`.
    #[field(check = redirect_uri)]
    pub redirect_uri: Option<String>,
    /// The path that logs out.
    #[field(default = "/logout", starts_with = "/")]
    pub logout_path: String,
    /// Where browsers go after the logout.
    #[field(check = redirect_uri)]
    pub post_logout_redirect_uri: Option<String>,
    /// Has the provider revoke the tokens at the logout.
    #[field(default = false)]
    pub revoke_tokens_on_logout: bool,
    /// The timeout of each request to the provider, in seconds.
    #[field(default = 3, between = [1, 3600])]
    pub timeout: u32,
    /// Whether to verify the provider's certificate with `lua_ssl_trusted_certificate`.
    #[field(default = true)]
    pub ssl_verify: bool,
    /// Forward proxies to the provider.
    pub proxy_opts: Option<Proxies>,
    /// More parameters of the request to the authorization endpoint.
    pub authorization_params: Option<BTreeMap<String, String>>,
    /// Proves by PKCE that who redeems the code has asked for it (RFC 7636).
    #[field(default = true)]
    pub use_pkce: bool,
    /// How the client authenticates to the token endpoint.
    #[field(default = "client_secret_basic", one_of = ["client_secret_basic", "client_secret_post"])]
    pub token_endpoint_auth_method: String,
    /// The URL of the introspection endpoint; if unset, that of the discovery document.
    #[field(matches = url)]
    pub introspection_endpoint: Option<String>,
    /// How the client authenticates to the introspection endpoint.
    #[field(default = "client_secret_basic", one_of = ["client_secret_basic", "client_secret_post"])]
    pub introspection_endpoint_auth_method: String,
    /// For how many seconds what introspection says of a token is cached; with 0 for 30. Never beyond the token's expiry.
    #[field(default = 0, between = [0, 86400])]
    pub introspection_interval: u32,
    /// The claim of the introspection's response that says when the token expires.
    #[field(default = "exp")]
    pub introspection_expiry_claim: String,
    /// Headers of the request that the introspection endpoint gets too.
    #[field(len_min = 1, matches = header_name)]
    pub introspection_addon_headers: Option<Vec<String>>,
    /// The public key that verifies bearer tokens, as PEM.
    #[field(matches = public_key)]
    pub public_key: Option<String>,
    /// Verifies bearer tokens with the provider's keys.
    #[field(default = false)]
    pub use_jwks: bool,
    /// The algorithm that tokens must be signed with; if unset, any that fits the key, but no HS algorithm.
    #[field(one_of = [
        "HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384",
        "PS512", "EdDSA",
    ])]
    pub token_signing_alg_values_expected: Option<String>,
    /// By how many seconds the clocks of the provider and of the gateway may differ.
    #[field(default = 120, between = [0, 86400])]
    pub iat_slack: u32,
    /// What the claims of bearer tokens must say.
    pub claim_validator: Option<ClaimValidator>,
    /// The claim that names the consumer, by username or custom id; if unset, requests have no consumer. APISIX has no such field.
    pub consumer_claim: Option<String>,
    /// Renews the access token of a session by its refresh token.
    #[field(default = true)]
    pub renew_access_token_on_expiry: bool,
    /// For how many seconds an access token is valid of which the provider does not say it.
    #[field(between = [1, 31_536_000])]
    pub access_token_expires_in: Option<u32>,
    /// How many seconds before its expiry an access token is renewed.
    #[field(default = 0, between = [0, 86400])]
    pub access_token_expires_leeway: u32,
    /// The session of a login.
    pub session: Option<SessionConfig>,
    /// What a session keeps; all if unset.
    pub session_contents: Option<SessionContents>,
    /// Sends the access token to the upstream.
    #[field(default = true)]
    pub set_access_token_header: bool,
    /// Sends it in `Authorization` rather than in `X-Access-Token`.
    #[field(default = false)]
    pub access_token_in_authorization_header: bool,
    /// Sends the claims of the ID token in `X-ID-Token`.
    #[field(default = true)]
    pub set_id_token_header: bool,
    /// Sends the ID token itself in `X-Raw-ID-Token`.
    #[field(default = false)]
    pub set_raw_id_token_header: bool,
    /// Sends what is known of the user in `X-Userinfo`.
    #[field(default = true)]
    pub set_userinfo_header: bool,
    /// Sends the refresh token in `X-Refresh-Token`.
    #[field(default = false)]
    pub set_refresh_token_header: bool,
}

/// The forward proxies.
#[derive(Debug, Clone, Record)]
pub(crate) struct Proxies {
    /// The proxy to a provider without TLS, as in `http://proxy.test:3128`.
    #[field(check = proxy)]
    pub http_proxy: Option<String>,
    /// The proxy to a provider over TLS.
    #[field(check = proxy)]
    pub https_proxy: Option<String>,
}

/// What the claims of bearer tokens must say.
#[derive(Debug, Clone, Default, Record)]
pub(crate) struct ClaimValidator {
    /// The issuer.
    pub issuer: Option<IssuerRule>,
    /// Whom the token is for.
    pub audience: Option<AudienceRule>,
}

/// The issuers.
#[derive(Debug, Clone, Record)]
pub(crate) struct IssuerRule {
    /// The issuers that are trusted; if unset, that of the discovery document.
    #[field(len_min = 1)]
    pub valid_issuers: Option<Vec<String>>,
}

/// Whom a token is for.
#[derive(Debug, Clone, Record)]
pub(crate) struct AudienceRule {
    /// The claim that says it.
    #[field(default = "aud")]
    pub claim: String,
    /// Requires the claim.
    #[field(default = false)]
    pub required: bool,
    /// Requires that it is, or has, the client's id, where a token has the claim.
    #[field(default = false)]
    pub match_with_client_id: bool,
}

/// The cookie, and how long a session lasts.
#[derive(Debug, Clone, Record)]
pub(crate) struct SessionConfig {
    /// What encrypts the cookie: at least 16 characters. All nodes need the same.
    #[field(secret, len_min = 16)]
    pub secret: Secret,
    /// The cookie's name; if unset, one that differs for each client. `__Host-` comes before it where that fits.
    #[field(check = cookie_name)]
    pub cookie_name: Option<String>,
    /// The path below which browsers send the cookie.
    #[field(default = "/", check = attribute)]
    pub cookie_path: String,
    /// The domain to whose hosts browsers send the cookie; if unset, to the host of the request alone.
    #[field(check = attribute)]
    pub cookie_domain: Option<String>,
    /// Whether browsers send the cookie with requests from other sites; `Default` leaves it to them.
    #[field(default = "Lax", one_of = ["Strict", "Lax", "None", "Default"])]
    pub cookie_same_site: String,
    /// Hides the cookie from scripts.
    #[field(default = true)]
    pub cookie_http_only: bool,
    /// Has browsers send the cookie over HTTPS alone; if unset, if the request came over HTTPS.
    pub cookie_secure: Option<bool>,
    /// After how many seconds without a request a session ends; with 0 never.
    #[field(default = 900)]
    pub idling_timeout: u32,
    /// After how many seconds a session ends that was not renewed; with 0 never.
    #[field(default = 3600)]
    pub rolling_timeout: u32,
    /// After how many seconds a session ends in any case; with 0 never. If unset, `cookie.lifetime` or 86400.
    pub absolute_timeout: Option<u32>,
    /// The former form of `absolute_timeout`.
    pub cookie: Option<CookieConfig>,
    /// Where sessions are.
    #[field(default = "cookie", one_of = ["cookie"])]
    pub storage: String,
}

/// The former form of `absolute_timeout`.
#[derive(Debug, Clone, Record)]
pub(crate) struct CookieConfig {
    /// The same as `absolute_timeout`.
    pub lifetime: Option<u32>,
}

/// What a session keeps, so that it fits in few cookies.
#[derive(Debug, Clone, Record)]
pub(crate) struct SessionContents {
    /// The access token, and the refresh token.
    #[field(default = false)]
    pub access_token: bool,
    /// The claims of the ID token.
    #[field(default = false)]
    pub id_token: bool,
    /// The ID token itself.
    #[field(default = false)]
    pub enc_id_token: bool,
    /// What the userinfo endpoint says.
    #[field(default = false)]
    pub user: bool,
}

impl Config {
    /// Whether bearer tokens are looked at.
    pub(super) fn checks_bearer_tokens(&self) -> bool {
        self.bearer_only || self.introspection_endpoint.is_some() || self.has_keys()
    }

    /// Whether bearer tokens are verified here rather than by the introspection endpoint.
    pub(super) fn has_keys(&self) -> bool {
        self.public_key.is_some() || self.use_jwks
    }

    pub(super) fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout.into())
    }

    pub(super) fn proxies(&self) -> Result<HttpProxies, String> {
        let of = |url: &Option<String>| url.as_ref().map(|url| url.parse::<HttpProxy>()).transpose();
        match &self.proxy_opts {
            Some(Proxies { http_proxy, https_proxy }) => {
                Ok(HttpProxies { http: of(http_proxy)?, https: of(https_proxy)? })
            }
            None => Ok(HttpProxies::default()),
        }
    }

    /// What a session keeps.
    pub(super) fn contents(&self) -> SessionContents {
        let all = SessionContents { access_token: true, id_token: true, enc_id_token: true, user: true };
        self.session_contents.clone().unwrap_or(all)
    }

    /// The issuers of bearer tokens, if not that of the discovery document.
    pub(super) fn valid_issuers(&self) -> Option<&[String]> {
        self.claim_validator.as_ref()?.issuer.as_ref()?.valid_issuers.as_deref()
    }

    pub(super) fn audience(&self) -> Option<&AudienceRule> {
        self.claim_validator.as_ref()?.audience.as_ref()
    }

    /// Whether tokens are signed with the client's secret.
    pub(super) fn verifies_by_secret(&self) -> bool {
        self.token_signing_alg_values_expected.as_deref().is_some_and(|name| name.starts_with("HS"))
    }

    /// A verifier of the client's secret, if tokens are to be signed with it.
    pub(super) fn secret_verifier(&self) -> Option<Verifier> {
        let algorithm = self.token_signing_alg_values_expected.as_deref()?;
        Verifier::of_secret(algorithm, self.client_secret.as_ref()?.expose().as_bytes())
    }

    /// A verifier of `public_key` for each algorithm that it fits.
    pub(super) fn key_verifiers(&self) -> Vec<(&'static str, Verifier)> {
        let Some(key) = &self.public_key else { return Vec::new() };
        let of = |name| Some((name, Verifier::of_public_key(name, key.as_bytes())?));
        names().filter_map(of).collect()
    }
}

impl SessionConfig {
    pub(super) fn absolute_timeout(&self) -> u32 {
        let former = self.cookie.as_ref().and_then(|cookie| cookie.lifetime);
        self.absolute_timeout.or(former).unwrap_or(86_400)
    }
}

fn violations(config: &Config) -> Vec<FieldError> {
    let mut found = Vec::new();
    let mut refuse = |field: &'static str, message: &str| found.push(FieldError::new(field, message));
    if !config.bearer_only && config.session.is_none() {
        refuse(
            "session",
            "required unless `bearer_only` is set; write `session: {secret: …}` with at least 16 characters",
        );
    }
    let is_public = if config.bearer_only { config.has_keys() } else { config.use_pkce };
    if config.client_secret.is_none() && !is_public {
        refuse(
            "client_secret",
            "required, because introspection needs it; with `bearer_only` and keys, or for logins with `use_pkce`, it may be left out",
        );
    }
    let expected = config.token_signing_alg_values_expected.as_deref();
    if config.verifies_by_secret() && config.client_secret.is_none() {
        refuse("client_secret", "required with an HS algorithm, which verifies tokens with it");
    }
    match (expected, &config.public_key) {
        (Some(name), Some(key)) => {
            rule::public_key_fits(key, name).unwrap_or_else(|message| refuse("public_key", &message));
        }
        (None, Some(key)) if !is_reference(key) && config.key_verifiers().is_empty() => refuse(
            "public_key",
            "no algorithm can use this key; write an RSA key of at least 2048 bits, an EC key of the curve P-256, P-384 or P-521, \
             or an Ed25519 key, whole and unchanged",
        ),
        _ => {}
    }
    found
}

/// What is probably a mistake.
pub(super) fn warnings(config: &Json) -> Vec<FieldWarning> {
    let session = &config["session"];
    let warn = |is: bool, message| is.then(|| FieldWarning::new("session.cookie_same_site", message));
    let same_site = &session["cookie_same_site"];
    let strict = warn(
        same_site == "Strict",
        "browsers do not send the cookie when they come back from the provider's site; write `Lax`",
    );
    let dropped = warn(
        same_site == "None" && session["cookie_secure"] == false,
        "browsers drop a cookie with `None` that is not secure; set `cookie_secure: true`",
    );
    strict.into_iter().chain(dropped).collect()
}

fn redirect_uri(uri: &str) -> Result<(), String> {
    let is_path =
        uri.starts_with('/') && !uri.starts_with("//") && uri.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_path && !uri.contains("://") {
        return Err("expected a path that begins with `/`, or a URL".to_owned());
    }
    if is_path { Ok(()) } else { rule::url(uri) }
}

fn proxy(url: &str) -> Result<(), String> {
    url.parse::<HttpProxy>().map(|_| ())
}

/// Whether a text may stand between quotation marks in a header.
fn quotable(text: &str) -> Result<(), String> {
    match text.bytes().any(|byte| byte.is_ascii_control() || matches!(byte, b'"' | b'\\')) {
        true => {
            Err("quotation marks, backslashes and control characters cannot be in a realm; leave them out"
                .to_owned())
        }
        false => Ok(()),
    }
}
