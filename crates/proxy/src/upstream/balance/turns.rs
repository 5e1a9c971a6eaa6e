//! Weighted round-robin: in which order targets take turns, and whose turn it is on each worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The longest turn order; weights beyond it are scaled down.
const LONGEST: u64 = 4096;

/// The order of one upstream's targets.
pub(super) struct Turns {
    /// Indices of targets, each as often as its weight says, spread evenly.
    order: Vec<u16>,
    cursors: Arc<Cursors>,
}

/// Where each worker stands. Retained by upstream, each written by one worker only.
pub(crate) struct Cursors(Vec<Cursor>);

#[repr(align(64))]
#[derive(Default)]
struct Cursor(AtomicU32);

impl Cursors {
    pub(crate) fn new(workers: usize) -> Self {
        // Workers start apart, so that a few requests on each still spread over all targets.
        let apart = |worker| Cursor(AtomicU32::new((worker as u32).wrapping_mul(0x9E37_79B9) >> 8));
        Self((0..workers).map(apart).collect())
    }
}

impl Turns {
    pub(super) fn new(weights: &[u16], cursors: Arc<Cursors>) -> Self {
        Self { order: order(weights), cursors }
    }

    /// Whose turn it is on this worker; none where no target has a weight.
    pub(super) fn next(&self, worker: usize) -> Option<usize> {
        let cursor = &self.cursors.0[worker % self.cursors.0.len()].0;
        let at = cursor.load(Ordering::Relaxed);
        cursor.store(at.wrapping_add(1), Ordering::Relaxed);
        let place = (at as usize).checked_rem(self.order.len())?;
        Some(usize::from(self.order[place]))
    }

    /// Whose turn it would be at this place. There has to be one.
    pub(super) fn at(&self, place: usize) -> usize {
        usize::from(self.order[place % self.order.len()])
    }

    /// All turns.
    pub(super) fn all(&self) -> impl Iterator<Item = usize> {
        self.order.iter().map(|index| usize::from(*index))
    }
}

/// Spreads each target over the order as evenly as its weight allows (smooth weighted round-robin).
fn order(weights: &[u16]) -> Vec<u16> {
    let divisor = weights.iter().fold(0, |a, &b| gcd(a, u64::from(b))).max(1);
    let total: u64 = weights.iter().map(|&w| u64::from(w) / divisor).sum();
    let scale = |w: u16| {
        let w = u64::from(w) / divisor;
        if total > LONGEST && w > 0 { (w * LONGEST / total).max(1) as i64 } else { w as i64 }
    };
    let weights: Vec<i64> = weights.iter().map(|&w| scale(w)).collect();
    let sum: i64 = weights.iter().sum();
    let mut current = vec![0i64; weights.len()];
    (0..sum)
        .map(|_| {
            current.iter_mut().zip(&weights).for_each(|(c, w)| *c += w);
            let best = (0..current.len()).max_by_key(|&i| (current[i], std::cmp::Reverse(i))).unwrap_or(0);
            current[best] -= sum;
            best as u16
        })
        .collect()
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_follow_weights_and_spread() {
        assert_eq!(order(&[100, 100]), [0, 1]);
        assert_eq!(order(&[3, 1]), [0, 0, 1, 0]);
        assert_eq!(order(&[0, 7]), [1]);
        assert_eq!(order(&[0, 0]), [0u16; 0]);
        let long = order(&[65535, 65534, 1]);
        assert!(long.len() <= LONGEST as usize + 3);
        assert_eq!(long.iter().filter(|&&t| t == 2).count(), 1);
    }
}
