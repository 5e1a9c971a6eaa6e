//! Runs on several machines as one report: what each machine answers, at which cost, and how it scales out. The runs were
//! not made at the same time, so a figure of one beside another is of machines that are meant to differ.
mod page;
pub mod prices;
pub(crate) mod text;

pub use page::write;

use crate::analysis::{Analysis, CellAnalysis, PartSummary, Summary};
use crate::compare::quotient;
use crate::result::{Axis, Case, Run};
use crate::stats::Estimate;
use prices::{Price, Prices};
use serde::Serialize;

/// The variable of a sweep over the number of gateways.
const INSTANCES: &str = "instances";

/// Runs of several machines.
#[derive(Clone, Debug, Serialize)]
pub struct Join {
    /// What costs are in, where prices were given.
    pub currency: Option<String>,
    /// In the order given; the first is what rates are compared with.
    pub machines: Vec<Machine>,
    /// The cases, in the order of the first run that has them.
    pub cases: Vec<JoinedCase>,
}

/// A machine, and the run that was made on it.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// As the user names it.
    pub name: String,
    /// The run's id.
    pub run: String,
    /// CPUs and kernel.
    pub what: String,
    /// The targets' versions.
    pub targets: String,
    /// Why the run is called disturbed; empty if it is not.
    pub disturbed: String,
    /// What it costs, where prices were given.
    pub price: Option<Price>,
}

/// A case on all machines.
#[derive(Clone, Debug, Serialize)]
pub struct JoinedCase {
    /// The case's name.
    pub name: String,
    /// Its scenario.
    pub scenario: String,
    /// `http` or `https`.
    pub scheme: String,
    /// Where it lies on the axis of a sweep.
    pub axis: Option<Axis>,
    /// What was measured, by machine and target.
    pub cells: Vec<JoinedCell>,
}

/// A target on a machine.
#[derive(Clone, Debug, Serialize)]
pub struct JoinedCell {
    /// The machine's name.
    pub machine: String,
    /// The target's label.
    pub target: String,
    /// How many gateways there were.
    pub instances: usize,
    /// Right answers per second.
    pub rps: Option<Estimate>,
    /// The same, divided by that of the first machine.
    pub to_first: Option<Estimate>,
    /// The 99th percentile in milliseconds.
    pub p99_ms: Option<f64>,
    /// CPU per request in microseconds.
    pub cpu_us: Option<Estimate>,
    /// Right answers per second for each core that the gateways kept busy.
    pub rps_per_core: Option<Estimate>,
    /// In a sweep over the number of gateways: the rate, divided by as many times the rate of one.
    pub efficiency: Option<Estimate>,
    /// The cost of a million requests.
    pub cost: Option<Estimate>,
    /// What each part used.
    pub parts: Vec<PartSummary>,
}

impl JoinedCell {
    /// Such as `c7g` or, among several targets, `c7g, nginx`.
    #[must_use]
    pub fn label(&self, several: bool) -> String {
        if several { format!("{}, {}", self.machine, self.target) } else { self.machine.clone() }
    }
}

impl Join {
    /// Of runs by the names of their machines.
    #[must_use]
    pub fn of(runs: &[(String, Run)], prices: Option<&Prices>) -> Join {
        let mut join = Join {
            currency: prices.map(|prices| prices.currency.clone()),
            machines: Vec::new(),
            cases: Vec::new(),
        };
        for (name, run) in runs {
            let price = prices.and_then(|prices| prices.machines.get(name)).copied();
            let analysis = Analysis::of(run);
            join.machines.push(machine(name, run, &analysis, price));
            for case in &analysis.cases {
                let cells = case.cells.iter().filter(|cell| !cell.control);
                let cells: Vec<JoinedCell> = cells.filter_map(|cell| joined(name, cell, price)).collect();
                join.case(&case.case).cells.extend(cells);
            }
        }
        join.cases.retain(|case| !case.cells.is_empty());
        join.relate();
        join.scale_out();
        join
    }

    /// Whether there are several targets, which then have to be distinguished.
    #[must_use]
    pub fn has_several_targets(&self) -> bool {
        let mut targets = self.cases.iter().flat_map(|case| &case.cells).map(|cell| &cell.target);
        let first = targets.next();
        targets.any(|target| Some(target) != first)
    }

    fn case(&mut self, case: &Case) -> &mut JoinedCase {
        let index = self.cases.iter().position(|known| known.name == case.name).unwrap_or_else(|| {
            self.cases.push(JoinedCase {
                name: case.name.clone(),
                scenario: case.scenario.clone(),
                scheme: case.scheme.clone(),
                axis: case.axis.clone(),
                cells: Vec::new(),
            });
            self.cases.len() - 1
        });
        &mut self.cases[index]
    }

