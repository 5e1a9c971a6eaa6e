//! Why a scenario could not be run.
use crate::catalogue::CatalogueError;
use crate::driver::DriverError;
use std::io;

/// Each text says what failed.
#[derive(Debug)]
pub enum FaultError {
    /// A scenario or the configuration of a gateway.
    Catalogue(CatalogueError),
    /// A gateway does not start, or takes no orders.
    Gateway(DriverError),
    /// A program of the run has ended, or does not answer.
    Lost(String),
    /// What the machine lacks.
    Unable(String),
    /// A system call failed.
    System(String, io::Error),
}

impl FaultError {
    pub(super) fn system(what: &str, error: io::Error) -> Self {
        Self::System(what.to_owned(), error)
    }

    pub(super) fn lost(what: &str) -> Self {
        Self::Lost(format!("{what} has ended or does not answer"))
    }
}

impl std::fmt::Display for FaultError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Catalogue(error) => error.fmt(formatter),
            Self::Gateway(error) => error.fmt(formatter),
            Self::Lost(text) | Self::Unable(text) => formatter.write_str(text),
            Self::System(text, error) => write!(formatter, "{text}: {error}"),
        }
    }
}

impl std::error::Error for FaultError {}

impl From<CatalogueError> for FaultError {
    fn from(error: CatalogueError) -> Self {
        Self::Catalogue(error)
    }
}

impl From<DriverError> for FaultError {
    fn from(error: DriverError) -> Self {
        Self::Gateway(error)
    }
}
