//! How much room stores of a fixed size have; in Kong they are shared dictionaries.

use super::Metric;
use super::metrics::Scope;
use crate::proxy_cache;
use std::io::Write;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use weir_plugin::Retained;

/// How often it is sent.
const INTERVAL: Duration = Duration::from_secs(60);

/// The stores, and when they were reported last.
pub(super) struct Dictionaries {
    usage: Box<dyn Fn() -> (usize, usize) + Send + Sync>,
    rate: String,
    last: Mutex<Option<Instant>>,
}

impl Dictionaries {
    pub(super) fn new(metric: &Metric, retained: &Retained) -> Self {
        let rate = metric.sample_rate.filter(|rate| *rate != 1.0);
        let rate = rate.map(|rate| format!("|@{rate}")).unwrap_or_default();
        Self { usage: Box::new(proxy_cache::usage(retained)), rate, last: Mutex::default() }
    }

    /// Appends the lines, if it is time. A worker that another one precedes does not wait for it.
    pub(super) fn write(&self, out: &mut Vec<u8>, scope: &Scope) {
        let (Ok(mut last), now) = (self.last.try_lock(), Instant::now()) else { return };
        if last.is_some_and(|last| now.duration_since(last) < INTERVAL) {
            return;
        }
        *last = Some(now);
        let Some(place) = scope.node_place() else { return };
        let ((used, capacity), rate) = ((self.usage)(), &self.rate);
        for (name, bytes) in [("free_space", capacity.saturating_sub(used)), ("capacity", capacity)] {
            // Writing to a vector cannot fail.
            let _ = writeln!(out, "{place}.shdict.proxy_cache.{name}:{bytes}|g{rate}");
        }
    }
}
