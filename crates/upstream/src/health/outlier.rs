//! Outlier ejection: a target that fails, or is slow, while others are not gets no requests for a while. Slow start: one that is
//! available again gets its share of requests little by little.
//!
//! This is beside Kong's health checks, which go by thresholds alone: a target is ejected only if enough others are left, and comes
//! back by itself.

use super::checks::Outcome;
use crate::balance::latency::{Latency, since_beginning};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use weir_model::tags::{self, number_of};

/// The length of the window in which shares of errors are counted.
const WINDOW: Duration = Duration::from_secs(10);
/// How many requests a window needs for its share of errors to say anything.
const MIN_REQUESTS: u64 = 20;
/// How often latencies are compared, and how many times in a row a target must be slow.
const COMPARED: Duration = Duration::from_secs(1);
const MIN_SLOW: u32 = 3;
/// Faster targets are not slow, whatever the others are.
const MIN_LATENCY: f64 = 1e-3;
/// What a target is ejected for at most, in multiples of the first time.
const MAX_TIMES: u32 = 10;
/// The least share of its requests that a target gets in slow start.
const MIN_SHARE: f64 = 0.1;

/// When targets of an upstream are ejected, as its tags say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutlierPolicy {
    errors: Option<u32>,
    error_share: Option<u32>,
    /// How many times as slow as the others a target may be.
    pub latency: Option<u32>,
    max_share: usize,
    time: Duration,
}

impl OutlierPolicy {
    /// What these tags say, if they say anything.
    pub fn of(tags: &Option<Vec<String>>) -> Option<OutlierPolicy> {
        let [errors, error_share, latency] =
            [tags::EJECT_ERRORS, tags::EJECT_ERROR_SHARE, tags::EJECT_LATENCY]
                .map(|name| number_of(tags, name));
        let is_any = errors.is_some() || error_share.is_some() || latency.is_some();
        is_any.then(|| OutlierPolicy {
            errors,
            error_share,
            latency,
            max_share: number_of(tags, tags::EJECT_MAX_SHARE).unwrap_or(50) as usize,
            time: Duration::from_secs(number_of(tags, tags::EJECT_TIME).unwrap_or(30).into()),
        })
    }
}

/// How long slow start takes, as tags say.
pub(super) fn slow_start(tags: &Option<Vec<String>>) -> Option<Duration> {
    number_of(tags, tags::SLOW_START).map(|seconds| Duration::from_secs(seconds.into()))
}

/// What a target was ejected for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EjectionReason {
    Errors,
    ErrorShare,
    Latency,
}

impl EjectionReason {
    pub(super) const ALL: [EjectionReason; 3] = [Self::Errors, Self::ErrorShare, Self::Latency];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Errors => "errors",
            Self::ErrorShare => "error_share",
            Self::Latency => "latency",
        }
    }
}

/// What is known of one target. Times are microseconds since the beginning; 0 is never.
#[derive(Default)]
pub(super) struct OutlierState {
    errors_in_a_row: AtomicU32,
    window: ErrorWindow,
    compared: AtomicU64,
    slow_in_a_row: AtomicU32,
    ejected_until: AtomicU64,
    ejections_in_a_row: AtomicU32,
    /// When it became healthy again.
    returned: AtomicU64,
    ejections: [AtomicU64; EjectionReason::ALL.len()],
}

impl OutlierState {
    /// Whether it is ejected at this moment.
    pub(super) fn is_ejected(&self, now: u64) -> bool {
        self.ejected_until.load(Relaxed) > now
    }

    /// It is healthy again.
    pub(super) fn returned(&self, now: Instant) {
        self.returned.store(since_beginning(now), Relaxed);
    }

    /// The share of its requests that it gets, if slow start takes so long.
    pub(super) fn share(&self, slow_start: Duration, now: u64) -> f64 {
        let since = self.ejected_until.load(Relaxed).max(self.returned.load(Relaxed));
        if since == 0 {
            return 1.0;
        }
        (now.saturating_sub(since) as f64 / slow_start.as_micros() as f64).clamp(MIN_SHARE, 1.0)
    }

