//! Percentiles and sums against those of the values themselves.
use proptest::prelude::*;
use std::time::Duration;
use weir_analytics::aggregate::{Aggregate, Latency};
use weir_analytics::bucket::{Bucket, seconds};
use weir_analytics::histogram::Histogram;

/// Durations in nanoseconds of one load.
fn load(seed: u64, draw: impl Fn(&mut fastrand::Rng, f64) -> f64) -> Vec<u64> {
    let mut random = fastrand::Rng::with_seed(seed);
    let draw = |_| {
        let normal = (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
        draw(&mut random, normal) as u64
    };
    (0..20_000).map(draw).collect()
}

#[track_caller]
fn check(mut nanos: Vec<u64>) {
    let mut histogram = Histogram::default();
    nanos.iter().for_each(|nanos| histogram.record(Bucket::of_nanos(*nanos)));
    nanos.sort_unstable();
    assert_eq!(histogram.count(), nanos.len() as u64);
    for share in [0.5, 0.9, 0.99, 0.999] {
        let rank = (share * nanos.len() as f64).ceil() as usize - 1;
        let expected = Duration::from_nanos(nanos[rank]).as_secs_f64();
        let found = histogram.percentile(share).map_or(f64::NAN, seconds);
        assert!((found / expected - 1.0).abs() < 0.02, "{share}: {found} instead of {expected}");
    }
    let mean = nanos.iter().sum::<u64>() as f64 / 1e9;
    assert!((seconds(histogram.sum()) / mean - 1.0).abs() < 0.02);
}

#[test]
fn log_normal() {
    for (seed, sigma) in [(1, 0.2), (2, 0.7), (3, 1.5)] {
        check(load(seed, |_, normal| 1e6 * (sigma * normal).exp()));
    }
}

#[test]
fn bimodal() {
    check(load(4, |random, normal| if random.f64() < 0.95 { 2e5 } else { 5e8 } * (0.1 * normal).exp()));
}

#[test]
fn constant() {
    for nanos in [1e4, 1e6, 1e9, 6e10] {
        check(load(5, |_, _| nanos));
    }
}

/// Aggregates with latencies of any size.
fn aggregates() -> impl Strategy<Value = Aggregate> {
    prop::collection::vec((any::<u16>(), 1..1_000u64, 0..3usize), 0..40).prop_map(|values| {
        let mut aggregate = Aggregate::default();
        for (bucket, count, latency) in values {
            let latency = [Latency::Total, Latency::Gateway, Latency::Upstream][latency];
            aggregate.add_latency(latency, Bucket(bucket), count);
        }
        aggregate
    })
}

fn sum(a: &Aggregate, b: &Aggregate) -> Aggregate {
    let mut sum = a.clone();
    sum.merge(b);
    sum
}

proptest! {
    #[test]
    fn merging_is_associative_and_commutative(a in aggregates(), b in aggregates(), c in aggregates()) {
        prop_assert_eq!(sum(&sum(&a, &b), &c), sum(&a, &sum(&b, &c)));
        prop_assert_eq!(sum(&a, &b), sum(&b, &a));
    }
}
