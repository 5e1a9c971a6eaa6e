//! Drawing indices.
use super::Distribution;
use fastrand::Rng;
use std::f64::consts::TAU;
use std::sync::Arc;

/// The most values a Zipf distribution is tabulated for.
pub(super) const MAX_TABULATED: usize = 10_000_000;

/// Draws indices below a fixed number.
#[derive(Clone, Debug)]
pub(super) enum Sampler {
    Uniform { count: usize },
    Zipf { table: Arc<Alias> },
    Kong { count: usize },
    RoundRobin { count: usize, next: usize, step: usize },
}

impl Sampler {
    /// A sampler for one of several threads: those that take turns share the indices out among them.
    pub(super) fn new(distribution: Distribution, count: usize) -> Sampler {
        match distribution {
            Distribution::Uniform => Sampler::Uniform { count },
            Distribution::Zipf(exponent) => Sampler::Zipf { table: Arc::new(Alias::zipf(count, exponent)) },
            Distribution::Kong => Sampler::Kong { count },
            Distribution::RoundRobin => Sampler::RoundRobin { count, next: 0, step: 1 },
        }
    }

    /// The same for one thread of several.
    pub(super) fn for_thread(&self, thread: usize, threads: usize) -> Sampler {
        match self {
            Sampler::RoundRobin { count, .. } => {
                Sampler::RoundRobin { count: *count, next: thread % count, step: threads % count }
            }
            other => other.clone(),
        }
    }

    pub(super) fn draw(&mut self, rng: &mut Rng) -> usize {
        match self {
            Sampler::Uniform { count } => rng.usize(0..*count),
            Sampler::Zipf { table } => table.draw(rng),
            Sampler::Kong { count } => kong(*count, rng),
            Sampler::RoundRobin { count, next, step } => {
                let index = *next;
                *next = (index + *step) % *count;
                index
            }
        }
    }
}

fn kong(count: usize, rng: &mut Rng) -> usize {
    let deviation = (0.1 * count as f64 / 1.3).floor();
    let middle = (count / 2) as f64;
    loop {
        // The logarithm wants a number above zero.
        let radius = (-2.0 * (1.0 - rng.f64()).ln()).sqrt();
        let index = (radius * (TAU * rng.f64()).cos() * deviation + middle).floor();
        if (0.0..count as f64).contains(&index) {
            return index as usize;
        }
    }
}

/// Walker's alias table: a draw costs the same however many values there are.
#[derive(Debug)]
pub(super) struct Alias {
    columns: Vec<(f64, u32)>,
}

impl Alias {
    fn zipf(count: usize, exponent: f64) -> Alias {
        Alias::new((1..=count).map(|rank| (rank as f64).powf(-exponent)).collect())
    }

    /// One column for each weight; a column is kept with its probability, else its alias is taken.
    pub(super) fn new(weights: Vec<f64>) -> Alias {
        let mean = weights.iter().sum::<f64>() / weights.len() as f64;
        let mut columns: Vec<(f64, u32)> =
            weights.iter().zip(0..).map(|(weight, index)| (weight / mean, index)).collect();
        let (mut small, mut large): (Vec<usize>, Vec<usize>) =
            (0..columns.len()).partition(|index| columns[*index].0 < 1.0);
        while let (Some(low), Some(high)) = (small.pop(), large.last().copied()) {
            columns[low].1 = high as u32;
            columns[high].0 -= 1.0 - columns[low].0;
            if columns[high].0 < 1.0 {
                large.pop();
                small.push(high);
            }
        }
        Alias { columns }
    }

    pub(super) fn draw(&self, rng: &mut Rng) -> usize {
        let index = rng.usize(0..self.columns.len());
        let (keep, alias) = self.columns[index];
        if rng.f64() < keep { index } else { alias as usize }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: usize = 200_000;

    fn counts(distribution: Distribution, count: usize, seed: u64) -> Vec<usize> {
        let (mut sampler, mut rng) = (Sampler::new(distribution, count), Rng::with_seed(seed));
        let mut counts = vec![0; count];
        for _ in 0..DRAWS {
            counts[sampler.draw(&mut rng)] += 1;
        }
        counts
    }

    /// Pearson's statistic over its degrees of freedom: near 1 where the weights are right.
    fn misfit(counts: &[usize], weights: &[f64]) -> f64 {
        let total: f64 = weights.iter().sum();
        let expected = weights.iter().map(|weight| weight / total * DRAWS as f64);
        let terms = counts.iter().zip(expected).map(|(seen, due)| (*seen as f64 - due).powi(2) / due);
        terms.sum::<f64>() / (counts.len() - 1) as f64
    }

    #[test]
    fn uniform_draws_all_alike() {
        assert!(misfit(&counts(Distribution::Uniform, 100, 1), &[1.0; 100]) < 1.5);
        assert!(
            misfit(&counts(Distribution::Zipf(0.1), 100, 1), &[1.0; 100]) > 10.0,
            "the statistic detects it"
        );
    }

    #[test]
    fn zipf_draws_by_rank() {
        for exponent in [0.0, 0.9, 1.0, 2.0] {
            let weights: Vec<f64> = (1..=50).map(|rank| f64::from(rank).powf(-exponent)).collect();
            let misfit = misfit(&counts(Distribution::Zipf(exponent), 50, 7), &weights);
            assert!(misfit < 1.6, "{exponent}: {misfit}");
        }
    }

    #[test]
    fn kong_draws_around_the_middle() {
        let counts = counts(Distribution::Kong, 100, 3);
        let mean = counts.iter().enumerate().map(|(index, n)| index * n).sum::<usize>() as f64 / DRAWS as f64;
        let squares = counts.iter().enumerate().map(|(i, n)| (i as f64 - mean).powi(2) * *n as f64);
        let deviation = (squares.sum::<f64>() / DRAWS as f64).sqrt();
        // Rounding down takes half from the mean of 50; the deviation is 7 (and the 1/12 of rounding).
        assert!((mean - 49.5).abs() < 0.1, "{mean}");
        assert!((deviation - 7.0).abs() < 0.1, "{deviation}");
    }

    #[test]
    fn kong_stays_within_few_values() {
        for count in [1, 2, 3, 13, 14] {
            assert_eq!(counts(Distribution::Kong, count, 5).iter().sum::<usize>(), DRAWS);
        }
        // Below 13 values the deviation is 0: all in the middle.
        assert_eq!(counts(Distribution::Kong, 12, 5)[6], DRAWS);
    }

    #[test]
    fn threads_that_take_turns_share_the_values() {
        let all = Sampler::new(Distribution::RoundRobin, 6);
        let mut rng = Rng::with_seed(0);
        let mut seen = [0; 6];
        for thread in 0..3 {
            let mut sampler = all.for_thread(thread, 3);
            (0..4).for_each(|_| seen[sampler.draw(&mut rng)] += 1);
        }
        assert_eq!(seen, [2; 6]);
    }
}
