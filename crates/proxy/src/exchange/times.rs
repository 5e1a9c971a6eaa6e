//! The times of a request whose client has asked for them.

use super::time_tree::Tree;
use super::{Exchange, Source};
use crate::costs::Phase;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::Instant;
use weir_model::Uuid;
use weir_upstream::connect::Resolved;

/// What a request's times are so far.
pub(crate) struct Times {
    /// When the request was about to be routed.
    pub(crate) began: Instant,
    /// Whether they go to the log too.
    pub(crate) log: bool,
    /// Whether the client is on this machine, and may get whatever there is.
    pub(crate) loopback: bool,
    /// How long names took, which is access to Kong.
    resolving: Duration,
    pub(crate) tree: Tree,
}

impl Times {
    pub(crate) fn new(log: bool, loopback: bool) -> Self {
        let tree = Tree::default();
        Self { began: Instant::now(), log, loopback, resolving: Duration::ZERO, tree }
    }

    /// A connection to an upstream was opened, or could not be.
    pub(crate) fn opened(
        &mut self,
        host: &str,
        (address, resolved): (Option<SocketAddr>, Option<Resolved>),
        took: Duration,
    ) {
        let resolving = resolved.as_ref().map_or(Duration::ZERO, |resolved| resolved.took);
        if let Some(Resolved { is_cached, .. }) = resolved {
            self.resolving += resolving;
            self.tree.spend(&["access", "dns", host, "resolve"], resolving).cache_hit = Some(is_cached);
        }
        let connecting = took.saturating_sub(resolving);
        match address {
            Some(address) => {
                let destination = format!("tcp://{address}");
                self.tree.spend(&["balancer", "connections", &destination, "connect"], connecting);
            }
            None => drop(self.tree.spend(&["balancer"], connecting)),
        }
    }

    /// A hook of a plugin has taken so long.
    pub(crate) fn hook(&mut self, phase: Phase, (plugin, id): (&str, Uuid), took: Duration) {
        let phase = match phase {
            Phase::Rewrite => "rewrite",
            Phase::Access => "access",
            Phase::Response => "header_filter",
            Phase::ResponseBody => "body_filter",
            Phase::Log => "log",
            Phase::Rest | Phase::Upstream | Phase::Total => return,
        };
        self.tree.spend(&[phase, "plugins", plugin, &id.to_string()], took);
    }

    /// What is known when the response's head is about to be sent.
    pub(crate) fn at_head(&self, exchange: &Exchange) -> Tree {
        let (mut tree, timing, now) = (self.tree.clone(), exchange.timing, Instant::now());
        let asked = timing.upstream_start.unwrap_or(now);
        tree.at(&["access"]).total = asked.saturating_duration_since(self.began) + self.resolving;
        if let (Some(asked), Some(head)) = (timing.upstream_start, timing.upstream_head) {
            tree.at(&["balancer"]);
            tree.spend(&["upstream", "time_to_first_byte"], head.saturating_duration_since(asked));
            if exchange.source == Source::Service {
                tree.at(&["header_filter"]).total = now.saturating_duration_since(head);
            }
        }
        tree.at(&["header_filter"]);
        tree
    }

    /// What is known when the response has ended.
    pub(crate) fn at_end(&self, exchange: &Exchange) -> Tree {
        let mut tree = self.at_head(exchange);
        let timing = exchange.timing;
        if let (Some(head), Some(end)) = (timing.upstream_head, timing.end) {
            tree.spend(&["upstream", "streaming"], end.saturating_duration_since(head));
        }
        tree.at(&["body_filter"]);
        tree.at(&["log"]);
        tree
    }
}
