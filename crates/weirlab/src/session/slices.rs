//! Slices: the targets of a case are up side by side, and the load goes round among them for samples at a time. What
//! slows the machine down lasts for seconds; so it slows all targets of a round alike, and their ratio stays.
use super::block::{self, Setting};
use super::order::BlockPosition;
use super::run::Session;
use super::setup;
use super::target_runner::RunningTarget;
use crate::load::{Pace, WarmUp};
use crate::result::{Block, Machine, Part, Status, Usage};
use crate::scenario::Measure;
use std::time::Duration;

/// The warm-up of each slice but a target's first: connections are opened and the first answers come.
const WARM_UP: Duration = Duration::from_millis(20);

/// A target that is up for a round.
struct SlicedTarget {
    place: BlockPosition,
    cell: usize,
    open: RunningTarget,
    block: Option<Block>,
    failed: Option<String>,
}

impl Session<'_> {
    /// Whether a case is measured in slices. An open loop is not: its schedule would be cut to pieces. Nor is one for the
    /// generators of others, because they take seconds to begin.
    pub(super) fn slices(&self, case: usize) -> u32 {
        let entry = &self.entries[case];
        let case = &entry.case;
        if entry.contenders.iter().any(|index| !self.contenders[*index].generator.is_own()) {
            return 1;
        }
        let closed = case.load.pace == Pace::Closed && case.measure == Measure::Load;
        if closed && case.actions.is_empty() && self.profile.restart {
            self.profile.slices_with(case.load.connections)
        } else {
            1
        }
    }

    /// A block for each of these places, which are of one case and round.
    pub(super) fn sliced(&mut self, places: &[BlockPosition], slices: u32) -> Vec<(usize, Block)> {
        let mut ups: Vec<SlicedTarget> = Vec::new();
        for place in places {
            ups.extend(self.up(*place));
        }
        for slice in 0..slices {
            // There and back, so that a steady drift meets all alike.
            let order: Vec<usize> =
                if slice % 2 == 0 { (0..ups.len()).collect() } else { (0..ups.len()).rev().collect() };
            for index in order {
                self.slice(&mut ups[index], slice, slices);
            }
        }
        ups.into_iter().filter_map(|up| self.down(up)).collect()
    }

    /// Starts a target for a round, with a second try.
    fn up(&mut self, place: BlockPosition) -> Option<SlicedTarget> {
        let cell = self.cell(place);
        if !self.goes_on(cell) {
            return None;
        }
        let mut open = self.start(place, cell);
        if matches!(&open, Err(Status::Failed(_))) && !self.stopped() {
            open = self.start(place, cell);
        }
        match open {
            Ok(open) => Some(SlicedTarget { place, cell, open, block: None, failed: None }),
            Err(status) => {
                self.give_up(cell, status);
                None
            }
        }
    }

    fn slice(&mut self, up: &mut SlicedTarget, slice: u32, slices: u32) {
        if self.stopped() || up.failed.is_some() {
            return;
        }
        self.progress.say(format!("{} on {}", self.run.cells[up.cell].case, self.run.cells[up.cell].target));
        let case = &self.entries[up.place.case].case;
        let mut profile = self.profile.clone();
        profile.measured = self.profile.window(case) / slices;
        if slice > 0 {
            profile.warm_up = WarmUp { at_least: WARM_UP, at_most: WARM_UP };
        }
        let setting = Setting {
            case,
            profile: &profile,
            layout: &self.layouts[up.place.case],
            generator: &self.contenders[self.entries[up.place.case].contenders[up.place.target]].generator,
            // The same requests for every target of a round.
            seed: u64::from(up.place.round * slices + slice) + 1,
            pace: None,
            recording: self.recording(up.place),
            stop: self.stop,
        };
        let at_s = self.begun.elapsed().as_secs_f64();
        match block::measure(&setting, &up.open) {
            Ok(mut part) => {
                // A slice is shorter than the tenth of a second that a series counts in: it becomes one, at its rate.
                part.series = vec![(part.answers as f64 / part.measured_s / 10.0).round() as u64];
                let whole = Block { round: up.place.round, at_s, ..part };
                up.block = Some(match up.block.take() {
                    Some(block) => joined(block, whole),
                    None => whole,
                });
            }
            Err(why) => up.failed = Some(why),
        }
        self.progress.advance(setup::block_time(&self.profile, &self.entries[up.place.case].case) / slices);
    }

    /// Ends a target, and hands over its block if it is whole.
    fn down(&mut self, mut up: SlicedTarget) -> Option<(usize, Block)> {
        if let Some(block) = &mut up.block {
            block.seconds = self.seconds(up.place, &up.open, block.at_s);
        }
        self.end(up.cell, up.open);
        if self.stopped() {
            return None;
        }
        if let Some(why) = up.failed {
            self.give_up(up.cell, Status::Failed(why));
            return None;
        }
        self.sequence += 1;
        up.block.map(|block| (up.cell, Block { sequence: self.sequence - 1, ..block }))
    }
}

