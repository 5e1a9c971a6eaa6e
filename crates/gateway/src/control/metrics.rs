//! The metrics of the node.
use super::Control;
use super::process::process;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use weir_model::Document;
use weir_model::entity::Target;
use weir_plugins::prometheus::{
    Connections, NodeFacts, TargetHealth, TargetState, UpstreamRetries, exposition,
};
use weir_proxy::{Retained, Totals};
use weir_upstream::health;
use weir_upstream::retry_budget::{RetryBudgets, RetryCounts};

impl Control {
    /// The metrics, in Prometheus' text format. Takes long where there are many routes.
    pub(crate) fn metrics(&self) -> String {
        self.scrape(exposition) + &self.cluster.metrics(&self.settings)
    }

    /// Renders metrics from the counters and the state of the node.
    pub(crate) fn scrape(&self, render: impl FnOnce(&Retained, &NodeFacts<'_>) -> String) -> String {
        let totals = self.totals();
        let Totals { connections, accepted, sessions, sessions_accepted, .. } = totals;
        let streams = Connections::of(sessions_accepted, sessions);
        let configuration = self.registry.configuration();
        let document = &configuration.document;
        let costs = self.costs();
        let node = NodeFacts {
            node_id: &self.node_id,
            version: env!("CARGO_PKG_VERSION"),
            process: process(self.started),
            connections: Connections::of(accepted - sessions_accepted, connections.saturating_sub(sessions)),
            streams: (!self.settings.stream_listen.0.is_empty()).then_some(streams),
            total_requests: totals.requests,
            http2_requests: totals.http2_requests,
            http3_requests: totals.http3_requests,
            datastore_reachable: self.registry.is_reachable(),
            document,
            costs: &costs,
            retries: &self.retries(),
            worker_cpu: self.worker_cpu(),
            body_memory_usage: self.plane.proxy.body_memory_usage(),
            lost_log_lines: self.access_logs().map(|(name, log)| (name, log.dropped())),
            targets: &targets(&self.plane.compiler.retained, document),
        };
        render(&self.plane.compiler.retained, &node)
    }

    /// Requests that were sent again, by upstream.
    fn retries(&self) -> Vec<UpstreamRetries> {
        let counts = self.plane.compiler.retained.get::<RetryBudgets>().counts();
        let row =
            |RetryCounts { upstream, retries, exhausted }| UpstreamRetries { upstream, retries, exhausted };
        counts.into_iter().map(row).collect()
    }
}

/// The health of every known address of every target.
fn targets(retained: &Retained, document: &Document) -> Vec<TargetHealth> {
    let upstreams: HashMap<_, _> =
        document.upstreams.iter().map(|upstream| (upstream.id, upstream)).collect();
    let of_target = |target: &Arc<Target>| {
        let upstream = *upstreams.get(&target.upstream)?;
        let health = |address, state| TargetHealth {
            upstream: upstream.name.clone(),
            target: target.target.clone(),
            address,
            state,
        };
        Some(match health::are_used(upstream) && !target.is_socket() {
            false => {
                let address = target.target.parse::<SocketAddr>().map(|address| address.to_string());
                vec![health(address.unwrap_or_default(), TargetState::HealthchecksOff)]
            }
            true => match health::standing(&retained.get(), &upstream.name, &target.target).addresses {
                none if none.is_empty() => vec![health(String::new(), TargetState::DnsError)],
                addresses => {
                    addresses.iter().map(|(at, healthy)| health(at.to_string(), state(*healthy))).collect()
                }
            },
        })
    };
    document.targets.iter().filter_map(of_target).flatten().collect()
}

fn state(healthy: bool) -> TargetState {
    if healthy { TargetState::Healthy } else { TargetState::Unhealthy }
}