    /// How often it was ejected, by what it did.
    pub(super) fn counts(&self) -> [(&'static str, u64); EjectionReason::ALL.len()] {
        EjectionReason::ALL.map(|reason| (reason.as_str(), self.ejections[reason as usize].load(Relaxed)))
    }

    /// Ejects it, for longer if it was ejected not long ago; returns for how long.
    fn eject(&self, reason: EjectionReason, time: Duration, now: u64) -> Duration {
        let long_ago = self.ejected_until.load(Relaxed).saturating_add((time * MAX_TIMES).as_micros() as u64);
        let is_again = self.ejections_in_a_row.load(Relaxed) > 0 && now < long_ago;
        let times = if is_again { self.ejections_in_a_row.load(Relaxed).saturating_add(1) } else { 1 };
        let time = time * times.min(MAX_TIMES);
        self.ejections_in_a_row.store(times, Relaxed);
        self.ejected_until.store(now + time.as_micros() as u64, Relaxed);
        self.errors_in_a_row.store(0, Relaxed);
        self.slow_in_a_row.store(0, Relaxed);
        self.ejections[reason as usize].fetch_add(1, Relaxed);
        time
    }
}

/// Requests and errors of the current window, with its number, in one word: 24, 20 and 20 bits.
#[derive(Default)]
struct ErrorWindow(AtomicU64);

const COUNT: u64 = (1 << 20) - 1;

impl ErrorWindow {
    /// Counts a request; returns the requests and errors of its window.
    fn count(&self, is_error: bool, now: u64) -> (u64, u64) {
        let number = (now / WINDOW.as_micros() as u64) & 0xff_ffff;
        let next = |word: u64| {
            let (requests, errors) = match word >> 40 == number {
                true => ((word >> 20) & COUNT, word & COUNT),
                false => (0, 0),
            };
            // Once full, it counts no more: the share is well known.
            let is_full = requests == COUNT;
            let (requests, errors) =
                if is_full { (requests, errors) } else { (requests + 1, errors + u64::from(is_error)) };
            (requests, errors, (number << 40) | (requests << 20) | errors)
        };
        let mut counted = (0, 0);
        let _ = self.0.fetch_update(Relaxed, Relaxed, |word| {
            let (requests, errors, word) = next(word);
            counted = (requests, errors);
            Some(word)
        });
        counted
    }
}

/// One target, as its upstream compares it with others.
pub(super) struct Candidate<'t> {
    pub(super) target: &'t str,
    pub(super) outlier: &'t OutlierState,
    pub(super) latency: &'t Latency,
}

/// Ejects targets of one upstream.
pub(super) struct Ejector<S> {
    upstream: Box<str>,
    policy: OutlierPolicy,
    targets: Group<S>,
}

/// The targets that an upstream has now. All that eject targets of the upstream share it, whatever service and configuration they
/// belong to. Locked while one is ejected, and never waited for.
pub(super) type Group<S> = Arc<Mutex<Vec<Arc<S>>>>;

/// The state of a target that can be ejected.
pub(super) trait Ejectable {
    /// Whether it gets requests, so that it is one of those that the share to eject is of.
    fn is_in_use(&self) -> bool;
    fn outlier(&self) -> &OutlierState;
    fn latency(&self) -> &Latency;
}

impl<S: Ejectable> Ejector<S> {
    pub(super) fn new(upstream: &str, policy: OutlierPolicy, targets: Group<S>) -> Self {
        Ejector { upstream: upstream.into(), policy, targets }
    }

    /// Takes the outcome of a request.
    pub(super) fn record(&self, candidate: &Candidate<'_>, outcome: Outcome, now: u64) {
        let is_error = match outcome {
            Outcome::Status(status) => status == 0 || status >= 500,
            Outcome::Connected => false,
            Outcome::TcpFailure | Outcome::Timeout => true,
        };
        if let Some(reason) = self.judge(candidate, is_error, now) {
            self.eject(candidate, reason, now);
        }
    }

    fn judge(&self, candidate: &Candidate<'_>, is_error: bool, now: u64) -> Option<EjectionReason> {
        let outlier = candidate.outlier;
        if let Some(most) = self.policy.errors {
            if is_error {
                if outlier.errors_in_a_row.fetch_add(1, Relaxed) + 1 >= most {
                    return Some(EjectionReason::Errors);
                }
            } else if outlier.errors_in_a_row.load(Relaxed) > 0 {
                outlier.errors_in_a_row.store(0, Relaxed);
            }
        }
        if let Some(most) = self.policy.error_share {
            let (requests, errors) = outlier.window.count(is_error, now);
            if is_error && requests >= MIN_REQUESTS && errors * 100 >= requests * u64::from(most) {
                return Some(EjectionReason::ErrorShare);
            }
        }
        self.policy
            .latency
            .filter(|times| self.is_slow(candidate, *times, now))
            .map(|_| EjectionReason::Latency)
    }

