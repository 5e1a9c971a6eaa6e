//! The text that Prometheus scrapes (exposition format 0.0.4).

use super::facts::{Connections, NodeFacts, TargetState};
use super::series::{Histogram, Key, Latencies, Registry, Sessions, Summed, configurations};
use super::{costs, overload, process, retries, sessions};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use weir_plugin::{Document, Dropped, Metrics, Retained, Source, Uuid};

/// In microseconds, as all bounds here.
pub(super) const KONG_BOUNDS: [u64; 17] =
    milliseconds([1, 2, 5, 7, 10, 15, 20, 30, 50, 75, 100, 200, 500, 750, 1_000, 3_000, 6_000]);
pub(super) const UPSTREAM_BOUNDS: [u64; 13] =
    milliseconds([25, 50, 80, 100, 250, 400, 700, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000]);
pub(super) const FINE_BOUNDS: [u64; 17] = [
    10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 10_000_000,
];

const fn milliseconds<const N: usize>(mut bounds: [u64; N]) -> [u64; N] {
    let mut index = 0;
    while index < N {
        bounds[index] *= 1_000;
        index += 1;
    }
    bounds
}

/// The text of a scrape. It takes time, so do not call it on a worker's thread; no worker waits for it.
pub fn exposition(retained: &Retained, node: &NodeFacts<'_>) -> String {
    let names = Names::of(node.document);
    let totals = Totals::of(&retained.get::<Registry>(), node.document, &names);
    let of_streams = Totals::of(&retained.get::<Sessions>().0, node.document, &names);
    let mut text = Text(String::with_capacity(4_096 + totals.0.len() * 8_192));
    write_node(&mut text, node);
    process::write(&mut text, node, retained);
    process::write_bodies(&mut text, &node.body_memory_usage);
    retries::write(&mut text, node.retries);
    overload::write(&mut text, node);
    retained.get::<Metrics>().write(&mut text.0);
    write_dropped(&mut text, &retained.get::<Dropped>());
    write_lost_lines(&mut text, node);
    costs::write(&mut text, node, &names);
    write_requests(&mut text, &totals);
    sessions::write(&mut text, &of_streams);
    write_bandwidth(&mut text, &[&totals, &of_streams]);
    write_latencies(&mut text, &totals);
    if exports_health(node.document) {
        write_health(&mut text, node);
    }
    text.0
}

/// Whether any configuration exports the targets' health.
fn exports_health(document: &Document) -> bool {
    let asks = |config: &serde_json::Value| config["upstream_health_metrics"] == true;
    configurations(document).any(|plugin| plugin.enabled && asks(&plugin.config))
}

/// The sums over all workers, by labels.
pub(super) struct Totals(pub(super) BTreeMap<Labels, Total>);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Labels {
    pub(super) service: String,
    pub(super) route: String,
    pub(super) consumer: String,
}

#[derive(Default)]
pub(super) struct Total {
    pub(super) requests: BTreeMap<(u16, &'static str), u64>,
    pub(super) ingress: u64,
    pub(super) egress: u64,
    pub(super) latencies: Option<Box<[Summed; 6]>>,
}

impl Totals {
    pub(super) fn of(registry: &Registry, document: &Document, names: &Names) -> Self {
        let mut totals = BTreeMap::<Labels, Total>::new();
        for series in registry.collect(document) {
            let total = totals.entry(names.labels(&series.key)).or_default();
            series.requests.for_each(|status, source, count| {
                let source = if source == Source::Service { "service" } else { "kong" };
                *total.requests.entry((status, source)).or_default() += count;
            });
            total.ingress += series.ingress.get();
            total.egress += series.egress.get();
            if let Some(latencies) = series.recorded_latencies() {
                let sums = total.latencies.get_or_insert_with(Box::default);
                HISTOGRAMS
                    .iter()
                    .zip(sums.iter_mut())
                    .for_each(|(metric, sum)| (metric.of)(latencies).add_to(sum));
            }
        }
        Self(totals)
    }
}

/// The names of entities in labels: of a service without a name its host, of a route without one its id.
pub struct Names(pub(super) HashMap<Uuid, String>);

impl Names {
    /// The names of a configuration.
    pub fn of(document: &Document) -> Self {
        let services = document.services.iter().map(|s| (s.id, s.name.as_ref().unwrap_or(&s.host).clone()));
        let routes =
            document.routes.iter().map(|r| (r.id, r.name.clone().unwrap_or_else(|| r.id.to_string())));
        let consumers = document.consumers.iter().map(|c| (c.id, c.username.clone().unwrap_or_default()));
        Self(services.chain(routes).chain(consumers).collect())
    }

    /// The name of an entity, if it exists.
    pub fn get(&self, id: Uuid) -> Option<&str> {
        self.0.get(&id).map(String::as_str)
    }

