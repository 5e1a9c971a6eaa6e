//! The session of a login, in an encrypted cookie. Another cookie says when it was used.

use super::client::TokenResponse;
use super::config::{Config, SessionConfig};
use crate::session::content::{Session as Times, Timeouts};
use crate::session::cookie::{HOST_PREFIX, Jar, set};
use crate::session::seal::{Sealer, random_id};
use crate::session::usage::{Usage, UseCookies, use_cookie};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::fmt;
use weir_plugin::{Exchange, Known, unix_time};

/// What is known of a user who has logged in.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(super) struct Session {
    /// Random, and new at each renewal.
    #[serde(rename = "i", default)]
    id: String,
    /// Whether its cookie has [`HOST_PREFIX`]. It counts under no other name, which other hosts could set.
    #[serde(rename = "h", default)]
    has_prefix: bool,
    /// When it began, was renewed, and was used, in seconds since 1970.
    #[serde(rename = "c")]
    created: u64,
    #[serde(rename = "r")]
    saved: u64,
    #[serde(rename = "u")]
    used: u64,
    /// The user's id at the provider.
    #[serde(rename = "s")]
    pub(super) subject: String,
    /// The scopes, with spaces between them.
    #[serde(rename = "sc")]
    pub(super) scope: String,
    #[serde(rename = "at")]
    pub(super) access_token: Option<String>,
    /// When the access token expires.
    #[serde(rename = "ex")]
    pub(super) expires: Option<u64>,
    #[serde(rename = "rt")]
    pub(super) refresh_token: Option<String>,
    #[serde(rename = "it")]
    pub(super) id_token: Option<String>,
    /// What the userinfo endpoint has said.
    #[serde(rename = "us")]
    pub(super) user: Option<Map<String, Json>>,
    /// The claim that names the consumer, if one is configured.
    #[serde(rename = "cn", default)]
    pub(super) consumer: Option<String>,
}

/// A longer session may not fit into what `large_client_header_buffers` allows for a line, with other cookies beside it.
const LONG: usize = 7 * 1024;

/// Why a session cannot be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SessionError {
    /// The system has no random numbers.
    Crypto,
    /// Its cookies would be too many.
    TooLong,
    /// The request has those of two users.
    TwoUsers,
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Crypto => "the system has no random numbers",
            Self::TwoUsers => "the request has sessions of two users",
            Self::TooLong => {
                "the tokens of a session do not fit into nine cookies: say in session_contents which of them it keeps"
            }
        })
    }
}

impl std::error::Error for SessionError {}

impl Session {
    pub(super) fn new(subject: String) -> Self {
        let now = unix_time();
        Self { created: now, saved: now, used: now, subject, ..Self::default() }
    }

    /// Takes over what the token endpoint has answered.
    pub(super) fn update(&mut self, tokens: TokenResponse, config: &Config) {
        let contents = config.contents();
        let lifetime = tokens.lifetime().or(config.access_token_expires_in.map(u64::from));
        self.saved = unix_time();
        self.used = self.saved;
        let lifetime = lifetime.filter(|_| contents.access_token);
        self.expires = lifetime.map(|lifetime| self.saved.saturating_add(lifetime));
        self.access_token = contents.access_token.then_some(tokens.access_token);
        let refresh_token = tokens.refresh_token.filter(|_| contents.access_token);
        self.refresh_token = refresh_token.or(self.refresh_token.take());
        let keeps_id_token = contents.id_token || contents.enc_id_token;
        self.id_token = tokens.id_token.filter(|_| keeps_id_token).or(self.id_token.take());
        self.scope = tokens.scope.unwrap_or_else(|| std::mem::take(&mut self.scope));
    }

    /// The session with what its cookie of uses says.
    fn used_at(self, usage: Usage) -> Self {
        Self { saved: self.saved.max(usage.saved), used: self.used.max(usage.used), ..self }
    }

    fn times(&self) -> Times {
        Times { created: self.created, saved: self.saved, used: self.used, ..Times::default() }
    }
}

/// A random text.
pub(super) fn random() -> Result<String, SessionError> {
    random_id().map(|id| URL_SAFE_NO_PAD.encode(id)).map_err(|_| SessionError::Crypto)
}

/// Keeps sessions in the cookies of one name.
pub(super) struct Keeper {
    pub(super) name: String,
    attributes: String,
    same_site: String,
    is_secure: Option<bool>,
    /// Whether browsers accept the cookie with [`HOST_PREFIX`], if it is secure.
    fits_prefix: bool,
    is_for_one_host: bool,
    timeouts: Timeouts,
    sealer: Sealer,
    use_cookies: UseCookies,
}

