//! What the cache does with a response on its way from the upstream to the client: it copies it, or removes what the
//! response makes invalid.

use super::in_flight::Lead;
use super::key;
use super::lookup::{Instance, Outcome};
use super::storable::{self, Storable};
use super::store::MAX_BODY_LEN;
use super::stored::{self, Stored};
use super::vary::{self, Variant};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::SystemTime;
use weir_plugin::{BufferedBody, Exchange, Fingerprint, Framing, Headers, Known, Observer};

/// Where a response is stored, and the key that clients see.
type Place = (Fingerprint, Arc<str>);

/// Copies a response.
pub(super) struct Capture {
    instance: Arc<Instance>,
    place: Place,
    /// The parts of the key under which all find it, if it may answer all of them.
    shared: Option<Vec<u8>>,
    /// Other requests wait for the copy.
    lead: Option<Lead>,
    copy: Option<Copied>,
}

struct Copied {
    terms: Storable,
    subject: Arc<stored::Subject>,
    status: u16,
    headers: Headers,
    vary: Variant,
    body: BufferedBody,
    /// Its expected length, if known.
    length: usize,
}

impl Capture {
    pub(super) fn new(
        instance: Arc<Instance>,
        place: Place,
        shared: Option<Vec<u8>>,
        lead: Option<Lead>,
    ) -> Self {
        Self { instance, place, shared, lead, copy: None }
    }

    fn begin(&self, exchange: &Exchange) -> Option<Copied> {
        let response = &exchange.response;
        let length = match response.framing {
            Framing::Length(length) if length > MAX_BODY_LEN as u64 => return None,
            Framing::Length(length) => length as usize,
            _ => MAX_BODY_LEN,
        };
        let Instance { config, types, rules, .. } = &*self.instance;
        if rules.as_ref().is_some_and(|rules| rules.refuses(exchange)) {
            return None;
        }
        let terms = storable::check(config, types.as_deref(), exchange)?;
        let vary = vary::of(exchange)?;
        let mut headers = response.headers.clone();
        storable::strip(&mut headers, &terms.unstored, SystemTime::now());
        if exchange.request.method_str() != "HEAD" {
            headers.remove_known(Known::ContentLength);
        }
        let subject = Arc::new(self.instance.subject(exchange));
        let body = exchange.body_buffer();
        Some(Copied { terms, subject, status: response.status, headers, vary, body, length })
    }

    /// Has the copy go where all find it, if it may answer all of them.
    fn settle_place(&mut self, outcome: Option<&Outcome>) {
        let is_for_all = self.copy.as_ref().is_some_and(|copy| copy.terms.is_for_all);
        let Some(parts) = self.shared.as_ref().filter(|_| is_for_all) else { return };
        self.place = (self.instance.cache.key.of(parts), key::text(parts));
        if let Some(outcome) = outcome {
            outcome.key.replace(Some(self.place.1.clone()));
        }
    }

    /// Stops copying; requests that wait for the copy continue without it.
    fn give_up(&mut self) {
        self.copy = None;
        if let Some(lead) = self.lead.take() {
            lead.uncacheable();
        }
    }
}

impl Observer for Capture {
    fn head(&mut self, exchange: &Exchange) -> bool {
        self.copy = self.begin(exchange);
        let outcome = exchange.extensions.get::<Outcome>();
        if self.copy.is_none() {
            if let Some(outcome) = outcome {
                outcome.status.set("Bypass");
            }
            self.give_up();
        }
        self.settle_place(outcome);
        self.copy.is_some()
    }

    fn data(&mut self, data: &[u8]) {
        let Some(copy) = &mut self.copy else { return };
        if copy.body.len() + data.len() > MAX_BODY_LEN || copy.body.push(data, copy.length).is_err() {
            self.give_up();
        }
    }

    fn is_done(&self) -> bool {
        self.copy.is_none()
    }

    fn end(mut self: Box<Self>) {
        let Some(copy) = self.copy.take() else { return };
        let mut body = copy.body.into_bytes();
        body.shrink_to_fit();
        let (since, timestamp) = stored::now();
        let stored = Stored {
            key: self.place.1.clone(),
            subject: copy.subject,
            status: copy.status,
            headers: Arc::new(copy.headers),
            body: body.into(),
            since,
            timestamp,
            term: copy.terms.term,
            vary: copy.vary,
            is_for_all: copy.terms.is_for_all,
            is_gone: AtomicBool::new(false),
            is_used: AtomicBool::new(true),
        };
        self.instance.store(self.place.0, Arc::new(stored), self.lead.take());
    }
}

/// Removes what a successful response to a request that changes something makes invalid.
pub(super) struct Invalidation(pub(super) Arc<Instance>);

impl Observer for Invalidation {
    fn head(&mut self, exchange: &Exchange) -> bool {
        if (200..400).contains(&exchange.response.status) {
            self.0.invalidate(exchange);
        }
        false
    }

    fn data(&mut self, _: &[u8]) {}

    fn end(self: Box<Self>) {}
}
