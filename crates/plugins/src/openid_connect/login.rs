//! Sends browsers to the provider, and remembers by an encrypted cookie which of them it has sent: a code counts for the
//! browser alone that has asked for it.

use super::client::{endpoint, form};
use super::config::Config;
use super::error::ProviderError;
use super::metadata::Metadata;
use super::session::{Keeper, SessionError, purpose, random};
use crate::session::cookie::set;
use crate::session::seal::Sealer;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use weir_plugin::{Exchange, Known, LocalResponse, Secret, unix_time};

/// How long a login may take, in seconds.
const MAX_LOGIN: u64 = 600;

/// Which logins a browser may have begun, in tabs; one more replaces another.
const SLOTS: [&str; 4] = ["a", "b", "c", "d"];

/// The longest target that a browser comes back to, so that the logins of all slots fit into a line of cookies.
const MAX_TARGET_LEN: usize = 512;

/// The end of the path that the provider sends the browser back to, where none is configured.
const CALLBACK: &str = "/.apisix/redirect";

/// A login that has begun.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Login {
    /// Random; the provider sends it back.
    pub(super) state: String,
    /// Random; the ID token has it.
    pub(super) nonce: String,
    /// The secret of PKCE.
    pub(super) verifier: Option<String>,
    /// Path and query that the browser comes back to.
    pub(super) target: String,
    pub(super) redirect_uri: String,
    begun: u64,
    /// Which cookie holds it.
    slot: usize,
    /// Whether the cookie's name has the prefix; it counts under no other name.
    #[serde(default)]
    has_prefix: bool,
}

/// Keeps logins that have begun, in cookies beside those of the session.
pub(super) struct Logins(Sealer);

/// The cookie of a login, beside that of the session of this name.
fn cookie(name: &str, slot: usize) -> String {
    format!("{name}_login_{}", SLOTS.get(slot).unwrap_or(&"a"))
}

impl Logins {
    pub(super) fn new(config: &Config, secret: &Secret) -> Self {
        Self(Sealer::new(secret, &purpose("login", config)))
    }

    /// The logins of a request. Other hosts may have set cookies of a slot too. Over HTTPS those without the prefix count as well,
    /// because a login begins over HTTP where the page is there, and ends over HTTPS where `redirect_uri` is.
    fn all(&self, exchange: &Exchange, keeper: &Keeper) -> Vec<Login> {
        let jar = keeper.jar(exchange);
        let of_slot = |has_prefix: bool, slot| {
            let texts = jar.texts(&cookie(&keeper.name(has_prefix), slot));
            let logins = texts.filter_map(|text| serde_json::from_slice(&self.0.open(&text, b"")?).ok());
            logins.filter(move |login: &Login| login.has_prefix == has_prefix)
        };
        let slots = |has_prefix| (0..SLOTS.len()).flat_map(move |slot| of_slot(has_prefix, slot));
        let with_prefix = keeper.has_prefix(exchange).then(|| slots(true));
        with_prefix.into_iter().flatten().chain(slots(false)).collect()
    }

    /// The login that has this state, if the browser has begun it, and lately.
    pub(super) fn find(&self, exchange: &Exchange, keeper: &Keeper, state: &str) -> Option<Login> {
        let now = unix_time();
        let is_it = |login: &Login| {
            bool::from(login.state.as_bytes().ct_eq(state.as_bytes()))
                && now.saturating_sub(login.begun) <= MAX_LOGIN
        };
        self.all(exchange, keeper).into_iter().find(is_it)
    }

    /// What has the browser forget a login.
    pub(super) fn forget(exchange: &Exchange, keeper: &Keeper, login: &Login) -> String {
        let name = cookie(&keeper.name(login.has_prefix), login.slot);
        format!("{name}={}", keeper.login_attributes(exchange, 0))
    }

    /// A slot without a login, or the oldest.
    fn slot(&self, exchange: &Exchange, keeper: &Keeper) -> usize {
        let logins = self.all(exchange, keeper);
        let begun = |slot: &usize| {
            let of_slot = logins.iter().filter(|login| login.slot == *slot);
            of_slot.map(|login| login.begun).max().unwrap_or(0)
        };
        (0..SLOTS.len()).min_by_key(begun).unwrap_or(0)
    }

