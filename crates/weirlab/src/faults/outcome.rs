//! What came of a scenario before a gateway: counts, and whether they are what was promised.
use super::client::{Ending, Record};
use super::journal::Journal;
use super::scenario::AllowedLosses;
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
        lost: AllowedLosses,
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
            unexcused: unexcused(records, journal, lost),
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
        }
    }

    /// Whether every promise was kept.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.wrong == 0
            && self.unexcused == 0
            && self.duplicated == 0
            && self.hung == 0
            && self.recovered
            && self.writes.is_none_or(|writes| writes.lost == 0 && writes.afterwards > 0)
            && self.counted != Some(false)
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

fn is_lost(record: &Record) -> bool {
    !matches!(record.ending, Ending::Right | Ending::Wrong(_))
}

/// The requests that were lost although the scenario gives no reason for it.
fn unexcused(records: &[Record], journal: &Journal, allowed: AllowedLosses) -> usize {
    let lost = || records.iter().filter(|record| is_lost(record));
    // A server may have acted on a POST that it has read, so that only a client may send it again. But what a server has
    // answered, and no fault has hit, is lost by the gateway.
    let is_excused = |r: &&Record| {
        let was_hit = journal.was_hit(r.id);
        r.post && journal.has_seen(r.id) && (was_hit || !journal.was_done_by(r.id, r.ended))
    };
    match allowed {
        AllowedLosses::Any => 0,
        AllowedLosses::None => lost().count(),
        AllowedLosses::Hit => lost().filter(|r| !journal.was_hit(r.id) && !is_excused(r)).count(),
        AllowedLosses::Unsafe => {
            let is_unread = |r: &&Record| r.post && !journal.has_seen(r.id);
            let unread = lost().filter(is_unread).count();
            let others = lost().filter(|r| !is_unread(r) && !is_excused(r)).count();
            others + unread.saturating_sub(journal.anonymous_hits())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn record(id: &str, post: bool, ending: Ending) -> Record {
        let wait = Duration::from_millis(3);
        Record { id: id.parse().unwrap(), post, ending, wait, ended: Instant::now() }
    }

    fn journal(lines: &[&str]) -> Journal {
        let mut journal = Journal::default();
        lines.iter().for_each(|line| journal.note(line));
        journal
    }

    fn outcome(records: &[Record], lines: &[&str], lost: AllowedLosses) -> Outcome {
        Outcome::of(("scenario", "gateway"), records, &journal(lines), lost, true)
    }

    #[test]
    fn a_lost_post_is_excused_only_if_it_may_have_been_read() {
        let records = [
            record("1-1", true, Ending::Status(502)),
            record("1-2", true, Ending::Status(502)),
            record("1-3", false, Ending::Right),
        ];
        let lines = ["seen POST 1-1", "seen GET 1-3"];
        assert_eq!(outcome(&records, &lines, AllowedLosses::Unsafe).unexcused, 1);
        assert_eq!(outcome(&records, &lines, AllowedLosses::None).unexcused, 2);
        assert_eq!(outcome(&records, &lines, AllowedLosses::Any).unexcused, 0);
        let reset = ["seen POST 1-1", "seen GET 1-3", "hit -"];
        assert!(outcome(&records, &reset, AllowedLosses::Unsafe).holds());
    }

    #[test]
    fn a_post_that_was_answered_whole_before_it_was_lost_is_not_excused() {
        let done = journal(&["seen POST 1-1", "done 1-1", "seen POST 1-2"]);
        // The answer to the second comes once the client has given it up.
        let records = ["1-1", "1-2"].map(|id| record(id, true, Ending::Broken("closed".to_owned())));
        let mut late = done.clone();
        late.note("done 1-2");
        for allowed in [AllowedLosses::Unsafe, AllowedLosses::Hit] {
            for journal in [&done, &late] {
                assert_eq!(unexcused(&records, journal, allowed), 1, "{allowed:?}");
            }
            let mut hit = late.clone();
            hit.note("hit 1-1");
            assert_eq!(unexcused(&records, &hit, allowed), 0, "{allowed:?}");
        }
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
        let never = Outcome::of(("s", "g"), &right, &journal(&["seen POST 1-1"]), AllowedLosses::Any, false);
        assert!(!never.holds());
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
