//! The pool of idle HTTP/1.1 connections of one worker, by endpoint, last in first out.

use super::address_check::AddressCheck;
use super::balance::Lease;
use super::endpoint::FIRST_DYNAMIC;
use foldhash::fast::RandomState;
use std::cell::RefCell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::Instant;
use weir_net::io::Io;
use weir_net::wire::Wire;

/// How the pool keeps connections; Kong's `upstream_keepalive_*` settings.
#[derive(Debug, Clone)]
pub struct KeepAlive {
    /// Idle connections per endpoint and worker; 0 keeps none.
    pub pool_size: usize,
    /// Requests after which a connection is closed; 0 is any number.
    pub max_requests: u32,
    /// How long one may stay idle; zero is forever.
    pub idle_timeout: Duration,
}

impl Default for KeepAlive {
    fn default() -> Self {
        Self { pool_size: 512, max_requests: 10_000, idle_timeout: Duration::from_secs(60) }
    }
}

/// A connection to an upstream, in use or idle.
pub struct UpstreamConnection {
    /// Its bytes.
    pub wire: Wire,
    /// The endpoint that it leads to.
    pub endpoint: u32,
    /// The other end.
    pub address: Option<SocketAddr>,
    /// Whether the endpoint's name still leads there.
    pub(crate) address_check: AddressCheck,
    /// The name that its TLS handshake asked for.
    pub server_name: Option<Rc<str>>,
    /// How many requests it has carried.
    pub requests: u32,
    /// Interim responses to the current request.
    pub interim: u32,
    /// Whether bytes behind an interim response are here.
    pub has_more: bool,
    /// Set while it carries a request to a target whose requests are counted.
    pub lease: Option<Lease>,
}

impl UpstreamConnection {
    /// One that was just opened.
    pub fn new(io: Io, endpoint: u32, server_name: Option<Rc<str>>) -> Self {
        let address = io.peer();
        let (wire, address_check) = (Wire::new(io), AddressCheck::new());
        let (requests, interim, has_more, lease) = (0, 0, false, None);
        Self { wire, endpoint, address, address_check, server_name, requests, interim, has_more, lease }
    }
}

struct Idle {
    upstream: Box<UpstreamConnection>,
    since: Instant,
}

/// Idle connections of one worker.
pub struct Pool {
    keep_alive: KeepAlive,
    idle: RefCell<Stacks>,
}

/// Idle connections by the ids of their endpoints.
#[derive(Default)]
struct Stacks {
    /// Of configured endpoints, whose ids are consecutive.
    configured: Vec<Vec<Idle>>,
    /// Of endpoints that requests have chosen.
    dynamic: HashMap<u32, Vec<Idle>, RandomState>,
}

impl Pool {
    /// An empty pool.
    pub fn new(keep_alive: KeepAlive) -> Self {
        Self { keep_alive, idle: RefCell::default() }
    }

    /// A live idle connection to the endpoint, the most recently used of those that lead where it is wanted.
    pub(crate) fn take(
        &self,
        endpoint: u32,
        server_name: Option<&str>,
        leads_there: impl Fn(&UpstreamConnection) -> bool,
    ) -> Option<Box<UpstreamConnection>> {
        let mut idle = self.idle.borrow_mut();
        let stack = idle.get_mut(endpoint)?;
        let mut at = stack.len();
        while at > 0 {
            at -= 1;
            let upstream = &stack[at].upstream;
            if upstream.server_name.as_deref() == server_name && leads_there(upstream) {
                let mut found = stack.remove(at).upstream;
                if !found.wire.io.is_stale() {
                    return Some(found);
                }
            }
        }
        None
    }

    /// Keeps a connection whose response was read to its end. In a full pool it replaces the one that was idle for longest, so
    /// that connections that are used stay.
    pub fn put(&self, mut upstream: Box<UpstreamConnection>, now: Instant) {
        let most = self.keep_alive.max_requests;
        let is_worn = most != 0 && upstream.requests >= most;
        if is_worn || !upstream.wire.inbox.is_empty() || self.keep_alive.pool_size == 0 {
            return;
        }
        upstream.wire.release_buffers();
        upstream.lease = None;
        let mut idle = self.idle.borrow_mut();
        let stack = idle.of(upstream.endpoint);
        if stack.len() >= self.keep_alive.pool_size {
            stack.remove(0);
        }
        stack.push(Idle { upstream, since: now });
    }

    /// Closes connections that were idle for too long, or that the peer has closed.
    pub fn sweep(&self, now: Instant) {
        let timeout = self.keep_alive.idle_timeout;
        let keep = |idle: &mut Idle| {
            let expired = !timeout.is_zero() && now.duration_since(idle.since) >= timeout;
            !expired && !idle.upstream.wire.io.is_stale()
        };
        let mut idle = self.idle.borrow_mut();
        idle.configured.iter_mut().for_each(|stack| stack.retain_mut(keep));
        idle.dynamic.retain(|_, stack| {
            stack.retain_mut(keep);
            !stack.is_empty()
        });
    }
}

impl Stacks {
    fn get_mut(&mut self, endpoint: u32) -> Option<&mut Vec<Idle>> {
        match endpoint {
            FIRST_DYNAMIC.. => self.dynamic.get_mut(&endpoint),
            _ => self.configured.get_mut(endpoint as usize),
        }
    }

    fn of(&mut self, endpoint: u32) -> &mut Vec<Idle> {
        if endpoint >= FIRST_DYNAMIC {
            return self.dynamic.entry(endpoint).or_default();
        }
        let place = endpoint as usize;
        if self.configured.len() <= place {
            self.configured.resize_with(place + 1, Vec::new);
        }
        &mut self.configured[place]
    }
}
