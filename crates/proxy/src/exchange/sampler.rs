//! Whether the hooks of an exchange are measured, and what is measured of the one that runs.

use crate::costs::Phase;
use crate::snapshot::chain::Instance;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use weir_model::Uuid;

/// Whether the hooks of an exchange are measured, and for whom.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sampler {
    /// Hooks are measured.
    pub(crate) on: bool,
    /// The client gets the timings.
    pub(crate) for_client: bool,
    /// The timings are kept until the end, for the client or for a sample.
    pub(crate) kept: bool,
    /// How many requests the sample stands for; 0 if it is not recorded.
    pub(crate) stands_for: u32,
    /// The time that hooks have taken, waits included.
    pub(crate) hooks: Duration,
}

impl Sampler {
    pub(crate) fn new(stands_for: u32) -> Self {
        Self { on: stands_for > 0, stands_for, ..Self::default() }
    }

    /// From here on, for those who watch requests.
    pub(crate) fn keep(&mut self) {
        (self.on, self.kept) = (true, true);
    }

    /// From here on.
    pub(crate) fn begin(&mut self) {
        self.on = true;
    }

    /// From here on, for the client too.
    pub(crate) fn tell(&mut self) {
        (self.on, self.kept, self.for_client) = (true, true, true);
    }
}

/// A run of a hook that is measured.
pub(crate) struct Call {
    pub(crate) plugin: Uuid,
    pub(crate) name: &'static str,
    pub(crate) phase: Phase,
    pub(crate) spent: Duration,
    pub(crate) waited: Option<Duration>,
    /// What it waits for, and how that went.
    pub(crate) waiting: Option<Rc<Cell<Waited>>>,
}

/// What a future that a hook waits for has taken.
#[derive(Clone, Copy, Default)]
pub(crate) struct Waited {
    /// How long it ran itself.
    pub(crate) ran: Duration,
    /// How long it waited.
    pub(crate) waited: Duration,
}

impl Call {
    /// The run of this hook.
    pub(crate) fn of(instance: &Instance, phase: Phase) -> Self {
        let (plugin, name) = (instance.id, instance.name);
        Self { plugin, name, phase, spent: Duration::ZERO, waited: None, waiting: None }
    }
}
