//! Questions to analytics as expressions of Prometheus, over the metrics of the prometheus plugin.
use super::{StatusCode, invalid};
use weir_analytics::aggregate::Latency;
use weir_analytics::entities::Kind;
use weir_analytics::query::{By, Metric};

/// What is asked for: the label that divides the answer, and the requests that it is about.
pub(super) struct Question {
    by: By,
    /// Matchers of labels, each with a comma behind it.
    matchers: String,
    /// Whether a consumer is among them, whose latencies Prometheus does not have.
    of_consumer: bool,
}

type Expression = Result<String, (StatusCode, String)>;

impl Question {
    /// Refuses an entity whose requests Prometheus cannot tell from others.
    pub(super) fn check(kind: Kind, asked: &str) -> Result<(), (StatusCode, String)> {
        match asked {
            _ if !is_known(kind) => Err(missing(kind.name(), &format!("requests by their {}", kind.name()))),
            "none" | "others" => Err(missing(kind.name(), &format!("requests of `{asked}`"))),
            _ => Ok(()),
        }
    }

    /// Requests of entities that are known by their names, or of all.
    pub(super) fn new(by: By, of: &[(Kind, String)]) -> Result<Question, (StatusCode, String)> {
        match by {
            By::Nothing | By::Status | By::Class => {}
            By::Entity(kind) if is_known(kind) => {}
            by => return Err(missing("by", &format!("requests by {by}"))),
        }
        let matcher = |(kind, name): &(Kind, String)| {
            format!("{}=\"{}\",", kind.name(), name.replace('\\', "\\\\").replace('"', "\\\""))
        };
        let of_consumer = of.iter().any(|(kind, _)| *kind == Kind::Consumer);
        Ok(Question { by, matchers: of.iter().map(matcher).collect(), of_consumer })
    }

    /// The label that divides the answer.
    pub(super) fn label(&self) -> &'static str {
        match self.by {
            By::Status => "code",
            By::Class => "class",
            By::Entity(kind) => kind.name(),
            _ => "",
        }
    }

    /// A metric over the last seconds.
    pub(super) fn expression(&self, metric: Metric, seconds: u64) -> Expression {
        let requests = |more: &str| self.sum("kong_http_requests_total", more, seconds);
        let of = |codes: &str| {
            let found = requests(&format!("code=~\"{codes}\","));
            format!("{found} or 0 * {}", requests(""))
        };
        let errors = || of("[45]..");
        let bytes = |direction: &str| {
            self.sum("kong_bandwidth_bytes", &format!("direction=\"{direction}\","), seconds)
        };
        Ok(match metric {
            Metric::Requests => requests(""),
            Metric::Errors => errors(),
            Metric::Class(class) => of(&format!("{class}..")),
            Metric::ErrorRate => format!("({}) / ({} > 0)", errors(), requests("")),
            Metric::BytesIn => bytes("ingress"),
            Metric::BytesOut => bytes("egress"),
            Metric::Mean(latency) => self.mean(latency, seconds)?,
            Metric::Percentile(latency, per_mille) => self.percentile(latency, per_mille, seconds)?,
            Metric::Retried
            | Metric::Cached
            | Metric::Reused
            | Metric::PromptTokens
            | Metric::CompletionTokens
            | Metric::FirstToken(_)
            | Metric::TokensPerSecond(_) => {
                return Err(missing("metric", &metric.to_string()));
            }
        })
    }

    fn sum(&self, name: &str, more: &str, seconds: u64) -> String {
        let counted = format!("increase({name}{{{}{more}}}[{seconds}s])", self.matchers);
        match self.by {
            By::Class => {
                let classed =
                    format!("label_replace({counted}, \"class\", \"${{1}}xx\", \"code\", \"(.).*\")");
                format!("sum by (class) ({classed})")
            }
            _ => format!("sum by ({}) ({counted})", self.label()),
        }
    }

    fn mean(&self, latency: Latency, seconds: u64) -> Expression {
        let phase = self.phase(latency)?;
        let sum = self.sum("weir_request_duration_microseconds_sum", &phase, seconds);
        let count = self.sum("weir_request_duration_microseconds_count", &phase, seconds);
        Ok(format!("{sum} / ({count} > 0) / 1e6"))
    }

    /// From native histograms where there are any, else from the buckets of classic ones.
    fn percentile(&self, latency: Latency, per_mille: u16, seconds: u64) -> Expression {
        let (phase, share, label) = (self.phase(latency)?, f64::from(per_mille) / 1_000.0, self.label());
        let matchers = &self.matchers;
        let native = self.sum("weir_request_duration_seconds", &phase, seconds);
        let buckets =
            format!("increase(weir_request_duration_microseconds_bucket{{{matchers}{phase}}}[{seconds}s])");
        let le = if label.is_empty() { "le".to_owned() } else { format!("{label}, le") };
        Ok(format!(
            "histogram_quantile({share}, {native}) >= 0 or histogram_quantile({share}, sum by ({le}) ({buckets})) / 1e6"
        ))
    }

    fn phase(&self, latency: Latency) -> Expression {
        let by_route = matches!(self.by, By::Nothing | By::Entity(Kind::Route | Kind::Service));
        if self.of_consumer || !by_route {
            return Err(missing("metric", "latencies by status or consumer"));
        }
        Ok(format!("phase=\"{}\",", latency.name()))
    }
}

