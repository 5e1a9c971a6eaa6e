//! A bounded queue of entries to deliver, in batches and with retries; requests never wait for it.

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

/// The first and the longest pause between retries while the node is about to exit.
const SHORTEST_FINAL_DELAY: Duration = Duration::from_millis(10);
const MAX_FINAL_DELAY: Duration = Duration::from_millis(500);

/// How long the task of an empty queue stays, so that not every entry has to start one.
const LINGER: Duration = Duration::from_millis(10);

/// The default of `max_bytes`. There must be one, because clients decide how long entries are.
const MAX_BYTES: usize = 64 * 1024 * 1024;

/// How entries are queued, batched and retried.
#[derive(Debug, Clone, Record)]
#[record(hint("queue_size", "batch_max_size", "write `max_batch_size`"))]
#[record(hint("flush_timeout", "write `max_coalescing_delay`, in seconds"))]
#[record(hint("retry_count", "max_retries", "write `max_retry_time`, in seconds"))]
pub struct QueueConfig {
    /// The most entries per batch.
    #[field(nullable, default = 1, between = [1, 1_000_000])]
    pub max_batch_size: u32,
    /// The most seconds that an entry waits for others of its batch; without effect if `max_batch_size` is 1.
    #[field(nullable, default = 1, between = [0, 3600])]
    pub max_coalescing_delay: f64,
    /// The most entries in the queue; beyond, the oldest are dropped.
    #[field(nullable, default = 10_000, between = [1, 1_000_000])]
    pub max_entries: u32,
    /// The most bytes in the queue or in delivery, 64 MiB if unset; beyond, the oldest entries are dropped.
    #[field(gt = 0)]
    pub max_bytes: Option<i64>,
    /// Seconds after which a batch that cannot be delivered is dropped; -1 tries only once.
    #[field(nullable, default = 60)]
    pub max_retry_time: f64,
    /// Seconds before the first retry; doubled for each further one.
    #[field(nullable, default = 0.01, between = [0.001, 1_000_000])]
    pub initial_retry_delay: f64,
    /// The most seconds between two tries.
    #[field(nullable, default = 60, between = [0.001, 1_000_000])]
    pub max_retry_delay: f64,
    /// How many batches are delivered at once: 1, or -1 for any number.
    #[field(nullable, default = 1, one_of = [-1, 1])]
    pub concurrency_limit: i32,
}

impl QueueConfig {
    /// Applies the fields that Kong's plugins had before there were queues: they take precedence, as in Kong.
    pub fn overridden(mut self, batch_size: Option<i64>, delay: Option<f64>) -> Self {
        if let Some(size) = batch_size {
            self.max_batch_size = size.clamp(1, 1_000_000) as u32;
        }
        if let Some(delay) = delay {
            self.max_coalescing_delay = delay.clamp(0.0, 3600.0);
        }
        self
    }

    /// The warning for a `retry_count` beside the queue, which has no effect.
    pub fn ignored_fields(config: &Json) -> Vec<FieldError> {
        let is_ignored = config["retry_count"].as_i64().is_some_and(|count| count != 10);
        let message = "use queue.max_retry_time";
        is_ignored.then(|| FieldError::new("retry_count", message)).into_iter().collect()
    }
}

/// Why a batch was not delivered.
#[derive(Debug)]
pub enum Failed {
    /// It may succeed later, so it is retried.
    Now(String),
    /// It never will, so it is not retried.
    Forever(String),
}

impl From<String> for Failed {
    fn from(why: String) -> Self {
        Self::Now(why)
    }
}

type Delivery = Pin<Box<dyn Future<Output = Result<(), Failed>> + Send>>;

/// A queue. When the last handle is dropped, queued entries are still delivered.
pub struct Queue<T>(Arc<Inner<T>>);

struct Inner<T> {
    sender: Sender,
    config: QueueConfig,
    deliver: Box<dyn Fn(Arc<[T]>) -> Delivery + Send + Sync>,
    waiting: Mutex<Waiting<T>>,
    /// Notified when the queue has enough entries for a batch.
    batch: Notify,
}

struct Waiting<T> {
    entries: VecDeque<(T, usize)>,
    bytes: usize,
    /// Bytes of the batches in flight.
    in_flight: usize,
    /// Entries of the batches in flight.
    entries_in_flight: usize,
    /// Whether a task takes entries out.
    served: bool,
    /// Whether entries were dropped since the last delivery.
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

    /// Queues an entry of this size. Never waits: if there is no room, the oldest entries are dropped.
    pub fn push(&self, entry: T, bytes: usize) {
        let inner = &self.0;
        let most = inner.config.max_bytes.map_or(MAX_BYTES, |most| most.try_into().unwrap_or(usize::MAX));
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
        (waiting.entries.len() + waiting.entries_in_flight) as u64 + self.sender.untold()
    }
}

impl<T> Waiting<T> {
    fn new() -> Self {
        let entries = VecDeque::new();
        Self { entries, bytes: 0, in_flight: 0, entries_in_flight: 0, served: false, full: false }
    }

    /// Adds an entry, and returns how many were dropped to make room: the oldest ones, or this one if the batches in
    /// flight leave none.
    fn add(&mut self, entry: T, bytes: usize, most_entries: usize, most_bytes: usize) -> u64 {
        let room = most_bytes.saturating_sub(self.in_flight);
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

    /// Takes a batch of the oldest entries, and their bytes.
    fn take(&self) -> Option<(Arc<[T]>, usize)> {
        let mut waiting = self.waiting();
        let most = waiting.entries.len().min(self.config.max_batch_size as usize);
        let (batch, bytes): (Vec<T>, Vec<usize>) = waiting.entries.drain(..most).unzip();
        let bytes = bytes.iter().sum();
        waiting.bytes -= bytes;
        waiting.in_flight += bytes;
        waiting.entries_in_flight += batch.len();
        (!batch.is_empty()).then(|| (batch.into(), bytes))
    }

    /// Whether no entry has arrived, so that the task may end.
    fn may_end(&self) -> bool {
        let mut waiting = self.waiting();
        waiting.served = !waiting.entries.is_empty();
        !waiting.served
    }

    /// Waits until a batch is complete or `max_coalescing_delay` is over; does not wait when the node is about to exit.
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

    /// Delivers a batch, and frees its room.
    async fn deliver(&self, (batch, bytes): (Arc<[T]>, usize)) {
        let delivered = self.try_until_delivered(&batch).await;
        let mut waiting = self.waiting();
        waiting.in_flight -= bytes;
        waiting.entries_in_flight -= batch.len();
        match delivered {
            Ok(()) => waiting.full = false,
            Err(why) => {
                drop(waiting);
                self.sender.lose(batch.len() as u64, &why);
            }
        }
    }

    /// Retries a batch until it is delivered or `max_retry_time` is over. When the node is about to exit, it retries at
    /// once, and then with short pauses.
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
            tracing::warn!(queue = self.sender.name, "a batch could not be delivered; it is retried: {why}");
            tokio::select! {
                () = sleep(delay) => delay = delay.saturating_mul(2).min(longest),
                () = self.sender.background.ending(), if !is_ending => {
                    (is_ending, longest) = (true, longest.min(MAX_FINAL_DELAY));
                    delay = SHORTEST_FINAL_DELAY.min(longest);
                }
            }
        }
    }
}

/// Delivers batches until the queue is empty.
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
