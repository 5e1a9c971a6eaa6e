//! What Lua has used of the CPU time of an exchange, in the calls before, and whose code was ended for it.

use std::time::Duration;
use weir_plugin::Exchange;

/// What was used.
#[derive(Default)]
pub(crate) struct Spent {
    time: Duration,
    /// The numbers of guests.
    ended: Vec<u64>,
}

impl Spent {
    fn of(exchange: &mut Exchange) -> &mut Self {
        if exchange.extensions.get::<Self>().is_none() {
            exchange.extensions.insert(Self::default());
        }
        // It was just inserted.
        exchange.extensions.get_mut::<Self>().unwrap_or_else(|| unreachable!())
    }

    /// The CPU time that all calls for the exchange took.
    pub(crate) fn time(exchange: &Exchange) -> Duration {
        exchange.extensions.get::<Self>().map_or(Duration::ZERO, |spent| spent.time)
    }

    /// A call has ended, after which it is so much.
    pub(crate) fn set_time(exchange: &mut Exchange, time: Duration) {
        if time > Self::time(exchange) {
            Self::of(exchange).time = time;
        }
    }

    /// The next call has a budget of its own.
    pub(crate) fn forget(exchange: &mut Exchange) {
        exchange.extensions.remove::<Self>();
    }

    /// A call of this guest was ended: its code does not run again for the exchange.
    pub(crate) fn end(exchange: &mut Exchange, guest: u64) {
        Self::of(exchange).ended.push(guest);
    }

    /// Whether a call of the guest was ended.
    pub(crate) fn has_ended(exchange: &Exchange, guest: u64) -> bool {
        let spent = exchange.extensions.get::<Self>();
        spent.is_some_and(|spent| spent.ended.contains(&guest))
    }
}