/// Whether the metrics have a label for it.
fn is_known(kind: Kind) -> bool {
    matches!(kind, Kind::Route | Kind::Service | Kind::Consumer)
}

fn missing(argument: &str, what: &str) -> (StatusCode, String) {
    invalid(format!("{argument}: Prometheus does not have {what}; leave it out, or ask with source=node"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expression(metric: &str, by: &str, of: &[(Kind, &str)]) -> String {
        let of: Vec<_> = of.iter().map(|(kind, name)| (*kind, (*name).to_owned())).collect();
        let question = Question::new(by.parse().unwrap(), &of);
        question.and_then(|it| it.expression(metric.parse().unwrap(), 60)).unwrap_or_else(|(_, why)| why)
    }

    #[test]
    fn questions_are_expressions() {
        for (metric, by, of, expected) in [
            ("requests", "", &[][..], "sum by () (increase(kong_http_requests_total{}[60s]))"),
            (
                "requests",
                "class",
                &[(Kind::Route, "a\"b")],
                "sum by (class) (label_replace(increase(kong_http_requests_total{route=\"a\\\"b\",}[60s]), \"class\", \
                 \"${1}xx\", \"code\", \"(.).*\"))",
            ),
            (
                "requests",
                "consumer",
                &[(Kind::Route, "r"), (Kind::Consumer, "a")],
                "sum by (consumer) (increase(kong_http_requests_total{route=\"r\",consumer=\"a\",}[60s]))",
            ),
            (
                "bytes_out",
                "service",
                &[][..],
                "sum by (service) (increase(kong_bandwidth_bytes{direction=\"egress\",}[60s]))",
            ),
            (
                "p99_upstream",
                "route",
                &[][..],
                "histogram_quantile(0.99, sum by (route) (increase(weir_request_duration_seconds{phase=\"upstream\",}\
                 [60s]))) >= 0 or histogram_quantile(0.99, sum by (route, le) \
                 (increase(weir_request_duration_microseconds_bucket{phase=\"upstream\",}[60s]))) / 1e6",
            ),
            (
                "p99",
                "",
                &[(Kind::Consumer, "alice")],
                "metric: Prometheus does not have latencies by status or consumer; leave it out, or ask with source=node",
            ),
            (
                "requests",
                "cause",
                &[][..],
                "by: Prometheus does not have requests by cause; leave it out, or ask with source=node",
            ),
            (
                "cached",
                "",
                &[][..],
                "metric: Prometheus does not have cached; leave it out, or ask with source=node",
            ),
        ] {
            assert_eq!(expression(metric, by, of), expected);
        }
    }
}
