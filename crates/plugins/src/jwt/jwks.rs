//! Key sets that are fetched from their issuers, off the request path.
//!
//! A set is fetched when it is first needed, then every five minutes while requests come. It is also fetched when a
//! token names a key that is not in it, unless a fetch within the last ten seconds brought nothing new. While the
//! issuer cannot be reached, the last keys stay in use, and the fetch is retried after 1 s, 2 s, 4 s and so on up to a
//! minute.

use super::jwk::Keys;
use arc_swap::{ArcSwap, Guard};
use http::Request;
use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use weir_plugin::{Background, BuildContext, Bytes, HttpClient};

/// How long a set is used before it is fetched again.
const FRESH: Duration = Duration::from_secs(300);
/// How long tokens with unknown keys wait after a fetch that brought nothing new.
const PAUSE: Duration = Duration::from_secs(10);
/// How long an issuer may take.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest pause after failures.
const MAX_BACKOFF: Duration = Duration::from_secs(60);

/// The keys of one issuer.
pub(super) struct KeySet {
    uri: String,
    client: HttpClient,
    background: Arc<Background>,
    keys: ArcSwap<Keys>,
    schedule: Mutex<Schedule>,
    /// When to fetch it again, in milliseconds of this process.
    due: AtomicU64,
    /// The number of attempts so far.
    attempts: watch::Sender<u64>,
}

#[derive(Default)]
struct Schedule {
    is_under_way: bool,
    failures: u32,
    not_before: Option<Instant>,
}

/// The sets in use, shared across configurations.
#[derive(Default)]
struct KeySets(Mutex<HashMap<(String, bool), Weak<KeySet>>>);

fn milliseconds() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    u64::try_from(START.elapsed().as_millis()).unwrap_or(u64::MAX)
}

impl KeySet {
    /// The set at this URL; it is not fetched yet.
    pub(super) fn of(uri: &str, verify: bool, build: &BuildContext<'_>) -> Result<Arc<Self>, String> {
        let sets = build.retained.get::<KeySets>();
        let mut sets = sets.0.lock().unwrap_or_else(PoisonError::into_inner);
        sets.retain(|_, set| set.strong_count() > 0);
        if let Some(known) = sets.get(&(uri.to_owned(), verify)).and_then(Weak::upgrade) {
            return Ok(known);
        }
        let made = Arc::new(Self {
            uri: uri.to_owned(),
            client: HttpClient::new(build.tls_dialer(verify, "config.jwks_ssl_verify: false")?),
            background: build.background(),
            keys: ArcSwap::default(),
            schedule: Mutex::default(),
            due: AtomicU64::new(0),
            attempts: watch::Sender::new(0),
        });
        sets.insert((uri.to_owned(), verify), Arc::downgrade(&made));
        Ok(made)
    }

    /// The last keys that were fetched. If that was long ago, a fetch starts in the background.
    pub(super) fn keys(self: &Arc<Self>) -> Guard<Arc<Keys>> {
        let keys = self.keys.load();
        if keys.version != 0 && milliseconds() >= self.due.load(Ordering::Relaxed) {
            self.begin();
        }
        keys
    }

    /// For a key that is not in the set: waits until the set is fetched again. None if it was just fetched.
    pub(super) fn fetched(self: &Arc<Self>) -> Option<impl Future<Output = ()> + use<>> {
        let mut attempts = self.attempts.subscribe();
        self.begin().then_some(async move {
            let _ = tokio::time::timeout(FETCH_TIMEOUT, attempts.changed()).await;
        })
    }

    /// Starts a fetch unless it is too early for one; returns whether a fetch is in progress.
    fn begin(self: &Arc<Self>) -> bool {
        let mut schedule = self.schedule.lock().unwrap_or_else(PoisonError::into_inner);
        if !schedule.is_under_way {
            if schedule.not_before.is_some_and(|not_before| Instant::now() < not_before) {
                return false;
            }
            schedule.is_under_way = true;
            let set = self.clone();
            self.background.spawn(async move { set.fetch().await });
        }
        true
    }

    async fn fetch(&self) {
        let asked = self.ask().await;
        let mut schedule = self.schedule.lock().unwrap_or_else(PoisonError::into_inner);
        schedule.is_under_way = false;
        let (pause, due) = match asked {
            Ok(keys) => {
                schedule.failures = 0;
                let is_new = !self.keys.load().is_same_as(&keys);
                if is_new {
                    tracing::info!("{} has {} keys for signatures", self.uri, keys.len());
                    for (id, why) in &keys.refused {
                        tracing::warn!("the key {id:?} at {} is not used: {why}", self.uri);
                    }
                    self.keys.store(Arc::new(keys));
                }
                (if is_new { Duration::ZERO } else { PAUSE }, FRESH)
            }
            Err(why) => {
                tracing::warn!("the keys at {} were not fetched: {why}", self.uri);
                let pause = Duration::from_secs(1 << schedule.failures.min(6)).min(MAX_BACKOFF);
                schedule.failures += 1;
                (pause, pause)
            }
        };
        schedule.not_before = Some(Instant::now() + pause);
        self.due.store(milliseconds() + due.as_secs() * 1000, Ordering::Relaxed);
        drop(schedule);
        self.attempts.send_modify(|attempts| *attempts += 1);
    }

    async fn ask(&self) -> Result<Keys, String> {
        let request = Request::get(&self.uri).header("Accept", "application/json").body(Bytes::new());
        let request = request.map_err(|error| error.to_string())?;
        let response = self.client.send(request, FETCH_TIMEOUT).await.map_err(|error| error.to_string())?;
        match response.status().as_u16() {
            200 => Keys::read(response.into_body()),
            status => Err(format!("the answer has status {status}")),
        }
    }
}
