//! What few exchanges have, since plugins ask for it: boxed, so that the others have no room for it.

use super::body_filter::{BodyChanges, BodyFilter, WaitForBody};
use super::fallback::FallBack;
use super::secrets::UpstreamSecrets;
use super::state::NormalPath;
use super::upstream_replacement::{Prepare, Replace};
use super::{Exchange, LocalResponse, ServiceOverride};
use crate::body_memory::BufferedBody;
use crate::instrumentations::{Instrumentations, TracedStep};
use crate::views::ConsumerIndex;
use std::net::SocketAddr;
use tokio::time::Instant;
use weir_http1::{Framing, Headers};
use weir_router::normalize_path;

/// Sees a response as it passes. Dropped without [`Observer::end`], it has not seen all of it.
pub trait Observer: 'static {
    /// The upstream's head, where the upstream is observed: as it has come, but for what concerned that connection alone.
    /// Whether the rest is to be seen too.
    fn head(&mut self, _exchange: &Exchange) -> bool {
        true
    }
    /// Some of the body, in order.
    fn data(&mut self, data: &[u8]);
    /// Whether the rest makes no difference. If that is so of all observers, a response that no client waits for is not
    /// read to its end.
    fn is_done(&self) -> bool {
        false
    }
    /// The body has passed whole.
    fn end(self: Box<Self>);
}

/// Sees a request's body as it passes, and may refuse it.
type RequestObserver = Box<dyn FnMut(&[u8]) -> Result<(), LocalResponse>>;

/// An attempt to get a response of the upstream that failed.
#[derive(Debug, Clone, Copy)]
pub struct FailedTry {
    /// The address, where one was found.
    pub address: Option<SocketAddr>,
    /// The upstream's port.
    pub port: u16,
    /// When it was begun.
    pub start: Instant,
    /// When it was given up.
    pub end: Instant,
    /// 504 where it took too long, and 502 otherwise.
    pub code: u16,
}

/// What few exchanges have.
#[derive(Default)]
pub(crate) struct Extras {
    pub(crate) path: Option<String>,
    pub(crate) host: Option<String>,
    pub(crate) request: Vec<RequestObserver>,
    /// So many of them have seen what was collected, as it came.
    pub(crate) seen: usize,
    pub(crate) response: Vec<Box<dyn Observer>>,
    pub(crate) upstream: Vec<Box<dyn Observer>>,
    pub(crate) replace: Option<Replace>,
    pub(crate) fall_back: Option<FallBack>,
    pub(crate) in_background: Option<Prepare>,
    pub(crate) body_changes: BodyChanges,
    caller: Vec<u8>,
    groups: Vec<String>,
    /// Consumers that an authentication plugin named before another did, and the priority of each plugin.
    pub(crate) earlier_consumers: Vec<(i32, Option<ConsumerIndex>)>,
    pub(crate) failed_tries: Vec<FailedTry>,
    /// What is recorded of the request for tracing plugins, where anything is.
    pub(crate) instrumentations: Option<Instrumentations>,
    pub(crate) steps: Vec<TracedStep>,
    /// What plugins have changed of how the service is reached.
    pub(crate) service: Option<ServiceOverride>,
    pub(crate) secrets: UpstreamSecrets,
    /// The client's port, where a trusted proxy has named it.
    pub(crate) client_port: Option<u16>,
    /// The credential's id, where it is no UUID.
    pub(crate) credential: Option<Box<str>>,
    /// The service's response headers, if they are to be kept, once they have come.
    pub(crate) service_headers: Option<Option<Headers>>,
    pub(crate) error: Option<&'static str>,
    /// The request headers that plugins have removed by [`Exchange::clear_header`], where trailers may follow.
    pub(crate) cleared: Vec<Box<str>>,
    /// The trailers of the upstream's response, once they have come, and whether a filter takes them.
    pub(crate) trailers: Option<Headers>,
    pub(crate) takes_trailers: bool,
}

impl Extras {
    /// Shows some of the body to the observers of the request behind the first `skipped`, until one refuses it.
    pub(crate) fn show(&mut self, skipped: usize, data: &[u8]) -> Result<(), Box<LocalResponse>> {
        let mut observers = self.request.iter_mut().skip(skipped);
        observers.find_map(|observer| observer(data).err()).map_or(Ok(()), |answer| Err(Box::new(answer)))
    }
}