    /// Whether it took much longer than the others several times in a row. Compares once a second.
    fn is_slow(&self, candidate: &Candidate<'_>, times: u32, now: u64) -> bool {
        let (outlier, last) = (candidate.outlier, candidate.outlier.compared.load(Relaxed));
        let is_due = now >= last.saturating_add(COMPARED.as_micros() as u64);
        if !is_due || outlier.compared.compare_exchange(last, now, Relaxed, Relaxed).is_err() {
            return false;
        }
        let (Some(own), Some(others)) =
            (candidate.latency.recent(now), self.median_of_others(candidate, now))
        else {
            return false;
        };
        if own <= MIN_LATENCY || own <= others * f64::from(times) {
            outlier.slow_in_a_row.store(0, Relaxed);
            return false;
        }
        outlier.slow_in_a_row.fetch_add(1, Relaxed) + 1 >= MIN_SLOW
    }

    /// The median latency of the other targets that get requests.
    fn median_of_others(&self, candidate: &Candidate<'_>, now: u64) -> Option<f64> {
        let targets = self.targets.try_lock().ok()?;
        let others = targets.iter().filter(|other| !std::ptr::eq(other.outlier(), candidate.outlier));
        let mut latencies: Vec<f64> = others.filter_map(|other| other.latency().recent(now)).collect();
        latencies.sort_by(f64::total_cmp);
        latencies.get(latencies.len() / 2).copied()
    }

