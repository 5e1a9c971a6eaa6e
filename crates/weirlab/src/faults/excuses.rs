//! Which losses of a run its faults explain: what the scenario allows, once there is a fault, and of the requests that met it.
use super::act::{Act, ProcessAct};
use super::client::{Ending, Record};
use super::journal::Journal;
use super::scenario::{AllowedLosses, Step};
use std::collections::BTreeSet;
use std::time::Instant;

/// What a run has to excuse losses by.
#[derive(Clone, Debug)]
pub(super) struct Excuses {
    allowed: AllowedLosses,
    /// When the first step began, if there was one.
    began: Option<Instant>,
    /// The servers that were killed, stopped or cut off: what one of them has read may stay without an answer.
    interrupted: BTreeSet<usize>,
    /// Whether packets to and from the first server vanished.
    is_cut: bool,
}

impl Excuses {
    /// Of a run with these steps, the first of which began at that moment.
    #[must_use]
    pub(super) fn of(allowed: AllowedLosses, steps: &[Step], began: Option<Instant>) -> Self {
        let interrupted = steps.iter().filter_map(|step| match step.act {
            Act::Upstream(server, ProcessAct::Kill | ProcessAct::Stop) => Some(server),
            // The network is that of the first server.
            Act::Network(true) => Some(0),
            _ => None,
        });
        let is_cut = steps.iter().any(|step| step.act == Act::Network(true));
        Self { allowed, began, interrupted: interrupted.collect(), is_cut }
    }

    /// How many requests were lost although nothing gives a reason for it.
    #[must_use]
    pub(super) fn unexcused(&self, records: &[Record], journal: &Journal) -> usize {
        let lost = records.iter().filter(|record| record.is_lost());
        let rest: Vec<&Record> = lost.filter(|record| !self.is_excused(record, journal)).collect();
        if self.allowed != AllowedLosses::Unsafe {
            return rest.len();
        }
        // Which requests were on connections that a fault hit before it could read one is not known, but how many at most.
        let may_be =
            |record: &&&Record| self.has_begun(record) && record.post && !journal.has_seen(record.id);
        rest.len() - rest.iter().filter(may_be).count().min(journal.anonymous_hits())
    }

    /// No fault explains what was lost before there was one.
    fn has_begun(&self, record: &Record) -> bool {
        self.began.is_some_and(|began| record.ended >= began)
    }

    fn is_excused(&self, record: &Record, journal: &Journal) -> bool {
        self.has_begun(record)
            && match self.allowed {
                AllowedLosses::None => false,
                AllowedLosses::Any => true,
                AllowedLosses::Hit => journal.was_hit(record.id) || self.may_be_done(record, journal),
                AllowedLosses::Unsafe => {
                    let is_unread = record.post && !journal.has_seen(record.id);
                    (is_unread && journal.was_unread(record.id))
                        || self.may_be_done(record, journal)
                        || self.may_have_vanished(record, journal)
                }
            }
    }

    /// Whether a POST may have vanished with the network, or its answer, so that the gateway has waited in vain.
    fn may_have_vanished(&self, record: &Record, journal: &Journal) -> bool {
        let is_of_another = journal.has_seen(record.id) && !journal.was_seen_by(record.id, 0);
        self.is_cut && record.post && record.ending == Ending::Status(504) && !is_of_another
    }