    fn labels(&self, key: &Key) -> Labels {
        let name = |id: Option<Uuid>| {
            id.and_then(|id| self.0.get(&id)).map(|name| escaped(name)).unwrap_or_default()
        };
        Labels { service: name(key.service), route: name(Some(key.route)), consumer: name(key.consumer) }
    }
}

/// A label's value, escaped.
pub(super) fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// The text that is being written.
pub(super) struct Text(pub(super) String);

impl Text {
    pub(super) fn metric(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}"));
    }

    pub(super) fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "{line}");
    }

    /// The samples of a histogram whose bounds are in microseconds; `unit` is how many make one of the metric's unit.
    pub(super) fn histogram(
        &mut self,
        name: &str,
        labels: &str,
        (bounds, unit): (&[u64], u64),
        summed: &Summed,
    ) {
        let mut count = 0;
        for (bound, bucket) in bounds.iter().zip(&summed.buckets) {
            count += bucket;
            self.line(format_args!("{name}_bucket{{{labels},le=\"{}\"}} {count}", bound / unit));
        }
        count += summed.buckets[bounds.len()];
        self.line(format_args!("{name}_bucket{{{labels},le=\"+Inf\"}} {count}"));
        self.line(format_args!("{name}_count{{{labels}}} {count}"));
        self.line(format_args!("{name}_sum{{{labels}}} {}", summed.sum as f64 / unit as f64));
    }
}

fn write_node(text: &mut Text, node: &NodeFacts<'_>) {
    let (id, version) = (escaped(node.node_id), escaped(node.version));
    text.metric("kong_datastore_reachable", "gauge", "Whether the store of the configuration can be reached");
    text.line(format_args!("kong_datastore_reachable {}", u8::from(node.datastore_reachable)));
    text.metric("kong_nginx_connections_total", "gauge", "Client connections by state");
    write_connections(text, &id, ("http", node.total_requests), node.connections);
    if let Some(streams) = node.streams {
        write_connections(text, &id, ("stream", streams.accepted), streams);
    }
    text.metric(
        "kong_nginx_metric_errors_total",
        "counter",
        "Errors of the metrics themselves, of which there are none",
    );
    text.line(format_args!("kong_nginx_metric_errors_total 0"));
    text.metric("kong_nginx_requests_total", "gauge", "Requests since the start");
    let requests = node.total_requests;
    text.line(format_args!("kong_nginx_requests_total{{node_id=\"{id}\",subsystem=\"http\"}} {requests}"));
    text.metric("weir_requests_total", "counter", "Requests since the start by the version of HTTP");
    let (http2, http3) = (node.http2_requests, node.http3_requests);
    let versions = [("1", requests.saturating_sub(http2 + http3)), ("2", http2), ("3", http3)];
    for (version, count) in versions {
        text.line(format_args!("weir_requests_total{{node_id=\"{id}\",version=\"{version}\"}} {count}"));
    }
    text.metric("kong_node_info", "gauge", "The node's id and version");
    text.line(format_args!("kong_node_info{{node_id=\"{id}\",version=\"{version}\"}} 1"));
}

/// What plugins' queues have dropped.
fn write_dropped(text: &mut Text, dropped: &Dropped) {
    let counts = dropped.counts();
    if counts.is_empty() {
        return;
    }
    let name = "weir_plugin_dropped_total";
    text.metric(name, "counter", "Entries that a plugin could not deliver");
    for (plugin, id, count) in counts {
        text.line(format_args!("{name}{{plugin=\"{}\",id=\"{id}\"}} {count}", escaped(&plugin)));
    }
}

fn write_lost_lines(text: &mut Text, node: &NodeFacts<'_>) {
    let name = "weir_access_log_dropped_total";
    text.metric(name, "counter", "Lines that an access log lost");
    for (log, lines) in node.lost_log_lines {
        text.line(format_args!("{name}{{log=\"{log}\"}} {lines}"));
    }
}

/// The connections of one subsystem. `total` is the number of their requests, as in nginx.
fn write_connections(text: &mut Text, id: &str, (subsystem, total): (&str, u64), connections: Connections) {
    let Connections { accepted, handled, active, reading, writing, waiting } = connections;
    let states = [
        ("accepted", accepted),
        ("active", active),
        ("handled", handled),
        ("reading", reading),
        ("total", total),
        ("waiting", waiting),
        ("writing", writing),
    ];
    for (state, count) in states {
        let labels = format_args!("node_id=\"{id}\",subsystem=\"{subsystem}\",state=\"{state}\"");
        text.line(format_args!("kong_nginx_connections_total{{{labels}}} {count}"));
    }
}

fn write_requests(text: &mut Text, totals: &Totals) {
    if totals.0.values().all(|total| total.requests.is_empty()) {
        return;
    }
    text.metric("kong_http_requests_total", "counter", "Requests by service, route, status and consumer");
    for (Labels { service, route, consumer }, total) in &totals.0 {
        for ((code, source), count) in &total.requests {
            text.line(format_args!(
                "kong_http_requests_total{{service=\"{service}\",route=\"{route}\",code=\"{code}\",\
                 source=\"{source}\",workspace=\"default\",consumer=\"{consumer}\"}} {count}"
            ));
        }
    }
}