    /// Puts the rates of other machines in relation to that of the first.
    fn relate(&mut self) {
        let Some(first) = self.machines.first().map(|machine| machine.name.clone()) else { return };
        for case in &mut self.cases {
            let of_first = |cell: &&JoinedCell| cell.machine == first;
            let rates = case.cells.iter().filter(of_first).map(|cell| (cell.target.clone(), cell.rps));
            let rates: Vec<_> = rates.collect();
            for cell in case.cells.iter_mut().filter(|cell| cell.machine != first) {
                let base = rates.iter().find(|(target, _)| *target == cell.target);
                cell.to_first = base.and_then(|(_, base)| Some(quotient(cell.rps?, (*base)?)));
            }
        }
    }

    /// Divides the rate of several gateways by as many times that of one.
    fn scale_out(&mut self) {
        let swept = |case: &JoinedCase| {
            case.axis.as_ref().filter(|axis| axis.name == INSTANCES).map(|axis| axis.value)
        };
        let single = self.cases.iter().filter(|case| swept(case) == Some(1.0));
        let single: Vec<_> = single
            .flat_map(|case| {
                case.cells.iter().map(|cell| (case.scenario.clone(), case.scheme.clone(), cell.clone()))
            })
            .collect();
        for case in &mut self.cases {
            let Some(count) = swept(case) else { continue };
            for cell in &mut case.cells {
                let base = single.iter().find(|(scenario, scheme, one)| {
                    (scenario, scheme, &one.machine, &one.target)
                        == (&case.scenario, &case.scheme, &cell.machine, &cell.target)
                });
                let ratio = base.and_then(|(_, _, one)| Some(quotient(cell.rps?, one.rps?)));
                cell.efficiency = ratio.filter(|_| count > 1.0).map(|ratio| ratio.map(|ratio| ratio / count));
            }
        }
    }
}

fn machine(name: &str, run: &Run, analysis: &Analysis, price: Option<Price>) -> Machine {
    let manifest = &run.manifest;
    let kernel = manifest.kernel.split(' ').take(2).collect::<Vec<_>>().join(" ");
    let targets = manifest.targets.iter().filter(|(label, _)| !label.ends_with(" (again)"));
    let targets: Vec<String> =
        targets.map(|(label, target)| format!("{label}: {}", target.version)).collect();
    Machine {
        name: name.to_owned(),
        run: run.id.clone(),
        what: format!("{} × {}, {kernel}", manifest.cpus, manifest.cpu),
        targets: targets.join("; "),
        disturbed: analysis.conditions.disturbances.join("; "),
        price,
    }
}

fn joined(machine: &str, cell: &CellAnalysis, price: Option<Price>) -> Option<JoinedCell> {
    let summary = cell.summary.as_ref()?;
    let parts = parts(summary);
    let gateway =
        |part: &&PartSummary| part.name.starts_with("data plane") || part.name.starts_with("gateway");
    let instances = parts.iter().filter(gateway).count().max(1);
    let cost = |rps: Estimate| price.map(|price| inverse(rps, |rate| price.per_million(rate, instances)));
    Some(JoinedCell {
        machine: machine.to_owned(),
        target: cell.target.clone(),
        instances,
        rps: summary.rps,
        to_first: None,
        p99_ms: summary.shown().p99_ms,
        cpu_us: summary.cpu_us,
        rps_per_core: summary.cpu_us.map(|cpu| inverse(cpu, |cpu| 1e6 / cpu)),
        efficiency: None,
        cost: summary.rps.and_then(cost),
        parts,
    })
}

/// What falls where the estimate rises: its ends change places.
fn inverse(estimate: Estimate, of: impl Fn(f64) -> f64) -> Estimate {
    let Estimate { value, low, high, samples } = estimate;
    Estimate { value: of(value), low: of(high), high: of(low), samples }
}

/// What each part used; of a single gateway with its upstream and the generator, from the figures per request.
fn parts(summary: &Summary) -> Vec<PartSummary> {
    if !summary.parts.is_empty() {
        return summary.parts.clone();
    }
    let rate = summary.rps.map_or(0.0, |rps| rps.value);
    let part = |name: &str, cpu_us: f64, rss_kib: u64| PartSummary {
        name: name.to_owned(),
        cores: cpu_us * rate / 1e6,
        cpu_us,
        rss_kib,
    };
    let gateway = summary.cpu_us.map(|cpu| part("gateway", cpu.value, summary.rss_kib));
    let others = [part("upstream", summary.upstream_us, 0), part("generator", summary.generator_us, 0)];
    gateway.into_iter().chain(others).collect()
}
