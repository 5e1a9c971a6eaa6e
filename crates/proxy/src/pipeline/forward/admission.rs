//! The limits of an upstream: whether a request may be sent to it now, waits until it may, or is shed.

use super::UpstreamCall;
use crate::client::{Client, unless_gone};
use crate::error::{Overload, RequestError};
use crate::snapshot::Destination;
use std::pin::pin;
use std::sync::Arc;
use tokio::time::timeout;
use weir_model::tags::Priority;
use weir_upstream::UpstreamError;
use weir_upstream::balance::{Key, Pick};
use weir_upstream::limit::{ShedReason, UpstreamLimit};

/// Why a request cannot be sent now.
enum Blocked {
    NoTarget,
    Full(ShedReason),
}

impl UpstreamCall<'_> {
    /// The first target of an upstream with limits.
    pub(super) async fn admitted<C: Client>(
        &self,
        limit: &Arc<UpstreamLimit>,
        client: &mut C,
        (tried, key): (&mut Vec<u32>, Option<&Key>),
    ) -> Result<Pick<'_>, RequestError> {
        let started = match limit.has_queue() {
            false => self.start(limit, tried, key),
            true => Err(Blocked::Full(ShedReason::Upstream)),
        };
        match started {
            Ok(pick) => Ok(pick),
            Err(Blocked::NoTarget) => Err(UpstreamError::NoTarget.into()),
            // Boxed, so that a connection has no room for what only a request that waits needs.
            Err(Blocked::Full(reason)) => Box::pin(self.wait((limit, reason), client, (tried, key))).await,
        }
    }

    /// Takes what the limits allow, if they do.
    fn start(
        &self,
        limit: &Arc<UpstreamLimit>,
        tried: &mut Vec<u32>,
        key: Option<&Key>,
    ) -> Result<Pick<'_>, Blocked> {
        let permit = limit.acquire(|| self.priority()).ok_or(Blocked::Full(ShedReason::Upstream))?;
        match self.pick(tried, key) {
            Some(pick) => {
                let _ = self.permit.set(permit);
                Ok(pick)
            }
            None => {
                permit.give_back();
                Err(if self.is_saturated() { Blocked::Full(ShedReason::Targets) } else { Blocked::NoTarget })
            }
        }
    }

    /// Waits for room, for as long as a connection may take, if there is a place to wait in. Routes of low priority do not wait.
    async fn wait<C: Client>(
        &self,
        (limit, reason): (&Arc<UpstreamLimit>, ShedReason),
        client: &mut C,
        (tried, key): (&mut Vec<u32>, Option<&Key>),
    ) -> Result<Pick<'_>, RequestError> {
        let place = limit.queue().filter(|_| self.priority() != Priority::Low);
        let Some(place) = place else {
            limit.shed(reason);
            return Err(RequestError::Overloaded(Overload::Upstream));
        };
        let waiting = async {
            loop {
                let mut freed = pin!(place.freed());
                freed.as_mut().enable();
                match self.start(limit, tried, key) {
                    Ok(pick) => return Ok(pick),
                    Err(Blocked::NoTarget) => return Err(UpstreamError::NoTarget.into()),
                    Err(Blocked::Full(_)) => freed.await,
                }
            }
        };
        match unless_gone(client, timeout(self.connect_timeout(), waiting)).await {
            Some(Ok(started)) => started,
            Some(Err(_)) => {
                limit.shed(ShedReason::Waited);
                Err(RequestError::Overloaded(Overload::Upstream))
            }
            None => Err(RequestError::ClientGone),
        }
    }

    fn priority(&self) -> Priority {
        Priority::of(&self.route.entity.tags)
    }

    fn is_saturated(&self) -> bool {
        match &self.service.destination {
            Destination::Host(_) => false,
            Destination::Upstream(balancer) => balancer.is_saturated(),
        }
    }

    /// What the upstream took for a request says how busy it is, unless it failed quickly.
    pub(super) fn record_latency(&self, outcome: Result<u16, &RequestError>) {
        let Some(permit) = self.permit.get() else { return };
        let is_measured = match outcome {
            Ok(status) => status < 500,
            Err(RequestError::Upstream(error)) => error.is_timeout(),
            Err(_) => false,
        };
        if is_measured {
            permit.answered(self.client_took.get());
        }
    }
}
