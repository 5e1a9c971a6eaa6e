//! Keeps clients logged in by a cookie, so that a browser sends its credentials once.
//!
//! ```yaml
//! consumers:
//!   - username: alice
//!     basicauth_credentials:
//!       - username: alice
//!         password: correct horse
//!   - username: guest
//!     plugins:
//!       - name: request-termination
//!         config: { status_code: 401, message: Log in first }
//! plugins:
//!   - name: session
//!     service: shop
//!     config:
//!       secret: a-long-random-text
//!   - name: basic-auth
//!     service: shop
//!     config: { anonymous: guest }
//! ```
//!
//! ```sh
//! curl -k -c cookies -u 'alice:correct horse' https://localhost:8443/shop
//! curl -k -b cookies https://localhost:8443/shop
//! curl -k -b cookies -c cookies -X DELETE 'https://localhost:8443/shop?session_logout=true'
//! ```
//!
//! When an authentication plugin has accepted the credentials of a consumer, the response sets the cookie. A later request with the cookie
//! passes as the same consumer with the same credential, and needs no credentials. The authentication plugin must have
//! `anonymous`, because without it the plugin asks every request for credentials; `weir check` warns where no plugin has it. A request with neither passes as the anonymous
//! consumer, so this consumer should have a `request-termination`, as above. Sessions are for consumers: who logs in
//! without one, by `ldap-auth`, gets none.
//!
//! ## The cookie
//!
//! It holds the ids of the consumer and of the credential, and the groups that the authentication plugin has found. It is encrypted and
//! authenticated by `secret`: AES-256-GCM, with a key for each cookie (HKDF-SHA256). What is longer than 4096 bytes is in several
//! cookies, `session2` to `session9`. The upstream gets the cookie too. When a consumer is deleted, it is logged out; when its credential is
//! deleted, it stays logged in until the session ends.
//!
//! Set `secret`, because all nodes need the same one. One that is left out is made up, in a file each time that the file is read, of which
//! `weir check` warns. After a change of the
//! secret all clients have to log in again. So do clients that have a cookie of Kong, because its format is another one.
//!
//! | a session ends | |
//! |---|---|
//! | `idling_timeout` seconds after the last request | The cookie `session_used` says when it was used, to a minute |
//! | `rolling_timeout` seconds after it was saved | A request in the last quarter of that time has the time begin again: by the cookie `session_used`, and with `storage: kong` under a new id |
//! | `absolute_timeout` seconds after it began | |
//!
//! The cookie `session_used` is bound to one session. With `storage: cookie`, requests that use a session set no other cookie, so that a late
//! response neither brings a session back after a logout, nor an older one after another login.
//!
//! With 0 there is no such timeout. When the browser is closed, it forgets the cookie. With `remember` it also gets the cookie `remember`, which
//! it keeps: from that, a new session begins for a browser without one, until `remember_rolling_timeout` seconds after the last time, or
//! `remember_absolute_timeout` seconds after the login.
//!
//! Plugins with the same `secret` and `cookie_name` share a cookie, and log clients in together if they have the same `audience`
//! too.
//!
//! `cookie_secure` is on, so that browsers send the cookie over HTTPS alone.
//!
//! ## Storage
//!
//! With `storage: cookie` the gateway keeps nothing, so that a cookie that somebody has copied is valid until it ends, also after a logout.
//!
//! With `storage: kong` the cookie has an id, and the rest is in the node's database, encrypted, where all nodes of it know the session. A logout
//! deletes it. The id is stored as a hash. Each node remembers for 5 seconds what the database says of a session, and for one second that it
//! has no such session: on another node, a session ends that long after its logout. A session is written to the database when the response is on its way, so that another
//! node may know it a moment later. When it gets a new id, the old one is valid for `stale_ttl` seconds more, for requests that are on their way. It gets no other id in that time, and a logout ends both.
//! At most 256 new sessions of an instance wait for the database; further clients stay without one, which is logged. A node without
//! a database, such as a data plane, keeps sessions in its memory, at most about 64 MiB: they are lost when it restarts, other nodes do not know them, and
//! `weir check` warns of it. `weir upgrade` keeps them. While the database does not answer, requests are as those without a session. `store_metadata` adds
//! the audience and the subject to each row, with `hash_subject` a SHA-256 hash of the subject.
//!
//! A client that keeps no cookies starts a session with each request that has credentials. With `storage: kong` that is a row each time: do not
//! put the plugin on routes of such clients.
//!
//! ## Logout
//!
//! A request logs out if its method is one of `logout_methods`, and it has the argument `logout_query_arg`, with any value. With
//! `read_body_for_logout`, `logout_post_arg` in its body does the same: in a form, multipart, or JSON. The cookies are removed from the
//! browser, and the upstream does not see the request. A logout is for one audience.
//!
//! ## To the upstream
//!
//! `X-Consumer-ID`, `X-Consumer-Username`, `X-Consumer-Custom-ID` and `X-Credential-Identifier` (the credential's id) identify the client,
//! `X-Authenticated-Groups` has its groups. `request_headers` and `response_headers` name what else is sent:
//!
//! | name | header | |
//! |---|---|---|
//! | `id` | `Session-Id` | |
//! | `audience` | `Session-Audience` | |
//! | `subject` | `Session-Subject` | the consumer's username, else its custom id, else its id |
//! | `idling-timeout`, `rolling-timeout`, `absolute-timeout` | `Session-Idling-Timeout`, and so on | how many seconds are left |
//! | `timeout` | `Session-Timeout` | the fewest of these |
//!
//! ## Responses
//!
//! | status | message | when |
//! |---|---|---|
//! | 200 | | the client has logged out |
//! | 500 | `An unexpected error occurred` | a logout could not be written to the database |

