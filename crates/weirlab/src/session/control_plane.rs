//! The control plane beside the gateways of a case that asks for one.
use crate::driver::{Driver, Running};
use crate::target::{Launch, Listeners};
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

/// A control plane that runs. Dropping it ends it.
pub(crate) struct ControlPlane {
    listeners: Listeners,
    running: Mutex<Box<dyn Running>>,
}

impl ControlPlane {
    /// Starts it, and returns when gateways can connect.
    pub(crate) fn start(driver: &dyn Driver, launch: Launch, cpus: &[usize]) -> Result<ControlPlane, String> {
        let running = driver.start(&launch, cpus).map_err(|error| error.to_string())?;
        Ok(ControlPlane { listeners: launch.listeners, running: Mutex::new(running) })
    }

    /// Where gateways connect.
    pub(crate) fn cluster(&self) -> Option<SocketAddr> {
        self.listeners.cluster
    }

    /// Its Admin API.
    pub(crate) fn admin(&self) -> Option<SocketAddr> {
        self.listeners.admin
    }

    /// The root of its process tree.
    pub(crate) fn pid(&self) -> Result<u32, String> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        match running.alive() {
            true => Ok(running.pid()),
            false => {
                Err("the control plane ended by itself; see its log in the folder of the run".to_owned())
            }
        }
    }

    /// Stops it and returns its log.
    pub(crate) fn close(self) -> (String, Result<(), String>) {
        let mut running = self.running.into_inner().unwrap_or_else(PoisonError::into_inner);
        let outcome = running.stop().map_err(|error| error.to_string());
        (running.log(), outcome)
    }
}
