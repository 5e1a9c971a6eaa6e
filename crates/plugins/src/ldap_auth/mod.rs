//! Authenticates requests by the user name and password of a user in an LDAP directory.
//!
//! ```yaml
//! plugins:
//!   - name: ldap-auth
//!     service: orders
//!     config:
//!       ldap_host: ldap.example.com
//!       start_tls: true
//!       verify_ldap_host: true
//!       base_dn: ou=people,dc=example,dc=com
//!       attribute: uid
//! ```
//!
//! `curl -H "Authorization: ldap $(printf 'alice:correct horse' | base64)" http://localhost:8000/orders`
//!
//! The plugin reads `Proxy-Authorization` first, then `Authorization`, with `header_type` in any case; with `header_type: basic`,
//! `curl -u` and browsers can log in. It logs in to the directory as `attribute=USER,base_dn` (a simple bind). A request
//! whose login succeeds passes. Characters of the user name that have a meaning in such a name are escaped (RFC 4514), which Kong
//! does not do, so that no user name leads elsewhere. An empty password is never tried, because directories
//! accept it as an anonymous login.
//!
//! Set `start_tls`, or `ldaps` with port 636, because passwords are sent as they are otherwise. Both verify the directory's
//! certificate only with `verify_ldap_host`, against `lua_ssl_trusted_certificate`.
//!
//! Results are cached for `cache_ttl` seconds, also that a login failed; the cache of an instance holds a keyed hash of at most 32,768
//! logins. A user whose password changes can log in with both for that long. With 0 nothing is cached. A failure of the directory is
//! not cached. Connections are kept for `keepalive` and used for other logins.
//!
//! ## To the upstream
//!
//! `X-Credential-Identifier` is the user name. There is no consumer, so the headers of one are removed. `hide_credentials` removes the
//! headers that carry credentials.
//!
//! ## Responses
//!
//! | status | message | when |
//! |---|---|---|
//! | 401 | `Unauthorized` | there are no credentials, or the directory refuses them |
//! | 500 | `An unexpected error occurred` | the directory cannot be reached, takes longer than `timeout`, refuses TLS, or answers with something else than LDAP; the log says which |
//! | 500 | `anonymous consumer … is configured but doesn't exist` | `anonymous` names a consumer that does not exist |
//!
//! Responses with status 401 have `WWW-Authenticate: LDAP`, or another `header_type` as it is written, with the `realm` if one is set.
//! With `anonymous`, such requests pass as that consumer instead, with `X-Anonymous-Consumer: true`; and a request that another
//! authentication plugin has authenticated needs no password.

mod ber;
mod directory;
#[cfg(test)]
mod tests;
mod verdicts;

use crate::shared::authentication::Fallback;
use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use directory::{Directory, LdapError, Security};
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use verdicts::Verdicts;
use weir_plugin::{
    BuildContext, Dialer, Exchange, FieldError, Fingerprint, Flow, Hooks, Known, LocalResponse, Phases,
    Plugin, Record, Resume, Uuid,
};

/// The directory, and how users are found there.
#[derive(Debug, Clone, Record)]
#[record(check = security)]
#[record(hint("host", "server", "url", "write `ldap_host`, and `ldap_port` where it is not 389"))]
#[record(hint("port", "write `ldap_port`"))]
#[record(hint(
    "bind_dn",
    "ldap_password",
    "leave it out: users log in themselves, as `attribute=USER,base_dn`"
))]
pub(super) struct Config {
    /// The directory's name or address.
    #[field(matches = host)]
    pub ldap_host: String,
    /// Its port; `ldaps` usually has 636.
    #[field(default = 389)]
    pub ldap_port: u16,
    /// Uses TLS from the first byte.
    #[field(default = false)]
    pub ldaps: bool,
    /// Uses TLS after StartTLS; not together with `ldaps`.
    #[field(default = false)]
    pub start_tls: bool,
    /// Whether to verify the directory's certificate.
    #[field(default = false)]
    pub verify_ldap_host: bool,
    /// The name of the entry below which users are.
    pub base_dn: String,
    /// The attribute that holds user names, such as `uid` or `cn`.
    pub attribute: String,
    /// For how many seconds results are cached.
    #[field(default = 60)]
    pub cache_ttl: f64,
    /// Removes the credentials from the request before it goes to the upstream.
    #[field(default = false)]
    pub hide_credentials: bool,
    /// The timeout of a login in milliseconds, connection and TLS handshake included.
    #[field(nullable, default = 10_000)]
    pub timeout: f64,
    /// For how many milliseconds an unused connection is kept.
    #[field(nullable, default = 60_000)]
    pub keepalive: f64,
    /// The id or username of the consumer that requests without valid credentials pass as.
    pub anonymous: Option<String>,
    /// The scheme of the header with credentials.
    #[field(nullable, default = "ldap")]
    pub header_type: String,
    /// The realm in `WWW-Authenticate`.
    pub realm: Option<String>,
}