pub(crate) mod content;
pub(crate) mod cookie;
mod instance;
mod keeper;
mod logout;
mod properties;
pub(crate) mod seal;
mod store;
#[cfg(test)]
mod tests;
pub(crate) mod usage;
mod warnings;

use content::Timeouts;
use instance::Instance;
use keeper::Keeper;
use properties::Property;
use seal::Sealer;
use std::sync::Arc;
use store::{Metadata, Store};
use usage::UseCookies;
use weir_plugin::{
    BuildContext, Document, EntityWarning, Exchange, FieldError, FieldWarning, Flow, Handover, Hooks, Json,
    Phases, Plugin, ROWS_HANDOVER, Record, Secret, WantsBody, is_reference, is_same_header,
};

/// The cookie, how long sessions last, and how clients log out.
#[derive(Debug, Clone, Record)]
#[record(check = violations)]
#[record(old_name("cookie_lifetime", "rolling_timeout"))]
#[record(old_name("cookie_idletime", "idling_timeout"))]
#[record(old_name("cookie_discard", "stale_ttl"))]
#[record(old_name("cookie_httponly", "cookie_http_only"))]
#[record(old_name("cookie_persistent", "remember"))]
#[record(hint("cookie_samesite", "write `cookie_same_site`, and `Lax` for `off`"))]
#[record(hint(
    "cookie_renew",
    "leave it out: a session is renewed in the last quarter of `rolling_timeout`"
))]
pub(super) struct Config {
    /// What encrypts sessions. All nodes need the same one.
    #[field(auto, secret)]
    pub secret: Secret,
    /// Where sessions are: in the cookie, or in the node's database.
    #[field(nullable, default = "cookie", one_of = ["cookie", "kong"])]
    pub storage: String,
    /// What a client logs in at.
    #[field(nullable, default = "default")]
    pub audience: String,
    /// After how many seconds without a request a session ends; with 0 never.
    #[field(nullable, default = 900)]
    pub idling_timeout: f64,
    /// After how many seconds a session ends that was not renewed; with 0 never.
    #[field(nullable, default = 3600)]
    pub rolling_timeout: f64,
    /// After how many seconds a session ends in any case; with 0 never.
    #[field(nullable, default = 86_400)]
    pub absolute_timeout: f64,
    /// With `storage: kong`, for how many seconds the id of a session is valid that has a new one.
    #[field(nullable, default = 10)]
    pub stale_ttl: f64,
    /// The cookie's name.
    #[field(nullable, default = "session", check = cookie_name)]
    pub cookie_name: String,
    /// The path below which browsers send the cookie.
    #[field(nullable, default = "/", check = attribute)]
    pub cookie_path: String,
    /// The domain to whose hosts browsers send the cookie; if unset, to the host of the request alone.
    #[field(check = attribute)]
    pub cookie_domain: Option<String>,
    /// Whether browsers send the cookie with requests from other sites; `Default` leaves it to them.
    #[field(nullable, default = "Strict", one_of = ["Strict", "Lax", "None", "Default"])]
    pub cookie_same_site: String,
    /// Hides the cookie from scripts.
    #[field(nullable, default = true)]
    pub cookie_http_only: bool,
    /// Has browsers send the cookie over HTTPS alone.
    #[field(nullable, default = true)]
    pub cookie_secure: bool,
    /// Has browsers that were closed stay logged in, by another cookie.
    #[field(nullable, default = false)]
    pub remember: bool,
    /// The name of that cookie.
    #[field(nullable, default = "remember", check = cookie_name)]
    pub remember_cookie_name: String,
    /// After how many seconds that cookie ends if it was not used; with 0 never.
    #[field(nullable, default = 604_800)]
    pub remember_rolling_timeout: f64,
    /// After how many seconds that cookie ends in any case; with 0 never.
    #[field(nullable, default = 2_592_000)]
    pub remember_absolute_timeout: f64,
    /// What clients get to know of the session, by headers.
    #[field(set, one_of = ["id", "audience", "subject", "timeout", "idling-timeout", "rolling-timeout", "absolute-timeout"])]
    pub response_headers: Option<Vec<String>>,
    /// What the upstream gets to know of the session, by headers.
    #[field(set, one_of = ["id", "audience", "subject", "timeout", "idling-timeout", "rolling-timeout", "absolute-timeout"])]
    pub request_headers: Option<Vec<String>>,
    /// Looks for `logout_post_arg` in the bodies of requests.
    #[field(nullable, default = false)]
    pub read_body_for_logout: bool,
    /// The methods of requests that may log out.
    #[field(nullable, set, default = ["POST", "DELETE"], one_of = ["GET", "POST", "DELETE"])]
    pub logout_methods: Vec<String>,
    /// The argument of the query that logs out.
    #[field(nullable, default = "session_logout")]
    pub logout_query_arg: String,
    /// The argument of the body that logs out.
    #[field(nullable, default = "session_logout")]
    pub logout_post_arg: String,
    /// With `storage: kong`, stores the audience and the subject of a session as well. Kong has this field from 3.10 on.
    #[field(extension, nullable, default = false)]
    pub store_metadata: bool,
    /// Stores a hash of the subject in its place. Kong has this field from 3.10 on.
    #[field(extension, nullable, default = false)]
    pub hash_subject: bool,
}

