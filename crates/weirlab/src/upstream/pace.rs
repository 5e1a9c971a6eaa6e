//! When answers are held back: delays of single answers, and stalls of everything.
use crate::duration;
use std::collections::VecDeque;
use std::str::FromStr;
use std::time::Duration;

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
pub(super) struct Line<T> {
    idle_workers: usize,
    waiting: VecDeque<(T, Duration)>,
}

impl<T> Line<T> {
    pub(super) fn new(workers: usize) -> Self {
        Self { idle_workers: workers, waiting: VecDeque::new() }
    }

    /// Lets a request enter whose answer takes so long; whether a worker begins with it at once.
    pub(super) fn enter(&mut self, request: T, takes: Duration) -> bool {
        let begins = self.idle_workers > 0;
        if begins {
            self.idle_workers -= 1;
        } else {
            self.waiting.push_back((request, takes));
        }
        begins
    }

    /// A worker is done. It begins with the first request whose client still waits, because what clients have given up
    /// would otherwise delay those who come later.
    pub(super) fn next(&mut self, mut still_waits: impl FnMut(&T) -> bool) -> Option<(T, Duration)> {
        while let Some((request, takes)) = self.waiting.pop_front() {
            if still_waits(&request) {
                return Some((request, takes));
            }
        }
        self.idle_workers += 1;
        None
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
        let mut line = Line::new(2);
        let begins = ["a", "b", "gone", "c"].map(|request| line.enter(request, ms(5)));
        assert_eq!(begins, [true, true, false, false]);
        let mut next = || line.next(|request| *request != "gone").map(|(request, _)| request);
        assert_eq!([next(), next(), next()], [Some("c"), None, None]);
        let begins = ["d", "e", "f"].map(|request| line.enter(request, ms(5)));
        assert_eq!(begins, [true, true, false]);
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
