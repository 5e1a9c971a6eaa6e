//! When what was sent arrived at data planes.
use super::{FleetError, MAX_WAIT};
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use weir_cluster::data_plane::LinkStatus;
use weir_cluster::sync::identity::Identity;
use weir_cluster::sync::inventory::Inventory;

/// What a data plane serves: what it is called, and its digests.
pub(super) type Held = (Identity, Inventory);

/// The arrivals at all data planes.
#[derive(Default)]
pub(super) struct Arrivals {
    known: Mutex<Known>,
    more: Condvar,
}

#[derive(Default)]
struct Known {
    /// Of a whole configuration, and what that is.
    whole: Option<(Instant, Held)>,
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

    pub(super) fn whole(&self, arrived: Instant, held: Held) {
        self.known().whole = Some((arrived, held));
        self.more.notify_all();
    }

    pub(super) fn change(&self, nth: u32) {
        self.known().changes.entry(nth).or_default().push(Instant::now());
        self.more.notify_all();
    }

    /// When a data plane got everything, and what that was.
    pub(super) fn wait_for_whole(&self) -> Result<(Instant, Held), FleetError> {
        let known = self.wait(|known| known.whole.is_some());
        known.whole.clone().ok_or_else(|| known.late("the configuration", 0, 1))
    }

    /// When a change arrived at each of so many data planes.
    pub(super) fn wait_for_change(&self, nth: u32, of: usize) -> Result<Vec<Instant>, FleetError> {
        let count = |known: &Known| known.changes.get(&nth).map_or(0, Vec::len);
        let mut known = self.wait(|known| count(known) >= of);
        match count(&known) {
            have if have >= of => Ok(known.changes.remove(&nth).unwrap_or_default()),
            have => Err(known.late("a change", have, of)),
        }
    }

    /// The error that so many data planes do not have a connection.
    pub(super) fn unconnected(&self, have: usize, of: usize) -> FleetError {
        self.known().late("a connection", have, of)
    }

    fn wait(&self, is_met: impl Fn(&Known) -> bool) -> MutexGuard<'_, Known> {
        let waited = self.more.wait_timeout_while(self.known(), MAX_WAIT, |known| !is_met(known));
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn late(&self, what: &'static str, have: usize, of: usize) -> FleetError {
        let why = self.links.iter().find_map(|link| link.now().last_error);
        FleetError::Late { what, have, of, why }
    }
}
