//! The lookup in Redis, for which a request waits.

use super::key;
use super::lookup::{Found, Instance, Lookup};
use super::record;
use super::redis::{self, RedisCache};
use super::subject;
use std::sync::Arc;
use std::time::Instant;
use weir_plugin::{Exchange, Flow, Resume};

/// What is done with the result.
#[derive(Clone, Copy)]
pub(super) enum AfterLookup {
    Decide,
    /// The request has waited for another one, and may do so again until then.
    Waited(Option<Instant>),
}

/// A place where the response may be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Own,
    Shared,
}

impl Instance {
    /// Looks for a response under the keys of the request, one after the other.
    pub(super) fn find_in_redis(
        self: &Arc<Self>,
        redis: &Arc<RedisCache>,
        exchange: &Exchange,
        lookup: Lookup,
        after: AfterLookup,
    ) -> Flow {
        let key = redis::response_key(&key::text(&lookup.parts), &subject::path(&self.config, exchange));
        self.look(redis, key, (lookup, Place::Own), after)
    }

    fn look(
        self: &Arc<Self>,
        redis: &Arc<RedisCache>,
        key: String,
        (lookup, place): (Lookup, Place),
        after: AfterLookup,
    ) -> Flow {
        let (instance, answer) = (self.clone(), redis.get(key));
        Flow::Wait(Box::pin(async move {
            // Without an answer there is nothing.
            let found = answer.await.ok().flatten();
            let resume: Resume =
                Box::new(move |exchange| instance.looked(exchange, (lookup, place), found, after));
            resume
        }))
    }

    fn looked(
        self: &Arc<Self>,
        exchange: &mut Exchange,
        (lookup, place): (Lookup, Place),
        found: Option<record::Found>,
        after: AfterLookup,
    ) -> Flow {
        let now = Instant::now();
        let path = subject::path(&self.config, exchange);
        let parts = if place == Place::Own { Some(&lookup.parts) } else { lookup.shared.as_ref() };
        let stored = match (found, &self.redis, parts) {
            (Some(record::Found::VariesBy(names)), Some(redis), Some(parts)) => {
                let key = redis::variant_key(&key::text(parts), &path, &names, &exchange.request.headers);
                return self.look(redis, key, (lookup, place), after);
            }
            (Some(record::Found::Response(stored)), ..) => Some(stored),
            _ => None,
        };
        let stored = stored.filter(|stored| stored.suits(exchange, now));
        let fingerprint = lookup.fingerprint;
        let found = stored.and_then(|stored| match place {
            Place::Own => Some(Found { stored, fingerprint, is_of_get: false }),
            Place::Shared => {
                let fingerprint = parts.map_or(fingerprint, |parts| self.cache.key.of(parts));
                Found::shared(stored, fingerprint, exchange)
            }
        });
        if let (None, Place::Own, Some(shared), Some(redis)) = (&found, place, &lookup.shared, &self.redis) {
            let key = redis::response_key(&key::text(shared), &path);
            return self.look(redis, key, (lookup, Place::Shared), after);
        }
        match after {
            AfterLookup::Decide => self.decide(exchange, lookup, found, now),
            AfterLookup::Waited(again) => self.decide_after_waiting(exchange, lookup, found, (now, again)),
        }
    }
}
