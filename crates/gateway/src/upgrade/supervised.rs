//! Finds out whether what supervises this process takes its end for the end of the node.

use crate::service_manager;
use rustix::process::getppid;
use std::fmt;
use std::fs;

/// Init processes of containers, which end with the process that they started.
const INITS_OF_CONTAINERS: [&str; 4] = ["tini", "docker-init", "dumb-init", "catatonit"];

/// What the end of this process would end.
#[derive(Debug, Clone)]
pub(crate) enum Supervised {
    /// Its container, of which it is process 1.
    ContainerOfProcess1,
    /// Its container, whose process 1 has started it.
    ContainerOfInit(String),
    /// Its container, which shares its processes with others.
    Container,
    /// Its unit of systemd, which does not hear of another process.
    Unit,
}

impl Supervised {
    /// What supervises this process and would end with it, as far as that can be seen.
    pub(super) fn find() -> Option<Supervised> {
        let own = std::process::id();
        if own == 1 {
            return Some(Supervised::ContainerOfProcess1);
        }
        let is_main = std::env::var("SYSTEMD_EXEC_PID").is_ok_and(|pid| pid == own.to_string());
        if is_main && !service_manager::is_notified() {
            return Some(Supervised::Unit);
        }
        match getppid().map(|parent| parent.as_raw_nonzero().get()) {
            // Its parent is outside of the processes that it can see.
            None => Some(Supervised::Container),
            Some(1) => {
                let init = fs::read_to_string("/proc/1/comm").unwrap_or_default();
                let of_container = INITS_OF_CONTAINERS.contains(&init.trim_end());
                of_container.then(|| Supervised::ContainerOfInit(init.trim_end().to_owned()))
            }
            Some(_) => None,
        }
    }
}

impl fmt::Display for Supervised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let instead = "start a new container instead, and stop this one";
        match self {
            Supervised::ContainerOfProcess1 => {
                write!(f, "this node is process 1, with which its container ends: {instead}")
            }
            Supervised::ContainerOfInit(init) => {
                write!(f, "{init} ends the container as soon as the process that it started ends: {instead}")
            }
            Supervised::Container => {
                write!(f, "this node is the main process of its container, which ends with it: {instead}")
            }
            Supervised::Unit => f.write_str(
                "systemd would take the end of this process for the end of its unit: set Type=notify and NotifyAccess=main in the \
                 unit, and restart it once",
            ),
        }
    }
}
