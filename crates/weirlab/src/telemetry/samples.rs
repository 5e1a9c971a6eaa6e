//! Each figure of each block of a run, as a sample of Prometheus.
use crate::analysis::{Sample, Usable, usable};
use crate::result::{Block, Case, Cell, Run};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Quantiles of durations that are written.
const QUANTILES: [f64; 5] = [0.5, 0.9, 0.95, 0.99, 0.999];

/// A series with its only sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Names and values, by name; `__name__` is that of the metric.
    pub labels: Vec<(String, String)>,
    /// The figure, in base units.
    pub value: f64,
    /// Milliseconds since 1970.
    pub at_ms: i64,
}

/// The figures of a run. Those of a block have the moment of its end.
#[must_use]
pub fn of_run(run: &Run) -> Vec<Series> {
    let started =
        OffsetDateTime::parse(&run.manifest.started, &Rfc3339).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let started_ms = started.unix_timestamp() * 1000;
    let mut all = Vec::new();
    for cell in &run.cells {
        let case = run.cases.iter().find(|case| case.name == cell.case);
        for block in &cell.blocks {
            let at_ms = started_ms + ((block.at_s + block.warm_up_s + block.measured_s) * 1e3) as i64;
            let labels = labels(run, case, cell, block);
            all.extend(figures(block).into_iter().map(|figure| figure.series(&labels, at_ms)));
        }
    }
    all
}

/// What a block is of. The suite is the folder of its scenario, such as `kong`.
fn labels(run: &Run, case: Option<&Case>, cell: &Cell, block: &Block) -> Vec<(String, String)> {
    let scenario = case.map_or("", |case| case.scenario.as_str());
    let suite = scenario.split_once('/').map_or(scenario, |(suite, _)| suite);
    let counts = match usable(block) {
        Usable::Yes => "yes",
        Usable::Void(_) => "void",
        Usable::Invalid(_) => "invalid",
    };
    let round = block.round.to_string();
    let all = [
        ("run", run.id.as_str()),
        ("suite", suite),
        ("case", &cell.case),
        ("target", &cell.target),
        ("round", &round),
        ("counts", counts),
    ];
    all.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

/// A figure, with what distinguishes it from others of its name.
struct Figure {
    name: &'static str,
    label: Option<(&'static str, String)>,
    value: f64,
}

impl Figure {
    fn series(self, labels: &[(String, String)], at_ms: i64) -> Series {
        let mut labels = labels.to_vec();
        labels.push(("__name__".to_owned(), format!("weirlab_block_{}", self.name)));
        labels.extend(self.label.map(|(name, value)| (name.to_owned(), value)));
        labels.sort();
        Series { labels, value: self.value, at_ms }
    }
}

fn figures(block: &Block) -> Vec<Figure> {
    let plain = |(name, value): (&'static str, f64)| Figure { name, label: None, value };
    let named = |name, label, of: &str, value| Figure { name, label: Some((label, of.to_owned())), value };
    if let Some(probe) = &block.probe {
        return vec![Figure {
            name: "probe",
            label: Some(("probe", format!("{} ({})", probe.name, probe.unit))),
            value: probe.value,
        }];
    }
    let mut all: Vec<Figure> = counts(block).into_iter().map(plain).collect();
    if block.good > 0 && block.measured_s > 0.0 {
        all.extend(costs(block).into_iter().map(plain));
    }
    for q in QUANTILES {
        let value = block.latencies.shown().quantile(q);
        all.extend(
            value.map(|value| named("latency_seconds", "quantile", &q.to_string(), value.as_secs_f64())),
        );
    }
    all.extend(block.errors.iter().map(|(class, count)| named("errors", "class", class, *count as f64)));
    for part in &block.parts {
        all.push(named("part_cpu_seconds", "part", &part.name, part.cpu_us / 1e6));
        all.push(named("part_resident_memory_bytes", "part", &part.name, part.rss_kib as f64 * 1024.0));
    }
    all.extend(machine(block).into_iter().map(plain));
    all
}

fn counts(block: &Block) -> Vec<(&'static str, f64)> {
    let mut all = vec![
        ("measured_seconds", block.measured_s),
        ("responses", block.answers as f64),
        ("right_responses", block.good as f64),
        ("received_bytes", block.bytes as f64),
        ("resident_memory_bytes", block.target.rss_kib as f64 * 1024.0),
        ("latency_max_seconds", block.latencies.shown().max().as_secs_f64()),
        ("latency_mean_seconds", block.latencies.shown().mean().as_secs_f64()),
    ];
    all.extend(block.offered.map(|rate| ("offered_requests_per_second", rate)));
    all.extend(block.connections_opened.map(|opened| ("opened_connections", opened as f64)));
    all
}

/// What each request cost.
fn costs(block: &Block) -> [(&'static str, f64); 7] {
    let sample = Sample::of(block);
    [
        ("requests_per_second", sample.rps),
        ("cpu_seconds_per_request", sample.cpu_us / 1e6),
        ("user_cpu_seconds_per_request", sample.user_us / 1e6),
        ("system_cpu_seconds_per_request", sample.system_us / 1e6),
        ("generator_cpu_seconds_per_request", sample.generator_us / 1e6),
        ("upstream_cpu_seconds_per_request", sample.upstream_us / 1e6),
        ("context_switches_per_request", sample.switches),
    ]
}

fn machine(block: &Block) -> Vec<(&'static str, f64)> {
    let machine = &block.machine;
    let mut all = vec![("steal_ratio", machine.steal), ("idle_ratio", machine.idle)];
    all.extend(machine.pressure.map(|share| ("cpu_pressure_ratio", share)));
    all.extend(machine.mhz.map(|mhz| ("cpu_frequency_hertz", mhz * 1e6)));
    all
}
