//! The requests that were sampled last, in the order of their arrival.
use super::{OVERHEAD, Sample};
use std::collections::VecDeque;
use std::sync::Arc;

/// Samples with consecutive numbers, within a budget of bytes.
#[derive(Debug)]
pub(super) struct Recent {
    budget: usize,
    bytes: usize,
    samples: VecDeque<Arc<Sample>>,
}

impl Recent {
    pub(super) fn new(budget: usize) -> Recent {
        Recent { budget, bytes: 0, samples: VecDeque::new() }
    }

    pub(super) fn push(&mut self, sample: Arc<Sample>) {
        self.bytes += sample.heap_bytes() + OVERHEAD;
        self.samples.push_back(sample);
        while self.bytes > self.budget
            && let Some(sample) = self.samples.pop_front()
        {
            self.bytes -= sample.heap_bytes() + OVERHEAD;
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where the samples with this number and above begin.
    fn position(&self, number: u64) -> usize {
        let first = self.samples.front().map_or(0, |sample| sample.number);
        usize::try_from(number.saturating_sub(first)).unwrap_or(usize::MAX).min(self.samples.len())
    }

    /// Newest first, before a number.
    pub(super) fn before(&self, number: u64) -> impl Iterator<Item = &Arc<Sample>> {
        self.samples.range(..self.position(number)).rev()
    }

    /// Oldest first, from a number on.
    pub(super) fn since(&self, number: u64) -> impl Iterator<Item = &Arc<Sample>> {
        self.samples.range(self.position(number)..)
    }

    pub(super) fn get(&self, number: u64) -> Option<&Arc<Sample>> {
        self.since(number).next().filter(|sample| sample.number == number)
    }
}
