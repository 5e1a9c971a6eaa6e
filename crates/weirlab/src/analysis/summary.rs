//! What the blocks of one cell say together.
use super::sample::{Sample, Usable, counted, quantile_ms, usable};
use crate::result::{Block, Cell, Histogram, Latencies};
use crate::stats::{self, Estimate};
use serde::Serialize;
use std::collections::BTreeMap;

/// How many blocks a cell has and why some do not count.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Counts {
    /// Blocks that count.
    pub counted: usize,
    /// Of these, blocks whose rate of answers was not steady.
    pub unsteady: usize,
    /// Blocks that are void because of the load or the machine.
    pub void: usize,
    /// Blocks with wrong or missing answers where none may be.
    pub invalid: usize,
    /// Connections that were opened within windows although connections are kept: who closes them costs more.
    pub reopened: u64,
    /// Why blocks do not count, each reason once.
    pub reasons: Vec<String>,
    /// Errors of all blocks, by class.
    pub errors: BTreeMap<String, u64>,
}

impl Counts {
    pub(super) fn of(cell: &Cell) -> Counts {
        let mut counts = Counts::default();
        for block in &cell.blocks {
            counts.add(block);
        }
        counts
    }

    fn add(&mut self, block: &Block) {
        for (class, count) in &block.errors {
            *self.errors.entry(class.clone()).or_default() += count;
        }
        match usable(block) {
            Usable::Yes => {
                self.counted += 1;
                self.unsteady += usize::from(block.steady == Some(false));
                // Where there is one for about each answer, the case asks for it.
                let opened = block.connections_opened.filter(|opened| *opened < block.answers / 2);
                self.reopened += opened.unwrap_or(0);
            }
            Usable::Void(why) => {
                self.void += 1;
                self.note(why);
            }
            Usable::Invalid(why) => {
                self.invalid += 1;
                self.note(why);
            }
        }
    }

    fn note(&mut self, why: String) {
        if !self.reasons.contains(&why) {
            self.reasons.push(why);
        }
    }
}

/// What the blocks that count say. Estimates with intervals are over blocks; quantiles are of the merged histogram.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// CPU time of the target per request in microseconds; none for a target without processes of its own.
    pub cpu_us: Option<Estimate>,
    /// The part in user mode (median over blocks).
    pub user_us: f64,
    /// The part in the kernel.
    pub system_us: f64,
    /// Right answers per second.
    pub rps: Option<Estimate>,
    /// Response times: from the scheduled instant.
    pub response: Quantiles,
    /// How far the shown quantiles of single blocks lie apart.
    pub ranges: QuantileRanges,
    /// Service times: from the instant of sending.
    pub service: Quantiles,
    /// From the instant of sending to the first byte of the body, where that was asked for.
    pub first_byte: Option<Quantiles>,
    /// The merged histograms themselves.
    pub latencies: Latencies,
    /// Resident memory at the end of a block in KiB (median).
    pub rss_kib: u64,
    /// The most resident memory in KiB.
    pub rss_peak_kib: u64,
    /// Context switches of the target per request.
    pub switches: f64,
    /// CPU time of the generator per request in microseconds.
    pub generator_us: f64,
    /// CPU time of the upstream per request in microseconds.
    pub upstream_us: f64,
    /// The largest share of CPU time that the hypervisor gave to others in a block.
    pub steal: f64,
    /// What each process used, where a case has several.
    pub parts: Vec<PartSummary>,
    /// What the users of Kong's framework know.
    pub combined: Combined,
}

/// What a process used: medians over blocks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PartSummary {
    /// Such as `data plane 1`.
    pub name: String,
    /// CPU time as a share of one core's.
    pub cores: f64,
    /// CPU time per right answer of the whole case, in microseconds.
    pub cpu_us: f64,
    /// Resident memory at the end of a block in KiB; 0 if unknown.
    pub rss_kib: u64,
}

impl PartSummary {
    /// Of each process of these blocks.
    fn all(blocks: &[&Block]) -> Vec<PartSummary> {
        let first = blocks.first().map_or(&[][..], |block| &block.parts);
        let summary = |nth: usize, name: &str| {
            let parts = || blocks.iter().filter_map(move |block| Some((block, block.parts.get(nth)?)));
            let cores = parts().map(|(block, part)| part.cpu_us / 1e6 / block.measured_s);
            let cpu_us = parts().map(|(block, part)| part.cpu_us / block.good as f64);
            let rss_kib = parts().map(|(_, part)| part.rss_kib as f64);
            Some(PartSummary {
                name: name.to_owned(),
                cores: stats::median(&cores.collect::<Vec<_>>())?,
                cpu_us: stats::median(&cpu_us.collect::<Vec<_>>())?,
                rss_kib: stats::median(&rss_kib.collect::<Vec<_>>())? as u64,
            })
        };
        first.iter().enumerate().filter_map(|(nth, part)| summary(nth, &part.name)).collect()
    }
}

/// Quantiles in milliseconds, each only with enough answers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Quantiles {
    /// The median.
    pub p50_ms: Option<f64>,
    /// The 90th percentile.
    pub p90_ms: Option<f64>,
    /// The 95th percentile.
    pub p95_ms: Option<f64>,
    /// The 99th percentile.
    pub p99_ms: Option<f64>,
    /// The 99.9th percentile.
    pub p999_ms: Option<f64>,
    /// The longest.
    pub max_ms: f64,
    /// How many answers.
    pub answers: u64,
}

