//! The metrics of a request as lines of StatsD's protocol.

use super::{Config, Metric};
use crate::plugin::Exchange;
use std::io::Write;
use weir_model::entity::Service;

/// What is sent where nothing is said: names, types and rates.
const DEFAULTS: [(&str, &str, Option<f64>); 13] = [
    ("request_count", "counter", Some(1.0)),
    ("latency", "timer", None),
    ("request_size", "counter", Some(1.0)),
    ("status_count", "counter", Some(1.0)),
    ("response_size", "counter", Some(1.0)),
    ("unique_users", "set", None),
    ("request_per_user", "counter", Some(1.0)),
    ("upstream_latency", "timer", None),
    ("kong_latency", "timer", None),
    ("status_count_per_user", "counter", Some(1.0)),
    ("status_count_per_workspace", "counter", Some(1.0)),
    ("status_count_per_user_per_route", "counter", Some(1.0)),
    ("shdict_usage", "gauge", Some(1.0)),
];

const WORKSPACE: &str = "0dc6f45b-8f8d-40d2-a504-473544ee190b";

/// What is sent, and how it is written.
pub(super) struct Scope {
    metrics: Vec<Metric>,
    prefix: String,
    tags: Option<Tags>,
    node: String,
    config: Config,
}

/// Where tags stand: behind the name and what begins them, or behind the value.
#[derive(Clone, Copy, PartialEq)]
enum Tags {
    Dogstatsd,
    Influxdb,
    Librato,
    Signalfx,
}

impl Scope {
    pub(super) fn new(config: Config) -> Self {
        let node = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let node = node.trim().replace('.', "_");
        let tags = config.tag_style.as_deref().map(|style| match style {
            "dogstatsd" => Tags::Dogstatsd,
            "influxdb" => Tags::Influxdb,
            "librato" => Tags::Librato,
            _ => Tags::Signalfx,
        });
        let prefix = match config.hostname_in_prefix && tags.is_none() {
            true => format!("{}.node.{node}", config.prefix),
            false => config.prefix.clone(),
        };
        Self { metrics: config.metrics.clone().unwrap_or_else(defaults), prefix, tags, node, config }
    }

    /// A line for each metric.
    pub(super) fn lines(&self, exchange: &Exchange) -> Vec<u8> {
        let mut out = Vec::with_capacity(1024);
        for metric in &self.metrics {
            let measured = Measured { scope: self, metric, exchange };
            match value(&metric.name, exchange) {
                Some(Ok((name, value))) => measured.write_own(&mut out, name, value),
                // There is nothing to measure.
                Some(Err(())) => {}
                None if self.tags.is_none() => measured.write_counted(&mut out),
                None => {}
            }
        }
        out
    }
}

fn defaults() -> Vec<Metric> {
    let metric = |(name, stat_type, sample_rate): &(&str, &str, Option<f64>)| Metric {
        name: (*name).to_owned(),
        stat_type: (*stat_type).to_owned(),
        sample_rate: *sample_rate,
        consumer_identifier: None,
        service_identifier: None,
        workspace_identifier: None,
    };
    DEFAULTS.iter().map(metric).collect()
}

/// The name and the value of a metric that is a number, or that this request has none.
fn value(name: &str, exchange: &Exchange) -> Option<Result<(&'static str, u128), ()>> {
    let latencies = || exchange.latencies();
    Some(Ok(match name {
        "request_count" => ("request.count", 1),
        "request_size" => ("request.size", exchange.bytes_in.into()),
        "response_size" => ("response.size", exchange.bytes_out.into()),
        "latency" => ("latency", latencies().request.as_millis()),
        "kong_latency" => ("kong_latency", latencies().kong.as_millis()),
        "upstream_latency" => match latencies().proxy {
            Some(proxy) => ("upstream_latency", proxy.as_millis()),
            None => return Some(Err(())),
        },
        _ => return None,
    }))
}

/// A metric of a request.
struct Measured<'m> {
    scope: &'m Scope,
    metric: &'m Metric,
    exchange: &'m Exchange,
}

