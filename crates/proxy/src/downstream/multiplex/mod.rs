//! What HTTP/2 and HTTP/3 have in common: concurrent requests on one connection, and their limits.

mod authority;
mod resets;
mod send_turns;
mod stream_stats;

pub(crate) use authority::is_misdirected;
pub(crate) use resets::Standing;
pub(crate) use send_turns::SendTurns;
pub(crate) use stream_stats::{InFlightGuard, StreamStats};

use std::time::Duration;

/// How long a client may go on sending a request that was answered.
pub(crate) const LINGER: Duration = Duration::from_secs(1);
