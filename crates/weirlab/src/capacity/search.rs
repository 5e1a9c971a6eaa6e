//! The search for the highest rate that holds a service level. Pure: what a rate does is asked of a closure.
use crate::duration;
use crate::result::Latencies;
use std::fmt;
use std::time::Duration;

/// Shares of the capacity at which the curve below it is measured.
pub const CURVE: [f64; 4] = [0.25, 0.5, 0.75, 0.9];

/// A void probe is asked again so often.
const RETRIES: usize = 1;
/// After this many void probes in a row the machine is too noisy to tell.
const MAX_VOID_PROBES: usize = 8;

/// A service level, such as `p99=5ms` or `p99=5ms,errors=0.1%`.
#[derive(Clone, Debug, PartialEq)]
pub struct Slo {
    /// Quantiles of the response time and how long each may be.
    pub latencies: Vec<(f64, Duration)>,
    /// The share of the answers that may fail.
    pub errors: f64,
}

impl Slo {
    /// Reads a service level.
    ///
    /// # Errors
    /// Says what is not understood, and what would be.
    pub fn parse(text: &str) -> Result<Slo, String> {
        let mut slo = Slo { latencies: Vec::new(), errors: 0.0 };
        for part in text.split(',') {
            let wrong =
                || format!("{part}: a service level is written like p99=5ms, p99.9=20ms or errors=0.1%");
            let (name, bound) = part.trim().split_once('=').ok_or_else(wrong)?;
            match name.strip_prefix('p') {
                Some(percent) => {
                    let quantile =
                        number(percent).filter(|percent| (0.0..100.0).contains(percent)).ok_or_else(wrong)?;
                    let bound =
                        duration::parse(bound).ok().filter(|bound| !bound.is_zero()).ok_or_else(wrong)?;
                    slo.latencies.push((quantile / 100.0, bound));
                }
                None if name == "errors" => {
                    let percent = bound.strip_suffix('%').and_then(number).ok_or_else(wrong)?;
                    slo.errors = percent / 100.0;
                }
                None => return Err(wrong()),
            }
        }
        Ok(slo)
    }

    /// Whether a load held it: `good` of the answers were right, `errors` requests failed. None where too few answers
    /// say anything about a quantile.
    pub fn holds(&self, latencies: &Latencies, good: u64, errors: u64) -> Option<bool> {
        let all = good + errors;
        if all == 0 || errors as f64 > self.errors * all as f64 {
            return Some(false);
        }
        let mut holds = true;
        for (quantile, bound) in &self.latencies {
            holds &= latencies.response.quantile(*quantile)? <= *bound;
        }
        Some(holds)
    }
}

fn number(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0)
}

impl fmt::Display for Slo {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share: f64| (share * 1e5).round() / 1e3;
        let mut parts: Vec<String> = self
            .latencies
            .iter()
            .map(|(quantile, bound)| format!("p{}={bound:?}", percent(*quantile)))
            .collect();
        if self.errors > 0.0 || parts.is_empty() {
            parts.push(format!("errors={}%", percent(self.errors)));
        }
        formatter.write_str(&parts.join(","))
    }
}

/// What a rate does to the service level.
#[derive(Clone, Debug, PartialEq)]
pub enum Probe {
    /// It holds it.
    Holds,
    /// It does not, or less than the rate was answered.
    Fails,
    /// The generator could not offer it, or the machine was disturbed.
    Void(String),
}

impl fmt::Display for Probe {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Probe::Holds => formatter.write_str("holds"),
            Probe::Fails => formatter.write_str("fails"),
            Probe::Void(why) => write!(formatter, "void: {why}"),
        }
    }
}

/// How to search.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    /// The first rate to try.
    pub start: f64,
    /// How close to the capacity the answer must be: 0.03 for 3 %.
    pub tolerance: f64,
    /// The most probes in all.
    pub max_probes: usize,
}

/// What was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The highest rate that holds; 0 if none does.
    pub rate: f64,
    /// The lowest rate above it that is known not to hold; none if none was reached.
    pub fails_at: Option<f64>,
    /// Whether the rate held in at least two of three probes.
    pub confirmed: bool,
    /// What kept the search from going higher, if not the target.
    pub limited_by: Option<String>,
}