    /// Ejects the target, unless too many are ejected already.
    fn eject(&self, candidate: &Candidate<'_>, reason: EjectionReason, now: u64) {
        // Without the lock, the next failure decides.
        let Ok(targets) = self.targets.try_lock() else { return };
        if !targets.iter().any(|target| std::ptr::eq(target.outlier(), candidate.outlier)) {
            // A request of an earlier configuration, to a target that is no more.
            return;
        }
        let in_use = || targets.iter().filter(|target| target.is_in_use());
        let (count, ejected) =
            (in_use().count(), in_use().filter(|target| target.outlier().is_ejected(now)).count());
        let most = (count * self.policy.max_share / 100).max(1).min(count.saturating_sub(1));
        if candidate.outlier.is_ejected(now) || ejected >= most {
            return;
        }
        let time = candidate.outlier.eject(reason, self.policy.time, now);
        tracing::warn!(
            upstream = &*self.upstream,
            target = candidate.target,
            seconds = time.as_secs(),
            "the target is ejected and gets no requests for a while: {}",
            match reason {
                EjectionReason::Errors => "too many errors in a row",
                EjectionReason::ErrorShare => "too large a share of errors",
                EjectionReason::Latency => "it is much slower than the others",
            }
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::atomic::AtomicBool;

    /// The last says that it has no weight.
    #[derive(Default)]
    struct Target(OutlierState, Latency, AtomicBool);

    impl Ejectable for Target {
        fn is_in_use(&self) -> bool {
            !self.2.load(Relaxed)
        }

        fn outlier(&self) -> &OutlierState {
            &self.0
        }

        fn latency(&self) -> &Latency {
            &self.1
        }
    }

    /// An upstream of so many targets, under a clock in seconds.
    struct Upstream {
        ejector: Ejector<Target>,
        targets: Vec<Arc<Target>>,
    }

    impl Upstream {
        fn new(tags: &[&str], count: usize) -> Upstream {
            let tags = Some(tags.iter().map(|tag| (*tag).to_owned()).collect());
            let targets: Vec<_> = (0..count).map(|_| Arc::<Target>::default()).collect();
            let group = Arc::new(Mutex::new(targets.clone()));
            let ejector = Ejector::new("some", OutlierPolicy::of(&tags).unwrap(), group);
            Upstream { ejector, targets }
        }

        fn record(&self, target: usize, status: u16, second: f64) {
            let state = &self.targets[target];
            let candidate = Candidate { target: "a:80", outlier: &state.0, latency: &state.1 };
            self.ejector.record(&candidate, Outcome::Status(status), micros(second));
        }

        fn ejected(&self, second: f64) -> Vec<usize> {
            let is_ejected = |target: &usize| self.targets[*target].0.is_ejected(micros(second));
            (0..self.targets.len()).filter(is_ejected).collect()
        }
    }

    const NONE: [usize; 0] = [];

    fn micros(second: f64) -> u64 {
        (second * 1e6) as u64
    }

    #[test]
    fn errors_in_a_row_eject_and_each_time_for_longer() {
        let upstream = Upstream::new(&["weir-eject-errors:3", "weir-eject-time:10"], 2);
        [500, 502, 200, 500, 500].iter().for_each(|status| upstream.record(0, *status, 1.0));
        assert_eq!(upstream.ejected(1.0), NONE);
        upstream.record(0, 503, 1.0);
        assert_eq!((upstream.ejected(10.9), upstream.ejected(11.1)), (vec![0], Vec::new()));
        (0..3).for_each(|_| upstream.record(0, 500, 12.0));
        assert_eq!((upstream.ejected(31.9), upstream.ejected(32.1)), (vec![0], Vec::new()));
        (0..3).for_each(|_| upstream.record(0, 500, 500.0));
        assert_eq!((upstream.ejected(509.0), upstream.ejected(511.0)), (vec![0], Vec::new()), "long ago");
        assert_eq!(upstream.targets[0].0.counts()[0], ("errors", 3));
    }

    #[test]
    fn a_share_of_errors_ejects_once_there_are_enough_requests() {
        let upstream = Upstream::new(&["weir-eject-error-share:50"], 2);
        (0..9).for_each(|_| upstream.record(0, 500, 1.0));
        (0..9).for_each(|_| upstream.record(0, 200, 1.0));
        assert_eq!(upstream.ejected(1.0), NONE);
        (0..2).for_each(|_| upstream.record(0, 500, 1.0));
        assert_eq!(upstream.ejected(1.0), [0]);
        (0..19).for_each(|_| upstream.record(1, 500, 9.0));
        upstream.record(1, 500, 10.5);
        assert_eq!(upstream.ejected(10.5), [0], "of another window");
    }

    #[test]
    fn a_target_that_is_slow_for_a_while_is_ejected() {
        let upstream = Upstream::new(&["weir-eject-latency:3"], 3);
        let answers = |second: f64, millis: [u64; 3]| {
            for (target, millis) in millis.into_iter().enumerate() {
                upstream.targets[target].1.add_at(Duration::from_millis(millis), micros(second));
                upstream.record(target, 200, second);
            }
        };
        (1..6).for_each(|second| answers(f64::from(second), [10, 12, 25]));
        assert_eq!(upstream.ejected(6.0), NONE);
        (6..30).for_each(|second| answers(f64::from(second), [10, 12, 200]));
        assert_eq!(upstream.ejected(29.0), [2]);
    }

    #[test]
    fn targets_without_weight_are_none_to_fall_back_to() {
        let upstream = Upstream::new(&["weir-eject-errors:1", "weir-eject-max-share:50"], 8);
        upstream.targets[4..].iter().for_each(|target| target.2.store(true, Relaxed));
        (0..4).for_each(|target| upstream.record(target, 500, 1.0));
        assert_eq!(upstream.ejected(1.0), [0, 1]);
    }

    #[test]
    fn slow_start_ends() {
        let state = OutlierState::default();
        let share = |second: f64| state.share(Duration::from_secs(10), micros(second));
        assert_eq!(share(3.0), 1.0);
        state.eject(EjectionReason::Errors, Duration::from_secs(10), micros(10.0));
        assert_eq!([20.0, 25.0, 30.0, 99.0].map(share), [0.1, 0.5, 1.0, 1.0]);
    }

    proptest! {
        #[test]
        fn enough_targets_are_always_left(
            count in 1usize..20, share in 1u32..=100, failures in prop::collection::vec((0usize..20, 0u32..100), 0..400),
        ) {
            let upstream = Upstream::new(&["weir-eject-errors:1", &format!("weir-eject-max-share:{share}")], count);
            let most = (count * share as usize / 100).max(1).min(count - 1);
            let mut now = 0.0;
            for (target, seconds) in failures {
                now += f64::from(seconds);
                upstream.record(target % count, 500, now);
                prop_assert!(upstream.ejected(now).len() <= most);
            }
        }

        #[test]
        fn windows_count_what_comes(outcomes in prop::collection::vec(any::<bool>(), 1..300)) {
            let window = ErrorWindow::default();
            let counted = outcomes.iter().map(|is_error| window.count(*is_error, 7)).last();
            let errors = outcomes.iter().filter(|is_error| **is_error).count() as u64;
            prop_assert_eq!(counted, Some((outcomes.len() as u64, errors)));
            prop_assert_eq!(window.count(false, micros(10.1)), (1, 0));
        }
    }
}
