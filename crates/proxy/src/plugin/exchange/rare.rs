//! What plugins ask of few exchanges. The others have a word for it and no more.

use super::{ConsumerIndex, Exchange};
use crate::answer::{Answer, Failure};
use crate::plugin::body_memory::HeldBody;
use crate::request_debug::Times;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use weir_http1::Framing;

/// Sees a response as it passes. Dropped without [`Observer::end`], it has not seen all of it.
pub trait Observer: 'static {
    /// The upstream's head, where the upstream is observed: as it has come, but for what concerned that connection alone.
    /// Whether the rest is to be seen too.
    fn head(&mut self, _exchange: &Exchange) -> bool {
        true
    }
    /// Some of the body, in order.
    fn data(&mut self, data: &[u8]);
    /// The body has passed whole.
    fn end(self: Box<Self>);
}

/// Sees a request's body as it passes, and may refuse it.
type RequestObserver = Box<dyn FnMut(&[u8]) -> Result<(), Answer>>;

/// Shows them some of the body, until one refuses it.
fn show<'o>(
    mut observers: impl Iterator<Item = &'o mut RequestObserver>,
    data: &[u8],
) -> Result<(), Failure> {
    let refusal = observers.find_map(|observer| observer(data).err());
    refusal.map_or(Ok(()), |answer| Err(Failure::Refused(Box::new(answer))))
}

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

/// What a plugin's hooks have taken, for a client that is told.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Took {
    pub(crate) plugin: &'static str,
    pub(crate) spent: Duration,
    pub(crate) waited: Option<Duration>,
}

/// What few exchanges have.
#[derive(Default)]
pub(crate) struct Rare {
    path: Option<String>,
    host: Option<String>,
    request: Vec<RequestObserver>,
    /// So many of them have seen what was collected, as it came.
    seen: usize,
    response: Vec<Box<dyn Observer>>,
    upstream: Vec<Box<dyn Observer>>,
    hold_response: bool,
    drop_response: bool,
    caller: Vec<u8>,
    groups: Vec<String>,
    /// Consumers that an authentication plugin named before another did, and the priority of each plugin.
    earlier_consumers: Vec<(i32, ConsumerIndex)>,
    failed_tries: Vec<FailedTry>,
    took: Vec<Took>,
    times: Option<Box<Times>>,
    error: Option<&'static str>,
}

