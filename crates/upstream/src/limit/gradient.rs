//! The adaptive limit: how many requests in flight an upstream takes before they wait in it.
//!
//! It compares the median latency of each window of time with the latency without a queue, the baseline: while they are about the
//! same, the limit grows; once the latency is more than a quarter above the baseline, requests wait in the upstream, and the
//! limit shrinks in that proportion. The square root of the limit is added as headroom, so that it never stops trying.
//!
//! The baseline is measured: while the limit is not used, by the requests as they are, because nothing waits then; while
//! requests are shed, once a minute and whenever the limit has fallen far below what the upstream took, by holding the limit
//! at half and then at a quarter for a moment. While that makes requests faster, there was a queue, and half of it is tried.
//! Little's law then says how many requests the upstream serves at a time: the most responses a second times the baseline.

use std::time::Duration;

/// The limit at first, before anything is known.
const FIRST_LIMIT: f64 = 64.0;
/// The highest limit.
const MAX_LIMIT: f64 = 100_000.0;
/// How far above the baseline the latency may be.
const TOLERANCE: f64 = 1.25;
/// The same in seconds, because the scheduler alone varies short latencies by more than a quarter.
const SLACK: f64 = 250e-6;
/// The bounds of what one window changes.
const MIN_GRADIENT: f64 = 0.5;
const MAX_GRADIENT: f64 = 1.25;
/// How much faster requests must be at half the limit for the difference to have been a queue. Where all of them wait, they take
/// half of the time.
const IMPROVED: f64 = 0.8;
/// A latency this far below the baseline is no chance.
const MUCH_FASTER: f64 = 0.8;
/// How often the baseline is measured anew.
const PROBE_INTERVAL: Duration = Duration::from_secs(60);
/// What shows that the upstream has become slower: a limit of less than half of so many times the requests that were in flight
/// without a queue. An overload alone takes it to a few more than these.
const SHOWN: f64 = 1.5;
/// How much one window changes the baseline. A baseline that took each fast window as it is would fall by chance alone, to the
/// fastest of them.
const SMOOTHING: f64 = 0.2;
/// How many responses a window needs.
const MIN_SAMPLES: usize = 25;
/// How many are enough for a window whose latency does not count.
const MIN_SAMPLES_TO_SETTLE: usize = 5;

/// What was seen in a window of time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Window {
    /// The median latency, in seconds.
    pub(super) median: f64,
    /// The most requests that were in flight.
    pub(super) most_in_flight: usize,
    /// How many responses came.
    pub(super) responses: usize,
}

/// The limit, and what decides it.
#[derive(Debug)]
pub(super) struct Gradient {
    limit: f64,
    /// The latency without a queue, in seconds; none before the first probe.
    baseline: Option<f64>,
    probe: Option<Probe>,
    /// When the baseline was measured last.
    measured: Duration,
    /// What the upstream took then.
    measured_limit: f64,
    /// When the last window ended.
    end: Duration,
}

/// A measurement of the baseline.
#[derive(Debug, Clone, Copy)]
struct Probe {
    /// The limit before it.
    before: f64,
    /// The limit that is held.
    held: f64,
    /// The latency at twice that; none in the first step, because it was not steady before.
    reference: Option<f64>,
    /// The most responses a second.
    rate: f64,
    steps: u32,
    /// Requests that were admitted before may still be in this window.
    settles: bool,
}

impl Gradient {
    pub(super) fn new() -> Gradient {
        Gradient {
            limit: FIRST_LIMIT,
            baseline: None,
            probe: None,
            measured: Duration::ZERO,
            measured_limit: FIRST_LIMIT,
            end: Duration::ZERO,
        }
    }

    /// The requests that may be in flight.
    pub(super) fn limit(&self) -> usize {
        self.probe.map_or(self.limit, |probe| probe.held) as usize
    }

    /// How many responses the next window needs.
    pub(super) fn min_samples(&self) -> usize {
        if self.probe.is_some_and(|probe| probe.settles) { MIN_SAMPLES_TO_SETTLE } else { MIN_SAMPLES }
    }