impl Quantiles {
    /// Of a histogram.
    pub fn of(histogram: &Histogram) -> Quantiles {
        let at = |q: f64| histogram.quantile(q).map(|duration| duration.as_secs_f64() * 1e3);
        Quantiles {
            p50_ms: at(0.5),
            p90_ms: at(0.9),
            p95_ms: at(0.95),
            p99_ms: at(0.99),
            p999_ms: at(0.999),
            max_ms: histogram.max().as_secs_f64() * 1e3,
            answers: histogram.count(),
        }
    }
}

/// The lowest and the highest of the blocks' quantiles, in milliseconds; none with fewer than two blocks that have answers
/// enough. They are no confidence intervals: they say what single blocks saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct QuantileRanges {
    /// Of the medians.
    pub p50_ms: Option<(f64, f64)>,
    /// Of the 95th percentiles.
    pub p95_ms: Option<(f64, f64)>,
    /// Of the 99th percentiles.
    pub p99_ms: Option<(f64, f64)>,
    /// Of the medians to the first byte.
    pub first_byte_p50_ms: Option<(f64, f64)>,
    /// Of the 99th percentiles to it.
    pub first_byte_p99_ms: Option<(f64, f64)>,
}

impl QuantileRanges {
    fn of(blocks: &[&Block]) -> QuantileRanges {
        let ends = |values: Vec<f64>| {
            let (low, high) = stats::ends(&values)?;
            (values.len() > 1).then_some((low, high))
        };
        let range = |q: f64| ends(blocks.iter().filter_map(|block| quantile_ms(block, q)).collect());
        let first_byte = |q: f64| {
            let quantiles = blocks.iter().filter_map(|block| block.latencies.first_byte.quantile(q));
            ends(quantiles.map(|duration| duration.as_secs_f64() * 1e3).collect())
        };
        QuantileRanges {
            p50_ms: range(0.5),
            p95_ms: range(0.95),
            p99_ms: range(0.99),
            first_byte_p50_ms: first_byte(0.5),
            first_byte_p99_ms: first_byte(0.99),
        }
    }
}

/// The combined result in the layout of Kong's framework.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Combined {
    /// The average of the blocks' rates.
    pub rps: f64,
    /// The average latency over all answers, in milliseconds.
    pub latency_average_ms: f64,
    /// The longest latency of all.
    pub latency_max_ms: f64,
    /// The 90th percentile of each block, with enough answers.
    pub p90_ms: Vec<Option<f64>>,
    /// The 99th percentile of each block, with enough answers.
    pub p99_ms: Vec<Option<f64>>,
}

impl Summary {
    /// Response times, or, where the generator does not know when a request was due, service times.
    #[must_use]
    pub fn shown(&self) -> &Quantiles {
        if self.latencies.is_without_response() { &self.service } else { &self.response }
    }

    /// Of the blocks of a cell that count; none without any.
    pub(super) fn of(cell: &Cell, seed: u64) -> Option<Summary> {
        let blocks: Vec<&Block> = counted(cell).collect();
        let samples: Vec<Sample> = blocks.iter().map(|block| Sample::of(block)).collect();
        let middle = |of: fn(&Sample) -> f64| stats::median(&samples.iter().map(of).collect::<Vec<_>>());
        let estimated =
            |of: fn(&Sample) -> f64| stats::quantities(&samples.iter().map(of).collect::<Vec<_>>(), seed);
        let latencies = merged(&blocks);
        let memory: Vec<f64> = blocks.iter().map(|block| block.target.rss_kib as f64).collect();
        Some(Summary {
            cpu_us: estimated(|sample| sample.cpu_us),
            user_us: middle(|sample| sample.user_us)?,
            system_us: middle(|sample| sample.system_us)?,
            rps: estimated(|sample| sample.rps),
            response: Quantiles::of(&latencies.response),
            ranges: QuantileRanges::of(&blocks),
            service: Quantiles::of(&latencies.service),
            first_byte: Some(&latencies.first_byte).filter(|them| !them.is_empty()).map(Quantiles::of),
            rss_kib: stats::median(&memory)? as u64,
            rss_peak_kib: blocks.iter().map(|block| block.target.rss_peak_kib).max()?,
            switches: middle(|sample| sample.switches)?,
            generator_us: middle(|sample| sample.generator_us)?,
            upstream_us: middle(|sample| sample.upstream_us)?,
            steal: blocks.iter().map(|block| block.machine.steal).fold(0.0, f64::max),
            parts: PartSummary::all(&blocks),
            combined: Combined::of(&blocks, &latencies)?,
            latencies,
        })
    }
}

impl Combined {
    fn of(blocks: &[&Block], latencies: &Latencies) -> Option<Combined> {
        let rates: Vec<f64> = blocks.iter().map(|block| Sample::of(block).rps).collect();
        Some(Combined {
            rps: stats::mean(&rates)?,
            latency_average_ms: latencies.shown().mean().as_secs_f64() * 1e3,
            latency_max_ms: latencies.shown().max().as_secs_f64() * 1e3,
            p90_ms: blocks.iter().map(|block| quantile_ms(block, 0.9)).collect(),
            p99_ms: blocks.iter().map(|block| quantile_ms(block, 0.99)).collect(),
        })
    }
}

fn merged(blocks: &[&Block]) -> Latencies {
    let mut all = Latencies::default();
    for block in blocks {
        all.merge(&block.latencies);
    }
    all
}
