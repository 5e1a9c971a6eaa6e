//! What of requests and answers is counted.
use super::Worker;
use crate::load::answer::Difference;
use crate::load::counters::Class;
use crate::load::shared::Phase;
use crate::load::slot::{Slot, Stage};

impl Worker<'_> {
    pub(super) fn record(&mut self, index: usize, now: u64) {
        if !self.within() {
            return;
        }
        let slot = &self.slots[index];
        self.tally.answer(slot.answer.status(), now.saturating_sub(self.begin));
        if let Some(live) = self.live {
            live.answer();
        }
        let expect = &self.requests.template(slot.template).expect;
        match slot.answer.difference(expect) {
            Some(Difference::Status) => self.note_error(Class::Status),
            Some(Difference::Body) => self.note_error(Class::Body),
            None => {
                self.tally.good += 1;
                self.record_duration(now, (slot.since, slot.scheduled));
                self.record_first_byte(index, now);
            }
        }
    }

    /// Records how long a right response took, since it was sent and since it was due.
    fn record_duration(&mut self, now: u64, (since, scheduled): (u64, u64)) {
        let mut shown = now - since;
        if !self.is_open_loop() {
            self.tally.latencies.service.record_nanos(shown);
        } else if scheduled >= self.begin {
            self.tally.latencies.service.record_nanos(shown);
            shown = now - scheduled;
            self.tally.latencies.response.record_nanos(shown);
        } else {
            return;
        }
        if let Some(live) = self.live {
            live.duration(shown);
        }
    }

    /// Notes that the first byte of an answer's body has come, and more is to follow.
    pub(super) fn note_first_byte(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        if self.plan.first_byte && slot.first_byte.is_none() && slot.answer.has_body() {
            slot.first_byte = Some(self.shared.now());
        }
    }

    /// Records how long the first byte of a right answer's body took since the request was sent. A body that came at once
    /// took as long as its answer.
    fn record_first_byte(&mut self, index: usize, now: u64) {
        let slot = &self.slots[index];
        let is_due = !self.is_open_loop() || slot.scheduled >= self.begin;
        if self.plan.first_byte && is_due && slot.answer.has_body() {
            let took = slot.first_byte.unwrap_or(now).saturating_sub(slot.since);
            self.tally.latencies.first_byte.record_nanos(took);
        }
    }

    /// Counts an error within the window.
    pub(super) fn note_error(&mut self, class: Class) {
        self.tally.error(class);
        if let Some(live) = self.live {
            live.error(class);
        }
    }

    /// In an open loop a request without an answer counts as one that took as long as it has waited: else the worst
    /// would be left out.
    pub(super) fn record_unanswered(&mut self, index: usize, until: u64) {
        let slot = &self.slots[index];
        if !self.is_open_loop() || self.phase == Phase::WarmUp || slot.scheduled < self.begin {
            return;
        }
        self.tally.latencies.response.record_nanos(until.saturating_sub(slot.scheduled));
        if slot.stage == Stage::Busy {
            self.tally.latencies.service.record_nanos(until.saturating_sub(slot.since));
        }
    }

    /// What has no answer at the end of the window.
    pub(super) fn account_for_outstanding(&mut self) {
        let (begin, end) = self.shared.window();
        self.account_for_stuck(begin, end);
        if self.is_open_loop() {
            self.account_for_due(begin, end);
        } else {
            self.account_for_slowest(end);
        }
    }

    /// What was at the same thing throughout the window left no trace in it. A window that was cut short
    /// says nothing of that.
    fn account_for_stuck(&mut self, begin: u64, end: u64) {
        if u128::from(end - begin) < self.plan.duration.as_nanos() {
            return;
        }
        for _ in 0..self.stuck(begin) {
            self.note_error(Class::Stuck);
        }
    }

    /// How many places are still at what they were at when the window began.
    pub(super) fn stuck(&self, begin: u64) -> usize {
        let rests = |slot: &Slot| slot.late || matches!(slot.stage, Stage::Idle | Stage::Closing);
        let stuck = |slot: &&Slot| slot.since < begin && !rests(slot);
        self.slots.iter().filter(stuck).count()
    }

    /// In a closed loop most requests that are in flight at the end are as good as any; those that have waited longer
    /// than whatever was answered would be missing from the tail.
    fn account_for_slowest(&mut self, end: u64) {
        let longest = self.tally.latencies.service.max().as_nanos() as u64;
        let busy = self.slots.iter().filter(|slot| slot.stage == Stage::Busy);
        for waited in busy.map(|slot| end.saturating_sub(slot.since)).filter(|waited| *waited > longest) {
            self.tally.latencies.service.record_nanos(waited);
        }
    }

    /// What was due within the window and has no answer at its end.
    fn account_for_due(&mut self, begin: u64, end: u64) {
        for index in 0..self.slots.len() {
            let slot = &self.slots[index];
            if slot.assigned && slot.stage != Stage::Closing && (begin..end).contains(&slot.scheduled) {
                self.tally.outstanding += 1;
                self.record_unanswered(index, end);
            }
        }
        while let Some(arrivals) = &mut self.arrivals
            && arrivals.next() < end
        {
            if arrivals.next() >= begin {
                self.tally.arrivals += 1;
                self.tally.outstanding += 1;
                self.tally.latencies.response.record_nanos(end - arrivals.next());
            }
            arrivals.advance();
        }
    }
}
