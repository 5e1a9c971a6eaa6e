//! One request at a time on each connection.
use super::server::{Server, plain};
use super::{errors, millis, plan, run};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use weirlab::load::{self, Edge, Plan, WarmUp};
use weirlab::result::Histogram;

#[test]
fn the_service_time_is_the_delay() {
    let server = Server::start(|_, writer| {
        thread::sleep(millis(10));
        plain(writer, 200, "late")
    });
    let outcome = run(&Plan { duration: millis(1000), ..plan(&server) });
    let median = outcome.latencies.service.quantile(0.5).unwrap();
    assert!((millis(10)..millis(100)).contains(&median), "{median:?}");
    assert_eq!(outcome.latencies.response, outcome.latencies.service);
    // A request that is slower than all others when the window ends counts too.
    assert!((outcome.good..=outcome.good + 4).contains(&outcome.latencies.service.count()));
    let most = 4 * (outcome.measured.as_millis() / 10 + 1);
    assert!(u128::from(outcome.answers) <= most && outcome.answers > 20, "{}", outcome.answers);
    assert_eq!(outcome.void, None);
}

#[test]
fn every_answer_is_counted_once() {
    // No answer comes before the window begins.
    let begun = Arc::new(AtomicBool::new(false));
    let beginning = begun.clone();
    let server = Server::start(move |_, writer| {
        while !begun.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        plain(writer, 200, "12345")
    });
    let mut observer = |_| beginning.store(true, Ordering::SeqCst);
    let plan = Plan { connections: 7, threads: 2, ..plan(&server) };
    let outcome = load::run(&plan, &mut observer, &AtomicBool::new(false)).unwrap();
    let served = server.requests() as u64;
    assert!(outcome.answers <= served && served <= outcome.answers + 7, "{} of {served}", outcome.answers);
    assert_eq!(outcome.good, outcome.answers);
    assert_eq!(outcome.statuses.get(&200), Some(&outcome.answers));
    assert_eq!(outcome.series.iter().sum::<u64>(), outcome.answers);
    let length = "HTTP/1.1 200 Some\r\nContent-Length: 5\r\n\r\n12345".len() as u64;
    assert!(outcome.bytes.abs_diff(outcome.answers * length) <= 7 * length, "{}", outcome.bytes);
    assert_eq!((server.connections(), outcome.connect.count()), (7, outcome.connections_opened.unwrap()));
    assert!(outcome.errors.is_empty(), "{:?}", outcome.errors);
    assert!(!outcome.generator_cpu.is_zero());
}

#[test]
fn the_window_has_two_edges() {
    let server = Server::start(|_, writer| plain(writer, 200, ""));
    let warm_up = WarmUp { at_least: millis(100), at_most: millis(300) };
    let mut edges = Vec::new();
    let plan = Plan { warm_up, duration: millis(200), ..plan(&server) };
    let mut observer = |edge| edges.push((edge, Instant::now()));
    let outcome = load::run(&plan, &mut observer, &AtomicBool::new(false)).unwrap();
    assert_eq!((edges[0].0, edges[1].0, edges.len()), (Edge::Begin, Edge::End, 2));
    let seen = edges[1].1 - edges[0].1;
    assert!(outcome.measured >= millis(200) && outcome.measured.abs_diff(seen) < millis(100));
    assert!((millis(100)..millis(2000)).contains(&outcome.warm_up), "{:?}", outcome.warm_up);
    // What came in the warm-up is left out, and was a good deal.
    assert!((server.requests() as u64) > outcome.answers + 4);
}

#[test]
fn a_load_that_is_stopped_keeps_what_it_has() {
    let server = Server::start(|_, writer| plain(writer, 200, ""));
    let stop = Arc::new(AtomicBool::new(false));
    let stopping = stop.clone();
    thread::spawn(move || {
        thread::sleep(millis(300));
        stopping.store(true, Ordering::Relaxed);
    });
    let plan = Plan { duration: Duration::from_secs(60), ..plan(&server) };
    let outcome = load::run(&plan, &mut |_| {}, &stop).unwrap();
    assert!(outcome.answers > 0 && outcome.measured < Duration::from_secs(30));
}

#[test]
fn a_connection_for_each_request() {
    let server = Server::start(|request, writer| {
        assert_eq!(request.header("connection"), Some("close"));
        plain(writer, 200, "once")
    });
    let outcome = run(&Plan { keep_alive: false, ..plan(&server) });
    let (requests, connections) = (server.requests(), server.connections());
    assert!(outcome.good > 10 && outcome.errors.is_empty(), "{} {:?}", outcome.good, outcome.errors);
    assert!(requests <= connections && connections <= requests + 4, "{requests} over {connections}");
    assert!(outcome.connections_opened.unwrap().abs_diff(outcome.answers) <= 4);
}

