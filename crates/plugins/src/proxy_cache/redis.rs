//! Responses in Redis, which the nodes share. Requests of all workers go over one thread; while the server does not
//! answer, none waits for it.

mod keys;

pub(super) use keys::{response_key, stored_key, variant_key};

use super::in_flight::Lead;
use super::record::{self, Found};
use super::stored::{self, Stored};
use crate::limits::{InUse, Redis, RedisStore, Unavailable, glob};
use keys::{MAX_TIME, PREFIX, commands_to_put, path_of, resource_label, tag_label};
use redis::{Cmd, Value, cmd, from_redis_value_ref};
use std::collections::HashSet;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use weir_plugin::{Background, BuildContext};

/// The longest record, because each hit transfers one.
const MAX_RECORD_LEN: usize = 1024 * 1024;
/// The records that wait to be written, in bytes; what comes on top is not stored.
const MAX_WAITING: usize = 16 * 1024 * 1024;
/// The removals that wait until the server answers again. Once there are more, everything is removed instead.
const MAX_PENDING: usize = 1000;
/// How many keys the server looks at for one reply while it looks for those to remove.
const SCANNED: u32 = 1000;
/// How long no request waits for a server that did not answer.
const BACKOFF: Duration = Duration::from_secs(1);

/// How often the server may refuse removals, once every second, before they are given up.
const MAX_REFUSALS: usize = 10;

/// The responses on one server, or on several that form one store.
pub(super) struct RedisCache {
    store: RedisStore,
    background: Arc<Background>,
    /// The server did not answer. Until it is tried again, no request waits for it.
    is_down: AtomicBool,
    /// Bytes of records that wait to be written.
    waiting: AtomicUsize,
    /// Removals that have not reached the server: nothing is read from it before they have.
    pending: Mutex<HashSet<Purge>>,
    caches: Arc<RedisCaches>,
}

/// The servers that are in use.
pub(super) type RedisCaches = InUse<Redis, RedisCache>;

/// Which responses are purged.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Purge {
    Key(String),
    /// The one that is stored under this key of Redis.
    Response(String),
    Resource(String),
    /// Those with this tag, if one is given, whose path begins with this prefix, if one is given.
    Some {
        tag: Option<String>,
        prefix: Option<String>,
    },
}

impl RedisCache {
    /// The cache on this server, which plugins with the same configuration of it share.
    pub(super) fn of(config: &Redis, build: &BuildContext<'_>) -> Result<Arc<Self>, String> {
        let caches = build.retained.get::<RedisCaches>();
        let mut is_new = false;
        let cache = caches.of(config.clone(), || {
            is_new = true;
            Ok(Self {
                store: RedisStore::new(config.clone(), build)?,
                background: build.background(),
                is_down: AtomicBool::new(false),
                waiting: AtomicUsize::new(0),
                pending: Mutex::default(),
                caches: caches.clone(),
            })
        })?;
        if is_new {
            cache.take_over();
        }
        Ok(cache)
    }

    /// Makes the removals that others still have to make, because it may be the same server, configured otherwise.
    fn take_over(self: &Arc<Self>) {
        let of_others: HashSet<Purge> = self.others().flat_map(|other| other.pending().clone()).collect();
        if of_others.is_empty() {
            return;
        }
        self.pending().extend(of_others);
        if !self.is_down.swap(true, Relaxed) {
            self.recover();
        }
    }

    /// The other caches in use.
    fn others(self: &Arc<Self>) -> impl Iterator<Item = Arc<Self>> {
        let all = self.caches.all().into_iter();
        all.filter(|other| !Arc::ptr_eq(self, other))
    }

    fn pending(&self) -> MutexGuard<'_, HashSet<Purge>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is stored for requests with this key and path: the response, or what it varies by. None, too, while the
    /// server does not answer.
    pub(super) fn get(self: &Arc<Self>, key: String) -> oneshot::Receiver<Option<Found>> {
        let (answer, awaited) = oneshot::channel();
        if self.is_down.load(Relaxed) {
            return awaited;
        }
        let cache = self.clone();
        self.background.spawn(async move {
            let get = cmd("GET").arg(&key).to_owned();
            let found = cache.query(vec![(key, get)]).await;
            let value = found.and_then(|mut values| values.pop());
            let record = value.and_then(|value| from_redis_value_ref::<Option<Vec<u8>>>(&value).ok()?);
            // A request that has ended waits for nothing.
            let _ = answer.send(record.and_then(|record| record::read(record, stored::now())));
        });
        awaited
    }

    /// Stores a response. Requests that wait for it wait until it is there.
    pub(super) fn put(self: &Arc<Self>, stored: &Stored, lead: Option<Lead>) {
        let record = record::write(stored);
        let length = record.len();
        let is_too_much = length > MAX_RECORD_LEN || self.waiting.load(Relaxed) + length > MAX_WAITING;
        if is_too_much || self.is_down.load(Relaxed) {
            return;
        }
        self.waiting.fetch_add(length, Relaxed);
        let (cache, commands) = (self.clone(), commands_to_put(stored, record));
        self.background.spawn(async move {
            cache.query(commands).await;
            cache.waiting.fetch_sub(length, Relaxed);
            drop(lead);
        });
    }

    /// Removes responses, some time soon; while the server does not answer, before anything is read from it again. The
    /// others remove then as well: one of them may be the same server, with settings that have replaced these.
    pub(super) fn purge(self: &Arc<Self>, what: Purge) {
        self.remove(what, |cache, what| {
            cache.others().for_each(|other| other.remove(what.clone(), |_, _| ()))
        });
    }