    /// Sends the browser to the provider.
    pub(super) fn begin(
        &self,
        exchange: &Exchange,
        config: &Config,
        keeper: &Keeper,
        metadata: &Metadata,
    ) -> Result<LocalResponse, BeginError> {
        let endpoint = endpoint(metadata.authorization_endpoint.as_ref(), "authorization_endpoint")?;
        let login = Login {
            state: random()?,
            nonce: random()?,
            verifier: if config.use_pkce { Some(random()?) } else { None },
            target: target(exchange),
            redirect_uri: redirect_uri(config, exchange),
            begun: unix_time(),
            slot: self.slot(exchange, keeper),
            has_prefix: keeper.has_prefix(exchange),
        };
        let cookies = self.cookies(&login, exchange, keeper)?;
        Ok(set_cookies(redirect(&with_query(endpoint, &parameters(config, &login))), &cookies))
    }

    /// The cookies of a login that begins. Without the prefix the browser forgets the login that this one replaces, and the session,
    /// which has ended: the callback needs the room.
    fn cookies(
        &self,
        login: &Login,
        exchange: &Exchange,
        keeper: &Keeper,
    ) -> Result<Vec<String>, SessionError> {
        // It consists of texts and numbers, which are always JSON.
        let bytes = serde_json::to_vec(login).unwrap_or_default();
        let text = self.0.seal(&bytes, b"").map_err(|_| SessionError::Crypto)?;
        let attributes = keeper.login_attributes(exchange, MAX_LOGIN);
        let name = cookie(&keeper.name(login.has_prefix), login.slot);
        let mut cookies = set(&name, &text, &attributes).ok_or(SessionError::TooLong)?;
        if login.has_prefix {
            let replaced = cookie(&keeper.name(false), login.slot);
            cookies.extend(keeper.jar(exchange).expire(&replaced, &keeper.attributes(exchange), 0));
            cookies.extend(keeper.forget_without_prefix(exchange));
        }
        Ok(cookies)
    }
}

/// Why no login begins.
pub(super) enum BeginError {
    Provider(ProviderError),
    Session(SessionError),
}

impl From<ProviderError> for BeginError {
    fn from(error: ProviderError) -> Self {
        Self::Provider(error)
    }
}

impl From<SessionError> for BeginError {
    fn from(error: SessionError) -> Self {
        Self::Session(error)
    }
}

/// The parameters of the request to the authorization endpoint; those of the configuration replace none of the plugin's.
fn parameters(config: &Config, login: &Login) -> String {
    let challenge = login.verifier.as_ref().map(|verifier| URL_SAFE_NO_PAD.encode(Sha256::digest(verifier)));
    let mut all: Vec<(&str, &str)> = vec![
        ("response_type", "code"),
        ("client_id", &config.client_id),
        ("redirect_uri", &login.redirect_uri),
        ("scope", &config.scope),
        ("state", &login.state),
        ("nonce", &login.nonce),
    ];
    if let Some(challenge) = &challenge {
        all.extend([("code_challenge", &**challenge), ("code_challenge_method", "S256")]);
    }
    let own: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
    let more = config.authorization_params.iter().flatten().map(|(name, value)| (&**name, &**value));
    all.extend(more.filter(|(name, _)| !own.contains(name)));
    form(all)
}

/// A URL with more in its query.
pub(super) fn with_query(url: &str, query: &str) -> String {
    let separator = if url.contains('?') { '&' } else { '?' };
    format!("{url}{separator}{query}")
}

/// Sends the browser elsewhere, and lets no cache keep that.
pub(super) fn redirect(location: &str) -> LocalResponse {
    LocalResponse::raw(302, None, "").header("Location", location).header("Cache-Control", "no-store")
}

