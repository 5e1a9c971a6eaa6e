//! A model for each invariant: a few threads that do a little.

use crate::balance::latency::Latency;
use crate::checks::Outcome;
use crate::counter::{Counters, Limit, nothing};
use crate::counters::{Counter, HealthCounters};
use crate::limit::{LimitPolicy, UpstreamLimit, UpstreamLimits};
use crate::outlier::{Candidate, Ejectable, Ejector, OutlierPolicy, OutlierState};
use crate::record::Record;
use crate::retry_budget::{RetryBudgets, RetryReason};
use crate::ring::ring;
use crate::versions::Versions;
use crate::window::Period;
use loom::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use loom::sync::{Arc, Mutex, mpsc};
use loom::thread::{JoinHandle, Thread, current, park, spawn, yield_now};
use std::pin::pin;
use std::task::{Context, Poll, Wake, Waker};
use tokio::time::Instant;
use weir_model::tags::Priority;

/// How often a thread may be interrupted where it need not wait. Most defects need one or two.
const INTERRUPTIONS: usize = 3;

/// Tries every order.
fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(INTERRUPTIONS);
    builder.check(model);
}

fn join(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Of k requests against n that are left, exactly min(k, n) are admitted, and no other limit is charged.
pub fn node_wide_counters_admit_exactly_what_is_left() {
    explore(|| {
        let limit = |period, value| Limit::new(period, value);
        let limits = [limit(Period::Second, 2.0), limit(Period::Minute, 1.0)];
        let (counters, admitted) = (Arc::new(Counters::<1>::default()), Arc::new(AtomicUsize::new(0)));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (counters, admitted) = (counters.clone(), admitted.clone());
                spawn(move || {
                    let usage = counters.reserve(&limits, || 60, nothing);
                    admitted.fetch_add(usage.admitted.into(), SeqCst);
                })
            })
            .collect();
        join(threads);
        assert_eq!(admitted.load(SeqCst), 1, "requests are admitted");
        let window = |period: Period| counters.counted(period, period.window(60));
        assert_eq!([Period::Second, Period::Minute].map(window), [1, 1], "is charged");
    });
}

/// Two failures are enough, on whichever threads, and the change is reported once.
pub fn health_changes_once() {
    explore(|| {
        let (counters, changes) = (Arc::new(HealthCounters::default()), Arc::new(AtomicUsize::new(0)));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (counters, changes) = (counters.clone(), changes.clone());
                spawn(move || {
                    let change = counters.count(Counter::TcpFailures, 2);
                    changes.fetch_add(change.is_some().into(), SeqCst);
                })
            })
            .collect();
        join(threads);
        assert!(!counters.is_healthy(), "two failures are enough");
        assert_eq!(changes.load(SeqCst), 1, "the change is reported once");
    });
}

#[derive(Default)]
struct Target(OutlierState, Latency);

impl Ejectable for Target {
    fn is_in_use(&self) -> bool {
        true
    }

    fn outlier(&self) -> &OutlierState {
        &self.0
    }

    fn latency(&self) -> &Latency {
        &self.1
    }
}

/// Of two targets one is ejected at most, also where two services lead to their upstream.
pub fn no_more_targets_are_ejected_than_may_be() {
    explore(|| {
        let policy = OutlierPolicy::of(&Some(vec!["weir-eject-errors:1".to_owned()])).unwrap();
        let targets = [(); 2].map(|()| std::sync::Arc::<Target>::default());
        let group = std::sync::Arc::new(Mutex::new(targets.to_vec()));
        let threads: Vec<_> = (0..2)
            .map(|failing| {
                let target = targets[failing].clone();
                let ejector = Ejector::new("u", policy, std::sync::Arc::clone(&group));
                spawn(move || {
                    let Target(outlier, latency) = &*target;
                    let candidate = Candidate { target: "t", outlier, latency };
                    ejector.record(&candidate, Outcome::TcpFailure, 1);
                })
            })
            .collect();
        join(threads);
        assert!(targets.iter().any(|target| !target.0.is_ejected(2)), "all targets are ejected");
    });
}

/// Workers together never retry more than the budget has.
pub fn retries_stay_within_the_budget() {
    let mut builder = loom::model::Builder::new();
    // Each sum reads sixteen words of each worker.
    builder.preemption_bound = Some(1);
    builder.max_branches = 10_000;
    builder.check(|| {
        let (budgets, now) = (RetryBudgets::default(), Instant::now());
        let budget = budgets.of("u", 1, &None);
        (0..9).for_each(|_| assert!(budget.spend(RetryReason::Reset, now)));
        let granted = Arc::new(AtomicUsize::new(0));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (budget, granted) = (budget.clone(), granted.clone());
                spawn(move || {
                    granted.fetch_add(budget.spend(RetryReason::Reset, now).into(), SeqCst);
                })
            })
            .collect();
        join(threads);
        assert!(granted.load(SeqCst) <= 1, "one was left");
    });
}