impl Keeper {
    pub(super) fn new(config: &Config, session: &SessionConfig) -> Self {
        let name = session.cookie_name.clone().unwrap_or_else(|| default_name(config));
        let mut attributes = String::new();
        let domain = session.cookie_domain.as_deref().filter(|domain| !domain.is_empty());
        if let Some(domain) = domain {
            attributes.extend(["; Domain=", domain]);
        }
        attributes.extend(["; Path=", &*session.cookie_path]);
        if session.cookie_http_only {
            attributes.push_str("; HttpOnly");
        }
        let is_for_one_host = domain.is_none() && session.cookie_path == "/";
        Self {
            sealer: Sealer::new(&session.secret, &purpose("session", config)),
            use_cookies: UseCookies::new(&session.secret, &purpose("use", config)),
            fits_prefix: is_for_one_host && !name.starts_with("__"),
            is_for_one_host,
            name,
            attributes,
            same_site: session.cookie_same_site.clone(),
            is_secure: session.cookie_secure,
            timeouts: Timeouts {
                idling: session.idling_timeout.into(),
                rolling: session.rolling_timeout.into(),
                absolute: session.absolute_timeout().into(),
            },
        }
    }

    /// Whether the cookies that this request gets have a prefix with which browsers accept none from other hosts, such as those of
    /// customers below the same domain.
    pub(super) fn has_prefix(&self, exchange: &Exchange) -> bool {
        self.fits_prefix && self.is_secure(exchange)
    }

    /// The name of the cookies, with the prefix or without.
    pub(super) fn name(&self, has_prefix: bool) -> Cow<'_, str> {
        if has_prefix { format!("{HOST_PREFIX}{}", self.name).into() } else { (&*self.name).into() }
    }

    /// The cookies of a request that are the plugin's.
    pub(super) fn jar<'e>(&self, exchange: &'e Exchange) -> Jar<'e> {
        Jar::of(exchange.request.headers.get_all_known(Known::Cookie), &self.name)
    }

    /// The session of a request, if it has not ended. Over HTTPS one without the prefix counts if there is no other: it began
    /// over HTTP, or before there was a prefix.
    pub(super) fn open(&self, exchange: &Exchange) -> Result<Option<Session>, SessionError> {
        let jar = self.jar(exchange);
        if !self.has_prefix(exchange) {
            return self.newest(&jar, false);
        }
        let session = self.newest(&jar, true)?;
        // Other hosts may have set the cookies without the prefix, and must not keep the user from a login.
        Ok(session.or_else(|| self.newest(&jar, false).ok().flatten()))
    }

    /// The newest session under a name. Other hosts may have set cookies of the name too, so all are tried.
    fn newest(&self, jar: &Jar<'_>, has_prefix: bool) -> Result<Option<Session>, SessionError> {
        let (now, name) = (unix_time(), self.name(has_prefix));
        let mut newest: Option<Session> = None;
        let opened = jar.texts(&name).filter_map(|text| self.opened(&text, jar, has_prefix));
        for session in opened.filter(|session| self.timeouts.left(&session.times(), now).is_some()) {
            match &newest {
                Some(known) if known.subject != session.subject => return Err(SessionError::TwoUsers),
                Some(known) if known.saved >= session.saved => {}
                _ => newest = Some(session),
            }
        }
        Ok(newest)
    }

    fn opened(&self, text: &[u8], jar: &Jar<'_>, has_prefix: bool) -> Option<Session> {
        let session: Session = serde_json::from_slice(&self.sealer.open(text, b"")?).ok()?;
        let session = (session.has_prefix == has_prefix).then_some(session)?;
        Some(match self.use_cookies.read(jar, &self.name(has_prefix), session.id.as_bytes()) {
            Some(usage) => session.used_at(usage),
            None => session,
        })
    }

    /// The cookie that says that a session is used now, if it is time that one does.
    pub(super) fn touch(&self, session: &Session, exchange: &Exchange) -> Result<Vec<String>, SessionError> {
        let (now, times) = (unix_time(), session.times());
        let is_rolling_due = self.timeouts.is_rolling_due(&times, now);
        let is_due = is_rolling_due || self.timeouts.is_touch_due(&times, now);
        if !is_due || self.timeouts.left(&times, now).is_none() {
            return Ok(Vec::new());
        }
        let usage = Usage { saved: if is_rolling_due { now } else { session.saved }, used: now };
        let attributes = self.attributes(exchange);
        let name = self.name(session.has_prefix);
        let set = self.use_cookies.write(&name, session.id.as_bytes(), usage, &attributes);
        set.map_err(|_| SessionError::Crypto)
    }

    /// The cookies of a session that has begun or was renewed, under a new id, and what has the browser forget older ones.
    pub(super) fn save(
        &self,
        session: &mut Session,
        exchange: &Exchange,
    ) -> Result<Vec<String>, SessionError> {
        session.id = random()?;
        session.has_prefix = self.has_prefix(exchange);
        // It consists of texts and numbers, which are always JSON.
        let bytes = serde_json::to_vec(session).unwrap_or_default();
        let text = self.sealer.seal(&bytes, b"").map_err(|_| SessionError::Crypto)?;
        if text.len() > LONG {
            tracing::warn!(
                "openid-connect: a session takes {} bytes of cookies, so that large_client_header_buffers must allow lines \
                 of that length; session_contents makes it shorter",
                text.len()
            );
        }
        let (name, attributes) = (self.name(session.has_prefix), self.attributes(exchange));
        let mut cookies = set(&name, &text, &attributes).ok_or(SessionError::TooLong)?;
        cookies.extend(self.forget(exchange, cookies.len()));
        Ok(cookies)
    }

    /// What has the browser forget the cookies of a session behind the first ones, and those without the prefix where there is one:
    /// with both, a line may be longer than the gateway accepts.
    pub(super) fn forget(&self, exchange: &Exchange, after: usize) -> Vec<String> {
        let (name, attributes) = (self.name(self.has_prefix(exchange)), self.attributes(exchange));
        let forgotten = expired(&self.jar(exchange), &name, &attributes, after);
        forgotten.into_iter().chain(self.forget_without_prefix(exchange)).collect()
    }

    /// What has the browser forget the session's cookies without the prefix, where there is one.
    pub(super) fn forget_without_prefix(&self, exchange: &Exchange) -> Vec<String> {
        match self.has_prefix(exchange) {
            true => expired(&self.jar(exchange), &self.name, &self.attributes(exchange), 0),
            false => Vec::new(),
        }
    }

    /// What has the browser forget all sessions, also one from before the configuration had a domain or another path.
    pub(super) fn forget_all(&self, exchange: &Exchange) -> Vec<String> {
        let mut forgotten = self.forget(exchange, 0);
        if !self.is_for_one_host {
            let attributes = format!("; Path=/{}", self.secure(exchange));
            forgotten.extend(expired(&self.jar(exchange), &self.name, &attributes, 0));
        }
        forgotten
    }

    pub(super) fn attributes(&self, exchange: &Exchange) -> String {
        let same_site = match &*self.same_site {
            "Default" => String::new(),
            same_site => format!("; SameSite={same_site}"),
        };
        format!("{}{same_site}{}", self.attributes, self.secure(exchange))
    }

    /// The attributes of a cookie that has to come back from the provider's site.
    pub(super) fn login_attributes(&self, exchange: &Exchange, seconds: u64) -> String {
        let same_site = if self.same_site == "None" { "None" } else { "Lax" };
        format!("{}; SameSite={same_site}{}; Max-Age={seconds}", self.attributes, self.secure(exchange))
    }

    fn is_secure(&self, exchange: &Exchange) -> bool {
        self.is_secure.unwrap_or_else(|| exchange.forwarded_scheme() == "https")
    }

    fn secure(&self, exchange: &Exchange) -> &'static str {
        if self.is_secure(exchange) { "; Secure" } else { "" }
    }
}

