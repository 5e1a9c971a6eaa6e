//! One response that is stored.

use super::freshness::Term;
use super::subject::Resource;
use super::vary::{self, Variant};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use weir_plugin::{Bytes, Exchange, Fingerprint, Headers};

/// The approximate overhead of an entry in bytes.
pub(super) const OVERHEAD: usize = 512;

/// A stored response.
pub(super) struct Stored {
    pub(super) key: Arc<str>,
    pub(super) subject: Arc<Subject>,
    pub(super) status: u16,
    pub(super) headers: Arc<Headers>,
    pub(super) body: Bytes,
    pub(super) since: Instant,
    /// `since` in seconds since 1970.
    pub(super) timestamp: u64,
    pub(super) term: Term,
    /// The request headers that the response varies by, and their values.
    pub(super) vary: Variant,
    /// It may answer requests with other credentials.
    pub(super) is_for_all: bool,
    /// It was removed or replaced.
    pub(super) is_gone: AtomicBool,
    /// It was requested since the last check.
    pub(super) is_used: AtomicBool,
}

/// What a response is one of, for invalidations and purges.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Subject {
    pub(super) resource: Resource,
    pub(super) path: String,
    /// What the upstream has called it by, in `Surrogate-Key` and `Cache-Tag`.
    pub(super) tags: Vec<String>,
}

/// The moment that a response is stored: now, and now in seconds since 1970.
pub(super) fn now() -> (Instant, u64) {
    let timestamp = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    (Instant::now(), timestamp)
}

impl Stored {
    /// Whether it is for this request.
    pub(super) fn suits(&self, exchange: &Exchange, now: Instant) -> bool {
        !self.is_over(now) && vary::suits(&self.vary, &exchange.request.headers)
    }

    pub(super) fn is_over(&self, now: Instant) -> bool {
        let is_old = |stored_for| self.elapsed(now) >= stored_for;
        self.is_gone.load(Relaxed) || self.term.stored_for.is_some_and(is_old)
    }

    /// How long it has been stored.
    pub(super) fn elapsed(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }

    pub(super) fn bytes(&self) -> usize {
        let headers = self.headers.iter().map(|field| field.name.len() + field.value.len() + 32);
        let varying =
            self.vary.iter().flat_map(|(name, values)| values.iter().map(|value| name.len() + value.len()));
        let subject =
            self.subject.path.len() + self.subject.tags.iter().map(|tag| tag.len() + 32).sum::<usize>();
        OVERHEAD + self.body.len() + headers.sum::<usize>() + varying.sum::<usize>() + subject
    }

    /// The same response after the upstream has confirmed it, with the headers and the term of that moment.
    pub(super) fn confirmed(&self, headers: Headers, term: Term, is_for_all: bool) -> Self {
        let (since, timestamp) = now();
        Self {
            key: self.key.clone(),
            subject: self.subject.clone(),
            status: self.status,
            headers: Arc::new(headers),
            body: self.body.clone(),
            since,
            timestamp,
            term,
            vary: self.vary.clone(),
            is_for_all,
            is_gone: AtomicBool::new(false),
            is_used: AtomicBool::new(true),
        }
    }

    /// The same response as one of another resource.
    pub(super) fn of_resource(self, fingerprint: Fingerprint) -> Self {
        let Subject { resource, path, tags } = &*self.subject;
        let resource = Resource { fingerprint, name: resource.name.clone() };
        let subject = Subject { resource, path: path.clone(), tags: tags.clone() };
        Self { subject: Arc::new(subject), ..self }
    }

    /// As the Admin API shows it.
    pub(super) fn shown(&self) -> Value {
        let mut headers = Map::new();
        for field in self.headers.iter() {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let (name, value) = (text(field.name), Value::String(text(field.value)));
            match headers.get_mut(&name) {
                None => drop(headers.insert(name, value)),
                Some(Value::Array(values)) => values.push(value),
                Some(one) => *one = json!([one.take(), value]),
            }
        }
        headers.insert("X-Cache-Key".to_owned(), json!(*self.key));
        json!({
            "version": 1, "status": self.status, "headers": headers, "body": String::from_utf8_lossy(&self.body),
            "body_len": self.body.len(), "timestamp": self.timestamp, "ttl": self.term.lifetime.as_secs(),
        })
    }
}
