//! Counts requests, bytes and durations for Prometheus, under Kong's names, and finer durations under our own.
//!
//! ```yaml
//! plugins:
//!   - name: prometheus
//!     config:
//!       status_code_metrics: true
//!       latency_metrics: true
//! ```
//!
//! `curl http://localhost:8001/metrics` (Admin API), or port 8007 (status).
//!
//! ## Always
//!
//! | metric | labels |
//! |---|---|
//! | `kong_node_info` | `node_id`, `version` |
//! | `kong_nginx_connections_total` | `node_id`, `subsystem`, `state` |
//! | `kong_nginx_requests_total` | `node_id`, `subsystem` |
//! | `kong_nginx_metric_errors_total`: always 0 | |
//! | `weir_requests_total` | `node_id`, `version` (of HTTP: 1, 2 or 3) |
//! | `kong_datastore_reachable` | |
//! | `process_cpu_seconds_total`, `process_resident_memory_bytes`, `process_open_fds`, `process_max_fds`, `process_start_time_seconds` | |
//! | `kong_memory_workers_lua_vms_bytes`: the memory of all workers' [Lua](../lua.md) VMs, 0 without Lua | `node_id`, `pid`, `kong_subsystem` |
//! | `kong_memory_lua_shared_dict_bytes`, `kong_memory_lua_shared_dict_total_bytes`: the memory that proxy-cache (`proxy_cache`) and each [shared dictionary](../lua.md#shared-dictionaries) of Lua use, and may use | `node_id`, `shared_dict`, `kong_subsystem` |
//! | `weir_held_body_bytes`, `weir_held_body_max_bytes`: the memory that buffered bodies use, and may use (`mem_bodies_size`) | |
//! | `weir_held_body_shortages_total`: bodies that did not fit into that memory: their requests were answered 503 (`refused`), or the plugin did not see them (`passed`) | `effect` |
//! | `weir_upstream_retries_total`: how often requests were [retried](../decisions/retries.md), by reason: `connect`, `reset`, `timeout`, `refused`, `kept` | `upstream`, `reason` |
//! | `weir_upstream_retry_budget_exhausted_total`: how often the retry budget did not allow a retry | `upstream` |
//! | `weir_limit_acted_total`: how often a [limit of the node](../overload.md) acted | `limit` |
//! | `weir_upstream_limit`, `weir_upstream_in_flight`, `weir_upstream_waiting`: how many requests may be in flight to an upstream with [limits](../overload.md#limits-of-an-upstream), how many are, and how many wait | `upstream` |
//! | `weir_upstream_shed_total`: how many were shed, by the limit: `upstream`, `targets`, `waited` | `upstream`, `reason` |
//! | `weir_target_ejected`, `weir_target_ejections_total`: whether a target is [ejected](../overload.md#outlier-ejection), and how often it was, by what it did: `errors`, `error_share`, `latency` | `upstream`, `target`; `reason` |
//! | `weir_worker_cpu_seconds_total`: the CPU time of all workers | |
//! | `weir_plugin_calls_total`, `weir_plugin_duration_seconds`: calls of plugins' hooks, and how long they took | `plugin`, `service`, `route`, `phase` |
//! | `weir_plugin_waited_seconds_total`, `weir_plugin_answers_total`, `weir_plugin_errors_total` | `plugin`, `service`, `route` |
//! | `weir_plugin_dropped_total`: entries that a plugin's queue could not deliver | `plugin`, `id` |
//! | `weir_lua_ended_total`: calls of [Lua code](../lua.md#debugging) that ended early, by reason: `error`, `timeout` (`lua_timeout`), `memory` (`lua_memory`), `load` | `plugin`, `reason` |
//! | `weir_access_log_dropped_total`: lines that `proxy_access_log` or `proxy_stream_access_log` dropped, because the disk was full or too slow | `log` |
//! ## By flag
//!
//! | flag | metric | labels |
//! |---|---|---|
//! | `status_code_metrics` | `kong_http_requests_total` | `service`, `route`, `code`, `source`, `workspace`, `consumer` |
//! | `bandwidth_metrics` | `kong_bandwidth_bytes` | `service`, `route`, `direction`, `workspace`, `consumer` |
//! | `latency_metrics` | `kong_kong_latency_ms`, `kong_upstream_latency_ms`, `kong_request_latency_ms` | `service`, `route`, `workspace` |
//! | `latency_metrics` | `weir_request_duration_microseconds` | `service`, `route`, `phase` |
//! | `status_code_metrics` | `kong_stream_sessions_total` | `service`, `route`, `code`, `source`, `workspace` |
//! | `ai_metrics` | `kong_ai_llm_requests_total`, `kong_ai_llm_cost_total`, `kong_ai_llm_tokens_total`, `kong_ai_llm_provider_latency_ms`, and beyond Kong's `kong_ai_llm_time_to_first_token_ms` of streams and `kong_ai_llm_tokens_per_second` | `ai_provider`, `ai_model`, `cache_status`, `vector_db`, `embeddings_provider`, `embeddings_model`, `workspace`; of tokens `token_type` too |
//! | `latency_metrics` | `kong_session_duration_ms` | `service`, `route`, `workspace` |
//! | `upstream_health_metrics` | `kong_upstream_target_health` | `upstream`, `target`, `address`, `state`, `subsystem` |
//!
//! `consumer` is empty unless `per_consumer` is set. `source` is `service` for responses of the upstream, `kong` for
//! those of the gateway. Sessions of stream listeners are counted if `protocols` contains tcp, tls, tls_passthrough or
//! udp, with nginx's status as `code`; their bytes are in `kong_bandwidth_bytes`. Requests that matched no route are
//! only in `kong_nginx_requests_total`.
//!
//! The phases are `gateway` (from the request's head until the request is sent to the upstream, or to the end if it is
//! not), `upstream` (from then to the head of the upstream's response) and `total` (to the last byte). Their buckets
//! end at 10, 25, 50, 100, 250 and 500 µs, 1, 2.5, 5, 10, 25, 50, 100, 250 and 500 ms, 1 and 10 s.
//!
//! Counts survive reloads. The counts of a route that was deleted disappear, and all of them once no configuration of the
//! plugin is enabled. `wasm_metrics` is
//! accepted and has no effect. `ai_metrics` counts calls of AI plugins that have `log_statistics`. `ai_model` is the name that the configuration gives. One that
//! a request has chosen is `other` until a call of it has got a status of 2xx, and so are those beyond 1,024 and those longer than 128 bytes.
//!
//! ## Native histograms
//!
//! A Prometheus with `--enable-feature=native-histograms` gets the durations of requests as native
//! histograms too: `weir_request_duration_seconds` with `service`, `route` and `phase`. Their buckets are 2.2 % wide (schema 5), so that
//! `histogram_quantile` is about 1 % off at any duration. They count since Prometheus first asked, and need no configuration of the plugin.
//! Requests that matched no route are in them, with an empty `route` and `service`.
//! Such a Prometheus asks for all metrics as protobuf; the text has no native histograms. A control plane has none of its data planes',
//! because Prometheus scrapes these too and would count their requests twice.