    /// Whether a server may have acted on a POST that it has read, and a fault has kept the answer back. Only a client may send it
    /// again. What a server has answered, and no fault has hit, is lost by the gateway.
    fn may_be_done(&self, record: &Record, journal: &Journal) -> bool {
        let is_of_interrupted =
            || self.interrupted.iter().any(|server| journal.was_seen_by(record.id, *server));
        let was_interrupted = || !journal.was_done_by(record.id, record.ended) && is_of_interrupted();
        record.post && journal.has_seen(record.id) && (journal.was_hit(record.id) || was_interrupted())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::scenario::When;
    use super::*;
    use std::time::Duration;

    pub(in super::super) fn record(id: &str, post: bool, ending: Ending) -> Record {
        let wait = Duration::from_millis(3);
        Record { id: id.parse().unwrap(), post, ending, wait, ended: Instant::now() }
    }

    /// What the first server said.
    pub(in super::super) fn journal(lines: &[&str]) -> Journal {
        let mut journal = Journal::default();
        lines.iter().for_each(|line| journal.note(0, line));
        journal
    }

    /// All of the records ended after the first step.
    pub(in super::super) fn excuses(allowed: AllowedLosses, records: &[Record], acts: &[Act]) -> Excuses {
        let step = |act: &Act| Step { when: When::Requests(0), act: act.clone() };
        let steps: Vec<Step> = acts.iter().map(step).collect();
        Excuses::of(allowed, &steps, records.iter().map(|record| record.ended).min())
    }

    fn unexcused(allowed: AllowedLosses, records: &[Record], lines: &[&str], acts: &[Act]) -> usize {
        excuses(allowed, records, acts).unexcused(records, &journal(lines))
    }

    const KILL: Act = Act::Upstream(0, ProcessAct::Kill);

    fn refused(id: &str) -> Record {
        record(id, true, Ending::Status(502))
    }

    #[test]
    fn a_lost_post_is_excused_only_if_it_may_have_been_read() {
        let records = [refused("1-1"), refused("1-2"), record("1-3", false, Ending::Right)];
        let lines = ["seen POST 1-1", "seen GET 1-3"];
        let of = |allowed| unexcused(allowed, &records, &lines, &[KILL]);
        assert_eq!(of(AllowedLosses::Unsafe), 1);
        assert_eq!(of(AllowedLosses::None), 2);
        assert_eq!(of(AllowedLosses::Any), 0);
        let reset = ["seen POST 1-1", "seen GET 1-3", "hit -"];
        assert_eq!(unexcused(AllowedLosses::Unsafe, &records, &reset, &[KILL]), 0);
    }

    #[test]
    fn a_post_that_no_fault_has_met_is_not_excused() {
        let records = [refused("1-1")];
        let seen = ["seen POST 1-1"];
        for allowed in [AllowedLosses::Unsafe, AllowedLosses::Hit] {
            let of = |acts: &[Act]| unexcused(allowed, &records, &seen, acts);
            assert_eq!(of(&[]), 1, "{allowed:?}");
            assert_eq!(of(&[Act::Upstream(1, ProcessAct::Kill), Act::Reload]), 1, "{allowed:?}: another");
            assert_eq!(of(&[Act::Upstream(0, ProcessAct::Start)]), 1, "{allowed:?}");
            for act in [KILL, Act::Upstream(0, ProcessAct::Stop), Act::Network(true)] {
                assert_eq!(of(&[act]), 0, "{allowed:?}");
            }
            assert_eq!(unexcused(allowed, &records, &["seen POST 1-1", "hit 1-1"], &[]), 0, "{allowed:?}");
            let acted = ["seen POST 1-1", "acts drip"];
            assert_eq!(unexcused(allowed, &records, &acted, &[]), 1, "{allowed:?}: to act is no excuse");
        }
    }

    #[test]
    fn a_post_or_its_answer_may_vanish_with_the_network() {
        let records = [record("1-1", true, Ending::Status(504)), record("1-2", true, Ending::Status(504))];
        let of = |records: &[Record], act| {
            unexcused(AllowedLosses::Unsafe, records, &["seen POST 1-1", "done 1-1"], &[act])
        };
        assert_eq!(of(&records, Act::Network(true)), 0);
        assert_eq!(of(&records, Act::Network(false)), 2);
        assert_eq!(of(&[record("1-2", false, Ending::Status(504))], Act::Network(true)), 1, "a GET");
        assert_eq!(of(&[refused("1-2")], Act::Network(true)), 1, "another status");
        let mut journal = journal(&[]);
        journal.note(1, "seen POST 1-1");
        journal.note(1, "done 1-1");
        let excuses = excuses(AllowedLosses::Unsafe, &records[..1], &[Act::Network(true)]);
        assert_eq!(excuses.unexcused(&records[..1], &journal), 1, "another server answered it");
    }

    #[test]
    fn a_post_that_was_answered_whole_before_it_was_lost_is_not_excused() {
        let done = journal(&["seen POST 1-1", "done 1-1", "seen POST 1-2"]);
        // The answer to the second comes once the client has given it up.
        let records = ["1-1", "1-2"].map(|id| record(id, true, Ending::Broken("closed".to_owned())));
        let mut late = done.clone();
        late.note(0, "done 1-2");
        for allowed in [AllowedLosses::Unsafe, AllowedLosses::Hit] {
            let excuses = excuses(allowed, &records, &[KILL]);
            for journal in [&done, &late] {
                assert_eq!(excuses.unexcused(&records, journal), 1, "{allowed:?}");
            }
            let mut hit = late.clone();
            hit.note(0, "hit 1-1");
            assert_eq!(excuses.unexcused(&records, &hit), 0, "{allowed:?}");
        }
    }

    #[test]
    fn an_idle_connection_that_was_closed_excuses_only_what_was_on_its_way() {
        let records = [refused("1-1"), refused("1-2"), record("1-3", false, Ending::Status(502))];
        let lines = ["acts close-idle", "acts close-idle", "acts close-idle", "unread 1-1", "unread 1-3"];
        assert_eq!(unexcused(AllowedLosses::Unsafe, &records, &lines, &[]), 2, "a POST and a GET");
        assert_eq!(unexcused(AllowedLosses::Hit, &records, &lines, &[]), 3);
        // It was sent again, and lost for another reason.
        let again = ["unread 1-1", "seen POST 1-1", "unread 1-2"];
        assert_eq!(unexcused(AllowedLosses::Unsafe, &records[..2], &again, &[]), 1);
    }

    #[test]
    fn nothing_is_excused_before_the_first_step() {
        let records = [refused("1-1")];
        let lines = ["hit 1-1", "seen POST 1-1", "hit -"];
        for allowed in [AllowedLosses::Any, AllowedLosses::Hit, AllowedLosses::Unsafe] {
            assert_eq!(unexcused(allowed, &records, &lines, &[]), 0, "{allowed:?}");
            for began in [None, Some(records[0].ended + Duration::from_secs(1))] {
                let excuses = Excuses::of(allowed, &[], began);
                assert_eq!(excuses.unexcused(&records, &journal(&lines)), 1, "{allowed:?}");
            }
        }
        let early = Excuses::of(AllowedLosses::Unsafe, &[], None);
        assert_eq!(early.unexcused(&records, &journal(&["hit -"])), 1, "nor by a connection that was hit");
    }
}
