//! Drivers: where a target's processes live. Local processes and Docker containers; the driver for other machines,
//! in `host/ssh`, is one more implementation of the same two traits.
pub mod docker;
mod family;
mod image;
pub mod leftover;
mod log;
mod main_process;
mod port;
pub mod process;
mod ready;
mod signal;

pub(crate) use log::last_lines;

use crate::target::{Launch, free_addresses};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Instant;

/// Starts gateways somewhere.
pub trait Driver {
    /// `process`, `docker` or `ssh`.
    fn name(&self) -> &'static str;

    /// Addresses that gateways may listen on now.
    ///
    /// # Errors
    /// When there are not so many.
    fn addresses(&self, count: usize) -> Result<Vec<SocketAddr>, DriverError> {
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        free_addresses(loopback, count)
            .map_err(|error| DriverError::System(format!("no port is free on {loopback}"), error))
    }

    /// Starts a gateway with its files on the given CPUs (any, if empty) and returns when it is ready.
    ///
    /// # Errors
    /// When it does not start, exits, or is not ready in time; nothing is left running then.
    fn start(&self, launch: &Launch, cpus: &[usize]) -> Result<Box<dyn Running>, DriverError>;

    /// Ends what a laboratory that was killed left running of launches in this folder and below it.
    ///
    /// # Errors
    /// When that could not be found out.
    fn end_below(&self, folder: &Path) -> Result<(), DriverError>;
}

/// A gateway that runs. Dropping it ends it, by force if it must be.
pub trait Running: Send {
    /// The root of its process tree, as the machine that it runs on sees it.
    fn pid(&self) -> u32;

    /// The moment just before it was started.
    fn began(&self) -> Instant;

    /// Has it reload its configuration in the way its target says.
    ///
    /// # Errors
    /// When it has no way, or that failed.
    fn reload(&mut self) -> Result<(), DriverError>;

    /// Has a new process of its program take over in the way its target says, and follows that one.
    ///
    /// # Errors
    /// When it has no way here, or that failed.
    fn upgrade(&mut self) -> Result<(), DriverError> {
        Err(DriverError::Unable("an upgrade is for processes of this machine".to_owned()))
    }

    /// Sends a signal, by name, to its main process.
    ///
    /// # Errors
    /// When there is no such signal or process.
    fn signal(&mut self, name: &str) -> Result<(), DriverError>;

    /// Replaces a file in its folder.
    ///
    /// # Errors
    /// When it cannot be written.
    fn replace(&mut self, file: &str, text: &str) -> Result<(), DriverError>;

    /// Whether it still runs.
    fn alive(&mut self) -> bool;

    /// Its output and its error logs so far.
    fn log(&self) -> String;

    /// Ends it in good order, or by force when it does not end within some seconds.
    ///
    /// # Errors
    /// When it could not be ended.
    fn stop(&mut self) -> Result<(), DriverError>;
}

/// Why a gateway could not be started or steered.
#[derive(Debug)]
pub enum DriverError {
    /// The program is not there; the text says how to install it.
    Missing(String),
    /// A port that it needs is taken.
    PortTaken(String),
    /// It ended or was not ready in time; the text ends with the last lines of its output.
    NotReady(String),
    /// It cannot do what was asked of it.
    Unable(String),
    /// A system call failed.
    System(String, io::Error),
}

impl std::fmt::Display for DriverError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DriverError::Missing(text)
            | DriverError::PortTaken(text)
            | DriverError::NotReady(text)
            | DriverError::Unable(text) => formatter.write_str(text),
            DriverError::System(text, error) => {
                write!(formatter, "{text}: {error}")?;
                let full = matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded);
                let fix = "; make room there, or let TMPDIR name a folder on another disk";
                formatter.write_str(if full { fix } else { "" })
            }
        }
    }
}

impl std::error::Error for DriverError {}

fn write_files(launch: &Launch) -> Result<(), DriverError> {
    launch.write_files().map_err(|error| {
        DriverError::System(format!("cannot write its files into {}", launch.folder.display()), error)
    })
}

fn replace(launch: &Launch, file: &str, text: &str) -> Result<(), DriverError> {
    let path = launch.folder.join(file);
    std::fs::write(&path, text)
        .map_err(|error| DriverError::System(format!("cannot write {}", path.display()), error))
}

fn no_reload(label: &str) -> DriverError {
    DriverError::Unable(format!("{label} has no way to reload: name one in its target.toml"))
}
