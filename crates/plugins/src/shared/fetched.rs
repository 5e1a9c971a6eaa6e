//! Documents that other servers publish, such as keys, fetched off the request path.
//!
//! A document is fetched when it is first needed, then every five minutes while requests come. It is also fetched when
//! something is missing in it, unless a fetch within the last ten seconds brought nothing new. While the server cannot be
//! reached, the last document stays in use, and the fetch is retried after 1 s, 2 s, 4 s and so on up to a minute.

use arc_swap::{ArcSwap, Guard};
use http::Request;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use weir_plugin::{Background, Bytes, HttpClient};

/// How long a document is used before it is fetched again.
const FRESH: Duration = Duration::from_secs(300);
/// How long those who miss something wait after a fetch that brought nothing new.
const PAUSE: Duration = Duration::from_secs(10);
/// The longest pause after failures.
const MAX_BACKOFF: Duration = Duration::from_secs(60);

/// What can be fetched.
pub(crate) trait Document: Default + Send + Sync + 'static {
    /// What it is called in the log.
    const NAME: &'static str;
    /// Parses what the server at `uri` has sent.
    fn read(text: Bytes, uri: &str) -> Result<Self, String>;
    /// Whether it was fetched: the default was not.
    fn is_fetched(&self) -> bool;
    /// Whether the other says the same.
    fn is_same_as(&self, other: &Self) -> bool;
    /// Logs that it is in use from now on.
    fn log(&self, uri: &str);
}

/// A document and when to fetch it.
pub(crate) struct Fetched<D> {
    uri: String,
    client: HttpClient,
    timeout: Duration,
    background: Arc<Background>,
    document: ArcSwap<D>,
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

fn milliseconds() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    u64::try_from(START.elapsed().as_millis()).unwrap_or(u64::MAX)
}

impl<D: Document> Fetched<D> {
    /// The document at this URL; it is not fetched yet.
    pub(crate) fn new(
        uri: String,
        client: HttpClient,
        timeout: Duration,
        background: Arc<Background>,
    ) -> Arc<Self> {
        Arc::new(Self {
            uri,
            client,
            timeout,
            background,
            document: ArcSwap::default(),
            schedule: Mutex::default(),
            due: AtomicU64::new(0),
            attempts: watch::Sender::new(0),
        })
    }

    pub(crate) fn uri(&self) -> &str {
        &self.uri
    }

    /// The last document that was fetched. If that was long ago, a fetch starts in the background.
    pub(crate) fn get(self: &Arc<Self>) -> Guard<Arc<D>> {
        let document = self.document.load();
        if document.is_fetched() && milliseconds() >= self.due.load(Ordering::Relaxed) {
            self.begin();
        }
        document
    }

    /// For what is not in the document: waits until it is fetched again. None if it was just fetched.
    pub(crate) fn again(self: &Arc<Self>) -> Option<impl Future<Output = ()> + use<D>> {
        let mut attempts = self.attempts.subscribe();
        let timeout = self.timeout;
        self.begin().then_some(async move {
            let _ = tokio::time::timeout(timeout, attempts.changed()).await;
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
            let fetched = self.clone();
            self.background.spawn(async move { fetched.fetch().await });
        }
        true
    }

    async fn fetch(&self) {
        let asked = self.ask().await;
        let mut schedule = self.schedule.lock().unwrap_or_else(PoisonError::into_inner);
        schedule.is_under_way = false;
        let (pause, due) = match asked {
            Ok(document) => {
                schedule.failures = 0;
                let is_new = !self.document.load().is_same_as(&document);
                if is_new {
                    document.log(&self.uri);
                    self.document.store(Arc::new(document));
                }
                (if is_new { Duration::ZERO } else { PAUSE }, FRESH)
            }
            Err(why) => {
                tracing::warn!("the {} at {} cannot be fetched: {why}", D::NAME, self.uri);
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

    async fn ask(&self) -> Result<D, String> {
        let request = Request::get(&self.uri).header("Accept", "application/json").body(Bytes::new());
        let request = request.map_err(|error| error.to_string())?;
        let response = self.client.send(request, self.timeout).await.map_err(|error| error.to_string())?;
        match response.status().as_u16() {
            200 => D::read(response.into_body(), &self.uri),
            status => Err(format!("the answer has status {status}")),
        }
    }
}