/// A response with cookies.
pub(super) fn set_cookies(answer: LocalResponse, cookies: &[String]) -> LocalResponse {
    cookies.iter().fold(answer, |answer, cookie| answer.header("Set-Cookie", cookie))
}

/// Where the browser comes back to: path and query on this host alone, whatever the request's target looks like.
fn target(exchange: &Exchange) -> String {
    let query = exchange.request.query().map(|query| format!("?{query}")).unwrap_or_default();
    let path = exchange.request.path().trim_start_matches(['/', '\\']);
    let is_sendable = path.bytes().chain(query.bytes()).all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    let is_short = path.len() + query.len() < MAX_TARGET_LEN;
    if is_sendable && is_short { format!("/{path}{query}") } else { "/".to_owned() }
}

/// A URL on the host of the request.
pub(super) fn here(exchange: &Exchange, path: &str) -> String {
    let (scheme, port) = (exchange.forwarded_scheme(), authority_port(exchange));
    format!("{scheme}://{}{port}{path}", exchange.forwarded_host())
}

/// The port that the client has written in the host, if it has.
fn authority_port(exchange: &Exchange) -> String {
    let forwarded = exchange.header(Known::XForwardedHost).filter(|_| exchange.is_from_trusted_proxy());
    let forwarded = forwarded.and_then(|host| std::str::from_utf8(host).ok());
    let authority = forwarded.or(exchange.request.host()).unwrap_or_default();
    let port = authority.rsplit_once(':').map(|(_, port)| port);
    let is_port = |port: &&str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    port.filter(is_port).map(|port| format!(":{port}")).unwrap_or_default()
}

fn redirect_uri(config: &Config, exchange: &Exchange) -> String {
    match &config.redirect_uri {
        Some(uri) if uri.starts_with('/') => here(exchange, uri),
        Some(uri) => uri.clone(),
        None => {
            let path = Some(exchange.request.path()).filter(|path| path.len() < MAX_TARGET_LEN);
            here(exchange, &format!("{}{CALLBACK}", path.unwrap_or_default().trim_end_matches('/')))
        }
    }
}

/// Whether a request is the browser's that comes back from the provider.
pub(super) fn is_callback(config: &Config, exchange: &Exchange) -> bool {
    match &config.redirect_uri {
        Some(uri) => path_of(uri) == exchange.path(),
        None => exchange.path().ends_with(CALLBACK),
    }
}

/// The path of a URL, or a path as it is; without a query.
fn path_of(uri: &str) -> &str {
    let rest = uri
        .split_once("://")
        .map_or(uri, |(_, rest)| rest.find(['/', '?', '#']).map_or("", |at| &rest[at..]));
    let path = rest.split(['?', '#']).next().unwrap_or_default();
    if path.is_empty() { "/" } else { path }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_plugin::testing::Gateway;

    #[test]
    fn a_browser_comes_back_to_this_host_alone() {
        let gateway = Gateway::new(&[]);
        for (request, expected) in [
            ("GET /a?b=c", "/a?b=c"),
            ("GET //evil.test/a", "/evil.test/a"),
            ("GET ///evil.test", "/evil.test"),
            ("GET /", "/"),
        ] {
            assert_eq!(target(&gateway.exchange(request)), expected, "{request}");
        }
        let long = format!("GET /{}", "a".repeat(MAX_TARGET_LEN));
        assert_eq!(target(&gateway.exchange(&long)), "/");
    }

    #[test]
    fn the_path_of_a_url_is_known() {
        for (uri, path) in [
            ("/a/b", "/a/b"),
            ("https://a.test/b?c=d", "/b"),
            ("https://a.test", "/"),
            ("https://a.test?b", "/"),
            ("http://a.test:1/b/c#d", "/b/c"),
        ] {
            assert_eq!(path_of(uri), path);
        }
    }

    #[test]
    fn a_query_is_added_to_one_that_is_there() {
        assert_eq!(with_query("https://a.test/b", "c=d"), "https://a.test/b?c=d");
        assert_eq!(with_query("https://a.test/b?e", "c=d"), "https://a.test/b?e&c=d");
    }
}
