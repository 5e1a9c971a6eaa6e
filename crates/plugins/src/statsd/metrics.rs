//! The metrics of a request as lines of StatsD's protocol.

use super::{Config, Metric};
use crate::shared::statsd_lines::{number, put, suffix};
use weir_plugin::Exchange;
use weir_plugin::json_text::integer;

const WORKSPACE: &str = "0dc6f45b-8f8d-40d2-a504-473544ee190b";

/// Which metrics are sent, and in which form.
pub(super) struct Scope {
    metrics: Vec<Prepared>,
    prefix: String,
    tags: Option<Tags>,
    node: String,
    config: Config,
}

/// A metric, and the end of its lines.
struct Prepared {
    metric: Metric,
    /// Such as `|c` or `|ms|@0.5`.
    suffix: String,
    /// For lines that count.
    counted: String,
}

/// Where tags are: after the name and a separator, or after the value.
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
        let metrics = config.metrics.iter().cloned().map(Prepared::new).collect();
        Self { metrics, prefix, tags, node, config }
    }

    /// What metrics of the node begin with; none where tags are sent, because those are of requests.
    pub(super) fn node_place(&self) -> Option<String> {
        match (self.tags, self.config.hostname_in_prefix) {
            (Some(_), _) => None,
            (None, true) => Some(self.prefix.clone()),
            (None, false) => Some(format!("{}.node.{}", self.prefix, self.node)),
        }
    }

    /// A line for each metric.
    pub(super) fn lines(&self, exchange: &Exchange) -> Vec<u8> {
        let mut out = Vec::with_capacity(1024);
        for prepared in &self.metrics {
            let measured = Measured { scope: self, prepared, metric: &prepared.metric, exchange };
            match number(&prepared.metric.name, exchange) {
                Some(Ok((name, value))) => measured.write_own(&mut out, name, value),
                // The request has no value for it.
                Some(Err(())) => {}
                None if self.tags.is_none() => measured.write_counted(&mut out),
                None => {}
            }
        }
        out
    }
}

impl Prepared {
    fn new(metric: Metric) -> Self {
        let of_type = |stat_type| suffix(stat_type, metric.sample_rate);
        // Counted metrics are always counters, whatever their type.
        let (suffix, counted) = (of_type(&metric.stat_type), format!(":1{}\n", of_type("counter")));
        Self { suffix, counted, metric }
    }
}

/// A metric of a request.
struct Measured<'m> {
    scope: &'m Scope,
    prepared: &'m Prepared,
    metric: &'m Metric,
    exchange: &'m Exchange,
}

