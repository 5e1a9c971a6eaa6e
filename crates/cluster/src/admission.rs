//! How many data planes a control plane admits at once when all of them come back, after it was restarted.
use std::time::{Duration, Instant};

/// A token bucket. A data plane that it turns away learns when to come back, and no two learn the same moment, so that they
/// do not all come back at once again.
#[derive(Debug)]
pub(crate) struct Admission {
    /// Between two data planes.
    interval: Duration,
    burst: u32,
    /// When the bucket is full again.
    full_at: Instant,
    /// The moment that was given last to a data plane that was turned away.
    promised: Instant,
}

impl Admission {
    /// Admits `burst` data planes at once, and `rate` in each second after that.
    pub(crate) fn new(rate: u32, burst: u32, now: Instant) -> Admission {
        let interval = Duration::from_secs(1) / rate.max(1);
        Admission { interval, burst: burst.max(1), full_at: now, promised: now }
    }

    /// Admits a data plane.
    ///
    /// # Errors
    /// There are too many: it may come back after this time.
    pub(crate) fn admit(&mut self, now: Instant) -> Result<(), Duration> {
        let full_at = self.full_at.max(now) + self.interval;
        if full_at.duration_since(now) <= self.interval * self.burst {
            self.full_at = full_at;
            return Ok(());
        }
        self.promised = self.promised.max(now) + self.interval;
        Err(self.promised.duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    #[test]
    fn a_burst_is_admitted_and_then_the_rate() {
        let start = Instant::now();
        let mut admission = Admission::new(10, 3, start);
        let admitted = |admission: &mut Admission, at: u64, count: usize| {
            let now = start + Duration::from_millis(at);
            (0..count).filter(|_| admission.admit(now).is_ok()).count()
        };
        assert_eq!(admitted(&mut admission, 0, 5), 3);
        assert_eq!(admitted(&mut admission, 100, 5), 1);
        assert_eq!(admitted(&mut admission, 150, 5), 0);
        assert_eq!(admitted(&mut admission, 10_000, 5), 3);
    }

    /// A thousand data planes come at once, and again after the whole seconds of `Retry-After` and a jitter.
    #[test]
    fn a_thousand_data_planes_are_back_within_fifteen_seconds() {
        let start = Instant::now();
        let (mut admission, mut random) = (Admission::new(100, 100, start), fastrand::Rng::with_seed(1));
        let mut arrivals: BinaryHeap<_> = (0..1000).map(|_| Reverse(Duration::ZERO)).collect();
        let (mut last, mut attempts) = (Duration::ZERO, 0);
        while let Some(Reverse(at)) = arrivals.pop() {
            attempts += 1;
            match admission.admit(start + at) {
                Ok(()) => last = at,
                Err(after) => {
                    let seconds = after.as_secs_f64().ceil() + random.f64();
                    arrivals.push(Reverse(at + Duration::from_secs_f64(seconds)));
                }
            }
        }
        assert!(last <= Duration::from_secs(15), "the last one is back after {last:?}");
        assert!(attempts <= 4_000, "{attempts} attempts");
    }
}
