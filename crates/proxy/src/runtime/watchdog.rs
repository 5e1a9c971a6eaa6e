//! Finds workers that make no progress, because a plugin blocks or never ends. They get no new connections.

use crate::activity::{Activity, RunningHook};
use std::sync::Arc;

/// How many checks in a row find no progress before a worker counts as stuck.
const MAX_SILENT_CHECKS: u32 = 5;

/// What a check has found of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finding {
    /// It makes no progress, for so many checks by now.
    Stuck {
        /// Its number.
        worker: usize,
        /// The hook that does not end, unless something else does not.
        running: Option<RunningHook>,
    },
    /// It makes progress again.
    Recovered {
        /// Its number.
        worker: usize,
    },
}

/// Watches the workers of a node. To be asked once a second.
#[derive(Debug)]
pub struct Watchdog(Vec<Watched>);

#[derive(Debug)]
struct Watched {
    activity: Arc<Activity>,
    beats: u64,
    silent: u32,
}

impl Watchdog {
    pub(super) fn new(activities: &[Arc<Activity>]) -> Self {
        let watched = |activity: &Arc<Activity>| Watched { activity: activity.clone(), beats: 0, silent: 0 };
        Self(activities.iter().map(watched).collect())
    }

    /// What has changed since the last check.
    pub fn check(&mut self) -> Vec<Finding> {
        let check = |(worker, watched): (usize, &mut Watched)| watched.check(worker);
        self.0.iter_mut().enumerate().filter_map(check).collect()
    }

    /// Whether all workers make progress.
    pub fn is_content(&self) -> bool {
        !self.0.iter().any(|watched| watched.activity.is_stuck())
    }
}

impl Watched {
    /// By the number of checks rather than by a clock, because the whole process may have been stopped for a while.
    fn check(&mut self, worker: usize) -> Option<Finding> {
        let beats = self.activity.beats();
        if std::mem::replace(&mut self.beats, beats) != beats {
            self.silent = 0;
            let was_stuck = self.activity.is_stuck();
            self.activity.set_stuck(false);
            return was_stuck.then_some(Finding::Recovered { worker });
        }
        self.silent = self.silent.saturating_add(1);
        (self.silent == MAX_SILENT_CHECKS).then(|| {
            self.activity.set_stuck(true);
            Finding::Stuck { worker, running: self.activity.running() }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::Uuid;

    #[test]
    fn a_worker_is_stuck_when_it_was_silent_for_long_and_recovers() {
        let activities = [(); 2].map(|()| Arc::<Activity>::default());
        let mut watchdog = Watchdog::new(&activities);
        let mut check = |beating: &[usize]| {
            beating.iter().for_each(|at| activities[*at].beat());
            watchdog.check()
        };
        let (plugin, route) = (Uuid::from_u128(1), Some(Uuid::from_u128(2)));
        assert_eq!(check(&[0, 1]), []);
        activities[1].begin_hook(plugin, route);
        (1..MAX_SILENT_CHECKS).for_each(|_| assert_eq!(check(&[0]), []));
        let running = Some(RunningHook { plugin, route });
        assert_eq!(check(&[0]), [Finding::Stuck { worker: 1, running }]);
        assert_eq!(check(&[0]), [], "it is said once");
        assert_eq!([0, 1].map(|at| activities[at].is_stuck()), [false, true]);
        activities[1].end_hook();
        assert_eq!(check(&[0, 1]), [Finding::Recovered { worker: 1 }]);
        assert!(watchdog.is_content());
    }
}