/// Whether browsers send a cookie of this name as it is.
pub(crate) fn cookie_name(name: &str) -> Result<(), String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    match name.len() <= 256 && name.bytes().all(fits) {
        true => Ok(()),
        false => Err("no name of a cookie; write at most 256 letters, digits, `-` and `_`".to_owned()),
    }
}

/// Whether an attribute of a cookie may have this value.
pub(crate) fn attribute(value: &str) -> Result<(), String> {
    match value.bytes().all(|byte| byte != b';' && !byte.is_ascii_control()) {
        true => Ok(()),
        false => Err("`;` and control characters end an attribute of a cookie; leave them out".to_owned()),
    }
}

fn violations(config: &Config) -> Vec<FieldError> {
    let negative = config.durations().into_iter().filter(|(_, value)| *value < 0.0).map(|(name, _)| {
        FieldError::new(name, "must not be negative; write 0 for a session that does not end by it")
    });
    let is_same = config.remember && config.cookie_name == config.remember_cookie_name;
    let same = is_same.then(|| {
        FieldError::new("remember_cookie_name", "must not be that of `cookie_name`; write another name")
    });
    negative.chain(same).collect()
}

impl Config {
    fn durations(&self) -> [(&'static str, f64); 6] {
        [
            ("idling_timeout", self.idling_timeout),
            ("rolling_timeout", self.rolling_timeout),
            ("absolute_timeout", self.absolute_timeout),
            ("stale_ttl", self.stale_ttl),
            ("remember_rolling_timeout", self.remember_rolling_timeout),
            ("remember_absolute_timeout", self.remember_absolute_timeout),
        ]
    }

    /// What follows the value in `Set-Cookie`.
    fn attributes(&self) -> String {
        let mut attributes = String::new();
        let mut add = |name: &str, value: &str| attributes.extend(["; ", name, value]);
        if let Some(domain) = self.cookie_domain.as_deref().filter(|domain| !domain.is_empty()) {
            add("Domain=", domain);
        }
        add("Path=", &self.cookie_path);
        match &*self.cookie_same_site {
            "Default" => {}
            same_site => add("SameSite=", same_site),
        }
        if self.cookie_secure {
            add("Secure", "");
        }
        if self.cookie_http_only {
            add("HttpOnly", "");
        }
        attributes
    }

    fn keeper(&self, (role, name): (&str, &str), timeouts: [f64; 3], store: Option<&Arc<Store>>) -> Keeper {
        let [idling, rolling, absolute] = timeouts.map(seconds);
        Keeper {
            name: name.to_owned(),
            attributes: self.attributes(),
            timeouts: Timeouts { idling, rolling, absolute },
            is_persistent: false,
            stale_ttl: seconds(self.stale_ttl),
            sealer: Sealer::new(&self.secret, &format!("{role} cookie {name}")),
            use_cookies: UseCookies::new(&self.secret, &format!("{role} use cookie {name}")),
            store: store.cloned(),
        }
    }
}

/// Whole seconds: less than one is one, because 0 says that there is no timeout.
fn seconds(timeout: f64) -> u64 {
    timeout.ceil() as u64
}

/// One configured instance.
pub(super) struct SessionPlugin(Arc<Instance>);

impl Plugin for SessionPlugin {
    const NAME: &'static str = "session";
    const PRIORITY: i32 = 1900;
    const FOR_CONSUMERS: bool = false;
    const HANDOVERS: &'static [Handover] = &[ROWS_HANDOVER];
    type Config = Config;