fn security(config: &Config) -> Vec<FieldError> {
    let both = config.ldaps && config.start_tls;
    let error = || FieldError::new("start_tls", "cannot be set together with `ldaps`; leave one of them out");
    both.then(error).into_iter().collect()
}

impl Config {
    fn security(&self) -> Security {
        match (self.ldaps, self.start_tls) {
            (true, _) => Security::Ldaps,
            (_, true) => Security::StartTls,
            _ => Security::Clear,
        }
    }

    fn dialer(&self, build: &BuildContext<'_>) -> Result<Dialer, String> {
        match self.security() {
            Security::Clear => Ok(build.dialer()),
            _ => build.tls_dialer(self.verify_ldap_host, "config.verify_ldap_host: false"),
        }
    }

    fn challenge(&self) -> String {
        // Kong writes this type in capital letters, and others as they are configured.
        let scheme = if self.header_type == "ldap" { "LDAP" } else { &self.header_type };
        match &self.realm {
            Some(realm) => format!("{scheme} realm=\"{realm}\""),
            None => scheme.to_owned(),
        }
    }
}

/// A day at most.
fn duration(milliseconds: f64) -> Duration {
    Duration::from_secs_f64((milliseconds / 1000.0).clamp(0.0, 86_400.0))
}

/// One configured instance.
pub(super) struct LdapAuth(Arc<Instance>);

struct Instance {
    config: Config,
    challenge: String,
    fallback: Fallback,
    directory: Directory,
    verdicts: Verdicts,
    /// When the last warning was logged, in seconds since the instance was built.
    warned: AtomicU64,
    built: Instant,
}

impl Plugin for LdapAuth {
    const NAME: &'static str = "ldap-auth";
    const PRIORITY: i32 = 1200;
    const FOR_CONSUMERS: bool = false;
    type Config = Config;

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        let directory = Directory::new(
            (&config.ldap_host, config.ldap_port),
            config.security(),
            [duration(config.timeout), duration(config.keepalive)],
            config.dialer(build)?,
        );
        Ok(Self(Arc::new(Instance {
            challenge: config.challenge(),
            fallback: Fallback::of(config.anonymous.as_deref(), build),
            directory,
            verdicts: Verdicts::new(duration(config.cache_ttl * 1000.0)),
            warned: AtomicU64::new(0),
            built: Instant::now(),
            config,
        })))
    }
}

impl Hooks for LdapAuth {
    fn phases(&self) -> Phases {
        Phases::ACCESS
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        let instance = &self.0;
        if instance.fallback.is_settled(exchange) {
            return Flow::Continue;
        }
        let mut logins = instance.logins(exchange);
        while let Some(login) = logins.first() {
            match instance.verdicts.get(login.key) {
                Some(true) => return instance.accept(exchange, &login.user),
                Some(false) => drop(logins.remove(0)),
                None => return instance.clone().ask(logins, exchange.id().to_owned()),
            }
        }
        instance.refuse(exchange)
    }
}

/// What a header carries.
struct Login {
    user: String,
    password: Vec<u8>,
    key: Fingerprint,
}

/// Base64 as clients write it, with padding or without.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

impl Instance {
    fn logins(&self, exchange: &Exchange) -> Vec<Login> {
        let headers = [Known::ProxyAuthorization, Known::Authorization];
        headers.into_iter().filter_map(|known| self.login(exchange.header(known)?)).collect()
    }

    fn login(&self, header: &[u8]) -> Option<Login> {
        let expected = self.config.header_type.as_bytes();
        let (scheme, token) = header.trim_ascii().split_at_checked(expected.len())?;
        let is_alone = token.first().is_some_and(u8::is_ascii_whitespace);
        if !scheme.eq_ignore_ascii_case(expected) || !is_alone {
            return None;
        }
        let decoded = BASE64.decode(token.trim_ascii()).ok()?;
        let (user, password) = decoded.split_at_checked(memchr::memchr(b':', &decoded)?)?;
        let (user, password) = (std::str::from_utf8(user).ok()?, password.get(1..)?);
        let is_usable = !user.is_empty() && !password.is_empty();
        let key = self.verdicts.key(user.as_bytes(), password);
        is_usable.then(|| Login { user: user.to_owned(), password: password.to_vec(), key })
    }