impl Measured<'_> {
    /// A metric that is a number.
    fn write_own(&self, out: &mut Vec<u8>, name: &str, value: u64) {
        put(out, [&self.scope.prefix, "."]);
        if self.scope.tags.is_none() {
            self.write_place(out);
            out.push(b'.');
        }
        put(out, [name]);
        let tags = self.tags();
        match (self.scope.tags, &tags) {
            (Some(Tags::Influxdb), Some(tags)) => put(out, [",", tags]),
            (Some(Tags::Librato), Some(tags)) => put(out, ["#", tags]),
            (Some(Tags::Signalfx), Some(tags)) => put(out, ["[", tags, "]"]),
            _ => {}
        }
        out.push(b':');
        integer(out, value);
        put(out, [&self.prepared.suffix]);
        if let (Some(Tags::Dogstatsd), Some(tags)) = (self.scope.tags, &tags) {
            put(out, ["|#", tags]);
        }
        out.push(b'\n');
    }

    /// A metric that counts something named.
    fn write_counted(&self, out: &mut Vec<u8>) {
        if self.metric.name == "unique_users" {
            return self.write_unique(out);
        }
        let start = out.len();
        put(out, [&self.scope.prefix, "."]);
        match self.write_counted_name(out) {
            Some(()) => put(out, [&self.prepared.counted]),
            None => out.truncate(start),
        }
    }

    /// Writes the name; none if the request has no such name.
    fn write_counted_name(&self, out: &mut Vec<u8>) -> Option<()> {
        let status = |out: &mut Vec<u8>| {
            put(out, [".status."]);
            integer(out, self.exchange.response.status.into());
        };
        match &*self.metric.name {
            "status_count" => {
                self.write_place(out);
                status(out);
            }
            "status_count_per_workspace" => {
                self.write_place(out);
                put(out, [".workspace.", self.workspace()]);
                status(out);
            }
            "request_per_user" => {
                self.write_user(out)?;
                put(out, [".request.count"]);
            }
            "status_count_per_user" => {
                self.write_user(out)?;
                status(out);
            }
            "status_count_per_user_per_route" => {
                let user = self.consumer()?;
                put(out, ["route.", &self.exchange.route()?.id_text, ".user."]);
                put_plain(out, user, false);
                status(out);
            }
            _ => return None,
        }
        Some(())
    }

    /// Writes the part of the name that identifies the consumer.
    fn write_user(&self, out: &mut Vec<u8>) -> Option<()> {
        let user = self.consumer()?;
        self.write_place(out);
        put(out, [".user."]);
        put_plain(out, user, false);
        Some(())
    }

    /// Each consumer counts once.
    fn write_unique(&self, out: &mut Vec<u8>) {
        let Some(user) = self.consumer() else { return };
        put(out, [&self.scope.prefix, "."]);
        self.write_place(out);
        put(out, [".user.uniques:"]);
        put_plain(out, user, false);
        put(out, ["|s\n"]);
    }

    /// Writes the part of the name that identifies the service.
    fn write_place(&self, out: &mut Vec<u8>) {
        match (self.exchange.service(), self.service()) {
            (None, _) => put(out, ["global.unmatched"]),
            (Some(_), None) => put(out, ["service.unnamed"]),
            (Some(_), Some(name)) => {
                put(out, ["service."]);
                put_plain(out, name, true);
            }
        }
    }

    fn service(&self) -> Option<&str> {
        let service = self.exchange.route()?.service.as_ref()?;
        let identifier = self.metric.service_identifier.as_deref();
        match identifier.unwrap_or(&self.scope.config.service_identifier_default) {
            "service_id" => Some(&service.id_text),
            "service_name" => service.entity.name.as_deref(),
            "service_host" => Some(&service.entity.host),
            _ => Some(service.entity.name.as_ref().unwrap_or(&service.entity.host)),
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

    /// The tags; none if there is no service.
    fn tags(&self) -> Option<String> {
        let style = self.scope.tags?;
        let service = self.service()?;
        let route = self.exchange.route()?;
        let route = route.entity.name.as_deref().unwrap_or(&route.id_text);
        let status = self.exchange.response.status.to_string();
        let pairs = [
            ("service", Some(service)),
            ("route", Some(route)),
            ("workspace", Some(self.workspace())),
            ("consumer", self.consumer()),
            ("node", Some(&*self.scope.node)),
            ("status", Some(&*status)),
        ];
        let between = if style == Tags::Dogstatsd { ':' } else { '=' };
        let pairs = pairs
            .into_iter()
            .filter_map(|(name, value)| Some(format!("{name}{between}{}", tag_value(value?))));
        Some(pairs.collect::<Vec<_>>().join(","))
    }
}

/// Characters that would end a name or its line.
const ENDING: [char; 5] = [':', '|', '@', '\n', '\r'];

/// A value of a tag: without such characters, and without those that would end a tag or all of them.
fn tag_value(value: &str) -> String {
    value.replace(ENDING, "_").replace([',', ']'], "_")
}

/// Appends the same; with `dotless`, without dots too.
fn put_plain(out: &mut Vec<u8>, name: &str, dotless: bool) {
    let is_ending = |byte: u8| ENDING.contains(&char::from(byte)) || dotless && byte == b'.';
    out.extend(name.bytes().map(|byte| if is_ending(byte) { b'_' } else { byte }));
}
