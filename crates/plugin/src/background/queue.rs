//! What is to be delivered somewhere else: bounded, in batches, tried again; requests never wait for it.

use super::Holder;
use super::dropped::Sender;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use weir_model::schema::{FieldError, Json, Record};

/// The first pause between tries while the node is about to end, and the longest.
const SHORTEST_FINAL_DELAY: Duration = Duration::from_millis(10);
const LONGEST_FINAL_DELAY: Duration = Duration::from_millis(500);

/// How long the task of an empty queue stays, so that traffic need not wake it for every entry.
const LINGER: Duration = Duration::from_millis(10);

/// The most bytes, where nothing is said: entries are as long as clients make them.
const MOST_BYTES: usize = 64 * 1024 * 1024;

/// How entries wait, how many are delivered together, and how often that is tried.
#[derive(Debug, Clone, Record)]
#[record(hint("queue_size", "batch_max_size", "write `max_batch_size`"))]
#[record(hint("flush_timeout", "write `max_coalescing_delay`, in seconds"))]
#[record(hint("retry_count", "max_retries", "write `max_retry_time`, in seconds"))]
pub struct QueueConfig {
    /// The most entries that are delivered together.
    #[field(default = 1, between = [1, 1_000_000])]
    pub max_batch_size: u32,
    /// Seconds that an entry waits at most for others to be delivered with; without effect where `max_batch_size` is 1.
    #[field(default = 1, between = [0, 3600])]
    pub max_coalescing_delay: f64,
    /// The most entries that wait; beyond, the oldest are dropped.
    #[field(default = 10_000, between = [1, 1_000_000])]
    pub max_entries: u32,
    /// The most bytes that wait or are being delivered, 64 MiB unless set; beyond, the oldest are dropped.
    #[field(gt = 0)]
    pub max_bytes: Option<i64>,
    /// Seconds after which a batch that cannot be delivered is dropped; -1 tries once.
    #[field(default = 60)]
    pub max_retry_time: f64,
    /// Seconds before the second try; doubled for each further one.
    #[field(default = 0.01, between = [0.001, 1_000_000])]
    pub initial_retry_delay: f64,
    /// The most seconds between two tries.
    #[field(default = 60, between = [0.001, 1_000_000])]
    pub max_retry_delay: f64,
    /// How many batches are delivered at once: 1, or -1 for any number.
    #[field(default = 1, one_of = [-1, 1])]
    pub concurrency_limit: i32,
}

impl QueueConfig {
    /// What it is with the fields that Kong's plugins had before there were queues: they win, as in Kong.
    pub fn overridden(mut self, batch_size: Option<i64>, delay: Option<f64>) -> Self {
        if let Some(size) = batch_size {
            self.max_batch_size = size.clamp(1, 1_000_000) as u32;
        }
        if let Some(delay) = delay {
            self.max_coalescing_delay = delay.clamp(0.0, 3600.0);
        }
        self
    }

    /// What is told by a `retry_count` that stands beside the queue, and has no effect.
    pub fn unheeded(config: &Json) -> Vec<FieldError> {
        let is_told = config["retry_count"].as_i64().is_some_and(|count| count != 10);
        let message = "use queue.max_retry_time";
        is_told.then(|| FieldError::new("retry_count", message)).into_iter().collect()
    }
}

/// Why a batch was not delivered.
#[derive(Debug)]
pub enum Failed {
    /// It may be delivered at another time.
    Now(String),
    /// It never will be: it is not tried again.
    Forever(String),
}

impl From<String> for Failed {
    fn from(why: String) -> Self {
        Self::Now(why)
    }
}

type Delivery = Pin<Box<dyn Future<Output = Result<(), Failed>> + Send>>;

/// Entries on their way. When the last handle is dropped, those that wait are still delivered.
pub struct Queue<T>(Arc<Inner<T>>);

