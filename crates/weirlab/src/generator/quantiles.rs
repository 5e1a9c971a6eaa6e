//! Quantiles as a histogram, for generators that know no more of their latencies.
use crate::result::Histogram;
use std::time::Duration;

/// A histogram of `count` samples with these quantiles, each a share from 0 to 1 and its value, in ascending order. At each
/// of the shares it answers with that value; what lies between counts as the next one above.
pub(super) fn histogram(quantiles: &[(f64, Duration)], count: u64) -> Histogram {
    let mut histogram = Histogram::default();
    let mut before = 0;
    for (share, value) in quantiles {
        let until = ((share * count as f64).ceil() as u64).min(count);
        if until > before {
            histogram.record_many(*value, until - before);
            before = until;
        }
    }
    histogram
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_come_out_as_they_went_in() {
        let ms = Duration::from_millis;
        let given = [(0.5, ms(10)), (0.9, ms(20)), (0.99, ms(40)), (1.0, ms(80))];
        let histogram = histogram(&given, 12_345);
        assert_eq!(histogram.count(), 12_345);
        for (share, value) in &given[..3] {
            let got = histogram.quantile(*share).unwrap();
            assert!(got.abs_diff(*value) < Duration::from_micros(50), "{share}: {got:?}");
        }
        assert!(histogram.max() >= ms(80));
    }
}
