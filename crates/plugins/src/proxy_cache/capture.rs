//! A response on its way from the upstream to the client, of which a copy is made.

use super::Outcome;
use super::rules::{Plan, Term};
use super::store::{Cache, Lead, MOST_OF_ONE, Stored};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use weir_plugin::{BufferedBody, Exchange, Fingerprint, Headers, Known, Observer};
use weir_plugin::{Framing, KnownSet};

/// What is not told to others, or told anew: the length, the age and what the cache says of itself.
const OWN: KnownSet = KnownSet::of(&[Known::ProxyAuthorization]);
const OWN_NAMES: [&str; 5] =
    ["Age", "X-Cache-Status", "X-Cache-Key", "Proxy-Authenticate", "Proxy-Authentication-Info"];

/// Makes a copy of a response.
pub(super) struct Capture {
    plan: Plan,
    cache: Arc<Cache>,
    fingerprint: Fingerprint,
    key: Arc<str>,
    /// Others wait for the copy.
    lead: Option<Lead>,
    copy: Option<Copied>,
}

struct Copied {
    term: Term,
    status: u16,
    headers: Headers,
    vary: Vec<(String, Vec<Vec<u8>>)>,
    body: BufferedBody,
    /// How many bytes it will have, as far as is known.
    length: usize,
}

impl Capture {
    pub(super) fn new(
        plan: Plan,
        cache: Arc<Cache>,
        (fingerprint, key): (Fingerprint, Arc<str>),
        lead: Option<Lead>,
    ) -> Self {
        Self { plan, cache, fingerprint, key, lead, copy: None }
    }

    fn begin(&self, exchange: &Exchange) -> Option<Copied> {
        let response = &exchange.response;
        let length = match response.framing {
            Framing::Length(length) if length > MOST_OF_ONE as u64 => return None,
            Framing::Length(length) => length as usize,
            _ => MOST_OF_ONE,
        };
        let term = self.plan.term(exchange, SystemTime::now())?;
        let vary = varying(exchange)?;
        let mut headers = response.headers.clone();
        headers.remove_all_known(OWN);
        for name in OWN_NAMES {
            headers.remove(name);
        }
        if exchange.request.method_str() != "HEAD" {
            headers.remove_known(Known::ContentLength);
        }
        let body = exchange.body_buffer();
        Some(Copied { term, status: response.status, headers, vary, body, length })
    }

    /// There will be no copy: who waits for it need not.
    fn give_up(&mut self) {
        self.copy = None;
        if let Some(lead) = self.lead.take() {
            lead.in_vain();
        }
    }
}

/// The headers that the response depends on, and what the request had there; none, where it depends on more.
fn varying(exchange: &Exchange) -> Option<Vec<(String, Vec<Vec<u8>>)>> {
    let mut varying = Vec::new();
    for field in exchange.response.headers.get_all("Vary") {
        for name in field.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|name| !name.is_empty())
        {
            let name = std::str::from_utf8(name).ok().filter(|name| *name != "*")?.to_ascii_lowercase();
            let values = exchange.request.headers.get_all(&name).map(<[u8]>::to_vec).collect();
            varying.push((name, values));
        }
    }
    Some(varying)
}

impl Observer for Capture {
    fn head(&mut self, exchange: &Exchange) -> bool {
        self.copy = self.begin(exchange);
        if self.copy.is_none() {
            if let Some(outcome) = exchange.extensions.get::<Outcome>() {
                outcome.status.set("Bypass");
            }
            self.give_up();
        }
        self.copy.is_some()
    }

    fn data(&mut self, data: &[u8]) {
        let Some(copy) = &mut self.copy else { return };
        if copy.body.len() + data.len() > MOST_OF_ONE || copy.body.push(data, copy.length).is_err() {
            self.give_up();
        }
    }

    fn end(mut self: Box<Self>) {
        let Some(copy) = self.copy.take() else { return };
        let mut body = copy.body.into_bytes();
        body.shrink_to_fit();
        let stored = Stored {
            key: self.key.clone(),
            status: copy.status,
            headers: Arc::new(copy.headers),
            body: body.into(),
            since: Instant::now(),
            timestamp: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            term: copy.term,
            vary: copy.vary,
            is_gone: AtomicBool::new(false),
            is_used: AtomicBool::new(true),
        };
        self.cache.insert(self.fingerprint, stored);
    }
}