fn write_bandwidth(text: &mut Text, totals: &[&Totals]) {
    let totals = || totals.iter().flat_map(|totals| &totals.0);
    if totals().all(|(_, total)| total.ingress + total.egress == 0) {
        return;
    }
    text.metric("kong_bandwidth_bytes", "counter", "Bytes by service, route, direction and consumer");
    for (Labels { service, route, consumer }, total) in totals() {
        for (direction, bytes) in [("ingress", total.ingress), ("egress", total.egress)] {
            if bytes > 0 {
                text.line(format_args!(
                    "kong_bandwidth_bytes{{service=\"{service}\",route=\"{route}\",direction=\"{direction}\",\
                     workspace=\"default\",consumer=\"{consumer}\"}} {bytes}"
                ));
            }
        }
    }
}

/// One histogram of a series, and its name and labels.
struct Metric {
    name: &'static str,
    help: &'static str,
    /// The label that separates it from others with its name.
    label: &'static str,
    of: fn(&Latencies) -> &Histogram,
    bounds: &'static [u64],
    /// How many microseconds are one of its units.
    unit: u64,
}

/// In the order of [`Total::latencies`].
static HISTOGRAMS: [Metric; 6] = [
    Metric {
        name: "kong_kong_latency_ms",
        help: "Milliseconds spent in the gateway and its plugins",
        label: "workspace=\"default\"",
        of: |latencies| &latencies.kong,
        bounds: &KONG_BOUNDS,
        unit: 1_000,
    },
    Metric {
        name: "kong_request_latency_ms",
        help: "Milliseconds from a request's head to the last byte of its response",
        label: "workspace=\"default\"",
        of: |latencies| &latencies.request,
        bounds: &UPSTREAM_BOUNDS,
        unit: 1_000,
    },
    Metric {
        name: "kong_upstream_latency_ms",
        help: "Milliseconds until the upstream's response began",
        label: "workspace=\"default\"",
        of: |latencies| &latencies.upstream,
        bounds: &UPSTREAM_BOUNDS,
        unit: 1_000,
    },
    Metric {
        name: "weir_request_duration_microseconds",
        help: "Microseconds by phase of a request",
        label: "phase=\"gateway\"",
        of: |latencies| &latencies.fine_gateway,
        bounds: &FINE_BOUNDS,
        unit: 1,
    },
    Metric {
        name: "weir_request_duration_microseconds",
        help: "",
        label: "phase=\"upstream\"",
        of: |latencies| &latencies.fine_upstream,
        bounds: &FINE_BOUNDS,
        unit: 1,
    },
    Metric {
        name: "weir_request_duration_microseconds",
        help: "",
        label: "phase=\"total\"",
        of: |latencies| &latencies.fine_total,
        bounds: &FINE_BOUNDS,
        unit: 1,
    },
];

fn write_latencies(text: &mut Text, totals: &Totals) {
    if totals.0.values().all(|total| total.latencies.is_none()) {
        return;
    }
    for (index, metric) in HISTOGRAMS.iter().enumerate() {
        if !metric.help.is_empty() {
            text.metric(metric.name, "histogram", metric.help);
        }
        for (labels, total) in &totals.0 {
            let summed = total.latencies.as_ref().map(|latencies| &latencies[index]);
            if let Some(summed) = summed.filter(|summed| summed.buckets.iter().any(|count| *count > 0)) {
                write_histogram(text, metric, labels, summed);
            }
        }
    }
}

fn write_histogram(text: &mut Text, metric: &Metric, labels: &Labels, summed: &Summed) {
    let Labels { service, route, .. } = labels;
    let labels = format!("service=\"{service}\",route=\"{route}\",{}", metric.label);
    text.histogram(metric.name, &labels, (metric.bounds, metric.unit), summed);
}

/// With stream listeners each target is reported for both subsystems, as by Kong.
fn write_health(text: &mut Text, node: &NodeFacts<'_>) {
    let subsystems = if node.streams.is_some() { &["http", "stream"][..] } else { &["http"] };
    text.metric(
        "kong_upstream_target_health",
        "gauge",
        "The state of upstreams' targets: 1 for the one they are in",
    );
    let states = [
        ("healthchecks_off", TargetState::HealthchecksOff),
        ("healthy", TargetState::Healthy),
        ("unhealthy", TargetState::Unhealthy),
        ("dns_error", TargetState::DnsError),
    ];
    for (subsystem, health) in
        subsystems.iter().flat_map(|it| node.targets.iter().map(move |health| (it, health)))
    {
        let [upstream, target, address] =
            [&health.upstream, &health.target, &health.address].map(|s| escaped(s));
        for (name, state) in states {
            let value = u8::from(health.state == state);
            text.line(format_args!(
                "kong_upstream_target_health{{upstream=\"{upstream}\",target=\"{target}\",address=\"{address}\",\
                 state=\"{name}\",subsystem=\"{subsystem}\"}} {value}"
            ));
        }
    }
}
