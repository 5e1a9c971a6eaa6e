//! Targets: folders with a `target.toml` and templates. A target says how it is found, configured, started, asked to
//! reload, and what it can do; nothing of any rival is in code.
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

mod file;
mod folder;
mod prepare;

pub use crate::catalogue::CatalogueError as TargetError;
pub use folder::{Target, find};
pub use prepare::{Certificate, Preparation};

/// Everything a driver needs to start one gateway.
#[derive(Clone, Debug, Default)]
pub struct Launch {
    /// The target's label.
    pub label: String,
    /// Program and arguments; empty for a target without a process of its own, whose listeners are the upstream's.
    pub command: Vec<String>,
    /// Environment variables beside the inherited ones.
    pub environment: BTreeMap<String, String>,
    /// The folder it runs in, with its rendered configuration.
    pub folder: PathBuf,
    /// The files of its configuration, as paths in the folder.
    pub files: Vec<PathBuf>,
    /// Where it will listen.
    pub listeners: Listeners,
    /// The sign that it is ready.
    pub ready: Ready,
    /// How it reloads its configuration.
    pub reload: Option<Reload>,
    /// The signal that ends it in good order.
    pub stop_signal: String,
    /// The command that ends it in good order, which comes before the signal; empty for none.
    pub stop_command: Vec<String>,
    /// The file, in its folder, that names its main process where that is not the command itself.
    pub pid_file: Option<PathBuf>,
    /// Files, beside its output, that hold its errors.
    pub error_logs: Vec<PathBuf>,
    /// Hosts a container image needs: the image's name, for the docker driver.
    pub image: Option<String>,
}

/// Addresses of a gateway.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listeners {
    /// Plain HTTP traffic.
    pub http: Option<SocketAddr>,
    /// Traffic over TLS.
    pub https: Option<SocketAddr>,
    /// The Admin API.
    pub admin: Option<SocketAddr>,
    /// Status and metrics.
    pub status: Option<SocketAddr>,
    /// Data planes, on a control plane.
    pub cluster: Option<SocketAddr>,
}

/// The sign that a gateway is ready.
#[derive(Clone, Debug, PartialEq)]
pub struct Ready {
    /// A path that must answer with a status below 500 on the traffic listener; none to only connect.
    pub path: Option<String>,
    /// A path that must answer with 200 on the status listener, if one is named.
    pub status_path: Option<String>,
    /// How long that may take.
    pub within: Duration,
}

impl Default for Ready {
    fn default() -> Self {
        Ready { path: None, status_path: None, within: Duration::from_secs(10) }
    }
}

/// How a gateway reloads.
#[derive(Clone, Debug, PartialEq)]
pub enum Reload {
    /// A signal to its main process.
    Signal(String),
    /// A command.
    Command(Vec<String>),
}
