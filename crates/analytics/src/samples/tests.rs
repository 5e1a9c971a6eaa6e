use super::*;
use crate::bucket::Bucket;
use crate::record::Record;
use crate::testing::{LOCALHOST, record};

fn sample(reason: Reason, at: u64, record: Record) -> Sample {
    SampleBuilder::new(at, reason, record, LOCALHOST, &RequestTexts::default()).build()
}

/// Samples of which the recent ones have hardly any room.
fn few_recent() -> Samples {
    Samples { recent: Recent::new(300), ..Samples::new(1 << 20, 0) }
}

fn count(samples: &Samples) -> usize {
    samples.before(u64::MAX).count()
}

#[test]
fn a_group_of_errors_has_sixteen_samples() {
    let mut samples = few_recent();
    for at in 0..1_000 {
        samples.add(sample(Reason::Error, at, Record { status: 500, ..record(1) }));
    }
    samples.add(sample(Reason::Error, 0, Record { status: 503, ..record(1) }));
    assert_eq!(samples.kept.len(), 17);
    let late = samples.kept.values().filter(|sample| sample.at > 500).count();
    assert!((1..16).contains(&late), "{late} of 16 samples are of the second half");
    samples.add(sample(Reason::Error, ERROR_INTERVAL_MILLIS, Record { status: 500, ..record(1) }));
    assert_eq!(samples.kept.len(), 18, "the next ten minutes have samples of their own");
}

#[test]
fn the_slowest_of_a_route_stay_and_workers_know_how_slow_they_are() {
    let mut samples = few_recent();
    let gate = Gate::new(samples.sender(Sampling::Errors));
    for place in 0..100u16 {
        let total = Bucket(500 + place * 37 % 100);
        samples.add(sample(Reason::Slow, 0, Record { total, ..record(1) }));
    }
    let mut totals: Vec<_> = samples.kept.values().map(|sample| sample.record.total.0).collect();
    totals.sort_unstable();
    assert_eq!(totals, (592..600).collect::<Vec<_>>());
    let admitted = |total| gate.admit(&Record { total: Bucket(total), ..record(1) });
    assert_eq!((admitted(592), admitted(593)), (None, Some(Reason::Slow)));
    samples.drain(SLOW_INTERVAL_MILLIS);
    assert_eq!(admitted(592), Some(Reason::Slow), "another minute has begun");
}

#[test]
fn samples_stay_within_their_budget() {
    let mut samples = Samples::new(20_000, 0);
    for at in 0..1_000 {
        let reason = if at % 2 == 0 { Reason::Error } else { Reason::Chance };
        samples.add(sample(reason, at, Record { status: 500, ..record(at as u32) }));
    }
    assert!(samples.bytes <= samples.budget && samples.recent.bytes() <= 5_000);
    assert!(count(&samples) > 40, "{}", count(&samples));
    assert_eq!(samples.before(u64::MAX).next().map(|sample| sample.at), Some(999));
    assert!(samples.get(1).is_none() && samples.get(1_000).is_some());
}

#[test]
fn samples_are_listed_once_newest_first() {
    let mut samples = Samples { recent: Recent::new(2_000), ..Samples::new(1 << 20, 5) };
    for at in 0..100 {
        let reason = if at % 10 == 0 { Reason::Error } else { Reason::Chance };
        samples.add(sample(reason, at, Record { status: 500, ..record(at as u32) }));
    }
    let listed: Vec<_> = samples.before(u64::MAX).map(|sample| sample.at).collect();
    assert!(listed.is_sorted_by(|a, b| a > b), "{listed:?}");
    assert_eq!(listed.iter().filter(|at| **at % 10 == 0).count(), 10);
    assert!(listed.starts_with(&[99, 98, 97]) && listed.len() < 50);
    let newest = samples.newest();
    assert_eq!(newest, 5_100, "numbers begin with the time");
    assert_eq!(samples.before(newest).next().map(|sample| sample.at), Some(98));
    assert_eq!(samples.after(newest - 2).map(|sample| sample.at).collect::<Vec<_>>(), [98, 99]);
    assert_eq!((samples.after(newest).count(), samples.after(u64::MAX).count()), (0, 0));
    assert_eq!(samples.after(0).next(), samples.recent.since(0).next());
}

#[test]
fn groups_are_bounded() {
    let mut samples = Samples::new(64 << 20, 0);
    for route in 0..3 * MAX_GROUPS as u32 {
        samples.add(sample(Reason::Error, 0, Record { status: 500, ..record(route) }));
        samples.add(sample(Reason::Slow, 0, record(route)));
    }
    assert_eq!((samples.errors.len(), samples.slowest.len()), (MAX_GROUPS, MAX_GROUPS));
}

#[test]
fn what_workers_send_arrives_in_order_or_is_counted() {
    let mut samples = Samples::new(64 << 20, 0);
    let gate = Gate::new(samples.sender(Sampling::Errors));
    let sent = QUEUE_LEN as u64 + 10;
    (0..sent).for_each(|at| gate.send(sample(Reason::Chance, at, record(1))));
    samples.drain(0);
    assert!(samples.after(0).map(|sample| sample.at).eq(0..QUEUE_LEN as u64));
    assert_eq!(samples.skipped(), 10);
}
