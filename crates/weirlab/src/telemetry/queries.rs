//! What to ask of the data of a run.
use crate::result::Run;
use std::net::SocketAddr;
use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime};

/// A query to try.
#[derive(Clone, Copy, Debug)]
pub struct Query {
    /// What it shows.
    pub title: &'static str,
    /// In PromQL.
    pub expression: &'static str,
}

/// The first ones to try, for the page of Prometheus and for the terminal.
#[must_use]
pub fn queries() -> &'static [Query] {
    &[
        Query {
            title: "requests per second, as the generator counts them",
            expression: "sum by (target, case) (rate(weirlab_requests_total[5s]))",
        },
        Query {
            title: "p99 in seconds",
            expression: "histogram_quantile(0.99, sum by (le, target, case) (rate(weirlab_request_duration_seconds_bucket[5s])))",
        },
        Query {
            title: "cores that each part uses",
            expression: "sum by (part, target) (rate(weirlab_cpu_seconds_total[5s]))",
        },
        Query {
            title: "resident memory of the gateways",
            expression: "max by (target) (weirlab_resident_memory_bytes{part=\"gateway\"})",
        },
        Query {
            title: "which targets had metrics of their own, and when",
            expression: "up{job=\"targets\"}",
        },
    ]
}

/// When a run was made.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    from: OffsetDateTime,
    to: OffsetDateTime,
}

impl Span {
    /// With some seconds around it; none if the run does not say.
    #[must_use]
    pub fn of(run: &Run) -> Option<Span> {
        let moment = |text: &str| OffsetDateTime::parse(text, &Rfc3339).ok();
        let around = Duration::seconds(10);
        Some(Span {
            from: moment(&run.manifest.started)? - around,
            to: moment(&run.manifest.ended)? + around,
        })
    }

    /// The address of Prometheus' page with a query over the run.
    #[must_use]
    pub fn graph(&self, prometheus: SocketAddr, query: &Query) -> String {
        let seconds = (self.to - self.from).whole_seconds().max(60);
        let end = self.to.format(&Rfc3339).unwrap_or_default();
        let end: String = end.chars().take(19).collect();
        format!(
            "http://{prometheus}/graph?g0.expr={}&g0.tab=0&g0.range_input={seconds}s&g0.end_input={}",
            escaped(query.expression),
            escaped(&end.replace('T', " "))
        )
    }

    /// As Grafana's addresses have it.
    #[must_use]
    pub fn of_grafana(&self) -> String {
        let ms = |moment: OffsetDateTime| moment.unix_timestamp() * 1000;
        format!("from={}&to={}", ms(self.from), ms(self.to))
    }
}

/// For a query string.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                escaped.push(char::from(byte))
            }
            byte => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}
