//! The same counts under APISIX's names.

use super::exposition::{KONG_BOUNDS, Labels, Names, Text, Totals, UPSTREAM_BOUNDS, escaped};
use super::facts::NodeFacts;
use super::series::Registry;
use std::collections::HashMap;
use weir_plugin::{Retained, Uuid};

/// The histograms that APISIX has too: its `type`, our index, and its bounds.
const LATENCIES: [(&str, usize, &[u64]); 3] =
    [("request", 1, &UPSTREAM_BOUNDS), ("upstream", 2, &UPSTREAM_BOUNDS), ("apisix", 0, &KONG_BOUNDS)];

/// The text of a scrape with the names of APISIX's plugin prometheus. `names` overrides the names of routes, services
/// and consumers.
pub fn apisix_exposition(
    retained: &Retained,
    node: &NodeFacts<'_>,
    hostname: &str,
    names: HashMap<Uuid, String>,
) -> String {
    let mut all = Names::of(node.document);
    all.0.extend(names);
    let totals = Totals::of(&retained.get::<Registry>(), node.document, &all);
    let mut text = Text(String::new());
    write_node(&mut text, node, hostname);
    write_statuses(&mut text, &totals);
    write_bandwidth(&mut text, &totals);
    write_latencies(&mut text, &totals);
    text.0
}

fn write_node(text: &mut Text, node: &NodeFacts<'_>, hostname: &str) {
    text.metric("apisix_node_info", "gauge", "The node's host name");
    text.line(format_args!("apisix_node_info{{hostname=\"{}\"}} 1", escaped(hostname)));
    text.metric("apisix_etcd_reachable", "gauge", "Whether the store of the configuration can be reached");
    text.line(format_args!("apisix_etcd_reachable {}", u8::from(node.datastore_reachable)));
    text.metric("apisix_http_requests_total", "gauge", "Requests since the start");
    text.line(format_args!("apisix_http_requests_total {}", node.total_requests));
    text.metric("apisix_nginx_http_current_connections", "gauge", "Client connections by state");
    let connections = node.connections;
    for (state, count) in [
        ("accepted", connections.accepted),
        ("active", connections.active),
        ("handled", connections.handled),
        ("reading", connections.reading),
        ("waiting", connections.waiting),
        ("writing", connections.writing),
    ] {
        text.line(format_args!("apisix_nginx_http_current_connections{{state=\"{state}\"}} {count}"));
    }
}

fn write_statuses(text: &mut Text, totals: &Totals) {
    if totals.0.values().all(|total| total.requests.is_empty()) {
        return;
    }
    text.metric("apisix_http_status", "counter", "Requests by status, route, service and consumer");
    for (labels, total) in &totals.0 {
        let mut by_code: Vec<(u16, u64)> = Vec::new();
        for ((code, _), count) in &total.requests {
            match by_code.last_mut().filter(|(last, _)| last == code) {
                Some((_, sum)) => *sum += count,
                None => by_code.push((*code, *count)),
            }
        }
        let Labels { service, route, consumer } = labels;
        for (code, count) in by_code {
            text.line(format_args!(
                "apisix_http_status{{code=\"{code}\",route=\"{route}\",matched_uri=\"\",matched_host=\"\",\
                 service=\"{service}\",consumer=\"{consumer}\",node=\"\"}} {count}"
            ));
        }
    }
}

fn write_bandwidth(text: &mut Text, totals: &Totals) {
    if totals.0.values().all(|total| total.ingress + total.egress == 0) {
        return;
    }
    text.metric("apisix_bandwidth", "counter", "Bytes by direction, route, service and consumer");
    for (labels, total) in &totals.0 {
        for (direction, bytes) in [("ingress", total.ingress), ("egress", total.egress)] {
            if bytes > 0 {
                text.line(format_args!("apisix_bandwidth{{{}}} {bytes}", typed(direction, labels)));
            }
        }
    }
}

fn write_latencies(text: &mut Text, totals: &Totals) {
    if totals.0.values().all(|total| total.latencies.is_none()) {
        return;
    }
    text.metric("apisix_http_latency", "histogram", "Milliseconds by part of a request, route and service");
    for (labels, total) in &totals.0 {
        let Some(latencies) = &total.latencies else { continue };
        for (name, place, bounds) in LATENCIES {
            let summed = &latencies[place];
            if summed.buckets.iter().any(|count| *count > 0) {
                text.histogram("apisix_http_latency", &typed(name, labels), (bounds, 1_000), summed);
            }
        }
    }
}

fn typed(name: &str, Labels { service, route, consumer }: &Labels) -> String {
    format!("type=\"{name}\",route=\"{route}\",service=\"{service}\",consumer=\"{consumer}\",node=\"\"")
}
