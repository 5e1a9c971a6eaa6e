//! Requests that are sent when they are due, whatever the answers do.
use super::server::{Server, plain};
use super::{errors, millis, plan, run};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};
use weirlab::load::{Pace, Plan};
use weirlab::result::Histogram;

/// Answers at once, but for a time that begins with one request, in which nothing is answered.
fn freezing_at(number: usize, freeze: Duration) -> Server {
    let frozen_until = Mutex::new(None::<Instant>);
    Server::start(move |request, writer| {
        let until = {
            let mut until = frozen_until.lock().unwrap();
            if request.number == number {
                *until = Some(Instant::now() + freeze);
            }
            *until
        };
        thread::sleep(until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now())));
        plain(writer, 200, "")
    })
}

fn longer_than(histogram: &Histogram, bound: Duration) -> u64 {
    histogram.count() - histogram.inner().count_between(0, bound.as_nanos() as u64)
}

#[test]
fn a_stall_casts_its_whole_shadow() {
    let (rate, freeze) = (200.0, millis(300));
    let server = freezing_at(100, freeze);
    let plan = Plan { pace: Pace::Constant(rate), connections: 2, duration: millis(1500), ..plan(&server) };
    let outcome = run(&plan);
    let (response, service) = (&outcome.latencies.response, &outcome.latencies.service);
    // What is due d after the stall began waits for what is left of it.
    for bound in [millis(50), millis(100), millis(200)] {
        let expected = rate * (freeze - bound).as_secs_f64();
        let seen = longer_than(response, bound) as f64;
        assert!(seen >= expected - 2.0, "{seen} of {expected} longer than {bound:?}");
        assert!(seen <= expected + 60.0, "{seen} rather than {expected} longer than {bound:?}");
    }
    // The two that were in flight are all that the server was slow with.
    let slow = longer_than(service, millis(100));
    assert!((2..=10).contains(&slow), "{slow}");
    assert!(response.max() >= millis(290) && service.max() >= millis(290));
}

#[test]
fn a_stall_at_the_end_is_not_left_out() {
    let server = freezing_at(80, Duration::from_secs(3));
    let plan = Plan { pace: Pace::Constant(200.0), connections: 2, duration: millis(800), ..plan(&server) };
    let outcome = run(&plan);
    // The 81st is due at 400 ms: 60 more are due until 100 ms before the end.
    let waiting = longer_than(&outcome.latencies.response, millis(100));
    assert!((55..=120).contains(&waiting), "{waiting}");
    let slow = longer_than(&outcome.latencies.service, millis(100));
    assert!((2..=10).contains(&slow), "{slow}");
    let why = outcome.void.unwrap();
    assert!(why.contains("offered"), "{why}");
}

#[test]
fn what_times_out_is_not_left_out() {
    let server = freezing_at(20, Duration::from_secs(3));
    let pace = Pace::Constant(100.0);
    let outcome =
        run(&Plan { pace, connections: 1, timeout: millis(100), duration: millis(800), ..plan(&server) });
    assert!(errors(&outcome, "timeout") >= 1, "{:?}", outcome.errors);
    assert!(longer_than(&outcome.latencies.service, millis(95)) >= 1);
}

#[test]
fn the_rate_is_what_was_asked_for() {
    for pace in [Pace::Constant(500.0), Pace::Poisson(500.0)] {
        let server = Server::start(|_, writer| plain(writer, 200, ""));
        let outcome =
            run(&Plan { pace, connections: 20, threads: 2, duration: millis(1000), ..plan(&server) });
        let due = 500.0 * outcome.measured.as_secs_f64();
        // Four deviations of a Poisson count.
        assert!((outcome.answers as f64 - due).abs() < 90.0, "{} of {due}", outcome.answers);
        assert!(outcome.lateness.count().abs_diff(outcome.answers) < 90);
        assert_eq!(outcome.offered, Some(500.0));
        let (response, service) = (&outcome.latencies.response, &outcome.latencies.service);
        assert!(response.count().abs_diff(outcome.good) < 90 && service.count().abs_diff(outcome.good) < 90);
    }
}

#[test]
fn to_queue_for_a_connection_is_not_to_be_late() {
    let server = Server::start(|_, writer| {
        thread::sleep(millis(20));
        plain(writer, 200, "")
    });
    // One connection carries 50 requests per second at most.
    let outcome =
        run(&Plan { pace: Pace::Constant(200.0), connections: 1, duration: millis(800), ..plan(&server) });
    assert!(outcome.latencies.response.quantile(0.5).unwrap() > millis(200));
    assert!(outcome.latencies.service.quantile(0.5).unwrap() < millis(150));
    assert!(outcome.lateness.quantile(0.5).unwrap() < millis(10));
    // Three of four are still queued at the end, and count.
    let arrivals = 200.0 * outcome.measured.as_secs_f64();
    assert!((outcome.latencies.response.count() as f64 - arrivals).abs() <= 2.0);
    let why = outcome.void.unwrap();
    assert!(why.contains("offered"), "{why}");
}

#[test]
fn a_connection_for_each_request_is_opened_when_it_is_due() {
    let server = Server::start(|_, writer| plain(writer, 200, ""));
    let pace = Pace::Constant(100.0);
    let outcome = run(&Plan { pace, keep_alive: false, connections: 8, ..plan(&server) });
    assert!(outcome.errors.is_empty() && outcome.good >= 35, "{} {:?}", outcome.good, outcome.errors);
    assert!(server.connections() <= server.requests() + 1);
    assert!(outcome.latencies.response.mean() > outcome.latencies.service.mean());
}
