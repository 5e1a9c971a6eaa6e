//! Several results as one.
use super::{LoadResult, ScriptError};
use crate::analysis::Combined;
use crate::report::text;
use crate::result::Latencies;
use crate::stats;
use std::fmt;

/// What several loads came to together. Its text is that of Kong's framework.
#[derive(Clone, Debug, PartialEq)]
pub struct CombinedResult {
    combined: Combined,
    rates: Vec<f64>,
}

/// Combines results: the average of their rates, the average latency of all answers, the longest, and the quantiles of each.
///
/// # Errors
/// When there is none.
pub fn combine_results(results: &[LoadResult]) -> Result<CombinedResult, ScriptError> {
    let rates: Vec<f64> = results.iter().map(LoadResult::requests_per_second).collect();
    let mut latencies = Latencies::default();
    results.iter().for_each(|result| latencies.merge(&result.outcome().latencies));
    let quantile = |q: f64| {
        let of = |result: &LoadResult| Some(result.latency(q)?.as_secs_f64() * 1e3);
        results.iter().map(of).collect()
    };
    let combined = Combined {
        rps: stats::mean(&rates).ok_or(ScriptError::NoResults)?,
        latency_average_ms: latencies.shown().mean().as_secs_f64() * 1e3,
        latency_max_ms: latencies.shown().max().as_secs_f64() * 1e3,
        p90_ms: quantile(0.9),
        p99_ms: quantile(0.99),
    };
    Ok(CombinedResult { combined, rates })
}

impl CombinedResult {
    /// The figures.
    #[must_use]
    pub fn figures(&self) -> &Combined {
        &self.combined
    }

    /// Requests per second of each result.
    #[must_use]
    pub fn rates(&self) -> &[f64] {
        &self.rates
    }
}

impl fmt::Display for CombinedResult {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(text::combined(&self.combined).trim_end())
    }
}