    /// Removes responses, or postpones that and calls `postponed`.
    fn remove(self: &Arc<Self>, what: Purge, postponed: fn(&Arc<Self>, &Purge)) {
        if self.is_down.load(Relaxed) {
            self.postpone(what.clone());
            return postponed(self, &what);
        }
        let cache = self.clone();
        self.background.spawn(async move {
            if let Err(error) = cache.purge_now(what.clone()).await {
                cache.postpone(what.clone());
                postponed(&cache, &what);
                cache.fail(&error);
            }
        });
    }

    fn postpone(&self, what: Purge) {
        let mut pending = self.pending();
        if pending.len() >= MAX_PENDING {
            pending.clear();
            pending.insert(Purge::Some { tag: None, prefix: None });
        }
        pending.insert(what);
    }

    /// Removes what waits for it.
    async fn purge_pending(&self) -> Result<(), Unavailable> {
        loop {
            // Taken out first, so that the same purge, asked for meanwhile, is made once more.
            let next = {
                let mut pending = self.pending();
                pending.iter().next().cloned().and_then(|next| pending.take(&next))
            };
            let Some(what) = next else { return Ok(()) };
            if let Err(error) = self.purge_now(what.clone()).await {
                self.postpone(what);
                return Err(error);
            }
        }
    }

    async fn purge_now(&self, what: Purge) -> Result<(), Unavailable> {
        let (label, prefix) = match what {
            Purge::Key(key) => {
                let keys = self.store.keys(&format!("{PREFIX}response:{}:*", glob(&key)), SCANNED).await?;
                return self.delete(keys).await;
            }
            Purge::Response(key) => return self.delete(vec![key]).await,
            Purge::Resource(name) => (Some(resource_label(&name)), None),
            Purge::Some { tag, prefix } => (tag.map(|tag| tag_label(&tag)), prefix),
        };
        let Some(label) = label else {
            let pattern = match &prefix {
                Some(prefix) => format!("{PREFIX}response:*:*:{}*", glob(prefix)),
                None => format!("{PREFIX}*"),
            };
            return self.delete(self.store.keys(&pattern, SCANNED).await?).await;
        };
        let members = cmd("ZRANGE").arg(&label).arg(0).arg(-1).to_owned();
        let values = self.store.query(vec![(label.clone(), members)]).await?;
        let members: Vec<String> =
            values.first().and_then(|value| from_redis_value_ref(value).ok()).unwrap_or_default();
        let begins = |key: &String| prefix.as_ref().is_none_or(|prefix| path_of(key).starts_with(prefix));
        let mut gone: Vec<_> = members.into_iter().filter(begins).collect();
        if prefix.is_none() {
            gone.push(label);
        }
        self.delete(gone).await
    }

    async fn delete(&self, keys: Vec<String>) -> Result<(), Unavailable> {
        let delete = |key: String| (key.clone(), cmd("DEL").arg(key).to_owned());
        for some in keys.chunks(1000) {
            self.store.query(some.iter().cloned().map(delete).collect()).await?;
        }
        Ok(())
    }

    /// The replies; none if the server does not answer, which is logged once.
    async fn query(self: &Arc<Self>, commands: Vec<(String, Cmd)>) -> Option<Vec<Value>> {
        match self.store.query(commands).await {
            Ok(values) => Some(values),
            Err(error) => {
                self.fail(&error);
                None
            }
        }
    }

    /// Has no request wait for the server until it answers again.
    fn fail(self: &Arc<Self>, error: &Unavailable) {
        if self.is_down.swap(true, Relaxed) {
            return;
        }
        tracing::warn!(
            "proxy-cache: {error}; until it answers, requests go on without the cache; what they make invalid is removed then"
        );
        self.recover();
    }

    /// Tries until the server answers and makes what removals wait. If no plugin uses the cache any more, it ends without
    /// them once nothing that they concern is stored, because a plugin may use the server again.
    fn recover(self: &Arc<Self>) {
        let cache = self.clone();
        self.background.spawn(async move {
            let (mut refusals, since) = (0, Instant::now());
            let is_owed = || since.elapsed() < MAX_TIME && !cache.pending().is_empty();
            while Arc::strong_count(&cache) > 1 || is_owed() {
                tokio::time::sleep(BACKOFF).await;
                match cache.catch_up().await {
                    Ok(()) => return cache.resume().await,
                    Err(error) if error.is_refusal() => {
                        refusals += 1;
                        cache.give_up(refusals, &error);
                    }
                    Err(_) => {}
                }
            }
        });
    }

    async fn catch_up(&self) -> Result<(), Unavailable> {
        let ping = (PREFIX.to_owned(), cmd("EXISTS").arg(PREFIX).to_owned());
        self.store.query(vec![ping]).await?;
        self.purge_pending().await
    }

    async fn resume(self: &Arc<Self>) {
        self.is_down.store(false, Relaxed);
        // What came in between waits for nothing any more.
        if let Err(error) = self.purge_pending().await {
            self.fail(&error);
        }
        tracing::info!("proxy-cache: Redis answers again");
    }

    /// Forgets removals that the server has refused so often, so that the cache is not off for ever.
    fn give_up(&self, refusals: usize, error: &Unavailable) {
        let is_too_often = refusals >= MAX_REFUSALS;
        let given_up = if is_too_often { mem::take(&mut *self.pending()).len() } else { 0 };
        if given_up > 0 {
            tracing::warn!(
                "proxy-cache: {error}; {given_up} purges are given up: the responses are sent until they expire, so purge again"
            );
        }
    }
}