impl Search {
    /// Doubles the rate until it fails, halves the interval until it is as narrow as wanted, and confirms the rate that
    /// remains by two of three; a rate that is not confirmed counts as failing, and the search goes on below it.
    ///
    /// # Errors
    /// Those of the probes.
    pub fn run<E>(&self, probe: impl FnMut(f64) -> Result<Probe, E>) -> Result<Found, E> {
        let mut state =
            State { search: *self, probe, probes: 0, void: 0, holds: 0.0, fails: None, limited_by: None };
        state.bracket()?;
        loop {
            state.narrow()?;
            if state.holds == 0.0 || state.exhausted() {
                return Ok(state.found(false));
            }
            if state.confirm()? {
                return Ok(state.found(true));
            }
            state.search_lower()?;
        }
    }
}

struct State<P> {
    search: Search,
    probe: P,
    probes: usize,
    /// In a row, up to now.
    void: usize,
    holds: f64,
    fails: Option<f64>,
    limited_by: Option<String>,
}

impl<E, P: FnMut(f64) -> Result<Probe, E>> State<P> {
    fn exhausted(&self) -> bool {
        self.probes >= self.search.max_probes || self.void >= MAX_VOID_PROBES
    }

    /// Whether a rate holds. What stays void stands as a bound of the search, though not of the target.
    fn ask(&mut self, rate: f64) -> Result<bool, E> {
        let mut void = None;
        for _ in 0..=RETRIES {
            self.probes += 1;
            let outcome = (self.probe)(rate)?;
            self.void = if matches!(outcome, Probe::Void(_)) { self.void + 1 } else { 0 };
            match outcome {
                Probe::Holds => return Ok(true),
                Probe::Fails => {
                    // A target that fails below is what limits, whatever the generator can do.
                    self.limited_by = None;
                    return Ok(false);
                }
                Probe::Void(why) => void = Some(why),
            }
        }
        self.limited_by = void;
        Ok(false)
    }

    /// Finds a rate that holds and one that does not.
    fn bracket(&mut self) -> Result<(), E> {
        let mut rate = self.search.start;
        while !self.exhausted() {
            let holds = self.ask(rate)?;
            if holds {
                self.holds = rate;
                if self.fails.is_some() {
                    return Ok(());
                }
                rate *= 2.0;
            } else {
                self.fails = Some(rate);
                if self.holds > 0.0 || rate < 1.0 {
                    return Ok(());
                }
                rate /= 2.0;
            }
        }
        Ok(())
    }

    /// Halves the interval, by factors.
    fn narrow(&mut self) -> Result<(), E> {
        while let Some(fails) = self.fails {
            if self.holds == 0.0 || self.exhausted() || fails <= self.holds * (1.0 + self.search.tolerance) {
                break;
            }
            let middle = (self.holds * fails).sqrt();
            if self.ask(middle)? {
                self.holds = middle;
            } else {
                self.fails = Some(middle);
            }
        }
        Ok(())
    }

    /// Asks again: with the probe that found it, two of three must hold.
    fn confirm(&mut self) -> Result<bool, E> {
        Ok(self.ask(self.holds)? || self.ask(self.holds)?)
    }

    /// What held once by luck does not hold: looks for a rate below that does.
    fn search_lower(&mut self) -> Result<(), E> {
        self.fails = Some(self.holds);
        let mut step = self.search.tolerance;
        let mut rate = self.holds;
        self.holds = 0.0;
        while self.holds == 0.0 && rate >= 1.0 && !self.exhausted() {
            rate /= 1.0 + step;
            step *= 2.0;
            if self.ask(rate)? {
                self.holds = rate;
            } else {
                self.fails = Some(rate);
            }
        }
        Ok(())
    }

    fn found(self, confirmed: bool) -> Found {
        let ended = || self.fails.is_none().then(|| format!("the search ended after {} probes", self.probes));
        let limited_by = self.limited_by.clone().or_else(ended);
        Found { rate: self.holds, fails_at: self.fails, confirmed, limited_by }
    }
}
