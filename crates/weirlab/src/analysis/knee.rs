//! Latency against rate up to the capacity, and capacity against workers.
use super::summary::Quantiles;
use crate::result::{Capacity, CapacityPoint, Run};
use serde::Serialize;

/// What a target does as the rate rises to its capacity.
#[derive(Clone, Debug, Serialize)]
pub struct Knee {
    /// The case's name.
    pub case: String,
    /// The target's label.
    pub target: String,
    /// Such as `p99=5ms`.
    pub slo: String,
    /// How many workers the target had.
    pub workers: u32,
    /// The highest rate that holds the service level.
    pub rate: f64,
    /// Whether the rate held in at least two of three probes.
    pub confirmed: bool,
    /// What kept the search from higher rates, if not the target.
    pub limited_by: Option<String>,
    /// The points below it and what the search tried, by rising rate; those that are void are left out.
    pub points: Vec<KneePoint>,
}

/// One offered rate.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct KneePoint {
    /// Requests per second offered.
    pub offered: f64,
    /// Requests per second answered.
    pub achieved: f64,
    /// Share of the capacity, for points of the curve; none for those of the search.
    pub share: Option<f64>,
    /// Whether it held the service level.
    pub holds: bool,
    /// Response times.
    pub response: Quantiles,
    /// CPU per request in microseconds.
    pub cpu_us: f64,
}

/// Capacity against workers, for a case and a target.
#[derive(Clone, Debug, Serialize)]
pub struct CoreScaling {
    /// The case's name.
    pub case: String,
    /// The target's label.
    pub target: String,
    /// Such as `p99=5ms`.
    pub slo: String,
    /// By rising number of workers.
    pub points: Vec<Cores>,
}

/// One number of workers.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Cores {
    /// How many.
    pub workers: u32,
    /// The highest rate that holds the service level.
    pub rate: f64,
    /// The rate per worker over that with the fewest workers: 1 is perfect.
    pub efficiency: f64,
}

pub(super) fn all(run: &Run) -> Vec<Knee> {
    run.capacities.iter().map(knee).collect()
}

fn knee(capacity: &Capacity) -> Knee {
    let mut points: Vec<KneePoint> =
        capacity.points.iter().filter(|point| point.void.is_none()).map(knee_point).collect();
    points.sort_by(|a, b| a.offered.total_cmp(&b.offered));
    Knee {
        case: capacity.case.clone(),
        target: capacity.target.clone(),
        slo: capacity.slo.clone(),
        workers: capacity.workers,
        rate: capacity.rate,
        confirmed: capacity.confirmed,
        limited_by: capacity.limited_by.clone(),
        points,
    }
}

impl Knee {
    /// What precedes the rate in words.
    #[must_use]
    pub fn bound(&self) -> &'static str {
        if self.limited_by.is_some() && self.rate > 0.0 { "at least " } else { "" }
    }

    /// What is to be known of the rate, such as `limited: the generator was late`; empty if nothing.
    #[must_use]
    pub fn reservations(&self) -> String {
        let limited = self.limited_by.iter().map(|why| format!("limited: {why}"));
        let unsure = (!self.confirmed && self.rate > 0.0).then(|| "not confirmed".to_owned());
        limited.chain(unsure).collect::<Vec<_>>().join("; ")
    }
}

fn knee_point(point: &CapacityPoint) -> KneePoint {
    KneePoint {
        offered: point.offered,
        achieved: point.achieved,
        share: point.share,
        holds: point.holds,
        response: Quantiles::of(&point.latencies.response),
        cpu_us: point.cpu_us_per_request,
    }
}

/// Those of which capacities with several numbers of workers are known.
pub(super) fn cores(run: &Run) -> Vec<CoreScaling> {
    let mut scalings: Vec<CoreScaling> = Vec::new();
    for capacity in &run.capacities {
        let same = |known: &CoreScaling| {
            (&known.case, &known.target, &known.slo) == (&capacity.case, &capacity.target, &capacity.slo)
        };
        let cores = Cores { workers: capacity.workers, rate: capacity.rate, efficiency: 1.0 };
        match scalings.iter_mut().find(|known| same(known)) {
            Some(known) => known.points.push(cores),
            None => scalings.push(CoreScaling {
                case: capacity.case.clone(),
                target: capacity.target.clone(),
                slo: capacity.slo.clone(),
                points: vec![cores],
            }),
        }
    }
    scalings.retain(|scaling| scaling.points.len() > 1);
    scalings.iter_mut().for_each(CoreScaling::settle);
    scalings
}

impl CoreScaling {
    fn settle(&mut self) {
        self.points.sort_by_key(|point| point.workers);
        let Some(first) = self.points.first().map(|point| point.rate / f64::from(point.workers)) else {
            return;
        };
        for point in &mut self.points {
            point.efficiency = point.rate / f64::from(point.workers) / first;
        }
    }
}
