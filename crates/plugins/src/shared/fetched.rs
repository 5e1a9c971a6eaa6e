//! Documents that other servers publish, such as keys, fetched off the request path.
//!
//! A document is fetched when it is first needed, then every five minutes while requests come. It is also fetched when
//! something is missing in it, unless a fetch within the last ten seconds brought nothing new. While the server cannot be
//! reached, the last document stays in use, and the fetch is retried after 1 s, 2 s, 4 s and so on up to a minute. An hour after
//! the last fetch that succeeded, the document is used no more, because what the server has withdrawn must not be trusted for ever.

use arc_swap::{ArcSwap, Guard};
use http::Request;
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use weir_plugin::{Background, Bytes, HttpClient, HttpError};

/// How long a document is used before it is fetched again.
const FRESH: Duration = Duration::from_secs(300);
/// How long it is used at most: a server that cannot be reached, or a plugin without requests, keeps no document in use.
const MAX_AGE: Duration = Duration::from_secs(3600);
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

/// Why a document could not be fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FetchError {
    /// The server did not answer, or is not able to now.
    NoAnswer(String),
    /// It has sent something else.
    Invalid(String),
}

impl fmt::Display for FetchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::NoAnswer(why) | Self::Invalid(why)) = self;
        f.write_str(why)
    }
}

impl std::error::Error for FetchError {}

impl From<HttpError> for FetchError {
    fn from(error: HttpError) -> Self {
        match error {
            HttpError::TooLarge { .. } => Self::Invalid(error.to_string()),
            HttpError::Timeout | HttpError::Failed(_) => Self::NoAnswer(error.to_string()),
        }
    }
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
    /// When it is used no more, likewise.
    expires: AtomicU64,
    /// How many documents have been fetched that say something new.
    generation: AtomicU64,
    /// The number of attempts so far.
    attempts: watch::Sender<u64>,
}