    /// Asks the directory about one login after the other, until one is right.
    fn ask(self: Arc<Self>, logins: Vec<Login>, request_id: String) -> Flow {
        Flow::Wait(Box::pin(async move {
            let mut outcome = Ok(None);
            for login in logins {
                match self.is_right(&login, &request_id).await {
                    Ok(true) => outcome = Ok(Some(login.user)),
                    Ok(false) => continue,
                    Err(error) => outcome = Err(error),
                }
                break;
            }
            let resume: Resume = Box::new(move |exchange| match outcome {
                Ok(Some(user)) => self.accept(exchange, &user),
                Ok(None) => self.refuse(exchange),
                Err(error) => self.fail(exchange, &error),
            });
            resume
        }))
    }

    async fn is_right(&self, login: &Login, request_id: &str) -> Result<bool, LdapError> {
        if let Some(known) = self.verdicts.get(login.key) {
            return Ok(known);
        }
        let result =
            self.directory.bind(self.distinguished_name(&login.user).as_bytes(), &login.password).await?;
        if result == 0 || is_verdict(result) {
            self.verdicts.remember(login.key, result == 0);
        } else {
            let hint = if result == 13 { "; set config.start_tls or config.ldaps" } else { "" };
            self.warn(request_id, &format!("it answered a login with the result {result}{hint}"));
        }
        Ok(result == 0)
    }

    fn distinguished_name(&self, user: &str) -> String {
        format!("{}={},{}", self.config.attribute, escaped(user), self.config.base_dn)
    }

    fn accept(&self, exchange: &mut Exchange, user: &str) -> Flow {
        let name =
            format!("{}:{}:{}", self.directory.host, self.directory.port, self.distinguished_name(user));
        let id = Uuid::new_v5(&Uuid::NAMESPACE_X500, name.as_bytes());
        exchange.set_authenticated(None, Some(&id.to_string()));
        exchange.describe_caller(user.as_bytes());
        let headers = &mut exchange.request.headers;
        for known in [
            Known::XConsumerId,
            Known::XConsumerCustomId,
            Known::XConsumerUsername,
            Known::XAnonymousConsumer,
        ] {
            headers.remove_known(known);
        }
        headers.set("X-Credential-Identifier", user.as_bytes());
        if self.config.hide_credentials {
            headers.remove_known(Known::ProxyAuthorization);
            headers.remove_known(Known::Authorization);
        }
        Flow::Continue
    }

    fn refuse(&self, exchange: &mut Exchange) -> Flow {
        self.fallback.unauthenticated(exchange, || {
            LocalResponse::error(401, "Unauthorized").header("WWW-Authenticate", &self.challenge)
        })
    }

    fn fail(&self, exchange: &Exchange, error: &LdapError) -> Flow {
        tracing::debug!(request_id = exchange.id(), "ldap-auth: no login: {error}");
        self.warn(exchange.id(), &error.to_string());
        Flow::Respond(LocalResponse::error(500, "An unexpected error occurred"))
    }

    /// Logs once a second at most. The texts of the directory are left out, because they may repeat what it was sent.
    fn warn(&self, request_id: &str, why: &str) {
        let second = self.built.elapsed().as_secs() + 1;
        if self.warned.swap(second, Relaxed) != second {
            let Directory { host, port, .. } = &self.directory;
            tracing::warn!(
                request_id,
                "ldap-auth: no client can log in at the directory {host}:{port}: {why}"
            );
        }
    }
}

/// Whether a result is about the user, and holds for a while: constraintViolation, noSuchObject, invalidDNSyntax,
/// inappropriateAuthentication, invalidCredentials, insufficientAccessRights, unwillingToPerform. Any other is the
/// directory's own, such as busy.
fn is_verdict(result: u32) -> bool {
    [19, 32, 34, 48, 49, 50, 53].contains(&result)
}

/// A value of a distinguished name, escaped as RFC 4514 says.
fn escaped(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    let last = value.len() - value.chars().next_back().map_or(0, char::len_utf8);
    for (at, character) in value.char_indices() {
        match character {
            '"' | '+' | ',' | ';' | '<' | '>' | '\\' | '=' => out.extend(['\\', character]),
            '#' if at == 0 => out.push_str("\\#"),
            ' ' if at == 0 || at == last => out.push_str("\\ "),
            // Writing to a string cannot fail.
            '\0'..='\x1f' | '\x7f' => drop(write!(out, "\\{:02x}", u32::from(character))),
            _ => out.push(character),
        }
    }
    out
}