struct Inner<T> {
    sender: Sender,
    config: QueueConfig,
    deliver: Box<dyn Fn(Arc<[T]>) -> Delivery + Send + Sync>,
    waiting: Mutex<Waiting<T>>,
    /// There are as many entries as a batch may have.
    batch: Notify,
}

struct Waiting<T> {
    entries: VecDeque<(T, usize)>,
    bytes: usize,
    /// Bytes that were taken out and are not yet delivered.
    under_way: usize,
    /// Entries that were.
    entries_under_way: usize,
    /// A task takes entries out.
    served: bool,
    /// Entries were dropped since a batch was last delivered.
    full: bool,
}

impl<T: Send + Sync + 'static> Queue<T> {
    pub(crate) fn new<F, E: Into<Failed>>(
        sender: Sender,
        config: QueueConfig,
        deliver: impl Fn(Arc<[T]>) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
    {
        let inner = Arc::new(Inner {
            sender,
            config,
            deliver: Box::new(move |batch| {
                let delivered = deliver(batch);
                Box::pin(async { delivered.await.map_err(Into::into) })
            }),
            waiting: Mutex::new(Waiting::new()),
            batch: Notify::new(),
        });
        let holder: Weak<dyn Holder> = Arc::downgrade(&(inner.clone() as Arc<dyn Holder>));
        inner.sender.background.watch(holder);
        Self(inner)
    }

    /// Has an entry of so many bytes delivered. Never waits: where there is no room, the oldest entries are dropped.
    pub fn push(&self, entry: T, bytes: usize) {
        let inner = &self.0;
        let most = inner.config.max_bytes.map_or(MOST_BYTES, |most| most.try_into().unwrap_or(usize::MAX));
        if bytes > most {
            return inner.sender.lose(1, "an entry is larger than max_bytes");
        }
        let mut waiting = inner.waiting();
        let dropped = waiting.add(entry, bytes, inner.config.max_entries as usize, most);
        let has_batch = waiting.entries.len() == inner.config.max_batch_size as usize;
        let begins = !std::mem::replace(&mut waiting.served, true);
        let fills = dropped > 0 && !std::mem::replace(&mut waiting.full, true);
        drop(waiting);
        inner.sender.dropped.fetch_add(dropped, Ordering::Relaxed);
        if fills {
            tracing::error!(
                queue = inner.sender.name,
                "the queue is full: the oldest entries are dropped until some are delivered"
            );
        }
        if begins {
            inner.sender.background.begin();
            inner.sender.background.spawn(serve(inner.clone()));
        } else if has_batch {
            inner.batch.notify_one();
        }
    }

    /// How many entries were dropped so far.
    pub fn dropped(&self) -> u64 {
        self.0.sender.dropped.load(Ordering::Relaxed)
    }
}

impl<T: Send + Sync> Holder for Inner<T> {
    fn name(&self) -> &str {
        &self.sender.name
    }

    fn undelivered(&self) -> u64 {
        let waiting = self.waiting();
        (waiting.entries.len() + waiting.entries_under_way) as u64 + self.sender.untold()
    }
}

impl<T> Waiting<T> {
    fn new() -> Self {
        let entries = VecDeque::new();
        Self { entries, bytes: 0, under_way: 0, entries_under_way: 0, served: false, full: false }
    }

    /// Adds an entry, and returns how many were dropped to make room: the oldest that wait, or this one where what is
    /// under way leaves none.
    fn add(&mut self, entry: T, bytes: usize, most_entries: usize, most_bytes: usize) -> u64 {
        let room = most_bytes.saturating_sub(self.under_way);
        if bytes > room {
            return 1;
        }
        let mut dropped = 0;
        while self.entries.len() >= most_entries || self.bytes + bytes > room {
            let Some((_, freed)) = self.entries.pop_front() else { break };
            self.bytes -= freed;
            dropped += 1;
        }
        self.entries.push_back((entry, bytes));
        self.bytes += bytes;
        dropped
    }
}

