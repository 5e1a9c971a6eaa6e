//! Keeps sessions: the cookies that hold them, and their rows. There is one for the session, and one for the cookie by which a
//! browser remembers it longer.

use super::content::{Entry, History, Session, Timeouts};
use super::cookie::{Jar, set};
use super::seal::{Sealer, random_id};
use super::store::{RowChange, Store, row_id};
use super::usage::{Usage, UseCookies, use_cookie};
use aws_lc_rs::error::Unspecified;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use weir_plugin::{Exchange, Known, unix_time};

/// How long what has no timeout is kept: browsers keep no cookie longer.
const MAX_LIFETIME: u64 = 400 * 86_400;

/// Why a session cannot be kept.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum KeepError {
    /// The system has no random numbers.
    Crypto,
    /// Nine cookies do not hold it.
    TooLong,
    /// The database has not stored the ones before.
    TooMany,
}

impl fmt::Display for KeepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KeepError::Crypto => "the system has no random numbers",
            KeepError::TooMany => {
                "too many new sessions wait for the database; look whether it is slow, and keep the plugin off routes whose \
                 clients send credentials but no cookies"
            }
            KeepError::TooLong => "its groups are too long for cookies; set `storage: kong`",
        })
    }
}

impl From<Unspecified> for KeepError {
    fn from(_: Unspecified) -> Self {
        KeepError::Crypto
    }
}

/// The changes of a session: for the client, and for the database.
#[derive(Default)]
pub(super) struct Changes {
    /// The values of `Set-Cookie`.
    pub(super) cookies: Vec<String>,
    pub(super) rows: Vec<RowChange>,
}

/// What a request has of sessions.
pub(super) struct Incoming<'e> {
    /// When it came, in seconds since 1970.
    pub(super) now: u64,
    /// The lines of `Cookie`.
    pub(super) lines: Vec<&'e [u8]>,
}

impl<'e> Incoming<'e> {
    pub(super) fn of(exchange: &'e Exchange) -> Self {
        let lines = exchange.request.headers.get_all_known(Known::Cookie);
        Self { now: unix_time(), lines: lines.collect() }
    }
}

/// Keeps the sessions of one cookie.
pub(super) struct Keeper {
    pub(super) name: String,
    /// What follows the cookie's value in `Set-Cookie`.
    pub(super) attributes: String,
    pub(super) timeouts: Timeouts,
    /// Whether the browser keeps the cookie when it is closed.
    pub(super) is_persistent: bool,
    /// For how many seconds the row of a session that has a new id is kept.
    pub(super) stale_ttl: u64,
    pub(super) sealer: Sealer,
    pub(super) use_cookies: UseCookies,
    /// Where the entries are, if not in the cookie.
    pub(super) store: Option<Arc<Store>>,
}

impl Keeper {
    /// The session of a request, if it has not ended. Its entries may have to be read from the store.
    pub(super) fn open(&self, incoming: &Incoming<'_>) -> Option<Session> {
        let jar = self.jar(incoming);
        let opened = jar.texts(&self.name).filter_map(|text| {
            let session = Session::decode(&self.sealer.open(&text, b"")?)?;
            Some(match self.use_cookies.read(&jar, &self.name, &session.id) {
                Some(usage) => session.used_at(usage),
                None => session,
            })
        });
        let mut valid = opened.filter(|session| self.timeouts.left(session, incoming.now).is_some());
        valid.next()
    }

    /// Gives a session a new id and these entries, and has it kept.
    pub(super) fn save(
        &self,
        session: &mut Session,
        entries: Vec<Entry>,
        incoming: &Incoming<'_>,
        changes: &mut Changes,
    ) -> Result<(), KeepError> {
        let now = incoming.now;
        let predecessor = self.store.as_ref().and_then(|_| session.is_saved().then(|| row_id(session)));
        let history = History { predecessor, successor: None };
        let (id, created) = (random_id()?, session.created);
        let saved = Session { id, created, saved: now, used: now, entries, history };
        self.write(&saved, incoming, changes)?;
        let old = std::mem::replace(session, saved);
        let Some(store) = &self.store else { return Ok(()) };
        changes.rows.push(RowChange::Insert(store.row(session, self.end(session))?));
        store.announce(session);
        if old.is_saved() {
            let end = self.end(&old).min(now.saturating_add(self.stale_ttl));
            changes.rows.push(store.outdate(&old, session, (now, end))?);
        }
        Ok(())
    }

    /// The cookie that says that the session is used now, if it is time that one does. Where rows hold sessions, their end is
    /// theirs to say.
    pub(super) fn touch(&self, session: &mut Session, now: u64) -> Result<Vec<String>, KeepError> {
        let is_rolling_due = self.store.is_none() && self.timeouts.is_rolling_due(session, now);
        let is_due = is_rolling_due || self.timeouts.is_touch_due(session, now);
        if !is_due || self.timeouts.left(session, now).is_none() {
            return Ok(Vec::new());
        }
        session.used = now;
        session.saved = if is_rolling_due { now } else { session.saved };
        let usage = Usage { saved: session.saved, used: now };
        Ok(self.use_cookies.write(&self.name, &session.id, usage, &self.attributes)?)
    }

    fn write(
        &self,
        session: &Session,
        incoming: &Incoming<'_>,
        changes: &mut Changes,
    ) -> Result<(), KeepError> {
        let bytes = match &self.store {
            Some(_) => Session { entries: Vec::new(), ..*session }.encode(),
            None => session.encode(),
        };
        let text = self.sealer.seal(&bytes, b"")?;
        let attributes = format!("{}{}", self.attributes, self.lifetime(incoming.now));
        let cookies = set(&self.name, &text, &attributes).ok_or(KeepError::TooLong)?;
        let rest = self.expired(incoming, cookies.len());
        changes.cookies.extend(cookies.into_iter().chain(rest));
        Ok(())
    }

    /// Ends a session.
    pub(super) fn end_session(&self, session: &Session, incoming: &Incoming<'_>, changes: &mut Changes) {
        changes.cookies.extend(self.expired(incoming, 0));
        if session.is_saved() {
            changes.rows.extend(self.store.iter().flat_map(|store| store.delete(session)));
        }
    }

    /// What has the browser forget the cookies of a session behind the first ones.
    fn expired(&self, incoming: &Incoming<'_>, after: usize) -> Vec<String> {
        let jar = self.jar(incoming);
        let expired = |name: &str, after| jar.expire(name, &self.attributes, after);
        [expired(&self.name, after), expired(&use_cookie(&self.name), 0)].concat()
    }

    fn jar<'e>(&self, incoming: &Incoming<'e>) -> Jar<'e> {
        Jar::of(incoming.lines.iter().copied(), &self.name)
    }

    /// Until when a browser keeps the cookie.
    fn lifetime(&self, now: u64) -> String {
        if !self.is_persistent {
            return String::new();
        }
        let lifetime = self.rolling();
        let expires = SystemTime::UNIX_EPOCH + Duration::from_secs(now.saturating_add(lifetime));
        format!("; Expires={}; Max-Age={lifetime}", httpdate::fmt_http_date(expires))
    }

    /// When a session's row ends.
    fn end(&self, session: &Session) -> u64 {
        session.saved.saturating_add(self.rolling())
    }

    fn rolling(&self) -> u64 {
        match self.timeouts.rolling {
            0 => MAX_LIFETIME,
            rolling => rolling.min(MAX_LIFETIME),
        }
    }
}
