//! How connections are spread over a gateway's workers.
use super::procfs::{Stat, Tcp, open_sockets, sockets};

/// Established connections to a local port, per process that may be a worker, in the order of their pids.
///
/// A process that has children among `pids` and holds no connection is taken for a master, which serves none. The
/// threads of one process share its files: for a gateway of one process there is one number, its sum.
#[must_use]
pub fn connections_per_worker(pids: &[u32], port: u16) -> Vec<u32> {
    let established = sockets(port, Tcp::Established);
    let parents: Vec<u32> = pids.iter().filter_map(|pid| Some(Stat::of(*pid)?.parent)).collect();
    let held = |pid: u32| open_sockets(pid).iter().filter(|inode| established.contains(inode)).count();
    let mut sorted = pids.to_vec();
    sorted.sort_unstable();
    sorted
        .into_iter()
        .map(|pid| (pid, held(pid)))
        .filter(|(pid, held)| *held > 0 || !parents.contains(pid))
        .map(|(_, held)| u32::try_from(held).unwrap_or(u32::MAX))
        .collect()
}
