//! The limits of the node and of upstreams: how often each acted, and what they count now.

use super::exposition::{Text, escaped};
use super::facts::{EjectedTarget, NodeFacts, UpstreamLoad};

pub(super) fn write(text: &mut Text, node: &NodeFacts<'_>) {
    let name = "weir_limit_acted_total";
    text.metric(name, "counter", "How often a limit of the node acted");
    for (limit, count) in node.limits {
        text.line(format_args!("{name}{{limit=\"{limit}\"}} {count}"));
    }
    if !node.upstream_loads.is_empty() {
        write_loads(text, node.upstream_loads);
    }
    if !node.ejected_targets.is_empty() {
        write_ejections(text, node.ejected_targets);
    }
}

fn write_loads(text: &mut Text, loads: &[UpstreamLoad]) {
    let mut gauge = |name: &str, help: &str, of: fn(&UpstreamLoad) -> Option<usize>| {
        text.metric(name, "gauge", help);
        for load in loads {
            if let Some(value) = of(load) {
                text.line(format_args!("{name}{{upstream=\"{}\"}} {value}", escaped(&load.upstream)));
            }
        }
    };
    gauge("weir_upstream_limit", "Requests that may be in flight to an upstream", |load| load.limit);
    gauge("weir_upstream_in_flight", "Requests in flight to an upstream that has limits", |load| {
        Some(load.in_flight)
    });
    gauge("weir_upstream_waiting", "Requests that wait for an upstream or its targets", |load| {
        Some(load.waiting)
    });
    let name = "weir_upstream_shed_total";
    text.metric(name, "counter", "Requests that were shed because an upstream had too many, by the limit");
    for load in loads {
        let upstream = escaped(&load.upstream);
        for (reason, count) in &load.shed {
            text.line(format_args!("{name}{{upstream=\"{upstream}\",reason=\"{reason}\"}} {count}"));
        }
    }
}

fn write_ejections(text: &mut Text, targets: &[EjectedTarget]) {
    let labels = |of: &EjectedTarget| {
        format!("upstream=\"{}\",target=\"{}\"", escaped(&of.upstream), escaped(&of.target))
    };
    let name = "weir_target_ejected";
    text.metric(name, "gauge", "Whether a target is ejected: 1 if it is");
    for of in targets {
        text.line(format_args!("{name}{{{}}} {}", labels(of), u8::from(of.is_ejected)));
    }
    let name = "weir_target_ejections_total";
    text.metric(name, "counter", "How often a target was ejected, by what it did");
    for of in targets {
        for (reason, count) in &of.ejections {
            text.line(format_args!("{name}{{{},reason=\"{reason}\"}} {count}", labels(of)));
        }
    }
}
