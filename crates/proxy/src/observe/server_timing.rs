//! `Server-Timing` (W3C): reports to permitted clients where the time of their request went.

use crate::exchange::Exchange;
use crate::exchange::is_forwarded;
use crate::listen::Network;
use std::fmt::Write;
use std::time::Duration;
use tokio::time::Instant;

/// The header of a request by which a client asks.
const ASKED: &str = "Weir-Server-Timing";

/// The settings of `Server-Timing`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerTiming {
    /// Which requests get the header.
    pub who: ServerTimingMode,
    /// The clients that may ask.
    pub networks: Vec<Network>,
}

/// Which requests get `Server-Timing`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ServerTimingMode {
    /// None.
    #[default]
    Off,
    /// Those that ask, from clients that may.
    OnRequest,
    /// All.
    Always,
}

impl ServerTiming {
    /// Measures the exchange's hooks, if its client gets the header.
    #[inline]
    pub(crate) fn watch(&self, exchange: &mut Exchange) {
        if self.who != ServerTimingMode::Off
            && (self.who == ServerTimingMode::Always || self.is_asked(exchange))
        {
            exchange.watch.tell();
        }
    }

    /// Ignores requests that an untrusted proxy forwarded, because the address is then the proxy's.
    #[cold]
    fn is_asked(&self, exchange: &Exchange) -> bool {
        exchange.request.headers.get(ASKED) == Some(b"1")
            && (exchange.engine.connection.trusted || !is_forwarded(exchange))
            && self.networks.iter().any(|network| network.contains(exchange.client_ip))
    }
}

/// Adds the header, if the client gets it.
#[inline]
pub(crate) fn append(exchange: &mut Exchange) {
    if exchange.watch.for_client {
        let text = text(exchange);
        exchange.response.headers.append("Server-Timing", text.as_bytes());
    }
}

#[cold]
fn text(exchange: &Exchange) -> String {
    let mut text = String::new();
    let mut entry = |name: std::fmt::Arguments<'_>, time: Duration| {
        let comma = if text.is_empty() { "" } else { ", " };
        // Writing to a string cannot fail.
        let _ = write!(text, "{comma}{name};dur={:.4}", time.as_secs_f64() * 1_000.0);
    };
    for took in exchange.took_by_plugin() {
        entry(format_args!("{}", took.plugin), took.spent);
        if let Some(waited) = took.waited {
            entry(format_args!("{}.wait", took.plugin), waited);
        }
    }
    let timing = exchange.timing;
    if let (Some(asked), Some(head)) = (timing.upstream_start, timing.upstream_head) {
        entry(format_args!("upstream"), head.saturating_duration_since(asked));
    }
    entry(format_args!("total"), Instant::now().saturating_duration_since(timing.start));
    text
}
