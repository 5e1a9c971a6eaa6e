//! Which target a request is sent to.

use super::UpstreamCall;
use crate::exchange::Exchange;
use crate::snapshot::Destination;
use std::borrow::Cow;
use std::net::IpAddr;
use weir_http1::Headers;
use weir_model::Uuid;
use weir_plugin::form;
use weir_upstream::balance::{HashSource, Key, Pick, PickContext};

impl UpstreamCall<'_> {
    /// Whom to ask, if anybody; once all were tried, they are tried again.
    pub(super) fn pick(&self, tried: &mut Vec<u32>, key: Option<&Key>) -> Option<Pick<'_>> {
        let balancer = match &self.service.destination {
            Destination::Host(endpoint) => return Some(Pick { endpoint, lease: None }),
            Destination::Upstream(balancer) => balancer,
        };
        let pick = |tried: &[u32]| {
            let random = &|| self.worker.random();
            balancer.pick(&PickContext {
                worker: self.worker.index,
                tried,
                hash: key.map(|key| key.hash),
                random,
            })
        };
        let picked = pick(tried);
        if picked.is_some() || tried.is_empty() {
            return picked;
        }
        tried.clear();
        pick(tried)
    }

    /// What decides the target of this request, where that is hashed.
    pub(super) fn key(&self, exchange: &Exchange) -> Option<Key> {
        match &self.service.destination {
            Destination::Host(_) => None,
            Destination::Upstream(balancer) => balancer.key(&Hashed(exchange)),
        }
    }
}

/// What of a request decides its target, where that is hashed.
struct Hashed<'e>(&'e Exchange);

impl HashSource for Hashed<'_> {
    fn consumer(&self) -> Option<Uuid> {
        self.0.consumer().map(|consumer| consumer.entity.id).or(self.0.credential())
    }

    fn client_ip(&self) -> IpAddr {
        self.0.client_ip
    }

    fn path(&self) -> &str {
        self.0.path()
    }

    fn headers(&self) -> &Headers {
        &self.0.request.headers
    }

    fn query_values(&self, name: &str) -> Vec<Cow<'_, [u8]>> {
        let pairs = form::pairs(self.0.query().unwrap_or_default());
        let named = pairs.filter(|pair| *pair.name == *name.as_bytes());
        named.map(|pair| pair.value.unwrap_or_default()).collect()
    }

    fn uri_capture(&self, name: &str) -> Option<&str> {
        self.0.uri_captures()?.name(name)
    }
}

/// Has the client come with the cookie that leads to the same target, if it needs one.
pub(super) fn keep_to_target(key: Option<Key>, exchange: &mut Exchange) {
    if let Some(cookie) = key.and_then(|key| key.cookie) {
        exchange.response.headers.append("Set-Cookie", cookie.as_bytes());
    }
}
