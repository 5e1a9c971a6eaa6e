//! The limits of the node under overload, from the settings.

use crate::memory::{self, resident_bytes};
use crate::settings::Settings;
use weir_proxy::MemoryLimit;

/// What a limit of connections or requests is at least, unless a setting says otherwise.
const MIN_LIMIT: usize = 1024;

/// How many connections one client address may have, of so many of all clients.
pub(crate) fn connections_per_ip(settings: &Settings, connections: usize) -> usize {
    let automatic = (connections / 2).max(MIN_LIMIT);
    settings.max_connections_per_ip.0.map_or(automatic, |number| number as usize)
}

/// How many requests each worker serves at a time.
pub(crate) fn requests_in_flight(settings: &Settings, connections: usize) -> usize {
    let share = connections / settings.workers.0.max(1);
    let automatic = share.saturating_mul(2).max(MIN_LIMIT);
    settings.worker_requests_in_flight.0.map_or(automatic, |number| number as usize)
}

/// The memory beyond which requests are shed, if it is limited.
pub(crate) fn memory(settings: &Settings) -> Option<MemoryLimit> {
    let automatic = || memory::limit().map(|limit| limit / 10 * 9);
    let bytes = settings.memory_limit.as_ref().map_or_else(automatic, |limit| Some(limit.0));
    bytes.filter(|bytes| *bytes > 0).map(|bytes| MemoryLimit { bytes, resident: resident_bytes })
}