impl Measured<'_> {
    /// A metric that is a number.
    fn write_own(&self, out: &mut Vec<u8>, name: &str, value: u128) {
        let (prefix, suffix) = (&self.scope.prefix, self.suffix());
        // Writing to a Vec cannot fail.
        let _ = match (self.scope.tags, self.tags()) {
            (None, _) => writeln!(out, "{prefix}.{}.{name}:{value}|{suffix}", self.place()),
            (Some(_), None) => writeln!(out, "{prefix}.{name}:{value}|{suffix}"),
            (Some(Tags::Dogstatsd), Some(tags)) => writeln!(out, "{prefix}.{name}:{value}|{suffix}|#{tags}"),
            (Some(Tags::Influxdb), Some(tags)) => writeln!(out, "{prefix}.{name},{tags}:{value}|{suffix}"),
            (Some(Tags::Librato), Some(tags)) => writeln!(out, "{prefix}.{name}#{tags}:{value}|{suffix}"),
            (Some(Tags::Signalfx), Some(tags)) => writeln!(out, "{prefix}.{name}[{tags}]:{value}|{suffix}"),
        };
    }

    /// A metric that counts something with a name.
    fn write_counted(&self, out: &mut Vec<u8>) {
        let (prefix, place, status) = (&self.scope.prefix, self.place(), self.exchange.response.status);
        let of_users = |user: &str| match &*self.metric.name {
            "request_per_user" => Some(format!("{place}.user.{user}.request.count")),
            "status_count_per_user" => Some(format!("{place}.user.{user}.status.{status}")),
            "status_count_per_user_per_route" => {
                let route = self.exchange.route()?;
                Some(format!("route.{}.user.{user}.status.{status}", route.id_text))
            }
            _ => None,
        };
        let name = match (&*self.metric.name, self.consumer()) {
            ("status_count", _) => Some(format!("{place}.status.{status}")),
            ("status_count_per_workspace", _) => {
                Some(format!("{place}.workspace.{}.status.{status}", self.workspace()))
            }
            ("unique_users", Some(user)) => {
                // Writing to a Vec cannot fail.
                let _ = writeln!(out, "{prefix}.{place}.user.uniques:{}|s", plain(user));
                None
            }
            (_, user) => user.and_then(|user| of_users(&plain(user))),
        };
        if let Some(name) = name {
            // Of these, every one counts, whatever its type is said to be.
            let _ = writeln!(out, "{prefix}.{name}:1|c{}", self.rate());
        }
    }

    /// The type and the rate.
    fn suffix(&self) -> String {
        let kind = match &*self.metric.stat_type {
            "counter" => "c",
            "gauge" => "g",
            "timer" => "ms",
            "histogram" => "h",
            "meter" => "m",
            _ => "s",
        };
        format!("{kind}{}", self.rate())
    }

    fn rate(&self) -> String {
        self.metric
            .sample_rate
            .filter(|rate| *rate != 1.0)
            .map(|rate| format!("|@{rate}"))
            .unwrap_or_default()
    }

    /// What a metric is of.
    fn place(&self) -> String {
        let Some(service) = self.exchange.service() else { return "global.unmatched".to_owned() };
        let name = self.service(service);
        format!("service.{}", name.map_or("unnamed".to_owned(), |name| plain(&name.replace('.', "_"))))
    }

    fn service(&self, service: &Service) -> Option<String> {
        let identifier = self.metric.service_identifier.as_deref();
        match identifier.unwrap_or(&self.scope.config.service_identifier_default) {
            "service_id" => Some(service.id.to_string()),
            "service_name" => service.name.clone(),
            "service_host" => Some(service.host.clone()),
            _ => Some(service.name.as_ref().unwrap_or(&service.host).clone()),
        }
    }

    fn consumer(&self) -> Option<&str> {
        let consumer = self.exchange.consumer()?;
        let identifier = self.metric.consumer_identifier.as_deref();
        match identifier.unwrap_or(&self.scope.config.consumer_identifier_default) {
            "consumer_id" => Some(&consumer.id_text),
            "username" => consumer.entity.username.as_deref(),
            _ => consumer.entity.custom_id.as_deref(),
        }
    }

    fn workspace(&self) -> &'static str {
        let identifier = self.metric.workspace_identifier.as_deref();
        match identifier.unwrap_or(&self.scope.config.workspace_identifier_default) {
            "workspace_name" => "default",
            _ => WORKSPACE,
        }
    }

    /// The tags; none where there is no service.
    fn tags(&self) -> Option<String> {
        let style = self.scope.tags?;
        let service = self.service(self.exchange.service()?)?;
        let route = self.exchange.route()?;
        let route = route.entity.name.as_deref().unwrap_or(&route.id_text);
        let status = self.exchange.response.status.to_string();
        let pairs = [
            ("service", Some(&*service)),
            ("route", Some(route)),
            ("workspace", Some(self.workspace())),
            ("consumer", self.consumer()),
            ("node", Some(&*self.scope.node)),
            ("status", Some(&*status)),
        ];
        let between = if style == Tags::Dogstatsd { ':' } else { '=' };
        let pairs =
            pairs.into_iter().filter_map(|(name, value)| Some(format!("{name}{between}{}", plain(value?))));
        Some(pairs.collect::<Vec<_>>().join(","))
    }
}

/// A name without what would end it or its line.
fn plain(name: &str) -> String {
    name.replace([':', '|', '@', '\n', '\r'], "_")
}