    /// Takes a window that ended at `now`, a time since the start.
    pub(super) fn update(&mut self, window: Window, now: Duration) {
        let length = now.saturating_sub(std::mem::replace(&mut self.end, now));
        let rate = window.responses as f64 / length.as_secs_f64().max(f64::MIN_POSITIVE);
        let is_used = window.most_in_flight * 2 > self.limit();
        let is_reached = window.most_in_flight >= self.limit();
        match (self.probe, self.baseline) {
            (Some(probe), _) => self.go_on(probe.with_rate(rate), window, now),
            (None, _) if !is_used => self.learn(window, now),
            (None, Some(baseline)) if !(is_reached && self.is_probe_due(now)) => {
                self.follow(window.median, baseline);
            }
            // Nothing is shed, so there is no reason to find out more.
            (None, None) if !is_reached => {}
            (None, _) => self.probe = Some(Probe::first(self.limit, rate)),
        }
    }

    fn is_probe_due(&self, now: Duration) -> bool {
        now.saturating_sub(self.measured) >= PROBE_INTERVAL || self.limit * 2.0 < self.measured_limit
    }

    /// Nothing waits: the latency is the baseline. The limit stays, because nothing shows that it is too low.
    fn learn(&mut self, Window { median, most_in_flight, .. }: Window, now: Duration) {
        let baseline = self.baseline.map_or(median, |known| known + (median - known) * SMOOTHING);
        self.set_baseline(baseline, most_in_flight as f64 * SHOWN, now);
    }

    fn set_baseline(&mut self, baseline: f64, limit: f64, now: Duration) {
        (self.baseline, self.measured, self.measured_limit) = (Some(baseline), now, limit);
    }

    fn follow(&mut self, median: f64, mut baseline: f64) {
        if median < baseline * MUCH_FASTER {
            // The upstream has become faster: without a queue it is at least as fast as this.
            baseline += (median - baseline) * SMOOTHING;
            self.baseline = Some(baseline);
        }
        let gradient = (baseline * TOLERANCE + SLACK) / median.max(f64::MIN_POSITIVE);
        let gradient = gradient.clamp(MIN_GRADIENT, MAX_GRADIENT);
        self.limit = (self.limit * gradient + self.limit.sqrt()).clamp(1.0, MAX_LIMIT);
    }

    fn go_on(&mut self, probe: Probe, window: Window, now: Duration) {
        if probe.settles {
            self.probe = Some(Probe { settles: false, ..probe });
            return;
        }
        let is_faster = probe.reference.is_none_or(|reference| window.median < reference * IMPROVED);
        if is_faster && probe.held > 1.0 {
            self.probe = Some(probe.next(window.median));
            return;
        }
        self.probe = None;
        // No faster than at twice the limit: there was no queue there either. If the first steps show that, the limit was
        // about right.
        self.limit = if probe.steps <= 2 { probe.before } else { probe.found(window.median) };
        self.set_baseline(window.median, self.limit, now);
    }
}

impl Probe {
    /// Half of a limit.
    fn first(limit: f64, rate: f64) -> Probe {
        Probe { before: limit, held: half(limit), reference: None, rate, steps: 1, settles: true }
    }

    fn with_rate(self, rate: f64) -> Probe {
        Probe { rate: rate.max(self.rate), ..self }
    }

    /// Half of what was held, where the latency was this.
    fn next(self, median: f64) -> Probe {
        let (held, steps) = (half(self.held), self.steps + 1);
        Probe { held, reference: Some(median), steps, settles: true, ..self }
    }

    /// The limit with this baseline: as many requests as are served at a time, and what lets the limit grow.
    fn found(self, baseline: f64) -> f64 {
        let served = self.rate * baseline;
        (served * TOLERANCE + served.sqrt()).max(self.held).min(self.before)
    }
}

fn half(limit: f64) -> f64 {
    (limit / 2.0).floor().max(1.0)
}