impl Exchange {
    fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// Why the client got no response of the upstream's, or only the beginning of one: `upstream_closed` or the like.
    pub fn error(&self) -> Option<&'static str> {
        self.rare.as_ref()?.error
    }

    pub(crate) fn fail(&mut self, failure: &Failure) {
        if let Some(name) = failure.name() {
            self.rare().error = Some(name);
        }
    }

    /// Replaces the method that the upstream is asked with. What is none changes nothing.
    pub fn set_method(&mut self, method: &str) {
        if !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
            self.request.set_method(method);
        }
    }

    /// Replaces the path that the upstream is asked for, whole: neither the service's path nor `strip_path` change it.
    /// It is decoded; what cannot be sent as it is will be escaped.
    pub fn set_upstream_path(&mut self, path: impl Into<String>) {
        let mut path = path.into();
        if !path.starts_with('/') {
            path.insert(0, '/');
        }
        self.rare().path = Some(path);
    }

    /// The path that the upstream is asked for, where a plugin has replaced it.
    pub fn upstream_path(&self) -> Option<&str> {
        self.rare.as_ref()?.path.as_deref()
    }

    /// Replaces the host that the upstream is asked for, in its head and in its TLS handshake.
    pub fn set_upstream_host(&mut self, host: &str) {
        let sendable = |byte: u8| byte.is_ascii_graphic() && !b"/?#@".contains(&byte);
        if !host.is_empty() && host.bytes().all(sendable) {
            self.rare().host = Some(host.to_owned());
        }
    }

    /// The host that the upstream is asked for, where a plugin has replaced it.
    pub fn upstream_host(&self) -> Option<&str> {
        self.rare.as_ref()?.host.as_deref()
    }

    /// Replaces the request's body, with its length; whether it could. One that is too long to be held, or that nobody
    /// asked to be collected, cannot be replaced.
    pub fn set_body(&mut self, body: Vec<u8>) -> bool {
        let replaced = self.body_is_whole || self.request.framing == Framing::None;
        if replaced {
            let mut held = HeldBody::within(self.room(false));
            held.replace(|_| body);
            self.body = Some(held);
            self.body_is_whole = true;
        }
        replaced
    }

    /// Has the request's body seen by the observer on its way to the upstream, whichever way it goes and however long
    /// it is: as it comes from the client, or as it is where it was collected already. Once it is refused, the client is answered instead, if the upstream has not answered yet.
    pub fn observe_request(&mut self, observer: impl FnMut(&[u8]) -> Result<(), Answer> + 'static) {
        self.rare().request.push(Box::new(observer));
    }

    /// Has the body of the upstream's response seen on its way to the client.
    pub fn observe_response(&mut self, observer: impl Observer) {
        self.rare().response.push(Box::new(observer));
    }

    /// Has the upstream's response seen as it comes: before response hooks change its head, and others its body. Nothing
    /// of the gateway's own responses is seen. For access hooks.
    pub fn observe_upstream(&mut self, observer: impl Observer) {
        self.rare().upstream.push(Box::new(observer));
    }

    /// Leaves the body of the upstream's response out: the client gets none. For response hooks.
    pub fn drop_response_body(&mut self) {
        self.rare().drop_response = true;
    }

    /// Says what the upstream is told of the caller, beyond the consumer: who answers several callers with one response
    /// tells them apart by it.
    pub fn describe_caller(&mut self, by: &[u8]) {
        let caller = &mut self.rare().caller;
        caller.extend_from_slice(&by.len().to_le_bytes());
        caller.extend_from_slice(by);
    }

    /// What the upstream is told of the caller, beyond the consumer.
    pub fn caller(&self) -> &[u8] {
        self.rare.as_ref().map_or(&[], |rare| &rare.caller)
    }

    /// Has the response's body held until it is whole, so that it can be replaced by
    /// [`Hooks::response_body`](crate::plugin::Hooks::response_body). For response hooks.
    pub fn hold_response_body(&mut self) {
        self.rare().hold_response = true;
    }

    /// Groups that an authentication plugin has found the client to be in.
    pub fn set_authenticated_groups(&mut self, groups: Vec<String>) {
        self.rare().groups = groups;
    }

    /// The groups that an authentication plugin has found the client to be in.
    pub fn authenticated_groups(&self) -> &[String] {
        self.rare.as_ref().map_or(&[], |rare| &rare.groups)
    }

    /// The consumer was named by a plugin before another one named who it really is.
    pub(super) fn keep_earlier_consumer(&mut self, consumer: ConsumerIndex) {
        let named_at = self.named_at;
        self.rare().earlier_consumers.push((named_at, consumer));
    }

    /// The same, of what was known before the consumer was named for the last time.
    #[cold]
    pub(super) fn earlier_consumer_at(&self, priority: i32) -> Option<ConsumerIndex> {
        let earlier = self.rare.as_ref()?.earlier_consumers.iter().rev();
        earlier.copied().find(|(named_at, _)| priority < *named_at).map(|(_, consumer)| consumer)
    }

    /// All consumers that were named, in order, each with the priority of the plugin that did; none is known from now on.
    pub(crate) fn take_consumers(&mut self) -> Vec<(i32, ConsumerIndex)> {
        let earlier = self.rare.as_mut().map(|rare| std::mem::take(&mut rare.earlier_consumers));
        let last = self.consumer.take().map(|consumer| (self.named_at, consumer));
        earlier.into_iter().flatten().chain(last).collect()
    }

    /// The attempts to get a response of the upstream that failed, in order. One more than these was made if
    /// [`Exchange::upstream_address`] is known, which is the one that decided.
    pub fn failed_tries(&self) -> &[FailedTry] {
        self.rare.as_ref().map_or(&[], |rare| &rare.failed_tries)
    }

    pub(crate) fn try_failed(&mut self, failed: FailedTry) {
        self.rare().failed_tries.push(failed);
    }

    /// A plugin's hook has taken so long, which is added to what others of its name have.
    pub(crate) fn took(&mut self, plugin: &'static str, spent: Duration, waited: Option<Duration>) {
        let took = &mut self.rare().took;
        match took.iter_mut().find(|took| took.plugin == plugin) {
            Some(took) => {
                took.spent += spent;
                if let Some(waited) = waited {
                    *took.waited.get_or_insert_default() += waited;
                }
            }
            None => took.push(Took { plugin, spent, waited }),
        }
    }

    /// What plugins have taken, in the order in which they ran.
    pub(crate) fn took_by_plugin(&self) -> &[Took] {
        self.rare.as_ref().map_or(&[], |rare| &rare.took)
    }

    /// The times that are written down, where the client has asked for them.
    #[inline]
    pub(crate) fn times(&mut self) -> Option<&mut Times> {
        self.rare.as_mut()?.times.as_deref_mut()
    }

    pub(crate) fn set_times(&mut self, times: Times) {
        self.rare().times = Some(Box::new(times));
    }

    pub(crate) fn take_times(&mut self) -> Option<Times> {
        self.rare.as_mut()?.times.take().map(|times| *times)
    }

    /// Whether the response's body is to be held, which those of calls are not: their messages are for their client one
    /// by one.
    pub(crate) fn holds_response(&mut self) -> bool {
        let asked = |rare: &mut Box<Rare>| std::mem::take(&mut rare.hold_response);
        self.rare.as_mut().is_some_and(asked) && !crate::grpc::is_call(self)
    }

    /// Whether the response's body is to be left out.
    pub(crate) fn drops_response(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.drop_response) && !crate::grpc::is_call(self)
    }

    /// The head of the upstream's response has come.
    #[inline]
    pub(crate) fn upstream_answers(&mut self) {
        if self.rare.is_some() {
            let mut observers = std::mem::take(&mut self.rare().upstream);
            observers.retain_mut(|observer| observer.head(self));
            self.rare().upstream = observers;
        }
    }

    /// Some of the upstream's response has come.
    #[inline]
    pub(crate) fn upstream_passes(&mut self, data: &[u8]) {
        if let Some(rare) = &mut self.rare {
            rare.upstream.iter_mut().for_each(|observer| observer.data(data));
        }
    }

    /// The rest of the upstream's response stays with it: nobody has seen all of it.
    pub(crate) fn upstream_is_cut(&mut self) {
        if let Some(rare) = &mut self.rare {
            rare.upstream.clear();
        }
    }

    /// Some of the request's body is on its way.
    #[inline]
    pub(crate) fn request_passes(&mut self, data: &[u8]) -> Result<(), Failure> {
        let Some(rare) = &mut self.rare else { return Ok(()) };
        show(rare.request.iter_mut(), data)
    }

    /// The request's body is collected, and was seen as it came.
    pub(crate) fn is_collected(&mut self) {
        if let Some(rare) = &mut self.rare {
            rare.seen = rare.request.len();
        }
    }

    /// What was collected of the request's body is on its way: those see it who came later.
    pub(crate) fn collected_passes(&mut self) -> Result<(), Failure> {
        let Some((rare, body)) = self.rare.as_mut().zip(self.body.as_deref()) else { return Ok(()) };
        show(rare.request.iter_mut().skip(rare.seen), body)
    }

    /// Some of the response's body is on its way.
    #[inline]
    pub(crate) fn response_passes(&mut self, data: &[u8]) {
        if let Some(rare) = &mut self.rare {
            rare.response.iter_mut().for_each(|observer| observer.data(data));
        }
    }

    /// The response's body has passed, whole or not.
    pub(crate) fn response_passed(&mut self, is_whole: bool) {
        let Some(rare) = &mut self.rare else { return };
        let (response, upstream) = (std::mem::take(&mut rare.response), std::mem::take(&mut rare.upstream));
        if is_whole {
            response.into_iter().chain(upstream).for_each(|observer| observer.end());
        }
    }
}
