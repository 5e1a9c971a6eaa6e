//! Counts of equal parts of a frame, for a chart in the height of a line.
use super::Frame;
use crate::tiers::View;

/// The parts of a frame.
const POINTS: u64 = 30;

/// How many there were in each part; none where nothing is known.
pub type Sparkline = Vec<Option<u64>>;

/// The parts of a frame, of which it is known in which something could be counted.
pub(super) struct Parts {
    frame: Frame,
    known: Vec<bool>,
}

impl Parts {
    pub(super) fn new(view: &View, frame: Frame) -> Parts {
        let start = |part: u64| {
            let offset = u128::from(part) * u128::from(frame.to - frame.from) / u128::from(POINTS);
            frame.from + offset as u64
        };
        let is_known = |part| view.known.overlaps(start(part), start(part + 1).max(start(part) + 1));
        let mut parts = Parts { frame, known: (0..POINTS).map(is_known).collect() };
        // What has a slot is known.
        for slot in &view.slots {
            let part = parts.of(slot.start);
            parts.known[part] = true;
        }
        parts
    }

    /// No counts yet.
    pub(super) fn empty(&self) -> Sparkline {
        self.known.iter().map(|known| known.then_some(0)).collect()
    }

    /// Adds to the part that a slot is in.
    pub(super) fn add(&self, sparkline: &mut Sparkline, start: u64, count: u64) {
        let sum = sparkline[self.of(start)].get_or_insert(0);
        *sum = sum.saturating_add(count);
    }

    fn of(&self, start: u64) -> usize {
        let Frame { from, to } = self.frame;
        let offset = start.saturating_sub(from).min(to - from - 1);
        (u128::from(offset) * u128::from(POINTS) / u128::from(to - from)) as usize
    }
}
