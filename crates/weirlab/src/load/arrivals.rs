//! When requests of an open loop are due.
use super::Pace;
use fastrand::Rng;

/// The arrivals of one thread, in order. They are drawn one at a time and depend on nothing but the seed, so that
/// those which wait for a connection need not be stored.
#[derive(Debug)]
pub(super) struct Arrivals {
    next: f64,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Constant { first: f64, gap: f64, count: u64 },
    Poisson { mean: f64, rng: Rng },
}

impl Arrivals {
    /// The share of one thread out of so many; nothing for a closed loop. Constant arrivals of all threads together
    /// are evenly spaced too.
    pub(super) fn new(pace: Pace, seed: u64, thread: usize, threads: usize) -> Option<Arrivals> {
        let share = |rate: f64| threads as f64 * 1e9 / rate;
        match pace {
            Pace::Closed => None,
            Pace::Constant(rate) => {
                let first = thread as f64 * 1e9 / rate;
                Some(Arrivals { next: first, kind: Kind::Constant { first, gap: share(rate), count: 0 } })
            }
            Pace::Poisson(rate) => {
                // Its own stream, so that what is asked does not depend on when.
                let rng = Rng::with_seed(!seed);
                let mut arrivals = Arrivals { next: 0.0, kind: Kind::Poisson { mean: share(rate), rng } };
                arrivals.advance();
                Some(arrivals)
            }
        }
    }

    /// The next arrival, in nanoseconds since the load began.
    pub(super) fn next(&self) -> u64 {
        self.next as u64
    }

    /// Goes on to the one after it.
    pub(super) fn advance(&mut self) {
        match &mut self.kind {
            Kind::Constant { first, gap, count } => {
                *count += 1;
                self.next = *first + *count as f64 * *gap;
            }
            Kind::Poisson { mean, rng } => self.next -= (1.0 - rng.f64()).ln() * *mean,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(pace: Pace, thread: usize, threads: usize, count: usize) -> Vec<u64> {
        let mut arrivals = Arrivals::new(pace, 11, thread, threads).unwrap();
        let mut next = || {
            let next = arrivals.next();
            arrivals.advance();
            next
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn constant_arrivals_interleave_evenly() {
        let mut all: Vec<u64> = (0..4).flat_map(|t| arrivals(Pace::Constant(1000.0), t, 4, 50)).collect();
        all.sort_unstable();
        assert_eq!(all, (0..200).map(|n| n * 1_000_000).collect::<Vec<u64>>());
    }

    #[test]
    fn constant_arrivals_do_not_drift() {
        let all = arrivals(Pace::Constant(30_000.0), 0, 1, 3_000_001);
        assert_eq!(all.last(), Some(&100_000_000_000));
    }

    #[test]
    fn poisson_gaps_are_exponential() {
        let all = arrivals(Pace::Poisson(2000.0), 1, 2, 100_000);
        let gaps: Vec<f64> = all.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean / 1e6 - 1.0).abs() < 0.02, "{mean}");
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.02, "an exponential's deviation is its mean");
        let long = gaps.iter().filter(|gap| **gap > 1e6).count() as f64 / gaps.len() as f64;
        assert!((long - (-1f64).exp()).abs() < 0.01, "{long}");
    }
}
