//! What plugins cost, by plugin, service and route.

use super::exposition::{Names, Text, escaped};
use super::facts::NodeFacts;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;
use weir_plugin::{BOUNDS, Cost, Phase, Spread, Uuid};

/// In nanoseconds; each is one of [`BOUNDS`].
const SHOWN: [u64; 14] =
    [50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000, 10_000_000];

/// The total cost of a plugin's instances with the same labels.
#[derive(Default)]
struct Total {
    phases: BTreeMap<Phase, Spread>,
    waited: Duration,
    answers: u64,
    errors: u64,
}

type Totals = BTreeMap<String, Total>;

pub(super) fn write(text: &mut Text, node: &NodeFacts<'_>, names: &Names) {
    let name = "weir_worker_cpu_seconds_total";
    text.metric(name, "counter", "CPU time of all workers");
    text.line(format_args!("{name} {}", node.worker_cpu.as_secs_f64()));
    let totals = totals(node, names);
    if totals.is_empty() {
        return;
    }
    write_durations(text, &totals);
    let waited = "Seconds that plugins waited, while others were served; estimated";
    write_counts(text, &totals, ("weir_plugin_waited_seconds_total", waited), |total| {
        total.waited.as_secs_f64()
    });
    let answers = "Requests that a plugin answered in the place of the upstream";
    write_counts(text, &totals, ("weir_plugin_answers_total", answers), |total| total.answers as f64);
    let errors = "Answers of a plugin with a status of 500 or more, and its panics";
    write_counts(text, &totals, ("weir_plugin_errors_total", errors), |total| total.errors as f64);
}

fn totals(node: &NodeFacts<'_>, names: &Names) -> Totals {
    let plugins: HashMap<Uuid, &str> =
        node.document.plugins.iter().map(|p| (p.id, p.name.as_str())).collect();
    let services: HashMap<Uuid, Option<Uuid>> =
        node.document.routes.iter().map(|r| (r.id, r.service)).collect();
    let name =
        |id: Option<Uuid>| id.and_then(|id| names.0.get(&id)).map(|name| escaped(name)).unwrap_or_default();
    let mut totals = Totals::new();
    for cost in node.costs {
        let Some(plugin) = cost.plugin.and_then(|id| plugins.get(&id)).map(|name| escaped(name)) else {
            continue;
        };
        let service = name(cost.route.and_then(|route| services.get(&route).copied().flatten()));
        let labels = format!("plugin=\"{plugin}\",service=\"{service}\",route=\"{}\"", name(cost.route));
        totals.entry(labels).or_default().add(cost);
    }
    totals
}

impl Total {
    fn add(&mut self, cost: &Cost) {
        for phase in &cost.phases {
            self.phases.entry(phase.phase).or_default().merge(&phase.spread);
        }
        self.waited += cost.waited;
        self.answers += cost.answers;
        self.errors += cost.errors;
    }
}

fn write_durations(text: &mut Text, totals: &Totals) {
    let phases = || {
        totals.iter().flat_map(|(labels, total)| {
            let labelled =
                move |(phase, spread): (&Phase, _)| (format!("{labels},phase=\"{}\"", phase.name()), spread);
            total.phases.iter().map(labelled)
        })
    };
    let name = "weir_plugin_calls_total";
    text.metric(name, "counter", "Runs of the hooks of plugins; estimated");
    for (labels, spread) in phases() {
        text.line(format_args!("{name}{{{labels}}} {}", spread.calls()));
    }
    let name = "weir_plugin_duration_seconds";
    text.metric(name, "histogram", "Seconds that a hook of a plugin ran, without what it waited; estimated");
    for (labels, spread) in phases() {
        for bound in SHOWN {
            let up_to: u64 = spread.buckets[..=BOUNDS.partition_point(|it| *it < bound)].iter().sum();
            text.line(format_args!("{name}_bucket{{{labels},le=\"{}\"}} {up_to}", bound as f64 / 1e9));
        }
        let count = spread.calls();
        text.line(format_args!("{name}_bucket{{{labels},le=\"+Inf\"}} {count}"));
        text.line(format_args!("{name}_count{{{labels}}} {count}"));
        text.line(format_args!("{name}_sum{{{labels}}} {}", spread.nanos as f64 / 1e9));
    }
}

fn write_counts(text: &mut Text, totals: &Totals, (name, help): (&str, &str), of: fn(&Total) -> f64) {
    text.metric(name, "counter", help);
    for (labels, total) in totals {
        text.line(format_args!("{name}{{{labels}}} {}", of(total)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_measured() {
        assert!(SHOWN.iter().all(|bound| BOUNDS.contains(bound)));
    }
}