impl Exchange {
    /// Why the client got no response of the upstream's, or only the beginning of one: `upstream_closed` or the like.
    pub fn error(&self) -> Option<&'static str> {
        self.engine.extras.as_ref()?.error
    }

    /// Replaces the method that the upstream is asked with. What is none changes nothing.
    pub fn set_method(&mut self, method: &str) {
        if !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
            self.request.set_method(method);
        }
    }

    /// Replaces the path that the route is found by, and that the upstream's derives from. It is brought into the normal form
    /// that a client's path has. For rewrite hooks: once there is a route, it changes nothing.
    pub fn set_path(&mut self, path: &str) {
        if self.engine.route.is_some() {
            return;
        }
        let slash = if path.starts_with('/') { "" } else { "/" };
        let path = normalize_path(&format!("{slash}{path}")).into_owned();
        self.engine.path = NormalPath::Rewritten(path);
    }

    /// Replaces the path that the upstream is asked for, whole: neither the service's path nor `strip_path` change it.
    /// It is decoded; what cannot be sent as it is will be escaped.
    pub fn set_upstream_path(&mut self, path: impl Into<String>) {
        let mut path = path.into();
        if !path.starts_with('/') {
            path.insert(0, '/');
        }
        self.engine.extras().path = Some(path);
    }

    /// The path that the upstream is asked for, where a plugin has replaced it.
    pub fn upstream_path(&self) -> Option<&str> {
        self.engine.extras.as_ref()?.path.as_deref()
    }

    /// Replaces the host that the upstream is asked for, in its head and in its TLS handshake.
    pub fn set_upstream_host(&mut self, host: &str) {
        let sendable = |byte: u8| byte.is_ascii_graphic() && !b"/?#@".contains(&byte);
        if !host.is_empty() && host.bytes().all(sendable) {
            self.engine.extras().host = Some(host.to_owned());
        }
    }

    /// The host that the upstream is asked for, where a plugin has replaced it.
    pub fn upstream_host(&self) -> Option<&str> {
        self.engine.extras.as_ref()?.host.as_deref()
    }

    /// Replaces the request's body, with its length; whether it could. One that is too long to be buffered, or that no plugin
    /// asked for, cannot be replaced.
    pub fn set_body(&mut self, body: Vec<u8>) -> bool {
        let replaced = self.engine.body_is_whole || self.request.framing == Framing::None;
        if replaced {
            let mut buffered = BufferedBody::within(self.engine.reserve_body(false));
            buffered.replace(|_| body);
            self.engine.body = Some(buffered);
            self.engine.body_is_whole = true;
        }
        replaced
    }

    /// Has the request's body seen by the observer on its way to the upstream, whichever way it goes and however long
    /// it is: as it comes from the client, or as it is where it was collected already. Once it is refused, the client is answered instead, if the upstream has not answered yet.
    pub fn observe_request(&mut self, observer: impl FnMut(&[u8]) -> Result<(), LocalResponse> + 'static) {
        self.engine.extras().request.push(Box::new(observer));
    }

    /// Has the body of the upstream's response seen on its way to the client.
    pub fn observe_response(&mut self, observer: impl Observer) {
        self.engine.extras().response.push(Box::new(observer));
    }

    /// Has the upstream's response seen as it comes: before response hooks change its head, and others its body. Nothing
    /// of the gateway's own responses is seen. For access hooks.
    pub fn observe_upstream(&mut self, observer: impl Observer) {
        self.engine.extras().upstream.push(Box::new(observer));
    }

    /// Leaves the body of the upstream's response out: the client gets none. For response hooks.
    pub fn drop_response_body(&mut self) {
        self.engine.extras().body_changes.drops = true;
    }

    /// Adds to what the upstream gets about the caller, beyond the consumer: a cache keeps callers apart by it.
    pub fn describe_caller(&mut self, by: &[u8]) {
        let caller = &mut self.engine.extras().caller;
        caller.extend_from_slice(&by.len().to_le_bytes());
        caller.extend_from_slice(by);
    }

    /// What the upstream gets about the caller, beyond the consumer.
    pub fn caller(&self) -> &[u8] {
        self.engine.extras.as_ref().map_or(&[], |extras| &extras.caller)
    }

    /// Has the response's body buffered until it is whole, so that it can be replaced by
    /// [`Hooks::response_body`](crate::Hooks::response_body). For response hooks.
    pub fn buffer_response_body(&mut self) {
        self.engine.extras().body_changes.buffers = true;
    }

    /// The same also of a response that has no body (204, 304, to HEAD): the hooks get an empty one, and may change the head.
    /// What they return is sent if the status that they leave may have a body, and not to HEAD. For response hooks.
    pub fn buffer_response(&mut self) {
        self.engine.extras().body_changes.runs_without_body = true;
    }

    /// Has it buffered as [`Exchange::buffer_response_body`] does, but one that is too long does not
    /// pass as it is: the client gets what the function returns, which may change the head too. For response hooks.
    pub fn buffer_response_body_or(&mut self, refuse: impl FnOnce(&mut Exchange) -> Vec<u8> + 'static) {
        let changes = &mut self.engine.extras().body_changes;
        changes.buffers = true;
        changes.too_long = Some(Box::new(refuse));
    }

    /// Sends this body in the place of the response's, however long that is. Other plugins may have it buffered and replace
    /// it again. `Content-Length` becomes its length; other headers that describe the body are the plugin's to change. For
    /// response hooks.
    pub fn set_response_body(&mut self, body: Vec<u8>) {
        let changes = &mut self.engine.extras().body_changes;
        (changes.buffers, changes.replacement) = (true, Some(body));
    }

    /// Has the upstream's body replaced by a function that may wait, such as for another server, before the head goes to the
    /// client: what it returns in the end may change the head too. It gets the whole body as all [`Hooks::response_body`]
    /// have left it, or none that is too long to be buffered. It is dropped when the client leaves. For response hooks; the
    /// last plugin that asks for it replaces the body. Where [`Hooks::response_body`] asks for it, hooks of lower priority get
    /// what it returns. Not for the gateway's own responses.
    ///
    /// [`Hooks::response_body`]: crate::Hooks::response_body
    pub fn replace_response_body_later(
        &mut self,
        replace: impl FnOnce(&mut Exchange, Option<Vec<u8>>) -> WaitForBody + 'static,
    ) {
        let changes = &mut self.engine.extras().body_changes;
        changes.buffers = true;
        changes.later = Some(Box::new(replace));
    }

    /// Has the response's body go through a filter, chunk by chunk as it comes, also if the gateway made it. Filters of
    /// several plugins run in the order of these. A body that another plugin has buffered is filtered once it is replaced; one
    /// that is left out is not, and neither is the response to a request for a head alone, or a tunnel. `Content-Length`
    /// goes away; other headers that describe the body are the plugin's to change. For response hooks.
    pub fn filter_response_body(&mut self, filter: impl BodyFilter) {
        self.engine.extras().body_changes.filters.push(filter);
    }

    /// Takes the trailers of the upstream's response, if it had any: the client gets none. For
    /// [`BodyFilter::end`].
    pub fn take_response_trailers(&mut self) -> Option<Headers> {
        let extras = self.engine.extras();
        extras.takes_trailers = true;
        extras.trailers.take()
    }

    /// Groups that an authentication plugin has found the client to be in.
    pub fn set_authenticated_groups(&mut self, groups: Vec<String>) {
        self.engine.extras().groups = groups;
    }

    /// The groups that an authentication plugin has found the client to be in.
    pub fn authenticated_groups(&self) -> &[String] {
        self.engine.extras.as_ref().map_or(&[], |extras| &extras.groups)
    }

    /// The attempts to get a response of the upstream that failed, in order. One more than these was made if
    /// [`Exchange::upstream_address`] is known, which is the one that decided.
    pub fn failed_tries(&self) -> &[FailedTry] {
        self.engine.extras.as_ref().map_or(&[], |extras| &extras.failed_tries)
    }

    /// The steps that were recorded, by `tracing_instrumentations`.
    pub fn traced_steps(&self) -> &[TracedStep] {
        self.engine.extras.as_ref().map_or(&[], |extras| &extras.steps)
    }
}
