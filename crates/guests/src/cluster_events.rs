//! Events that code broadcasts to the other nodes of the same database. As in Kong, a node writes a row for each, and every
//! node looks for the rows of others now and then.

mod log;

use crate::dicts::Dicts;
use crate::settings::LuaSettings;
use log::{Event, Log};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::broadcast::{Receiver, Sender, channel};
use weir_plugin::{Background, Retained, Rows};

/// What the keys of plugins in `kong.cache` begin with.
pub(crate) const OF_PLUGINS: &str = "kong:";
/// What those of code in a sandbox begin with, which does not see what plugins keep.
pub(crate) const OF_SANDBOX: &str = "sandbox:";

/// The channels of keys that caches have invalidated, and what the keys begin with in the dictionaries.
pub(crate) const INVALIDATIONS: [(&str, &str); 2] =
    [("invalidations", OF_PLUGINS), ("sandbox:invalidations", OF_SANDBOX)];

/// The dictionaries of `kong.cache`.
const CACHE: [&str; 2] = ["kong_db_cache", "kong_db_cache_miss"];

/// How many events of other nodes wait for a worker. It loses the oldest if there are more.
const MAX_WAITING: usize = 1024;
/// How many events of this node may wait to be written.
const MAX_UNWRITTEN: usize = 1024;

/// A node looks no more often than this.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// The events of a node.
#[derive(Clone)]
pub(crate) struct ClusterEvents {
    state: Arc<State>,
    log: Log,
    background: Arc<Background>,
    dicts: Arc<Dicts>,
    interval: Duration,
}

/// What lasts as long as the process.
struct State {
    heard: Sender<Arc<Heard>>,
    listens: AtomicBool,
    unwritten: AtomicUsize,
}

impl Default for State {
    fn default() -> Self {
        Self {
            heard: channel(MAX_WAITING).0,
            listens: AtomicBool::default(),
            unwritten: AtomicUsize::default(),
        }
    }
}

/// An event of another node.
pub(crate) struct Heard {
    pub(crate) channel: String,
    pub(crate) data: Vec<u8>,
    /// The subscriptions that have taken it: each runs on one worker.
    taken: AtomicU64,
}

impl Heard {
    /// Whether a subscription is the first with its number, which is below 64, to take the event.
    pub(crate) fn take(&self, number: u32) -> bool {
        let bit = 1 << number;
        self.taken.fetch_or(bit, Ordering::Relaxed) & bit == 0
    }
}

impl ClusterEvents {
    /// Those of the node with this state and id.
    pub(crate) fn of(retained: &Retained, node: &Arc<str>) -> Self {
        let rows: Arc<Rows> = retained.get();
        Self {
            state: retained.get(),
            log: Log::new(rows, node.clone()),
            background: retained.get(),
            dicts: Dicts::of(retained),
            interval: retained.get::<LuaSettings>().update_interval.max(MIN_INTERVAL),
        }
    }

    /// Has other nodes get an event after a delay. Returns what keeps it from that.
    pub(crate) fn broadcast(&self, channel: &str, data: &[u8], delay: Duration) -> Result<(), String> {
        if !self.log.is_shared() {
            return Ok(());
        }
        let state = self.state.clone();
        if state.unwritten.fetch_add(1, Ordering::Relaxed) >= MAX_UNWRITTEN {
            state.unwritten.fetch_sub(1, Ordering::Relaxed);
            return Err(format!("{MAX_UNWRITTEN} events wait to be written to the database: send fewer"));
        }
        let written = self.log.write(channel, data, delay);
        self.background.spawn(async move {
            if let Err(error) = written.await {
                tracing::error!("other nodes may have missed an event of kong.cluster_events: {error}");
            }
            state.unwritten.fetch_sub(1, Ordering::Relaxed);
        });
        Ok(())
    }

    /// What other nodes broadcast from now on.
    pub(crate) fn subscribe(&self) -> Receiver<Arc<Heard>> {
        self.listen();
        self.state.heard.subscribe()
    }

    /// Looks for events of other nodes from now on, if there can be any.
    pub(crate) fn listen(&self) {
        if self.log.is_shared() && !self.state.listens.swap(true, Ordering::Relaxed) {
            self.background.spawn(self.clone().run());
        }
    }

    async fn run(mut self) {
        let mut has_failed = false;
        loop {
            match self.log.due().await {
                Ok(events) => {
                    has_failed = false;
                    events.into_iter().for_each(|event| self.hear(event));
                }
                Err(error) if !has_failed => {
                    has_failed = true;
                    tracing::warn!("events of other nodes cannot be read from the database: {error}");
                }
                Err(_) => {}
            }
            tokio::select! {
                () = tokio::time::sleep(self.interval) => {}
                () = self.background.ending() => return,
            }
        }
    }

    fn hear(&self, event: Event) {
        if let Some((_, start)) = INVALIDATIONS.iter().find(|(channel, _)| *channel == event.channel) {
            let key = [start.as_bytes(), &event.data].concat();
            CACHE.iter().filter_map(|name| self.dicts.get(name)).for_each(|dict| {
                dict.delete(&key);
            });
        }
        let heard = Heard { channel: event.channel, data: event.data, taken: AtomicU64::default() };
        // Code need not listen.
        let _ = self.state.heard.send(Arc::new(heard));
    }
}
