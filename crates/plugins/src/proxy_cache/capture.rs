//! Copies a response on its way from the upstream to the client.

use super::Outcome;
use super::rules::{Plan, Term};
use super::store::{Cache, Lead, MAX_BODY_LEN, Stored};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use weir_plugin::{BufferedBody, Exchange, Fingerprint, Headers, Known, Observer};
use weir_plugin::{Framing, KnownSet};

/// Headers that are not stored: credentials, and those that are set again for each response.
const OWN: KnownSet = KnownSet::of(&[Known::ProxyAuthorization]);
const OWN_NAMES: [&str; 5] =
    ["Age", "X-Cache-Status", "X-Cache-Key", "Proxy-Authenticate", "Proxy-Authentication-Info"];

/// Copies a response.
pub(super) struct Capture {
    plan: Plan,
    cache: Arc<Cache>,
    fingerprint: Fingerprint,
    key: Arc<str>,
    /// Other requests wait for the copy.
    lead: Option<Lead>,
    copy: Option<Copied>,
}

struct Copied {
    term: Term,
    status: u16,
    headers: Headers,
    vary: Vec<(String, Vec<Vec<u8>>)>,
    body: BufferedBody,
    /// Its expected length, if known.
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
            Framing::Length(length) if length > MAX_BODY_LEN as u64 => return None,
            Framing::Length(length) => length as usize,
            _ => MAX_BODY_LEN,
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

    /// Stops copying; requests that wait for the copy continue without it.
    fn give_up(&mut self) {
        self.copy = None;
        if let Some(lead) = self.lead.take() {
            lead.uncacheable();
        }
    }
}

/// The values of the request headers that the response varies by; none if it varies by more than headers.
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
        if copy.body.len() + data.len() > MAX_BODY_LEN || copy.body.push(data, copy.length).is_err() {
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
