//! The search for capacity, on targets whose capacity is known.

use fastrand::Rng;
use std::convert::Infallible;
use weirlab::capacity::search::{Found, Probe, Search, Slo};
use weirlab::result::Latencies;

const SEARCH: Search = Search { start: 1_000.0, tolerance: 0.03, max_probes: 60 };

fn found(search: Search, mut probe: impl FnMut(f64) -> Probe) -> (Found, usize) {
    let mut probes = 0;
    let result = search.run(|rate| {
        probes += 1;
        Ok::<Probe, Infallible>(probe(rate))
    });
    let Ok(found) = result;
    (found, probes)
}

fn holds_below(capacity: f64) -> impl FnMut(f64) -> Probe {
    move |rate| if rate <= capacity { Probe::Holds } else { Probe::Fails }
}

#[test]
fn a_capacity_is_found_from_below_and_from_above() {
    for capacity in [3.0, 150.0, 999.0, 1_000.0, 23_456.0, 400_000.0] {
        let (found, probes) = found(SEARCH, holds_below(capacity));
        assert!(found.rate <= capacity && found.rate * 1.031 > capacity, "{capacity}: {found:?}");
        assert!(found.confirmed && found.fails_at.is_some_and(|rate| rate > capacity), "{found:?}");
        assert!(probes <= 20, "{capacity} took {probes} probes");
    }
}

#[test]
fn a_target_that_is_unsure_near_its_capacity_is_not_overrated() {
    for seed in 0..50 {
        let mut random = Rng::with_seed(seed);
        let (found, _) = found(SEARCH, |rate| {
            // Certain up to 9,000, impossible from 11,000 on.
            if random.f64() < (11_000.0 - rate) / 2_000.0 { Probe::Holds } else { Probe::Fails }
        });
        assert!(found.confirmed && (8_500.0..10_900.0).contains(&found.rate), "seed {seed}: {found:?}");
    }
}

#[test]
fn one_lucky_probe_is_not_believed() {
    let mut lucky = true;
    let (found, _) = found(SEARCH, |rate| {
        if rate <= 5_000.0 || (rate < 8_000.0 && std::mem::take(&mut lucky)) {
            Probe::Holds
        } else {
            Probe::Fails
        }
    });
    assert!(found.confirmed && (4_000.0..=5_000.0).contains(&found.rate), "{found:?}");
}

#[test]
fn what_the_generator_cannot_offer_is_said() {
    let (found, _) = found(SEARCH, |rate| {
        if rate < 20_000.0 { Probe::Holds } else { Probe::Void("the generator was late".to_owned()) }
    });
    assert_eq!(found.limited_by.as_deref(), Some("the generator was late"));
    assert!((19_000.0..20_000.0).contains(&found.rate), "{found:?}");
}

#[test]
fn one_void_probe_is_asked_again() {
    let mut count = 0;
    let (found, _) = found(SEARCH, |rate| {
        count += 1;
        if count % 3 == 0 { Probe::Void("steal".to_owned()) } else { holds_below(23_456.0)(rate) }
    });
    assert!((22_700.0..23_456.0).contains(&found.rate), "{found:?}");
    assert_eq!(found.limited_by, None);
}

#[test]
fn a_target_that_never_holds_ends_the_search() {
    let (found, probes) = found(SEARCH, |_| Probe::Fails);
    assert_eq!((found.rate, found.confirmed), (0.0, false));
    assert!(probes < 20);
}

#[test]
fn the_probes_are_counted() {
    let few = Search { max_probes: 4, ..SEARCH };
    let (found, probes) = found(few, holds_below(1e9));
    assert_eq!((probes, found.rate, found.confirmed, found.fails_at), (4, 8_000.0, false, None));
    assert_eq!(found.limited_by.as_deref(), Some("the search ended after 4 probes"));
}

#[test]
fn an_error_of_the_probe_ends_the_search() {
    assert_eq!(SEARCH.run(|_| Err("interrupted")), Err("interrupted"));
}

#[test]
fn service_levels_are_read_and_written() {
    for text in ["p99=5ms", "p99.9=20ms", "p50=500µs,p99=5ms,errors=0.1%", "errors=1%"] {
        assert_eq!(Slo::parse(text).unwrap().to_string(), text);
    }
    assert_eq!(Slo::parse("p99=0.5s").unwrap(), Slo::parse("p99=500ms").unwrap());
    for wrong in ["", "p99", "p99=5", "p100=5ms", "p99=-5ms", "p99=0ms", "errors=1", "q99=5ms", "p99=5ms,"] {
        let error = Slo::parse(wrong).unwrap_err();
        assert!(error.contains("p99=5ms"), "{wrong}: {error}");
    }
}

#[test]
fn a_service_level_holds_or_not() {
    let latencies = crate::sample::latencies(2.0);
    let holds =
        |text: &str, errors| Slo::parse(text).unwrap().holds(&latencies, crate::sample::ANSWERS, errors);
    assert_eq!(holds("p99=3ms", 0), Some(true));
    assert_eq!(holds("p99=2ms", 0), Some(false));
    assert_eq!(holds("p99=3ms", 1), Some(false));
    assert_eq!(holds("p99=3ms,errors=0.1%", 1), Some(true));
    assert_eq!(holds("p99.9=30ms", 0), None, "2,000 answers say nothing about p99.9");
    assert_eq!(Slo::parse("p99=3ms").unwrap().holds(&Latencies::default(), 0, 0), Some(false));
}
