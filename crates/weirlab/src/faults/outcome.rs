//! What came of a scenario before a gateway: counts, and whether they are what was promised.
use super::client::{Ending, Record};
use super::excuses::Excuses;
use super::journal::Journal;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// The counts of one run.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The scenario.
    pub scenario: String,
    /// The gateway.
    pub target: String,
    /// Requests sent.
    pub sent: usize,
    /// Requests with the response that belongs to them.
    pub right: usize,
    /// Requests with another response that looked whole, and what upstream servers got that no client sent.
    pub wrong: usize,
    /// Requests without a response, or with an error.
    pub lost: usize,
    /// Those of them that the scenario does not excuse.
    pub unexcused: usize,
    /// POST requests that upstream servers read more than once.
    pub duplicated: usize,
    /// Other requests that they read more than once.
    pub repeated: usize,
    /// Requests without any end within the client's patience; they are among the lost.
    pub hung: usize,
    /// Descriptions of what was lost and wrong, with their numbers.
    pub details: BTreeMap<String, usize>,
    /// The longest time that a client waited for the end of a request, in seconds.
    pub longest_wait: f64,
    /// Whether requests were answered again once the fault was over.
    pub recovered: bool,
    /// Writes to the Admin API that were acknowledged, and those of them that were gone afterwards.
    pub writes: Option<Writes>,
    /// Whether requests were counted again in the server of counters once the fault was over, where there is one.
    pub counted: Option<bool>,
    /// Faults of the scenario that nothing has met, each as a sentence: the run shows nothing about them.
    pub inactive: Vec<String>,
}

/// Writes of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Writes {
    /// Acknowledged.
    pub acknowledged: usize,
    /// Refused, or without an answer.
    pub failed: usize,
    /// Acknowledged, of those that began once the fault was over.
    pub afterwards: usize,
    /// Acknowledged and not there afterwards.
    pub lost: usize,
}

impl Outcome {
    /// Counts.
    #[must_use]
    pub(super) fn of(
        names: (&str, &str),
        records: &[Record],
        journal: &Journal,
        excuses: &Excuses,
        recovered: bool,
    ) -> Self {
        let count =
            |wanted: fn(&Ending) -> bool| records.iter().filter(|record| wanted(&record.ending)).count();
        let right = count(|ending| *ending == Ending::Right);
        let unseen = records.iter().filter(|r| r.ending == Ending::Right && !journal.has_seen(r.id)).count();
        let wrong = count(|ending| matches!(ending, Ending::Wrong(_)));
        let mut details = BTreeMap::new();
        for record in records.iter().filter(|record| record.ending != Ending::Right) {
            *details.entry(described(record)).or_default() += 1;
        }
        for bad in journal.bad() {
            *details.entry(format!("upstream got {bad}")).or_default() += 1;
        }
        if unseen > 0 {
            details.insert("answered though no upstream server got it".to_owned(), unseen);
        }
        Self {
            scenario: names.0.to_owned(),
            target: names.1.to_owned(),
            sent: records.len(),
            right: right - unseen,
            wrong: wrong + unseen + journal.bad().len(),
            lost: records.len() - right - wrong,
            unexcused: excuses.unexcused(records, journal),
            duplicated: journal.duplicated(),
            repeated: journal.repeated(),
            hung: count(|ending| *ending == Ending::Hung),
            details,
            longest_wait: records
                .iter()
                .map(|record| record.wait)
                .max()
                .unwrap_or(Duration::ZERO)
                .as_secs_f64(),
            recovered,
            writes: None,
            counted: None,
            inactive: Vec::new(),
        }
    }

    /// Whether every promise was kept, and put to the test.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.wrong == 0
            && self.unexcused == 0
            && self.duplicated == 0
            && self.hung == 0
            && self.recovered
            && self.writes.is_none_or(|writes| writes.lost == 0 && writes.afterwards > 0)
            && self.counted != Some(false)
            && self.inactive.is_empty()
    }
}

fn described(record: &Record) -> String {
    let method = if record.post { "POST" } else { "GET" };
    match &record.ending {
        Ending::Right => String::new(),
        Ending::Wrong(what) => format!("{method}: wrong: {what}"),
        Ending::Status(status) => format!("{method}: status {status}"),
        Ending::Broken(how) => format!("{method}: {how}"),
        Ending::Hung => format!("{method}: no end"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::excuses::tests::{excuses, journal, record};
    use super::super::scenario::AllowedLosses;
    use super::*;

    fn outcome(records: &[Record], lines: &[&str], lost: AllowedLosses) -> Outcome {
        let excuses = excuses(lost, records, &[]);
        Outcome::of(("scenario", "gateway"), records, &journal(lines), &excuses, true)
    }

    #[test]
    fn an_answer_that_no_upstream_gave_is_wrong() {
        let records = [record("1-1", false, Ending::Right)];
        let outcome = outcome(&records, &[], AllowedLosses::Any);
        assert_eq!((outcome.right, outcome.wrong, outcome.holds()), (0, 1, false));
    }

    #[test]
    fn each_broken_promise_shows() {
        let right = [record("1-1", true, Ending::Right)];
        assert!(outcome(&right, &["seen POST 1-1"], AllowedLosses::None).holds());
        assert!(!outcome(&right, &["seen POST 1-1", "seen POST 1-1"], AllowedLosses::Any).holds());
        assert!(!outcome(&right, &["seen POST 1-1", "bad bytes"], AllowedLosses::Any).holds());
        assert!(!outcome(&[record("1-1", false, Ending::Hung)], &[], AllowedLosses::Any).holds());
        let excuses = excuses(AllowedLosses::Any, &right, &[]);
        let never = Outcome::of(("s", "g"), &right, &journal(&["seen POST 1-1"]), &excuses, false);
        assert!(!never.holds());
    }

    #[test]
    fn a_fault_that_nothing_has_met_shows_nothing() {
        let right = [record("1-1", false, Ending::Right)];
        let outcome = outcome(&right, &["seen GET 1-1"], AllowedLosses::None);
        assert!(outcome.holds());
        let idle = Outcome { inactive: vec!["nothing came".to_owned()], ..outcome };
        assert!(!idle.holds());
        let table = super::super::markdown(&[idle]);
        assert!(table.contains("not run: nothing came") && !table.contains("holds"), "{table}");
    }

    #[test]
    fn writes_must_be_possible_again_and_counts_be_kept() {
        let right = [record("1-1", false, Ending::Right)];
        let outcome = outcome(&right, &["seen GET 1-1"], AllowedLosses::None);
        let with = |afterwards, lost, counted| {
            let writes = Some(Writes { acknowledged: 5, failed: 3, afterwards, lost });
            Outcome { writes, counted, ..outcome.clone() }.holds()
        };
        assert!(with(1, 0, None) && with(1, 0, Some(true)));
        assert!(!with(0, 0, None) && !with(1, 1, None) && !with(1, 0, Some(false)));
    }
}
