//! Medians.

use std::fmt;

/// A median, between the bounds that hold it with 95 % confidence.
pub(crate) struct Interval {
    pub(crate) low: f64,
    pub(crate) middle: f64,
    pub(crate) high: f64,
}

impl Interval {
    /// By order statistics of a binomial.
    pub(crate) fn of_median(values: impl Iterator<Item = f64>) -> Self {
        let mut sorted: Vec<_> = values.collect();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len() as f64;
        let reach = 0.98 * n.sqrt();
        let low = ((n / 2.0 - reach).floor().max(0.0)) as usize;
        let high = ((n / 2.0 + reach).ceil() as usize).min(sorted.len() - 1);
        Self { low: sorted[low], middle: sorted[sorted.len() / 2], high: sorted[high] }
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:+.0} ({:.0}..{:.0})", self.middle, self.low, self.high)
    }
}
