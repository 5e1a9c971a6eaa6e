//! Tests by ranks, as a check on the interval that shares none of its assumptions.
use super::distribution::normal_below;

/// Above this many samples the normal distribution replaces the exact one.
const EXACT: usize = 60;

/// The two-sided p-value of Wilcoxon's signed-rank test that the samples (log-ratios) lie symmetrically around zero.
/// Zeros are left out; ties share their ranks. 1 without samples.
pub fn wilcoxon(samples: &[f64]) -> f64 {
    let mut samples: Vec<f64> = samples.iter().copied().filter(|sample| *sample != 0.0).collect();
    samples.sort_unstable_by(|a, b| a.abs().total_cmp(&b.abs()));
    let ranks = doubled_ranks(&samples);
    let total: usize = ranks.iter().sum();
    let above: usize =
        ranks.iter().zip(&samples).filter(|(_, sample)| **sample > 0.0).map(|(rank, _)| rank).sum();
    let smaller = above.min(total - above);
    let tail =
        if samples.len() <= EXACT { exact_tail(&ranks, smaller) } else { normal_tail(&ranks, smaller) };
    (2.0 * tail).min(1.0)
}

/// Twice the ranks of sorted absolute values, so that shared ranks are whole numbers.
fn doubled_ranks(sorted: &[f64]) -> Vec<usize> {
    let mut ranks = Vec::with_capacity(sorted.len());
    while ranks.len() < sorted.len() {
        let first = ranks.len();
        let size = sorted[first].abs();
        let ties = sorted[first..].iter().take_while(|value| value.abs() == size).count();
        ranks.extend(std::iter::repeat_n(2 * first + ties + 1, ties));
    }
    ranks
}

/// The probability that the ranks of one sign add up to at most `sum`, every sign being as likely as the other.
fn exact_tail(ranks: &[usize], sum: usize) -> f64 {
    let mut probability = vec![0.0; ranks.iter().sum::<usize>() + 1];
    probability[0] = 1.0;
    for rank in ranks {
        for total in (0..probability.len()).rev() {
            let with = total.checked_sub(*rank).map_or(0.0, |rest| probability[rest]);
            probability[total] = 0.5 * (probability[total] + with);
        }
    }
    probability[..=sum].iter().sum()
}

fn normal_tail(ranks: &[usize], sum: usize) -> f64 {
    let mean = ranks.iter().sum::<usize>() as f64 / 2.0;
    let variance: f64 = ranks.iter().map(|rank| (*rank as f64).powi(2)).sum::<f64>() / 4.0;
    // Doubled ranks step by two: half a step is one.
    normal_below((sum as f64 + 1.0 - mean) / variance.sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_p_values() {
        // All of n on one side: 2 / 2^n.
        assert!((wilcoxon(&[1.0, 2.0, 3.0, 4.0, 5.0]) - 0.0625).abs() < 1e-12);
        assert!((wilcoxon(&[-1.0, -2.0, -3.0, -4.0, -5.0, -6.0]) - 0.03125).abs() < 1e-12);
        // W = 1 + 2 = 3 of n = 6: (1 + 1 + 1 + 2) / 64 on each side.
        assert!((wilcoxon(&[-1.0, -2.0, 3.0, 4.0, 5.0, 6.0]) - 10.0 / 64.0).abs() < 1e-12);
        assert_eq!(wilcoxon(&[]), 1.0);
        assert_eq!(wilcoxon(&[0.0, 0.0]), 1.0);
    }

    #[test]
    fn ties_share_their_ranks() {
        assert_eq!(doubled_ranks(&[1.0, -1.0, 2.0]), [3, 3, 6]);
        assert_eq!(wilcoxon(&[1.0, -1.0]), 1.0);
    }

    #[test]
    fn the_normal_distribution_continues_the_exact_one() {
        let samples: Vec<f64> =
            (1..=60).map(|i| if i % 3 == 0 { -f64::from(i) } else { f64::from(i) }).collect();
        let ranks = doubled_ranks(&samples);
        let below: usize = ranks.iter().skip(2).step_by(3).sum();
        assert!((exact_tail(&ranks, below) - normal_tail(&ranks, below)).abs() < 5e-4);
    }
}