impl<T> Inner<T> {
    fn waiting(&self) -> MutexGuard<'_, Waiting<T>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The oldest entries, as many as a batch may have, and their bytes.
    fn take(&self) -> Option<(Arc<[T]>, usize)> {
        let mut waiting = self.waiting();
        let most = waiting.entries.len().min(self.config.max_batch_size as usize);
        let (batch, bytes): (Vec<T>, Vec<usize>) = waiting.entries.drain(..most).unzip();
        let bytes = bytes.iter().sum();
        waiting.bytes -= bytes;
        waiting.under_way += bytes;
        waiting.entries_under_way += batch.len();
        (!batch.is_empty()).then(|| (batch.into(), bytes))
    }

    /// Whether nothing has come, so that the task may end.
    fn may_end(&self) -> bool {
        let mut waiting = self.waiting();
        waiting.served = !waiting.entries.is_empty();
        !waiting.served
    }

    /// Waits for a whole batch, as long as entries may wait for each other; not at all once the node is about to end.
    async fn gather(&self) {
        let wanted = self.config.max_batch_size as usize;
        let is_short = |len: usize| len > 0 && len < wanted;
        if is_short(self.waiting().entries.len()) {
            let gathered = async {
                while self.waiting().entries.len() < wanted {
                    self.batch.notified().await;
                }
            };
            tokio::select! {
                _ = timeout(seconds(self.config.max_coalescing_delay), gathered) => {}
                () = self.sender.background.ending() => {}
            }
        }
    }

    /// Delivers a batch, and makes room for others.
    async fn deliver(&self, (batch, bytes): (Arc<[T]>, usize)) {
        let delivered = self.try_until_delivered(&batch).await;
        let mut waiting = self.waiting();
        waiting.under_way -= bytes;
        waiting.entries_under_way -= batch.len();
        match delivered {
            Ok(()) => waiting.full = false,
            Err(why) => {
                drop(waiting);
                self.sender.lose(batch.len() as u64, &why);
            }
        }
    }

    /// Tries to deliver a batch for as long as that is wanted. When the node is about to end, the next try is made at once,
    /// and others soon.
    async fn try_until_delivered(&self, batch: &Arc<[T]>) -> Result<(), String> {
        let (start, mut longest) = (Instant::now(), seconds(self.config.max_retry_delay));
        let mut delay = seconds(self.config.initial_retry_delay).min(longest);
        let mut is_ending = false;
        loop {
            let why = match (self.deliver)(batch.clone()).await {
                Ok(()) => return Ok(()),
                Err(Failed::Forever(why)) => return Err(why),
                Err(Failed::Now(why)) => why,
            };
            if start.elapsed().as_secs_f64() >= self.config.max_retry_time {
                return Err(why);
            }
            tracing::warn!(
                queue = self.sender.name,
                "entries could not be delivered, which is tried again: {why}"
            );
            tokio::select! {
                () = sleep(delay) => delay = delay.saturating_mul(2).min(longest),
                () = self.sender.background.ending(), if !is_ending => {
                    (is_ending, longest) = (true, longest.min(LONGEST_FINAL_DELAY));
                    delay = SHORTEST_FINAL_DELAY.min(longest);
                }
            }
        }
    }
}

/// Takes entries out until there are none.
async fn serve<T: Send + Sync + 'static>(inner: Arc<Inner<T>>) {
    loop {
        inner.gather().await;
        match inner.take() {
            Some(batch) if inner.config.concurrency_limit == 1 => inner.deliver(batch).await,
            Some(batch) => {
                let (inner, background) = (inner.clone(), inner.sender.background.clone());
                background.begin();
                background.spawn(async move {
                    inner.deliver(batch).await;
                    inner.sender.background.end();
                });
            }
            None => {
                sleep(LINGER).await;
                if inner.may_end() {
                    return inner.sender.background.end();
                }
            }
        }
    }
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}