mod ai;
mod apisix;
mod costs;
mod exposition;
mod facts;
mod handover;
mod overload;
mod process;
mod retries;
mod series;
mod sessions;

pub use apisix::apisix_exposition;
pub use exposition::{Names, exposition};
pub use facts::{
    Connections, EjectedTarget, NodeFacts, SharedStore, TargetHealth, TargetState, UpstreamLoad,
    UpstreamRetries,
};
pub use process::Process;

use ai::AiMetrics;
use series::{Key, Latencies, Registry, Sessions};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use weir_plugin::{BuildContext, Exchange, Handover, Hooks, Phases, Plugin, Record, Session, Streams};

/// What is counted.
#[derive(Debug, Clone, Record)]
pub(super) struct Config {
    /// Counts the requests and bytes of each consumer separately.
    #[field(nullable, default = false)]
    pub per_consumer: bool,
    /// Counts requests by status.
    #[field(nullable, default = false)]
    pub status_code_metrics: bool,
    /// Counts calls of large language models.
    #[field(nullable, default = false)]
    pub ai_metrics: bool,
    /// Measures durations.
    #[field(nullable, default = false)]
    pub latency_metrics: bool,
    /// Counts bytes.
    #[field(nullable, default = false)]
    pub bandwidth_metrics: bool,
    /// Exports the health of upstreams' targets.
    #[field(nullable, default = false)]
    pub upstream_health_metrics: bool,
    /// No effect.
    #[field(extension, nullable, default = false)]
    pub wasm_metrics: bool,
}