/// Wakes a thread of the model. Its count is the standard library's, because `Notify` clones wakers while it holds a lock that
/// `loom` does not know.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let (mut future, waker) = (pin!(future), Waker::from(std::sync::Arc::new(Unpark(current()))));
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return done;
        }
        park();
    }
}

/// What a request does that waits where it must.
fn send(limit: &std::sync::Arc<UpstreamLimit>) -> bool {
    if !limit.has_queue()
        && let Some(permit) = limit.acquire(|| Priority::Normal)
    {
        drop(permit);
        return true;
    }
    let Some(place) = limit.queue() else { return false };
    block_on(async {
        loop {
            let mut freed = pin!(place.freed());
            freed.as_mut().enable();
            match limit.acquire(|| Priority::Normal) {
                Some(permit) => return drop(permit),
                None => freed.await,
            }
        }
    });
    true
}

/// A request that waits is woken once there is room: none waits for ever beside a free upstream.
pub fn requests_that_wait_are_woken() {
    explore(|| {
        let limit = one_at_a_time();
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let limit = limit.clone();
                spawn(move || {
                    send(&limit);
                })
            })
            .collect();
        join(threads);
    });
}

/// A permit that is given back, because there is no target, keeps no request waiting.
pub fn permits_that_are_given_back_keep_none_waiting() {
    explore(|| {
        let limit = one_at_a_time();
        let other = limit.clone();
        let without_target = spawn(move || {
            if let Some(permit) = other.acquire(|| Priority::Normal) {
                permit.give_back();
            }
        });
        assert!(send(&limit), "there is a place to wait in");
        join([without_target]);
    });
}

fn one_at_a_time() -> std::sync::Arc<UpstreamLimit> {
    let tags = ["weir-max-requests:1", "weir-max-waiting:1"].map(str::to_owned);
    UpstreamLimits::default().of("u", LimitPolicy::of(&Some(tags.into())).unwrap())
}

/// No more requests are in flight than the limit allows.
pub fn no_more_requests_are_in_flight_than_allowed() {
    explore(|| {
        let limit = one_at_a_time();
        let in_flight = Arc::new(AtomicUsize::new(0));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (limit, in_flight) = (limit.clone(), in_flight.clone());
                spawn(move || {
                    if let Some(permit) = limit.acquire(|| Priority::Normal) {
                        assert_eq!(in_flight.fetch_add(1, SeqCst), 0, "another is in flight");
                        in_flight.fetch_sub(1, SeqCst);
                        drop(permit);
                    }
                })
            })
            .collect();
        join(threads);
        assert!(limit.acquire(|| Priority::Normal).is_some(), "nothing is left in flight");
    });
}

/// What is read of a ring is what was written, in order and whole; the rest was counted as dropped.
pub fn records_are_whole_and_in_order() {
    explore(|| {
        let (producer, mut consumer) = ring(2);
        let writer = spawn(move || (1..=3).for_each(|number| producer.push(&Record(number))));
        let (mut read, mut last) = (0, 0);
        let mut drain = || {
            consumer.drain(|packed| {
                assert_eq!(packed.0, [packed.0[0]; 4], "a record is whole");
                assert!(packed.0[0] > last, "records are in order");
                last = packed.0[0];
                read += 1;
                true
            });
        };
        drain();
        yield_now();
        writer.join().unwrap();
        drain();
        assert!(consumer.is_finished(), "the writer is gone");
        assert_eq!(read + consumer.dropped(), 3, "each is read or counted as dropped");
    });
}

/// A worker never frees a version that it replaces: the thread that publishes does.
pub fn workers_free_no_version() {
    explore(|| {
        let first = Arc::new(1);
        let versions = Versions::new(first.clone());
        let (sender, receiver) = mpsc::channel::<(Arc<i32>, mpsc::Sender<()>)>();
        let worker = spawn(move || {
            let mut serving = first;
            for _ in 2..=3 {
                let (version, done) = receiver.recv().unwrap();
                let replaced = std::mem::replace(&mut serving, version);
                let _ = done.send(());
                // Its last request ends now.
                assert!(Arc::strong_count(&replaced) > 1, "the replaced version has another owner");
                drop(replaced);
            }
        });
        for number in 2..=3 {
            let (done, has_it) = mpsc::channel();
            let version = Arc::new(number);
            sender.send((version.clone(), done)).unwrap();
            has_it.recv().unwrap();
            drop(versions.replace(version));
            assert_eq!(*versions.active(), number);
        }
        worker.join().unwrap();
    });
}
