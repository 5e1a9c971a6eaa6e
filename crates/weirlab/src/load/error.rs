//! Why a load could not be generated at all.
use std::fmt;
use std::io;
use std::net::SocketAddr;

/// Why there is no [`super::Outcome`]. What goes wrong with single requests is counted there instead.
#[derive(Debug)]
pub enum LoadError {
    /// The plan makes no sense; the text says what to change.
    Plan(String),
    /// Nothing accepts connections there.
    Unreachable(SocketAddr, io::Error),
    /// The limit of open files is too low.
    Descriptors {
        /// How many it would take.
        needed: u64,
        /// The hard limit.
        limit: u64,
    },
    /// A connection that was to stay open did not come to be, or was not answered; the text says which.
    Idle(String),
    /// A system call failed.
    System(&'static str, io::Error),
}

impl fmt::Display for LoadError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Plan(text) | LoadError::Idle(text) => formatter.write_str(text),
            LoadError::Unreachable(address, error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                write!(formatter, "nothing listens at {address}: start the server, or correct the address")
            }
            LoadError::Unreachable(address, error) => {
                write!(formatter, "{address} cannot be reached: {error}")
            }
            LoadError::Descriptors { needed, limit } => write!(
                formatter,
                "this takes {needed} open files, but the hard limit is {limit}: raise it to {needed} or more with \
                 `ulimit -Hn {needed}` as root, `nofile` in /etc/security/limits.conf or LimitNOFILE= of the \
                 service; or use fewer connections"
            ),
            LoadError::System(what, error) => write!(formatter, "{what}: {error}"),
        }
    }
}

impl std::error::Error for LoadError {}