/// Two slices of one round as one block. Whether it is steady was judged on the first, whose warm-up was a whole one.
fn joined(mut whole: Block, part: Block) -> Block {
    let (before, after) = (whole.measured_s, part.measured_s);
    let mean = |a: f64, b: f64| (a * before + b * after) / (before + after);
    whole.machine = Machine {
        steal: mean(whole.machine.steal, part.machine.steal),
        pressure: whole.machine.pressure.zip(part.machine.pressure).map(|(a, b)| mean(a, b)),
        idle: mean(whole.machine.idle, part.machine.idle),
        busy_us: whole.machine.busy_us.zip(part.machine.busy_us).map(|(a, b)| a + b),
        span_s: whole.machine.span_s.zip(part.machine.span_s).map(|(a, b)| a + b),
        mhz: whole.machine.mhz.zip(part.machine.mhz).map(|(a, b)| mean(a, b)),
    };
    whole.measured_s += part.measured_s;
    whole.warm_up_s += part.warm_up_s;
    whole.void = whole.void.or(part.void);
    whole.overloaded |= part.overloaded;
    whole.answers += part.answers;
    whole.good += part.good;
    whole.bytes += part.bytes;
    for (status, count) in part.statuses {
        *whole.statuses.entry(status).or_default() += count;
    }
    for (class, count) in part.errors {
        *whole.errors.entry(class).or_default() += count;
    }
    whole.latencies.merge(&part.latencies);
    whole.series.extend(part.series);
    whole.target = sum(whole.target, part.target);
    whole.connections_opened =
        whole.connections_opened.zip(part.connections_opened).map(|(before, after)| before + after);
    whole.generator_cpu_us += part.generator_cpu_us;
    whole.upstream_cpu_us += part.upstream_cpu_us;
    for (before, after) in whole.parts.iter_mut().zip(part.parts) {
        *before = Part { cpu_us: before.cpu_us + after.cpu_us, ..after };
    }
    whole.connections_per_worker = part.connections_per_worker;
    whole
}

fn sum(before: Usage, after: Usage) -> Usage {
    Usage {
        cpu_us: before.cpu_us + after.cpu_us,
        user_us: before.user_us + after.user_us,
        system_us: before.system_us + after.system_us,
        voluntary: before.voluntary + after.voluntary,
        involuntary: before.involuntary + after.involuntary,
        rss_peak_kib: before.rss_peak_kib.max(after.rss_peak_kib),
        ..after
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn slice(answers: u64, millis: u64, steal: f64) -> Block {
        let mut block = Block {
            measured_s: millis as f64 / 1e3,
            warm_up_s: 0.1,
            steady: Some(true),
            answers,
            good: answers - 1,
            bytes: answers * 100,
            statuses: BTreeMap::from([("200".to_owned(), answers)]),
            errors: BTreeMap::from([("body".to_owned(), 1)]),
            series: vec![answers],
            connections_opened: Some(2),
            generator_cpu_us: 5.0,
            upstream_cpu_us: 7.0,
            ..Block::default()
        };
        block.machine.steal = steal;
        block.machine.span_s = Some(1.0);
        block.target = Usage { cpu_us: 30.0, rss_kib: answers, rss_peak_kib: 1000 - answers, ..block.target };
        block.latencies.response.record(Duration::from_millis(millis));
        block
    }

    #[test]
    fn slices_add_up_to_one_block() {
        let later = Block { steady: Some(false), void: Some("late".to_owned()), ..slice(300, 60, 0.4) };
        let whole = joined(slice(100, 20, 0.0), later);
        assert_eq!((whole.answers, whole.good, whole.bytes), (400, 398, 40_000));
        assert_eq!(whole.machine.span_s, Some(2.0));
        assert!((whole.measured_s - 0.08).abs() < 1e-9 && (whole.machine.steal - 0.3).abs() < 1e-9);
        assert_eq!(
            (whole.statuses["200"], whole.errors["body"], whole.connections_opened),
            (400, 2, Some(4))
        );
        assert_eq!((whole.target.cpu_us, whole.generator_cpu_us, whole.upstream_cpu_us), (60.0, 10.0, 14.0));
        assert_eq!((whole.target.rss_kib, whole.target.rss_peak_kib), (300, 900));
        assert_eq!((whole.series.as_slice(), whole.latencies.response.count()), ([100, 300].as_slice(), 2));
        assert!(whole.steady == Some(true) && whole.void.as_deref() == Some("late"));
    }
}