/// What has the browser forget the cookies of a session behind the first ones, and when it was used.
fn expired(jar: &Jar<'_>, name: &str, attributes: &str, after: usize) -> Vec<String> {
    [jar.expire(name, attributes, after), jar.expire(&use_cookie(name), attributes, 0)].concat()
}

/// A name for the cookies of one client, so that those of several on one host do not replace each other.
fn default_name(config: &Config) -> String {
    let hash = Sha256::digest(purpose("name", config));
    let digits: String = hash[..4].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("oidc_{digits}")
}

/// What a cookie is for: those of another client are not accepted, nor those that name the consumer by another claim.
pub(super) fn purpose(of: &str, config: &Config) -> String {
    format!("openid-connect {of} {:?} {:?} {:?}", config.client_id, config.discovery, config.consumer_claim)
}

/// Removes the plugin's cookies from the request to the upstream, which could do nothing with them.
pub(super) fn hide(exchange: &mut Exchange, name: &str) {
    let headers = &mut exchange.request.headers;
    let has_name = |pair: &[u8]| pair.strip_prefix(name.as_bytes()).is_some_and(is_own_suffix);
    let is_own = |pair: &[u8]| {
        let pair = pair.trim_ascii();
        has_name(pair) || pair.strip_prefix(HOST_PREFIX.as_bytes()).is_some_and(has_name)
    };
    let lines: Vec<&[u8]> = headers.get_all_known(Known::Cookie).collect();
    let pairs = || lines.iter().flat_map(|line| line.split(|byte| *byte == b';'));
    if !pairs().any(is_own) {
        return;
    }
    let left: Vec<&[u8]> = pairs().filter(|pair| !is_own(pair)).map(<[u8]>::trim_ascii).collect();
    let left = left.join(&b"; "[..]);
    headers.remove_known(Known::Cookie);
    if !left.is_empty() {
        headers.append("Cookie", &left);
    }
}

/// Whether this follows the name in one of the plugin's cookies: nothing or a number, or what those of uses and logins have.
fn is_own_suffix(rest: &[u8]) -> bool {
    match rest {
        [b'=', ..] | [b'2'..=b'9', b'=', ..] => true,
        rest if rest.starts_with(b"_used=") => true,
        rest => rest.strip_prefix(b"_login_").is_some_and(|rest| matches!(rest, [b'a'..=b'd', b'=', ..])),
    }
}

#[cfg(test)]
mod tests;
