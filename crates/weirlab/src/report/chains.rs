//! What each plugin of a chain costs, as targets report it.
use super::words::{Colours, added, percent, slug};
use crate::chart::{self, Added, Chart, Estimate};
use crate::result::{ChainCost, ChainPart, Run};
use serde::Serialize;

/// A chain on the page, beside its chart.
#[derive(Serialize)]
pub(super) struct ChainRows {
    title: String,
    /// Why the engine's part and the shares are unknown.
    crowded: Option<String>,
    rows: Vec<PartRow>,
}

#[derive(Serialize)]
struct PartRow {
    phase: String,
    name: String,
    mean: String,
    p50: String,
    p99: String,
    cpu: String,
}

pub(super) fn rows(run: &Run) -> Vec<ChainRows> {
    run.chains
        .iter()
        .map(|chain| ChainRows {
            title: title(chain),
            crowded: chain.crowded(),
            rows: chain.parts.iter().map(row).collect(),
        })
        .collect()
}

fn title(chain: &ChainCost) -> String {
    format!("{}: {}, route {}", chain.target, chain.case, chain.route)
}

fn row(part: &ChainPart) -> PartRow {
    let micros = |value: Option<f64>| value.map(added).unwrap_or_default();
    PartRow {
        phase: part.phase.clone(),
        name: part.name.clone(),
        mean: added(part.mean_us),
        p50: micros(part.p50_us),
        p99: micros(part.p99_us),
        cpu: part.cpu_share.map(percent).unwrap_or_default(),
    }
}

/// The CPU time of a request: the gateway itself, then what each plugin adds.
pub(super) fn charts(run: &Run, colours: &Colours) -> Vec<Chart> {
    run.chains.iter().map(|chain| chart(chain, colours)).collect()
}

fn chart(chain: &ChainCost, colours: &Colours) -> Chart {
    let (engine, plugins): (Vec<&ChainPart>, Vec<&ChainPart>) =
        chain.parts.iter().filter(|part| part.is_cpu()).partition(|part| part.phase == "engine");
    let mut total = 0.0;
    let steps = engine.into_iter().chain(plugins).map(|part| {
        total += part.mean_us;
        let label = match part.phase.as_str() {
            "engine" => part.name.clone(),
            phase => format!("{}, {phase}", part.name),
        };
        Added { label, total, added: Estimate { value: part.mean_us, interval: None } }
    });
    let chart = chart::Waterfall {
        name: slug(&format!("chain {} {} {}", chain.target, chain.case, chain.route)),
        title: format!("What each plugin costs: {}", title(chain)),
        axis: "CPU µs per request".to_owned(),
        colour: colours.of_target(&chain.target),
        steps: steps.collect(),
        write: added,
    };
    chart.draw()
}