    fn warnings(config: &Json) -> Vec<FieldWarning> {
        let secret = config["secret"].as_str().unwrap_or_default();
        let is_short = secret.len() < 16 && !is_reference(secret);
        let short = is_short.then(|| {
            FieldWarning::new(
                "secret",
                "can be guessed, because it is short; write at least 32 random characters",
            )
        });
        let is_dropped = config["cookie_same_site"] == "None" && config["cookie_secure"] == false;
        let dropped = is_dropped.then(|| {
            let message = "browsers drop a cookie with `None` that is not secure; set `cookie_secure: true`";
            FieldWarning::new("cookie_same_site", message)
        });
        short.into_iter().chain(dropped).collect()
    }

    fn document_warnings(document: &Document) -> Vec<EntityWarning> {
        warnings::without_anonymous(document)
    }

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        if config.secret.expose().is_empty() {
            return Err("config.secret is empty; write at least 32 random characters".to_owned());
        }
        let metadata = Metadata { is_stored: config.store_metadata, hashes_subject: config.hash_subject };
        let store = (config.storage == "kong").then(|| Arc::new(Store::new(&config.secret, metadata, build)));
        let timeouts = [config.idling_timeout, config.rolling_timeout, config.absolute_timeout];
        let session = config.keeper(("session", &config.cookie_name), timeouts, store.as_ref());
        let remember = config.remember.then(|| {
            let timeouts = [0.0, config.remember_rolling_timeout, config.remember_absolute_timeout];
            let keeper = config.keeper(("remember", &config.remember_cookie_name), timeouts, store.as_ref());
            Keeper { is_persistent: true, ..keeper }
        });
        Ok(Self(Arc::new(Instance {
            session,
            remember,
            store,
            request_headers: Property::all(config.request_headers.as_deref()),
            response_headers: Property::all(config.response_headers.as_deref()),
            config,
        })))
    }
}

impl Hooks for SessionPlugin {
    fn phases(&self) -> Phases {
        Phases::ACCESS | Phases::RESPONSE
    }

    fn owns_request_header(&self, name: &[u8]) -> bool {
        self.0.request_headers.iter().any(|property| is_same_header(property.header.as_bytes(), name))
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        self.0.access(exchange)
    }

    fn response(&self, exchange: &mut Exchange) {
        self.0.response(exchange);
    }

    fn wants_body(&self) -> WantsBody {
        if self.0.config.read_body_for_logout { WantsBody::Form } else { WantsBody::No }
    }
}