/// One configured instance.
pub(super) struct Prometheus {
    config: Config,
    registry: Arc<Registry>,
    sessions: Arc<Sessions>,
    ai: Option<AiMetrics>,
}

impl Plugin for Prometheus {
    const NAME: &'static str = "prometheus";
    const PRIORITY: i32 = 13;
    const STREAMS: Streams = Streams::IfNamed;
    const HANDOVERS: &'static [Handover] = handover::HANDOVERS;
    type Config = Config;

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        let ai = config.ai_metrics.then(|| AiMetrics::new(build)).transpose()?;
        Ok(Self { config, registry: build.retained.get(), sessions: build.retained.get(), ai })
    }
}

impl Hooks for Prometheus {
    fn phases(&self) -> Phases {
        Phases::LOG | Phases::LOG_STREAM
    }

    fn log(&self, exchange: &mut Exchange) {
        if let Some(ai) = &self.ai {
            ai.count(exchange);
        }
        let Some(route) = exchange.route() else { return };
        let consumer =
            exchange.consumer().filter(|_| self.config.per_consumer).map(|consumer| consumer.entity.id);
        let service = route.service.as_ref().map(|service| service.entity.id);
        let key = Key { service, route: route.entity.id, consumer };
        if self.config.status_code_metrics || self.config.bandwidth_metrics {
            self.registry.with(key, |series| {
                if self.config.status_code_metrics {
                    series.requests.add(exchange.response.status, exchange.source);
                }
                if self.config.bandwidth_metrics {
                    series.ingress.add(exchange.bytes_in);
                    series.egress.add(exchange.bytes_out);
                }
            });
        }
        if self.config.latency_metrics {
            self.registry.with(Key { consumer: None, ..key }, |series| observe(series.latencies(), exchange));
        }
    }

    fn log_stream(&self, session: &Session) {
        let Some(route) = session.route() else { return };
        let service = route.service.as_ref().map(|service| service.entity.id);
        let route = route.entity.id;
        self.sessions.0.with(Key { service, route, consumer: None }, |series| {
            if self.config.status_code_metrics {
                series.requests.add(session.status, session.source);
            }
            if self.config.bandwidth_metrics {
                series.ingress.add(session.received);
                series.egress.add(session.sent);
            }
            if self.config.latency_metrics {
                let duration = microseconds(session.duration());
                series.latencies().request.observe(&exposition::UPSTREAM_BOUNDS, duration);
            }
        });
    }
}

fn observe(latencies: &Latencies, exchange: &Exchange) {
    let timing = &exchange.timing;
    let Some(end) = timing.end else { return };
    let since = |from: Instant, to: Instant| microseconds(to.saturating_duration_since(from));
    let total = since(timing.start, end);
    let gateway = since(timing.start, timing.upstream_start.unwrap_or(end));
    latencies.request.observe(&exposition::UPSTREAM_BOUNDS, total);
    latencies.kong.observe(&exposition::KONG_BOUNDS, gateway);
    latencies.fine_total.observe(&exposition::FINE_BOUNDS, total);
    latencies.fine_gateway.observe(&exposition::FINE_BOUNDS, gateway);
    if let (Some(asked), Some(head)) = (timing.upstream_start, timing.upstream_head) {
        let upstream = since(asked, head);
        latencies.upstream.observe(&exposition::UPSTREAM_BOUNDS, upstream);
        latencies.fine_upstream.observe(&exposition::FINE_BOUNDS, upstream);
    }
}

fn microseconds(duration: Duration) -> u64 {
    duration.as_micros().try_into().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