#[derive(Default)]
struct Schedule {
    is_under_way: bool,
    failures: u32,
    /// Why the last fetch failed, if it did.
    failure: Option<FetchError>,
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
            expires: AtomicU64::new(0),
            generation: AtomicU64::new(0),
            attempts: watch::Sender::new(0),
        })
    }

    pub(crate) fn uri(&self) -> &str {
        &self.uri
    }

    /// The last document that was fetched. If that was long ago, a fetch starts in the background; if it was too long ago, there
    /// is no document.
    pub(crate) fn get(self: &Arc<Self>) -> Guard<Arc<D>> {
        let document = self.document.load();
        if !document.is_fetched() {
            return document;
        }
        let now = milliseconds();
        if now >= self.expires.load(Ordering::Relaxed) {
            drop(document);
            self.expire(now);
            return self.document.load();
        }
        if now >= self.due.load(Ordering::Relaxed) {
            self.begin();
        }
        document
    }

    fn expire(&self, now: u64) {
        let _schedule = self.schedule.lock().unwrap_or_else(PoisonError::into_inner);
        // A fetch may have ended meanwhile.
        if now >= self.expires.load(Ordering::Relaxed) {
            tracing::warn!("the {} at {} was fetched too long ago to be used", D::NAME, self.uri);
            self.document.store(Arc::default());
        }
    }

    /// Why the last fetch failed, if it did.
    pub(crate) fn failure(&self) -> Option<FetchError> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner).failure.clone()
    }

    /// Which document is in use, for [`Fetched::again`].
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// For what was not in the document of this generation: waits until it is fetched again, unless there is a newer one already.
    /// None if it was just fetched.
    pub(crate) fn again(self: &Arc<Self>, seen: u64) -> Option<impl Future<Output = ()> + use<D>> {
        let mut attempts = self.attempts.subscribe();
        let timeout = self.timeout;
        let is_newer = self.generation() != seen;
        (is_newer || self.begin()).then_some(async move {
            if !is_newer {
                let _ = tokio::time::timeout(timeout, attempts.changed()).await;
            }
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
                schedule.failure = None;
                self.expires.store(milliseconds() + MAX_AGE.as_secs() * 1000, Ordering::Relaxed);
                let is_new = !self.document.load().is_same_as(&document);
                if is_new {
                    document.log(&self.uri);
                    self.document.store(Arc::new(document));
                    self.generation.fetch_add(1, Ordering::Release);
                }
                (if is_new { Duration::ZERO } else { PAUSE }, FRESH)
            }
            Err(why) => {
                tracing::warn!("the {} at {} cannot be fetched: {why}", D::NAME, self.uri);
                let pause = Duration::from_secs(1 << schedule.failures.min(6)).min(MAX_BACKOFF);
                schedule.failures += 1;
                schedule.failure = Some(why);
                (pause, pause)
            }
        };
        schedule.not_before = Some(Instant::now() + pause);
        self.due.store(milliseconds() + due.as_secs() * 1000, Ordering::Relaxed);
        drop(schedule);
        self.attempts.send_modify(|attempts| *attempts += 1);
    }

    async fn ask(&self) -> Result<D, FetchError> {
        let request = Request::get(&self.uri).header("Accept", "application/json").body(Bytes::new());
        let request = request.map_err(|error| FetchError::NoAnswer(error.to_string()))?;
        let response = self.client.send(request, self.timeout).await?;
        match response.status().as_u16() {
            200 => D::read(response.into_body(), &self.uri).map_err(FetchError::Invalid),
            status @ (429 | 500..600) => Err(FetchError::NoAnswer(format!("the answer has status {status}"))),
            status => Err(FetchError::Invalid(format!("the answer has status {status}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::sync::atomic::AtomicUsize;
    use weir_plugin::entity::Plugin;
    use weir_plugin::testing::{Gateway, entity, id};

    #[derive(Default)]
    struct Text(String);

    impl Document for Text {
        const NAME: &'static str = "text";

        fn read(text: Bytes, _: &str) -> Result<Self, String> {
            Ok(Self(String::from_utf8_lossy(&text).into_owned()))
        }

        fn is_fetched(&self) -> bool {
            !self.0.is_empty()
        }

        fn is_same_as(&self, other: &Self) -> bool {
            self.0 == other.0
        }

        fn log(&self, _: &str) {}
    }

    /// A document whose server counts how often it was fetched.
    fn document() -> (Arc<Fetched<Text>>, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let uri = format!("http://{}/", listener.local_addr().unwrap());
        let count = Arc::new(AtomicUsize::new(0));
        let counted = count.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let _ = stream.read(&mut [0; 1024]).unwrap();
                counted.fetch_add(1, Ordering::SeqCst);
                stream
                    .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nnew")
                    .unwrap();
            }
        });
        let plugin: Arc<Plugin> = entity(serde_json::json!({ "id": id(1), "name": "jwt" }));
        let fetched = Gateway::new(&[]).build_with(&plugin, |build| {
            let client = HttpClient::new(build.tls_dialer(false, "").unwrap());
            Fetched::new(uri.clone(), client, Duration::from_secs(60), build.background())
        });
        (fetched, count)
    }

    #[tokio::test]
    async fn requests_at_the_start_share_a_fetch() {
        let (fetched, count) = document();
        let seen = fetched.generation();
        let first = fetched.again(seen).unwrap();
        let second = fetched.again(seen).unwrap();
        tokio::join!(first, second);
        // One that was late has seen the same.
        fetched.again(seen).unwrap().await;
        assert_eq!((&*fetched.get().0, count.load(Ordering::SeqCst)), ("new", 1));
    }

    #[tokio::test]
    async fn a_document_is_not_used_for_ever() {
        let (fetched, count) = document();
        fetched.again(0).unwrap().await;
        assert_eq!(fetched.get().0, "new");
        fetched.expires.store(0, Ordering::Relaxed);
        let seen = fetched.generation();
        assert_eq!(fetched.get().0, "");
        fetched.again(seen).unwrap().await;
        assert_eq!((&*fetched.get().0, count.load(Ordering::SeqCst)), ("new", 2));
    }
}
