//! The wall clock in ticks. It is read once for each tick rather than once for each request.

use std::cell::Cell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;
use weir_analytics::record::Tick;

pub(super) struct TickClock {
    tick: Cell<Tick>,
    /// When it is over.
    until: Cell<Instant>,
}

impl TickClock {
    pub(super) fn new() -> Self {
        Self { tick: Cell::new(Tick::at(0)), until: Cell::new(Instant::now()) }
    }

    /// The tick of a moment just past.
    #[inline]
    pub(super) fn tick(&self, moment: Instant) -> Tick {
        if moment < self.until.get() { self.tick.get() } else { self.read() }
    }

    #[cold]
    fn read(&self) -> Tick {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let tick = Tick::at(time.as_millis() as u64);
        let spent = time.as_nanos() % Tick::LENGTH.as_nanos();
        self.tick.set(tick);
        self.until.set(Instant::now() + Tick::LENGTH - Duration::from_nanos(spent as u64));
        tick
    }
}
