//! When a sample says nothing about its target.
use super::Outcome;
use crate::result::Histogram;
use std::time::Duration;

/// The share of the median response time that the generator's own lateness (p99) may reach.
const LATENESS: f64 = 0.5;
/// Lateness below this is ignored, because no scheduler does much better where threads share CPUs.
const NO_LATENESS: Duration = Duration::from_micros(250);
/// The share of its CPUs that the generator may use in an open loop.
const CPU: f64 = 0.8;
/// The share of the offered requests that must be answered.
const ACHIEVED: f64 = 0.99;

/// What there is to judge beside an outcome.
pub(crate) struct Evidence {
    /// How many CPUs the generator's threads could use at once.
    pub(crate) cpus: usize,
    /// Requests that were due within the window.
    pub(crate) arrivals: u64,
    /// Of which had no answer at its end.
    pub(crate) outstanding: u64,
}

/// Says whether and why the sample is void. A closed loop adapts to its generator and is never void.
pub(crate) fn judge(outcome: &mut Outcome, evidence: &Evidence) {
    if outcome.offered.is_none() {
        return;
    }
    let (saturated, late) = (saturated(outcome, evidence), late(outcome));
    let missed = missed(outcome, evidence);
    outcome.overloaded = missed.is_some() && saturated.is_none() && late.is_none();
    let reasons: Vec<String> = [saturated, late, missed].into_iter().flatten().collect();
    outcome.void = (!reasons.is_empty()).then(|| reasons.join("; "));
}

fn saturated(outcome: &Outcome, evidence: &Evidence) -> Option<String> {
    let had = outcome.measured.as_secs_f64() * evidence.cpus as f64;
    let share = outcome.generator_cpu.as_secs_f64() / had;
    (share > CPU).then(|| {
        format!(
            "the generator used {:.0} % of its {} CPUs; at most 80 % may be",
            share * 100.0,
            evidence.cpus
        )
    })
}

fn late(outcome: &Outcome) -> Option<String> {
    let p99 = at(&outcome.lateness, 0.99);
    let median = at(&outcome.latencies.response, 0.5);
    let late = p99 > NO_LATENESS && p99.as_secs_f64() > LATENESS * median.as_secs_f64();
    late.then(|| {
        format!(
            "the generator was late: {p99:.0?} at p99, over half of the median response time, {median:.0?}"
        )
    })
}

/// How many requests are in flight varies by chance, by about the root of their number; three times that is allowed
/// for beside the hundredth.
fn missed(outcome: &Outcome, evidence: &Evidence) -> Option<String> {
    let (due, chance) = (evidence.arrivals as f64, 3.0 * (evidence.outstanding as f64).sqrt());
    let achieved = outcome.answers as f64;
    (achieved + chance < ACHIEVED * due).then(|| {
        format!(
            "{:.1} % of the offered requests were answered; at least 99 % must be",
            100.0 * achieved / due
        )
    })
}

/// A quantile of however few samples.
fn at(histogram: &Histogram, q: f64) -> Duration {
    Duration::from_nanos(histogram.inner().value_at_quantile(q))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Latencies;
    use std::collections::BTreeMap;

    const EVIDENCE: Evidence = Evidence { cpus: 2, arrivals: 10_000, outstanding: 4 };

    /// Ten seconds at 1000 per second, answered in 1 ms, with little effort.
    fn fine() -> Outcome {
        let times = |micros: u64| {
            let mut histogram = Histogram::default();
            (0..10_000).for_each(|_| histogram.record(Duration::from_micros(micros)));
            histogram
        };
        Outcome {
            measured: Duration::from_secs(10),
            warm_up: Duration::ZERO,
            steady: Some(true),
            answers: 10_000,
            good: 10_000,
            bytes: 0,
            statuses: BTreeMap::new(),
            errors: BTreeMap::new(),
            latencies: Latencies { response: times(1000), service: times(1000), ..Latencies::default() },
            lateness: times(20),
            connect: Histogram::default(),
            offered: Some(1000.0),
            connections_opened: Some(0),
            generator_cpu: Duration::from_secs(1),
            series: Vec::new(),
            void: None,
            overloaded: false,
        }
    }

    fn judged(outcome: &Outcome, evidence: &Evidence) -> Outcome {
        let mut outcome = outcome.clone();
        judge(&mut outcome, evidence);
        outcome
    }

    #[track_caller]
    fn check(outcome: &Outcome, evidence: &Evidence, why: Option<&str>) {
        let said = judged(outcome, evidence).void;
        assert_eq!(said.is_some(), why.is_some(), "{said:?}");
        assert!(why.is_none_or(|why| said.as_ref().is_some_and(|said| said.contains(why))), "{said:?}");
    }

    #[test]
    fn a_saturated_generator_says_nothing() {
        check(&fine(), &EVIDENCE, None);
        check(&Outcome { generator_cpu: Duration::from_secs(15), ..fine() }, &EVIDENCE, None);
        let busy = Outcome { generator_cpu: Duration::from_secs(17), ..fine() };
        check(&busy, &EVIDENCE, Some("85 % of its 2 CPUs"));
        check(&Outcome { offered: None, ..busy }, &EVIDENCE, None);
    }

    #[test]
    fn a_late_generator_says_nothing() {
        let late = |micros, count| {
            let mut outcome = fine();
            (0..count).for_each(|_| outcome.lateness.record(Duration::from_micros(micros)));
            outcome
        };
        check(&late(600, 50), &EVIDENCE, None);
        check(&late(400, 500), &EVIDENCE, None);
        check(&late(600, 500), &EVIDENCE, Some("late"));
    }

    #[test]
    fn a_rate_that_was_not_achieved_says_nothing() {
        check(&Outcome { answers: 9_901, ..fine() }, &EVIDENCE, None);
        check(&Outcome { answers: 9_700, ..fine() }, &EVIDENCE, Some("97.0 %"));
        // The target is to blame only if the generator kept up.
        let missed = Outcome { answers: 9_700, ..fine() };
        assert!(judged(&missed, &EVIDENCE).overloaded && !judged(&fine(), &EVIDENCE).overloaded);
        let both = Outcome { generator_cpu: Duration::from_secs(17), ..missed };
        check(&both, &EVIDENCE, Some("97.0 %"));
        check(&both, &EVIDENCE, Some("85 %"));
        assert!(!judged(&both, &EVIDENCE).overloaded);
        // Of few requests some are always in flight.
        let few = Evidence { arrivals: 500, outstanding: 10, ..EVIDENCE };
        check(&Outcome { answers: 490, ..fine() }, &few, None);
        check(&Outcome { answers: 480, ..fine() }, &few, Some("96.0 %"));
    }
}
