//! What the engine knows and changes of an exchange.

use super::body_filter::{BodyChanges, ReplaceLater};
use super::connection::Connection;
use super::extras::Extras;
use super::{Exchange, FailedTry, LocalResponse, LogField, Source, Timing};
use crate::body_memory::{BodyReservation, BufferedBody};
use crate::extensions::Extensions;
use crate::instrumentations::{Instrumentations, TracedStep};
use crate::views::{Configuration, ConsumerIndex};
use std::borrow::Cow;
use std::cell::{Cell, OnceCell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use tokio::time::Instant;
use weir_http1::{Headers, RequestHead, ResponseHead, is_same_header};
use weir_model::entity::PathHandling;
use weir_model::{Uuid, entity};
use weir_router::{Captures, push_encoded, upstream_path, upstream_path_v1};

/// The request's path in its one normal form, used for routing, by plugins and towards the upstream alike.
pub enum NormalPath {
    /// As sent.
    AsSent,
    /// Rewritten.
    Rewritten(String),
}

/// The heads of an exchange. Boxed, so that handing them over moves two pointers.
pub type Heads = (Box<RequestHead>, Box<ResponseHead>);

/// What the engine knows and changes of an exchange.
pub struct ExchangeState {
    /// The client's connection.
    pub connection: Rc<Connection>,
    /// What the configuration has.
    pub configuration: Rc<Configuration>,
    /// What was collected of the request's body; the rest streams behind it.
    pub body: Option<BufferedBody>,
    /// Whether that is all of it.
    pub body_is_whole: bool,
    /// The protocol that the client asks to change to.
    pub upgrade: Option<Box<str>>,
    /// Whether the client takes trailers.
    pub takes_trailers: bool,
    /// The request's path.
    pub path: NormalPath,
    /// How much of it the route's path matched.
    pub matched_path: u32,
    /// How the service's path and the request's are joined.
    pub path_handling: PathHandling,
    /// What the groups of the path's regex captured.
    pub captures: Option<Box<Captures>>,
    /// What a plugin has put in the place of the query.
    pub query: Option<String>,
    /// Where the route stands in the configuration.
    pub route: Option<u32>,
    /// Who calls.
    pub consumer: Option<ConsumerIndex>,
    /// The priority of the plugin that named the consumer: plugins of a lower one know who calls.
    pub named_at: i32,
    /// The priority of the plugin whose access hook runs, or ran last.
    pub running: i32,
    /// The response says that something failed.
    pub failed: bool,
    /// The upstream's address that was asked last.
    pub upstream_addr: Option<SocketAddr>,
    /// The status of the service's response, as it came.
    pub service_status: Option<u16>,
    /// The last hook belonged to another plugin: the one that was run has none of the kind.
    pub absent: Cell<bool>,
    pub(crate) credential: Option<Uuid>,
    pub(crate) anonymous: bool,
    pub(crate) log_fields: OnceCell<Box<RefCell<Vec<LogField>>>>,
    pub(crate) extras: Option<Box<Extras>>,
}

/// A request whose head has arrived, on its way from here.
#[inline(always)] // It is too large to be moved for each request.
pub fn begin(
    connection: &Rc<Connection>,
    configuration: Rc<Configuration>,
    (worker, id): (usize, [u8; 32]),
    (request, response): Heads,
) -> Exchange {
    Exchange {
        source: Source::Kong,
        peer: connection.peer,
        client_ip: connection.client_ip,
        tls: connection.tls.is_some(),
        sni: connection.tls.as_ref().and_then(|tls| tls.sni.clone()),
        id,
        worker,
        timing: Timing { start: Instant::now(), upstream_start: None, upstream_head: None, end: None },
        bytes_in: 0,
        bytes_out: 0,
        extensions: Extensions::default(),
        engine: ExchangeState {
            connection: connection.clone(),
            configuration,
            body: None,
            body_is_whole: false,
            upgrade: None,
            takes_trailers: false,
            path: NormalPath::AsSent,
            matched_path: 0,
            path_handling: PathHandling::V0,
            captures: None,
            query: None,
            route: None,
            consumer: None,
            named_at: i32::MAX,
            running: i32::MAX,
            failed: false,
            upstream_addr: None,
            service_status: None,
            absent: Cell::new(false),
            credential: None,
            anonymous: false,
            log_fields: OnceCell::new(),
            extras: None,
        },
        request,
        response,
    }
}

impl ExchangeState {
    pub(crate) fn extras(&mut self) -> &mut Extras {
        self.extras.get_or_insert_default()
    }

    /// There is no body to be collected.
    pub fn has_empty_body(&mut self) {
        self.body.get_or_insert_default();
        self.body_is_whole = true;
    }

    /// A reservation of memory for a body, which a plugin can do without or not.
    pub fn reserve_body(&self, is_optional: bool) -> BodyReservation {
        BodyReservation::new(self.configuration.bodies.clone(), is_optional)
    }

    /// Says why the client got no response of the upstream's, or only the beginning of one.
    pub fn set_error(&mut self, name: &'static str) {
        self.extras().error = Some(name);
    }

    /// An attempt to get a response of the upstream failed.
    pub fn try_failed(&mut self, failed: FailedTry) {
        self.extras().failed_tries.push(failed);
    }

    /// Records steps of the request from here on.
    pub fn trace_steps(&mut self, instrumentations: Instrumentations) {
        self.extras().instrumentations = Some(instrumentations);
    }

    /// What is recorded of the request, where anything is.
    pub fn instrumentations(&self) -> Option<Instrumentations> {
        self.extras.as_ref()?.instrumentations
    }

    /// Records a step.
    pub fn step_done(&mut self, name: impl Into<Cow<'static, str>>, start: Instant, end: Instant) {
        self.extras().steps.push(TracedStep { name: name.into(), start, end });
    }

    // ---- who calls ----

    /// The consumer that was known when it was the turn of the access hooks of this priority.
    pub fn consumer_at(&self, priority: i32) -> Option<ConsumerIndex> {
        if priority < self.named_at { self.consumer } else { self.earlier_consumer_at(priority) }
    }

    #[cold]
    fn earlier_consumer_at(&self, priority: i32) -> Option<ConsumerIndex> {
        let earlier = self.extras.as_ref()?.earlier_consumers.iter().rev();
        earlier.copied().find(|(named_at, _)| priority < *named_at)?.1
    }

    /// The plugin that runs says who calls. Several may, one after another.
    pub fn identify(&mut self, consumer: ConsumerIndex) {
        let before = self.consumer.replace(consumer);
        self.keep_earlier(before);
    }

    /// The plugin that runs says that no consumer is known.
    pub fn forget_consumer(&mut self) {
        let before = self.consumer.take();
        self.keep_earlier(before);
    }

    /// An earlier consumer, or that there was none, holds for the plugins that have run since.
    fn keep_earlier(&mut self, before: Option<ConsumerIndex>) {
        let named_at = std::mem::replace(&mut self.named_at, self.running);
        let was_said = before.is_some()
            || self.extras.as_ref().is_some_and(|extras| !extras.earlier_consumers.is_empty());
        if was_said {
            self.extras().earlier_consumers.push((named_at, before));
        }
    }

    /// Whether a plugin has named a consumer, who may be forgotten since.
    pub fn is_anybody_named(&self) -> bool {
        self.consumer.is_some()
            || self.extras.as_ref().is_some_and(|extras| !extras.earlier_consumers.is_empty())
    }

    /// What proved who calls. It has no other text than its id.
    pub(crate) fn set_credential(&mut self, id: Option<Uuid>) {
        self.credential = id;
        if let Some(extras) = &mut self.extras {
            extras.credential = None;
        }
    }

    /// Sets the client's port, where a trusted proxy has named it.
    pub fn set_client_port(&mut self, port: Option<u16>) {
        if port.is_some() || self.extras.is_some() {
            self.extras().client_port = port;
        }
    }

    /// All consumers that were named, in order, each with the priority of the plugin that did; none is known from now on.
    pub fn take_consumers(&mut self) -> Vec<(i32, Option<ConsumerIndex>)> {
        let is_any = self.is_anybody_named();
        let earlier = self.extras.as_mut().map(|extras| std::mem::take(&mut extras.earlier_consumers));
        let last = is_any.then(|| (self.named_at, self.consumer.take()));
        earlier.into_iter().flatten().chain(last).collect()
    }

    // ---- bodies ----

    /// Takes what response hooks have asked for the body of their response.
    #[inline]
    pub fn take_body_changes(&mut self) -> Option<BodyChanges> {
        self.extras.as_mut()?.body_changes.take()
    }

    /// Takes how a plugin replaces the response's body that is buffered, once it has waited.
    pub fn take_later(&mut self) -> Option<ReplaceLater> {
        self.extras.as_mut()?.body_changes.later.take()
    }

    /// Some of the upstream's response has come.
    #[inline]
    pub fn upstream_passes(&mut self, data: &[u8]) {
        if let Some(extras) = &mut self.extras {
            extras.upstream.iter_mut().for_each(|observer| observer.data(data));
        }
    }

    /// Whether an observer needs what is still to come of the upstream's response.
    pub fn upstream_is_observed(&self) -> bool {
        self.extras.as_ref().is_some_and(|extras| extras.upstream.iter().any(|observer| !observer.is_done()))
    }

    fn keep_service_headers(&mut self, headers: &Headers) {
        if let Some(kept @ None) = self.extras.as_mut().and_then(|extras| extras.service_headers.as_mut()) {
            *kept = Some(headers.clone());
        }
    }

    /// The rest of the upstream's response stays with it: no observer has seen all of it.
    pub fn upstream_is_cut(&mut self) {
        if let Some(extras) = &mut self.extras {
            extras.upstream.clear();
        }
    }

    /// Some of the request's body is on its way. An error is what the client is answered.
    #[inline]
    pub fn request_passes(&mut self, data: &[u8]) -> Result<(), Box<LocalResponse>> {
        let Some(extras) = &mut self.extras else { return Ok(()) };
        extras.show(0, data)
    }

    /// The request's body is collected, and was seen as it came.
    pub fn is_collected(&mut self) {
        if let Some(extras) = &mut self.extras {
            extras.seen = extras.request.len();
        }
    }

    /// What was collected of the request's body is on its way: those see it who came later.
    pub fn collected_passes(&mut self) -> Result<(), Box<LocalResponse>> {
        let Some((extras, body)) = self.extras.as_mut().zip(self.body.as_deref()) else { return Ok(()) };
        extras.show(extras.seen, body)
    }

    /// Some of the response's body is on its way.
    #[inline]
    pub fn response_passes(&mut self, data: &[u8]) {
        if let Some(extras) = &mut self.extras {
            extras.response.iter_mut().for_each(|observer| observer.data(data));
        }
    }

    /// The response's body has passed, whole or not.
    pub fn response_passed(&mut self, is_whole: bool) {
        let Some(extras) = &mut self.extras else { return };
        let (response, upstream) =
            (std::mem::take(&mut extras.response), std::mem::take(&mut extras.upstream));
        if is_whole {
            response.into_iter().chain(upstream).for_each(|observer| observer.end());
        }
    }
}

/// The head of the upstream's response has come.
#[inline]
pub fn upstream_answers(exchange: &mut Exchange) {
    if exchange.engine.extras.is_some() {
        exchange.engine.keep_service_headers(&exchange.response.headers);
        let mut observers = std::mem::take(&mut exchange.engine.extras().upstream);
        observers.retain_mut(|observer| observer.head(exchange));
        exchange.engine.extras().upstream = observers;
    }
}

/// Appends the target as the upstream gets it; `strips_path` says whether the route strips the path that it matched.
pub fn write_target(out: &mut Vec<u8>, exchange: &Exchange, strips_path: bool, service: &entity::Service) {
    write_path(out, exchange, strips_path, service.path.as_deref());
    if let Some(query) = exchange.query() {
        out.push(b'?');
        out.extend_from_slice(query.as_bytes());
    }
}

/// Appends the path alone; `path` is the service's.
pub(crate) fn write_path(out: &mut Vec<u8>, exchange: &Exchange, strips_path: bool, path: Option<&str>) {
    let matched = exchange.engine.matched_path as usize;
    match exchange.upstream_path() {
        Some(path) => push_encoded(out, path),
        None => {
            let join = match exchange.engine.path_handling {
                PathHandling::V0 => upstream_path,
                PathHandling::V1 => upstream_path_v1,
            };
            join(out, path, exchange.path(), matched, strips_path);
        }
    }
}

/// Has the filters of a response's body see the trailers behind it.
pub fn show_trailers(exchange: &mut Exchange, trailers: &Headers) {
    exchange.engine.extras().trailers = Some(trailers.clone());
}

/// Whether a trailer of this name would say what a header of the request says, or one that a plugin has removed.
pub fn is_said_by_head(exchange: &Exchange, name: &[u8]) -> bool {
    let cleared = exchange.engine.extras.iter().flat_map(|extras| &extras.cleared);
    exchange.request.headers.iter().any(|field| is_same_header(field.name, name))
        || cleared.into_iter().any(|cleared| is_same_header(cleared.as_bytes(), name))
}

/// Whether a filter has taken the trailers, so that the client gets none.
pub fn are_trailers_taken(exchange: &Exchange) -> bool {
    exchange.engine.extras.as_ref().is_some_and(|extras| extras.takes_trailers)
}
