//! The main process of a gateway: its command, or what the command has put into the background.
use super::family::send;
use crate::observe::procfs::Stat;
use rustix::process::Signal;

/// A process by its number and its start, which name it for good: a number that is used anew is another process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct MainProcess {
    pub(super) pid: u32,
    started: u64,
}

impl MainProcess {
    pub(super) fn is_alive(self) -> bool {
        Stat::of(self.pid).is_some_and(|stat| stat.started == self.started && !stat.ended())
    }

    /// Sends a signal; false if the process has ended.
    pub(super) fn send(self, signal: Signal) -> bool {
        self.is_alive() && send(self.pid, signal)
    }
}

impl From<&Stat> for MainProcess {
    fn from(stat: &Stat) -> Self {
        MainProcess { pid: stat.pid, started: stat.started }
    }
}
