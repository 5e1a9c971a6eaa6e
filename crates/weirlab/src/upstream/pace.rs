//! When answers are held back: delays of single answers, and stalls of everything.
use crate::duration;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::str::FromStr;
use std::time::{Duration, Instant};

/// How long each answer is held back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Delay {
    /// All alike.
    Constant(Duration),
    /// Exponentially distributed, of this mean.
    Exponential(Duration),
    /// Anything between the two alike.
    Uniform(Duration, Duration),
}

impl Delay {
    /// The next answer's.
    pub fn draw(self, random: &mut fastrand::Rng) -> Duration {
        match self {
            Self::Constant(delay) => delay,
            Self::Exponential(mean) => mean.mul_f64(-(1.0 - random.f64()).ln()),
            Self::Uniform(from, to) => from + (to - from).mul_f64(random.f64()),
        }
    }
}

impl FromStr for Delay {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(mean) = text.strip_prefix("exp:") {
            return Ok(Self::Exponential(duration::parse(mean)?));
        }
        let Some(range) = text.strip_prefix("uniform:") else {
            return Ok(Self::Constant(duration::parse(text)?));
        };
        let (from, to) = range.split_once("..").ok_or("write `uniform:1ms..9ms`")?;
        let (from, to) = (duration::parse(from)?, duration::parse(to)?);
        if from > to { Err(format!("`{text}` ends before it begins")) } else { Ok(Self::Uniform(from, to)) }
    }
}

/// Requests in line for so many workers, each of which works on one answer at a time.
#[derive(Debug)]
pub(super) struct Line {
    /// When each worker that has work is done with all that is assigned to it.
    busy_until: BinaryHeap<Reverse<Instant>>,
    workers: usize,
}

impl Line {
    pub(super) fn new(workers: usize) -> Self {
        Self { busy_until: BinaryHeap::new(), workers }
    }

    /// Lets a request enter whose answer takes so long, and returns how long that is with its time in the line.
    pub(super) fn enter(&mut self, now: Instant, takes: Duration) -> Duration {
        let first_free = if self.busy_until.len() < self.workers { None } else { self.busy_until.pop() };
        let begin = first_free.map_or(now, |Reverse(free)| free.max(now));
        self.busy_until.push(Reverse(begin + takes));
        begin + takes - now
    }
}

/// All connections freeze for `length`, each time `period` has passed since the start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stall {
    /// From the beginning of one stall to that of the next.
    pub period: Duration,
    /// How long one lasts; less than the period.
    pub length: Duration,
}

impl Stall {
    /// The rest of the stall at this time after the start, if there is one.
    pub fn left(self, elapsed: Duration) -> Option<Duration> {
        let nanos = elapsed.as_nanos() % self.period.as_nanos();
        let into = Duration::from_nanos(u64::try_from(nanos).ok()?);
        if elapsed < self.period {
            None
        } else {
            self.length.checked_sub(into).filter(|left| !left.is_zero())
        }
    }
}

impl FromStr for Stall {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.strip_prefix("every ").and_then(|rest| rest.split_once(" for "));
        let (period, length) = parts.ok_or("write `every 10s for 300ms`")?;
        let (period, length) = (duration::parse(period)?, duration::parse(length)?);
        if length >= period {
            return Err(format!("`{text}` would never end: let it last less than its period"));
        }
        Ok(Self { period, length })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn delays_are_read_and_drawn_as_written() {
        assert_eq!("5ms".parse(), Ok(Delay::Constant(ms(5))));
        assert_eq!("1.5s".parse(), Ok(Delay::Constant(ms(1500))));
        assert_eq!("exp:300us".parse(), Ok(Delay::Exponential(Duration::from_micros(300))));
        assert_eq!("uniform:1ms..9ms".parse(), Ok(Delay::Uniform(ms(1), ms(9))));
        for wrong in ["", "5", "5 ms", "-5ms", "uniform:9ms..1ms", "uniform:9ms", "exp:", "1e400s"] {
            assert!(wrong.parse::<Delay>().is_err(), "{wrong}");
        }
        let mut random = fastrand::Rng::with_seed(1);
        let mut mean =
            |delay: Delay| (0..20_000).map(|_| delay.draw(&mut random).as_secs_f64()).sum::<f64>() / 20.0;
        assert!((4.9..5.1).contains(&mean(Delay::Exponential(ms(5)))));
        assert!((4.9..5.1).contains(&mean(Delay::Uniform(ms(1), ms(9)))));
        assert!((4.999..5.001).contains(&mean(Delay::Constant(ms(5)))));
    }

    #[test]
    fn requests_wait_in_line_for_a_worker() {
        let (mut line, start) = (Line::new(2), Instant::now());
        let mut enter = |at: u64, takes: u64| line.enter(start + ms(at), ms(takes));
        let held = [enter(0, 10), enter(0, 20), enter(0, 5), enter(5, 5), enter(100, 7)];
        assert_eq!(held, [ms(10), ms(20), ms(15), ms(15), ms(7)]);
    }

    #[test]
    fn a_stall_begins_with_each_period_but_the_first() {
        let stall: Stall = "every 10s for 300ms".parse().unwrap();
        assert_eq!(stall, Stall { period: ms(10_000), length: ms(300) });
        let left = [0, 299, 9_999, 10_000, 10_100, 10_300, 20_299].map(|at| stall.left(ms(at)));
        assert_eq!(left, [None, None, None, Some(ms(300)), Some(ms(200)), None, Some(ms(1))]);
        for wrong in ["every 1s", "every 1s for 1s", "1s for 3ms", "every 0s for 0s"] {
            assert!(wrong.parse::<Stall>().is_err(), "{wrong}");
        }
    }
}
