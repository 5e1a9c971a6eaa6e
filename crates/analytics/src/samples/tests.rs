use super::*;
use crate::bucket::Bucket;
use crate::record::Record;
use crate::testing::record;

fn sample(reason: Reason, at: u64, record: Record) -> Sample {
    SampleBuilder::new(at, reason, record, "GET", "/", "").build()
}

fn samples() -> Samples {
    Samples::new(1 << 20)
}

#[test]
fn a_group_of_errors_has_sixteen_samples() {
    let mut samples = samples();
    for at in 0..1_000 {
        samples.add(sample(Reason::Error, at, Record { status: 500, ..record(1) }));
    }
    samples.add(sample(Reason::Error, 0, Record { status: 503, ..record(1) }));
    assert_eq!(samples.len(), 17);
    let late = samples.before(u64::MAX).filter(|sample| sample.at > 500).count();
    assert!((1..16).contains(&late), "{late} of 16 samples are of the second half");
    samples.add(sample(Reason::Error, ERROR_INTERVAL_MILLIS, Record { status: 500, ..record(1) }));
    assert_eq!(samples.len(), 18, "the next ten minutes have samples of their own");
}

#[test]
fn the_slowest_of_a_route_stay() {
    let mut samples = samples();
    for place in 0..100u16 {
        let total = Bucket(500 + place * 37 % 100);
        samples.add(sample(Reason::Slow, 0, Record { total, ..record(1) }));
    }
    let mut totals: Vec<_> = samples.before(u64::MAX).map(|sample| sample.record.total.0).collect();
    totals.sort_unstable();
    assert_eq!(totals, (592..600).collect::<Vec<_>>());
}

#[test]
fn samples_stay_within_their_budget() {
    let mut samples = Samples::new(10_000);
    for at in 0..1_000 {
        samples.add(sample(Reason::Chance, at, record(1)));
    }
    assert!(samples.bytes() <= 10_000 && samples.len() > 20);
    assert_eq!(samples.before(u64::MAX).next().map(|sample| sample.at), Some(999));
    assert!(samples.get(1).is_none() && samples.get(1_000).is_some());
}

#[test]
fn groups_are_bounded() {
    let mut samples = Samples::new(64 << 20);
    for route in 0..3 * MAX_GROUPS as u32 {
        samples.add(sample(Reason::Error, 0, Record { status: 500, ..record(route) }));
        samples.add(sample(Reason::Slow, 0, record(route)));
    }
    assert_eq!((samples.errors.len(), samples.slowest.len()), (MAX_GROUPS, MAX_GROUPS));
}

#[test]
fn a_slow_subscriber_misses_samples_and_knows() {
    let mut samples = samples();
    let subscription = samples.tail.subscribe();
    for at in 0..1_030 {
        samples.add(sample(Reason::Chance, at, record(1)));
    }
    assert_eq!((subscription.poll().len(), subscription.dropped()), (1_024, 6));
    samples.add(sample(Reason::Chance, 0, record(1)));
    assert_eq!(subscription.poll().len(), 1);
    drop(subscription);
    samples.add(sample(Reason::Chance, 0, record(1)));
    assert!(!samples.tail.is_watched());
}
