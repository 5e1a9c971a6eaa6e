//! When what was sent arrived at data planes.
use super::{FleetError, MAX_WAIT};
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use weir_cluster::data_plane::LinkStatus;

/// The arrivals at all data planes.
#[derive(Default)]
pub(super) struct Arrivals {
    known: Mutex<Known>,
    more: Condvar,
}

#[derive(Default)]
struct Known {
    /// Of whole configurations.
    whole: Vec<Instant>,
    /// Of each change.
    changes: HashMap<u32, Vec<Instant>>,
    /// The connections of the data planes.
    links: Vec<Arc<LinkStatus>>,
}

impl Arrivals {
    /// Data planes from which something may arrive.
    pub(super) fn expect_from(&self, links: &[Arc<LinkStatus>]) {
        self.known().links.extend_from_slice(links);
    }

    pub(super) fn whole(&self) {
        self.known().whole.push(Instant::now());
        self.more.notify_all();
    }

    pub(super) fn change(&self, nth: u32) {
        self.known().changes.entry(nth).or_default().push(Instant::now());
        self.more.notify_all();
    }

    /// When the last of so many whole configurations arrived.
    pub(super) fn wait_for_whole(&self, count: usize) -> Result<Instant, FleetError> {
        let arrived = self.wait("the configuration", count, |known| Some(&known.whole))?;
        Ok(arrived.last().copied().unwrap_or_else(Instant::now))
    }

    /// When a change arrived at each of so many data planes.
    pub(super) fn wait_for_change(&self, nth: u32, count: usize) -> Result<Vec<Instant>, FleetError> {
        self.wait("a change", count, |known| known.changes.get(&nth))
    }

    fn wait(
        &self,
        what: &'static str,
        of: usize,
        arrived: impl Fn(&Known) -> Option<&Vec<Instant>>,
    ) -> Result<Vec<Instant>, FleetError> {
        let count = |known: &Known| arrived(known).map_or(0, Vec::len);
        let waited = self.more.wait_timeout_while(self.known(), MAX_WAIT, |known| count(known) < of);
        let (known, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let have = count(&known);
        let arrived = arrived(&known).cloned().filter(|_| have >= of);
        let why = known.links.iter().find_map(|link| link.now().last_error);
        arrived.ok_or(FleetError::Late { what, have, of, why })
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