#[test]
fn what_is_stuck_throughout_the_window_is_an_error() {
    // The first request of the first two connections is never answered.
    let server = Server::start(|request, writer| {
        if request.number < 2 {
            thread::sleep(Duration::from_secs(20));
        }
        plain(writer, 200, "")
    });
    let warm_up = WarmUp { at_least: millis(300), at_most: millis(300) };
    let plan = Plan { warm_up, duration: millis(300), ..plan(&server) };
    let outcome = run(&plan);
    assert_eq!((errors(&outcome, "stuck"), outcome.errors.len()), (2, 1), "{:?}", outcome.errors);
    assert!(outcome.good > 0 && outcome.latencies.service.max() >= millis(300));
}

#[test]
fn connections_that_are_never_established_are_stuck() {
    // The handshake is never answered.
    let silent = Server::silent();
    let warm_up = WarmUp { at_least: millis(200), at_most: millis(200) };
    let outcome = run(&Plan { tls: true, warm_up, duration: millis(200), ..plan(&silent) });
    assert_eq!((errors(&outcome, "stuck"), outcome.answers), (4, 0), "{:?}", outcome.errors);
}

#[test]
fn an_answer_that_takes_less_than_the_window_is_not_stuck() {
    let server = Server::start(|_, writer| {
        thread::sleep(millis(200));
        plain(writer, 200, "")
    });
    let warm_up = WarmUp { at_least: millis(100), at_most: millis(100) };
    let outcome = run(&Plan { warm_up, duration: millis(1500), ..plan(&server) });
    assert!(outcome.good > 0 && outcome.errors.is_empty(), "{:?}", outcome.errors);
}

#[test]
fn an_answer_that_comes_soon_after_a_short_window_is_not_stuck() {
    let server = Server::start(|_, writer| {
        thread::sleep(millis(400));
        plain(writer, 200, "")
    });
    let warm_up = WarmUp { at_least: millis(200), at_most: millis(200) };
    let outcome = run(&Plan { warm_up, duration: millis(100), ..plan(&server) });
    assert!(outcome.errors.is_empty(), "{:?}", outcome.errors);
}

#[test]
fn a_stall_that_outlasts_the_window_is_in_the_tail() {
    // One request early in the window is not answered within it.
    let server = Server::start(|request, writer| {
        thread::sleep(if request.number == 40 { Duration::from_secs(20) } else { millis(5) });
        plain(writer, 200, "")
    });
    let outcome = run(&Plan { duration: millis(1500), ..plan(&server) });
    let service = &outcome.latencies.service;
    assert!(service.max() >= millis(500) && service.count() > outcome.good, "{:?}", service.max());
    assert!(outcome.errors.is_empty(), "{:?}", outcome.errors);
}

#[test]
fn hundreds_of_connections() {
    let server = Server::start(|_, writer| {
        thread::sleep(millis(100));
        plain(writer, 200, "")
    });
    let outcome = run(&Plan { connections: 300, duration: millis(2000), ..plan(&server) });
    assert_eq!(server.connections(), 300);
    assert!(outcome.good > 300 && outcome.errors.is_empty(), "{} {:?}", outcome.good, outcome.errors);
}

#[test]
fn the_first_byte_of_a_body_has_a_time_of_its_own() {
    let server = Server::start(|_, writer| {
        writer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n")?;
        writer.write_all(b"on")?;
        thread::sleep(millis(20));
        writer.write_all(b"ce")
    });
    let outcome = run(&Plan { first_byte: true, duration: millis(1000), ..plan(&server) });
    let latencies = &outcome.latencies;
    assert_eq!(latencies.first_byte.count(), outcome.good);
    let median = |histogram: &Histogram| histogram.quantile(0.5).unwrap();
    let (first, whole) = (median(&latencies.first_byte), median(&latencies.service));
    assert!(first + millis(10) < whole, "{first:?} {whole:?}");
    let at_once = Server::start(|_, writer| plain(writer, 200, "once"));
    let outcome = run(&Plan { first_byte: true, ..plan(&at_once) });
    assert_eq!(outcome.latencies.first_byte.count(), outcome.good, "the first byte may be the last");
    let unasked = run(&plan(&at_once));
    assert!(unasked.good > 0 && unasked.latencies.first_byte.is_empty());
    let empty = Server::start(|_, writer| plain(writer, 200, ""));
    let outcome = run(&Plan { first_byte: true, ..plan(&empty) });
    assert!(outcome.good > 0 && outcome.latencies.first_byte.is_empty(), "there is no body");
}
